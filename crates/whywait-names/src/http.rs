//! The routes of HTTP/1: method and path, as a template.

use crate::LONGEST;

/// What stands for a part of a path that may be a value.
const VALUE: &str = "{id}";
/// What stands for the rest of a path that is not known.
const CUT: &str = "...";
/// A word of a path is no longer: longer ones are tokens.
const LONGEST_WORD: usize = 32;
/// A word of hexadecimal digits is shorter (`decade`): longer ones are hashes.
pub(crate) const SHORTEST_HASH: usize = 8;

/// Registered methods that are in use (RFC 9110, WebDAV), and caches' own.
const METHODS: &[&str] = &[
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "OPTIONS",
    "CONNECT",
    "TRACE",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
    "REPORT",
    "SEARCH",
    "PURGE",
];

/// The first line of a request that comes behind the header of a proxy (PROXY, versions 1 and 2).
fn behind_proxy(bytes: &[u8]) -> &[u8] {
    const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
    let end = if bytes.starts_with(b"PROXY ") {
        bytes
            .iter()
            .position(|byte| *byte == b'\n')
            .map(|at| at + 1)
    } else if bytes.starts_with(SIGNATURE) {
        let length = bytes
            .get(14..16)
            .map(|two| u16::from_be_bytes([two[0], two[1]]));
        length.map(|length| 16 + usize::from(length))
    } else {
        Some(0)
    };
    end.and_then(|end| bytes.get(end..)).unwrap_or_default()
}

/// The route of a request that begins with these bytes.
pub(crate) fn route(bytes: &[u8]) -> Option<String> {
    let bytes = behind_proxy(bytes);
    let method = METHODS.iter().find(|method| {
        let rest = bytes.strip_prefix(method.as_bytes());
        rest.is_some_and(|rest| rest.first() == Some(&b' '))
    })?;
    let rest = &bytes[method.len() + 1..];
    let end = rest.iter().position(|byte| *byte <= b' ');
    if let Some(end) = end {
        let version = b" HTTP/1.";
        let known = &rest[end..rest.len().min(end + version.len())];
        if !version.starts_with(known) {
            return None;
        }
    }
    let target = &rest[..end.unwrap_or(rest.len())];
    if *method == "CONNECT" || target == b"*" {
        return Some(route_of(method, None));
    }
    let path = path_name(target, end.is_some())?;
    Some(route_of(method, Some(&path)))
}

/// A registered method.
pub(crate) fn method(bytes: &[u8]) -> Option<&'static str> {
    METHODS
        .iter()
        .find(|method| method.as_bytes() == bytes)
        .copied()
}

/// The route of a method and of the name of a path, if there is one.
pub(crate) fn route_of(method: &str, path: Option<&str>) -> String {
    let Some(path) = path else {
        return method.to_owned();
    };
    let mut route = format!("{method} {path}");
    if route.len() > LONGEST {
        route.truncate(LONGEST - CUT.len());
        route.push_str(CUT);
    }
    route
}

/// What the path of a target is called, of which more may follow unless it is `whole`. `None`: it
/// has none.
pub(crate) fn path_name(target: &[u8], whole: bool) -> Option<String> {
    let path = path_of(target)?;
    let path_ends = path
        .iter()
        .position(|byte| matches!(byte, b'?' | b'#' | b';'));
    let whole = whole || path_ends.is_some();
    Some(template(&path[..path_ends.unwrap_or(path.len())], whole))
}

/// The path of a target, which has the host, too, where a proxy is asked.
fn path_of(target: &[u8]) -> Option<&[u8]> {
    if target.first() == Some(&b'/') {
        return Some(target);
    }
    let rest = target
        .strip_prefix(b"http://")
        .or_else(|| target.strip_prefix(b"https://"))?;
    let path = rest.iter().position(|byte| *byte == b'/');
    Some(path.map_or(b"/", |at| &rest[at..]))
}

fn template(path: &[u8], whole: bool) -> String {
    let mut segments: Vec<&str> = path
        .split(|byte| *byte == b'/')
        .map(|segment| match segment {
            b"" => "",
            word if is_word(word) => str::from_utf8(word).unwrap_or(VALUE),
            _ => VALUE,
        })
        .collect();
    if !whole && let Some(last) = segments.last_mut() {
        *last = CUT;
    }
    segments.join("/")
}

/// Whether it is a word of the program's, as far as can be told: letters, which `-`, `_`, `.` and
/// `~` may join. A digit may end it (`oauth2`), and versions have some (`v1.2`, `v2beta1`). A hash
/// is none.
fn is_word(segment: &[u8]) -> bool {
    let letters_until = |end: usize| {
        let joins = |byte: &u8| byte.is_ascii_alphabetic() || b"-_.~".contains(byte);
        segment[..end].iter().all(joins)
    };
    let Some((last, before)) = segment.split_last() else {
        return true;
    };
    let ends_in_digit = last.is_ascii_digit() && before.last().is_some_and(u8::is_ascii_alphabetic);
    let end = segment.len() - usize::from(ends_in_digit);
    let is_hash = segment.len() >= SHORTEST_HASH && segment.iter().all(u8::is_ascii_hexdigit);
    segment.len() <= LONGEST_WORD && !is_hash && (letters_until(end) || is_version(segment))
}

/// `v`, one or two digits, and perhaps `.`, `alpha` or `beta` and one or two more.
fn is_version(segment: &[u8]) -> bool {
    let digits = |bytes: &[u8]| {
        bytes
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count()
    };
    let Some(rest) = segment.strip_prefix(b"v") else {
        return false;
    };
    let major = digits(rest);
    let minor = &rest[major..];
    let behind = [&b"."[..], b"alpha", b"beta"]
        .iter()
        .find_map(|word| minor.strip_prefix(*word));
    let ends = match behind {
        Some(rest) => matches!(rest.len(), 1..=2) && digits(rest) == rest.len(),
        None => minor.is_empty(),
    };
    matches!(major, 1..=2) && ends
}
