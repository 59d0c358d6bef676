//! The fields of HTTP/2's requests as far as they name one: the method, the path, and whether it is
//! gRPC's. They are compressed by a table that grows with each block of the connection (HPACK,
//! RFC 7541). Other fields' values are passed over, not decoded and not kept.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, LazyLock};

use httlib_huffman::DecoderSpeed;

use crate::http;

/// The fields that every table begins with (RFC 7541, appendix A).
const STATIC: usize = 61;
/// So much of what was added is known, each field by its length and 32 bytes (RFC 7541, 4.1).
/// Servers allow 4 KiB unless they say otherwise, and nobody refers to what is gone there.
const MOST_ADDED: usize = 16 << 10;
const ADDED_AT_LEAST: usize = 32;
/// No longer name of a field means anything here.
const LONGEST_FIELD: usize = 16;
/// The first bytes of gRPC's types of content: `application/grpc+proto` is one.
const GRPC: &[u8] = b"application/grpc";

/// The paths that every table has.
static ROOT: LazyLock<HttpField> = LazyLock::new(|| HttpField::new(FieldKind::Path, b"/"));
static INDEX: LazyLock<HttpField> =
    LazyLock::new(|| HttpField::new(FieldKind::Path, b"/index.html"));

/// The bytes are no fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoFields;

/// What a field is, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldKind {
    Method,
    Path,
    ContentType,
    Other,
}

/// A field, and of its value what makes a name.
#[derive(Debug, Clone, PartialEq, Eq)]
enum HttpField {
    Method(&'static str),
    /// Shared, as a block may refer to it as often as it likes.
    Path(Arc<PathName>),
    ContentType {
        grpc: bool,
    },
    Other(FieldKind),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct PathName {
    /// As a template; `None`: it is none, or the server as such is asked.
    template: Option<String>,
    /// As a method of gRPC, if it can be one.
    grpc: Option<String>,
}

/// What the blocks of one direction of a connection refer to. A table that is made while there is
/// one already does not know what was added before, and names what does not refer to it.
#[derive(Debug, Clone, Default)]
pub struct FieldTable {
    /// The last one that was added comes first. With how much it counts.
    added: VecDeque<(HttpField, usize)>,
    /// How much all of them count.
    size: usize,
}

impl FieldTable {
    /// What a block of fields, which is whole, says of the request. `None`: it has no path that is
    /// known.
    ///
    /// # Errors
    ///
    /// It is no block of fields. What the table holds is worth nothing then.
    pub fn name(&mut self, block: &[u8]) -> Result<Option<String>, NoFields> {
        let mut rest = Bytes(block);
        let (mut method, mut path, mut grpc) = (None, None, false);
        while let Some(first) = rest.0.first().copied() {
            let field = match first {
                0x80.. => self.at(rest.number(7)?)?,
                0x40.. => {
                    let before = rest.0.len();
                    let field = self.literal(rest.number(6)?, &mut rest)?;
                    self.add(field.clone(), before - rest.0.len());
                    field
                }
                0x20.. => {
                    // How large the table may be: nobody refers to what no longer fits.
                    rest.number(5)?;
                    continue;
                }
                _ => self.literal(rest.number(4)?, &mut rest)?,
            };
            match field {
                HttpField::Method(name) => method = Some(name),
                HttpField::Path(found) => path = Some(found),
                HttpField::ContentType { grpc: is } => grpc = is,
                HttpField::Other(_) => {}
            }
        }
        if let Some(name) = path.as_ref().and_then(|path| path.grpc.as_ref())
            && grpc
        {
            return Ok(Some(format!("gRPC {name}")));
        }
        Ok(match (method, path) {
            (Some("CONNECT"), None) => Some(http::route_of("CONNECT", None)),
            (Some(method), Some(path)) => Some(http::route_of(method, path.template.as_deref())),
            _ => None,
        })
    }

    /// Adds a field that takes so many bytes of its block.
    fn add(&mut self, field: HttpField, bytes: usize) {
        let counts = bytes + ADDED_AT_LEAST;
        self.added.push_front((field, counts));
        self.size += counts;
        while self.size > MOST_ADDED {
            let Some((_, counts)) = self.added.pop_back() else {
                break;
            };
            self.size -= counts;
        }
    }

    /// The field of this number.
    fn at(&self, number: usize) -> Result<HttpField, NoFields> {
        Ok(match number {
            0 => return Err(NoFields),
            2 => HttpField::Method("GET"),
            3 => HttpField::Method("POST"),
            4 => ROOT.clone(),
            5 => INDEX.clone(),
            // From before the table was known.
            _ => number
                .checked_sub(STATIC + 1)
                .and_then(|at| self.added.get(at))
                .map_or(HttpField::Other(FieldKind::Other), |(field, _)| {
                    field.clone()
                }),
        })
    }

    /// A field whose value stands in the block, and its name, too, if its number is 0.
    fn literal(&self, number: usize, rest: &mut Bytes<'_>) -> Result<HttpField, NoFields> {
        let kind = match number {
            0 => FieldKind::of(rest.text()?),
            1 | 6..=30 | 32..=STATIC => FieldKind::Other,
            2 | 3 => FieldKind::Method,
            4 | 5 => FieldKind::Path,
            31 => FieldKind::ContentType,
            _ => self.at(number)?.kind(),
        };
        let value = rest.text()?;
        Ok(match kind {
            FieldKind::Other => HttpField::Other(FieldKind::Other),
            kind => match value.decoded() {
                Some(value) => HttpField::new(kind, &value),
                None => return Err(NoFields),
            },
        })
    }
}

impl FieldKind {
    fn of(name: Text<'_>) -> Self {
        if name.bytes.len() > LONGEST_FIELD {
            return Self::Other;
        }
        match name.decoded().as_deref() {
            Some(b":method") => Self::Method,
            Some(b":path") => Self::Path,
            Some(b"content-type") => Self::ContentType,
            _ => Self::Other,
        }
    }
}

impl HttpField {
    fn new(kind: FieldKind, value: &[u8]) -> Self {
        match kind {
            FieldKind::Method => http::method(value).map_or(Self::Other(kind), Self::Method),
            FieldKind::Path => Self::Path(Arc::new(PathName {
                template: http::path_name(value, true),
                grpc: grpc_method(value),
            })),
            FieldKind::ContentType => Self::ContentType {
                grpc: value.starts_with(GRPC),
            },
            FieldKind::Other => Self::Other(kind),
        }
    }

    fn kind(&self) -> FieldKind {
        match self {
            Self::Method(_) => FieldKind::Method,
            Self::Path(_) => FieldKind::Path,
            Self::ContentType { .. } => FieldKind::ContentType,
            Self::Other(kind) => *kind,
        }
    }
}

/// A method of gRPC as its path says it: `/package.Service/Method`. All parts are identifiers of
/// the program's.
fn grpc_method(path: &[u8]) -> Option<String> {
    let path = str::from_utf8(path.strip_prefix(b"/")?).ok()?;
    let (service, method) = path.split_once('/')?;
    let mut parts = service.split('.').chain([method]);
    (path.len() <= crate::LONGEST / 2 && parts.all(is_identifier)).then(|| path.to_owned())
}

/// Letters, digits and `_`, as protobuf has them, and no number or hash.
fn is_identifier(part: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_hash = part.chars().all(|c| c.is_ascii_hexdigit()) && part.len() >= http::SHORTEST_HASH;
    let begins = part.chars().next().is_some_and(|c| !c.is_ascii_digit());
    begins && part.chars().all(is_word) && !is_hash
}

/// What is left of a block.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn next(&mut self) -> Result<u8, NoFields> {
        let (first, rest) = self.0.split_first().ok_or(NoFields)?;
        self.0 = rest;
        Ok(*first)
    }

    /// A number that begins with the lowest `bits` of a byte (RFC 7541, 5.1).
    fn number(&mut self, bits: u32) -> Result<usize, NoFields> {
        let most = (1_usize << bits) - 1;
        let mut number = usize::from(self.next()?) & most;
        if number < most {
            return Ok(number);
        }
        // Four more bytes are more than any length here.
        for shift in [0, 7, 14, 21] {
            let byte = self.next()?;
            number += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(NoFields)
    }

    /// A text, which may be compressed (RFC 7541, 5.2).
    fn text(&mut self) -> Result<Text<'a>, NoFields> {
        let huffman = self.0.first().is_some_and(|byte| byte & 0x80 != 0);
        let length = self.number(7)?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(NoFields)?;
        self.0 = rest;
        Ok(Text { bytes, huffman })
    }
}

struct Text<'a> {
    bytes: &'a [u8],
    huffman: bool,
}

impl<'a> Text<'a> {
    fn decoded(&self) -> Option<Cow<'a, [u8]>> {
        if !self.huffman {
            return Some(Cow::Borrowed(self.bytes));
        }
        let mut decoded = Vec::with_capacity(self.bytes.len() * 2);
        httlib_huffman::decode(self.bytes, &mut decoded, DecoderSpeed::FourBits).ok()?;
        Some(Cow::Owned(decoded))
    }
}

#[cfg(test)]
mod tests;
