//! A process's executable mappings, as `/proc/PID/maps` has them.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::Range;

/// One executable mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// Addresses in the process.
    pub(crate) range: Range<u64>,
    /// Offset in the file, in bytes.
    pub(crate) offset: u64,
    /// Inode of the file; 0 for anonymous memory.
    pub(crate) inode: u64,
    /// What is mapped.
    pub(crate) source: MappedSource,
}

/// What is mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MappedSource {
    /// A file, by its path as the process sees it, octal escapes resolved and without the kernel's
    /// ` (deleted)`.
    File(Vec<u8>),
    /// The kernel's vDSO.
    Vdso,
    /// Anonymous memory: usually code of a just-in-time compiler.
    Anonymous,
}

/// No real process comes near; it bounds what a hostile one costs.
const MAX_MAPPINGS: usize = 20_000;
/// How much of the text is read. A database with some 300,000 mappings has less.
const MAX_TEXT: u64 = 48 << 20;

impl Mapping {
    /// About how much memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        let path = match &self.source {
            MappedSource::File(path) => path.capacity(),
            MappedSource::Vdso | MappedSource::Anonymous => 0,
        };
        size_of::<Self>() + path
    }
}

/// The executable mappings of a process.
pub(crate) struct Mappings {
    /// In ascending order of addresses.
    pub(crate) found: Vec<Mapping>,
    /// There may be more: the bounds were reached.
    pub(crate) cut_short: bool,
}

/// Reads the executable mappings of process `tgid`.
pub(crate) fn read(tgid: u32) -> io::Result<Mappings> {
    let mut found = Vec::new();
    let whole = each_line(tgid, |line| {
        found.extend(parse_line(line));
        found.len() < MAX_MAPPINGS
    })?;
    Ok(Mappings {
        found,
        cut_short: !whole,
    })
}

/// Calls `visit` with the lines of a process's maps, for as long as it returns true. Whether it has
/// seen all of them.
fn each_line(tgid: u32, mut visit: impl FnMut(&[u8]) -> bool) -> io::Result<bool> {
    let file = File::open(format!("/proc/{tgid}/maps"))?;
    let mut text = BufReader::with_capacity(64 << 10, file.take(MAX_TEXT));
    let mut line = Vec::new();
    while text.read_until(b'\n', &mut line)? > 0 {
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        if !visit(&line) {
            return Ok(false);
        }
        line.clear();
    }
    Ok(text.into_inner().limit() > 0)
}

/// What is mapped at each of these addresses of process `tgid`: a path, `[heap]`, `[stack]`,
/// `[anonymous]`; `None` when nothing is, or the process is gone. Takes the process's map lock for
/// a moment, as every look at its mappings does.
pub fn mapped_at(tgid: u32, addresses: &[u64]) -> Vec<Option<String>> {
    let mut search = Search::of(addresses);
    match each_line(tgid, |line| search.look(line)) {
        Ok(_) => search.names,
        Err(_) => vec![None; addresses.len()],
    }
}

/// Where a process has the data of a file, by its inode: what is mapped of it to be written, and
/// the zeroed data behind that. At most so many bytes.
pub(crate) fn data(tgid: u32, inode: u64, at_most: u64) -> Vec<Range<u64>> {
    let mut found: Vec<Range<u64>> = Vec::new();
    let mut bytes = 0;
    // What cannot be read has no data.
    let _ = each_line(tgid, |line| {
        if let Some((range, of)) = parse_data(line) {
            let follows = found.last().is_some_and(|last| last.end == range.start);
            if of == inode || of == 0 && follows {
                bytes += range.end - range.start;
                found.push(range);
            }
        }
        bytes <= at_most
    });
    found
}

/// A mapping that can be read and written and is no code, and its inode, 0 for anonymous memory.
fn parse_data(line: &[u8]) -> Option<(Range<u64>, u64)> {
    let mut fields = line.split(|&b| b == b' ').filter(|field| !field.is_empty());
    let mut field = || std::str::from_utf8(fields.next()?).ok();
    let (start, end) = field()?.split_once('-')?;
    let range = u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?;
    let data = field()?.starts_with("rw-") && !range.is_empty();
    let inode = field().and_then(|_| field()).and_then(|_| field())?;
    Some((range, inode.parse().ok()?)).filter(|_| data)
}

/// A search for what is mapped at some addresses.
pub(crate) struct Search {
    /// In ascending order, with their places among the names.
    addresses: Vec<(u64, usize)>,
    names: Vec<Option<String>>,
    /// Where the last mapping ended, and its file: a program's zeroed data follows what is mapped
    /// of its file, without a name of its own.
    before: (u64, Vec<u8>),
}

impl Search {
    pub(crate) fn of(addresses: &[u64]) -> Self {
        let mut sorted: Vec<_> = addresses.iter().copied().zip(0..).collect();
        sorted.sort_unstable();
        Self {
            addresses: sorted,
            names: vec![None; addresses.len()],
            before: (0, Vec::new()),
        }
    }

    /// Whether there is more to look for after this line.
    pub(crate) fn look(&mut self, line: &[u8]) -> bool {
        let mut fields = line.splitn(6, |&b| b == b' ');
        let hex = |text: &[u8]| u64::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok();
        let range = fields.next().and_then(|range| {
            let dash = range.iter().position(|&b| b == b'-')?;
            Some(hex(&range[..dash])?..hex(&range[dash + 1..])?)
        });
        let Some(range) = range else { return true };
        let path = fields.nth(4).unwrap_or_default().trim_ascii_start();
        let name = match path {
            b"" if self.before.0 == range.start && !self.before.1.is_empty() => &self.before.1,
            b"" => &b"[anonymous]"[..],
            path if path.starts_with(b"[anon") => b"[anonymous]",
            path => path.strip_suffix(b" (deleted)").unwrap_or(path),
        };
        let from = self.addresses.partition_point(|(at, _)| *at < range.start);
        for (_, place) in self.addresses[from..]
            .iter()
            .take_while(|(at, _)| *at < range.end)
        {
            self.names[*place] = Some(String::from_utf8_lossy(name).into_owned());
        }
        self.before.0 = range.end;
        if path.starts_with(b"/") {
            self.before.1 = name.to_vec();
        } else {
            self.before.1.clear();
        }
        self.addresses
            .last()
            .is_some_and(|(highest, _)| *highest >= range.end)
    }
}

/// Parses a line of `/proc/PID/maps`; `None`: it is not executable, or not understood.
pub(crate) fn parse_line(line: &[u8]) -> Option<Mapping> {
    // start-end perms offset dev inode [spaces path]; the path is the rest of the line and may hold
    // spaces.
    let mut rest = line;
    let mut field = || {
        let start = rest.iter().position(|&b| b != b' ')?;
        rest = &rest[start..];
        let end = rest.iter().position(|&b| b == b' ').unwrap_or(rest.len());
        let (field, tail) = rest.split_at(end);
        rest = tail;
        std::str::from_utf8(field).ok()
    };
    let (start, end) = field()?.split_once('-')?;
    let permissions = field()?;
    let offset = u64::from_str_radix(field()?, 16).ok()?;
    let _device = field()?;
    let inode = field()?.parse().ok()?;
    let range = u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?;
    if permissions.as_bytes().get(2) != Some(&b'x') || range.is_empty() {
        return None;
    }
    let path = match rest.iter().position(|&b| b != b' ') {
        Some(start) => &rest[start..],
        None => &[],
    };
    let source = match path {
        b"[vdso]" => MappedSource::Vdso,
        // A fixed page of the kernel's that nothing returns into.
        b"[vsyscall]" => return None,
        // What the kernel calls anonymous memory that processes share.
        b"/dev/zero (deleted)" => MappedSource::Anonymous,
        [b'/', ..] if inode != 0 => {
            let path = unescape(path);
            MappedSource::File(
                path.strip_suffix(b" (deleted)")
                    .map_or(path.clone(), <[u8]>::to_vec),
            )
        }
        _ => MappedSource::Anonymous,
    };
    Some(Mapping {
        range,
        offset,
        inode,
        source,
    })
}

/// The kernel writes a newline in a path as `\012`.
fn unescape(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut i = 0;
    while i < path.len() {
        if path[i..].starts_with(b"\\012") {
            out.push(b'\n');
            i += 4;
        } else {
            out.push(path[i]);
            i += 1;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executable_mappings_only_with_their_source() {
        let text = b"\
55d0a0000000-55d0a0001000 r--p 00000000 fe:01 42 /bin/my prog
55d0a0001000-55d0a0002000 r-xp 00001000 fe:01 42                  /bin/my prog
7f0000000000-7f0000001000 rwxp 00000000 00:00 0
7f0000002000-7f0000003000 r-xp 00000000 fe:01 7 /tmp/a\\012b (deleted)
7ffe00000000-7ffe00001000 r-xp 00000000 00:00 0 [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]
garbage
";
        let maps: Vec<_> = text.split(|&b| b == b'\n').filter_map(parse_line).collect();
        assert_eq!(maps.len(), 4);
        assert_eq!(maps[0].source, MappedSource::File(b"/bin/my prog".to_vec()));
        assert_eq!((maps[0].offset, maps[0].inode), (0x1000, 42));
        assert_eq!(maps[1].source, MappedSource::Anonymous);
        assert_eq!(maps[2].source, MappedSource::File(b"/tmp/a\nb".to_vec()));
        assert_eq!(maps[3].source, MappedSource::Vdso);
    }

    #[test]
    fn data_has_a_name_too() {
        let text = b"\
55d0a0000000-55d0a0001000 r-xp 00000000 fe:01 42                         /bin/my prog
55d0a0001000-55d0a0002000 rw-p 00001000 fe:01 42                         /bin/my prog
55d0a0002000-55d0a0003000 rw-p 00000000 00:00 0
55d0a0010000-55d0a0020000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000001000 rw-p 00000000 00:00 0
garbage
";
        let at = [0x55d0a0002010, 0x55d0a0010000, 0x7f0000000010, 0x10];
        let mut search = Search::of(&at);
        for line in text.split(|&b| b == b'\n') {
            search.look(line);
        }
        let names: Vec<_> = search.names.iter().map(Option::as_deref).collect();
        assert_eq!(
            names,
            [
                Some("/bin/my prog"),
                Some("[heap]"),
                Some("[anonymous]"),
                None
            ]
        );
    }

    #[test]
    fn this_process_has_code() {
        let own = read(std::process::id()).unwrap();
        assert!(own.found.len() > 2 && !own.cut_short);
        assert!(read(u32::MAX).is_err());
    }
}
