//! Checks what the Parquet decoder takes on trust, before it sees it.
//!
//! The decoder allocates what headers claim: a dictionary of 2^31 entries, a page of 2 GiB, 2^31
//! columns; and it builds nested schemas by recursion. Running out of memory or of stack cannot be
//! caught, so these claims are held against the bytes that are really there first. Anything that
//! merely panics is left to `shield.rs`.

use parquet::basic::Type;

use super::thrift::{Bad, Cursor, I32, LIST, STRUCT};

/// Footers grow by some 3 KiB a row group.
pub(crate) const MAX_FOOTER_BYTES: u64 = 8 << 20;

/// The writer's pages have 32 Ki numbers or 2 MiB of text.
const MAX_PAGE_BYTES: i64 = 8 << 20;

const DATA_PAGE: i64 = 0;
const DICTIONARY_PAGE: i64 = 2;
const DATA_PAGE_V2: i64 = 3;

/// Checks that the schema in a footer (the struct `FileMetaData`) is flat.
pub(crate) fn check_footer(bytes: &[u8]) -> Result<(), Bad> {
    let mut schemas = 0;
    Cursor::new(bytes).fields(|cursor, id, kind| {
        if id != 2 {
            return Ok(false);
        }
        schemas += 1;
        if kind != LIST || schemas > 1 {
            return Err("the schema is not a list");
        }
        let (length, element) = cursor.list()?;
        if element != STRUCT {
            return Err("the schema is not a list of columns");
        }
        for index in 0..length {
            let mut children = Once::default();
            cursor.fields(|cursor, id, kind| match id {
                5 => children.take(cursor, kind),
                _ => Ok(false),
            })?;
            let expected = if index == 0 { length as i64 - 1 } else { 0 };
            if children.0.unwrap_or(0) != expected {
                return Err("the schema is not flat");
            }
        }
        Ok(true)
    })
}

/// Checks the headers of all pages of a column chunk that claims to hold `rows` values.
pub(crate) fn check_pages(chunk: &[u8], physical: Type, rows: i64) -> Result<(), Bad> {
    let mut at = 0usize;
    let mut values = 0i64;
    let mut first = true;
    while at < chunk.len() {
        let mut cursor = Cursor::new(&chunk[at..]);
        let header = PageHeader::read(&mut cursor)?;
        at += cursor.position();
        let compressed = header.compressed.0.ok_or("a page has no size")?;
        let uncompressed = header.uncompressed.0.ok_or("a page has no size")?;
        if compressed < 0 || compressed > (chunk.len() - at) as i64 {
            return Err("a page is cut off");
        }
        if !(0..=MAX_PAGE_BYTES).contains(&uncompressed) {
            return Err("a page claims an absurd size");
        }
        at += compressed as usize;
        let count = header
            .values
            .0
            .ok_or("a page does not say how many values it has")?;
        let encoding = header.encoding.0.ok_or("a page has no encoding")?;
        match header.kind.0 {
            Some(DICTIONARY_PAGE) => {
                let width = match physical {
                    Type::INT64 => 8,
                    Type::INT32 | Type::BYTE_ARRAY => 4,
                    _ => return Err("a dictionary where none can be"),
                };
                if !first || count < 0 || count > uncompressed / width {
                    return Err("a dictionary claims more entries than it has bytes for");
                }
            }
            Some(DATA_PAGE | DATA_PAGE_V2) => {
                // PLAIN, PLAIN_DICTIONARY, RLE, DELTA_BINARY_PACKED, RLE_DICTIONARY,
                // BYTE_STREAM_SPLIT. The others are never written.
                if !matches!(encoding, 0 | 2 | 3 | 5 | 8 | 9) {
                    return Err("a page has an encoding that whywait does not write");
                }
                if count < 0 || count > rows - values {
                    return Err("pages claim more rows than the file has");
                }
                values += count;
            }
            _ => return Err("a page of unknown type"),
        }
        first = false;
    }
    if values == rows {
        Ok(())
    } else {
        Err("pages hold fewer rows than the file claims")
    }
}

/// A number that may be given once: were it given twice, the decoder might take the other one.
#[derive(Default)]
struct Once(Option<i64>);

impl Once {
    fn take(&mut self, cursor: &mut Cursor<'_>, kind: u8) -> Result<bool, Bad> {
        if kind != I32 || self.0.is_some() {
            return Err("a header field is malformed");
        }
        self.0 = Some(cursor.integer()?);
        Ok(true)
    }
}

#[derive(Default)]
struct PageHeader {
    kind: Once,
    uncompressed: Once,
    compressed: Once,
    values: Once,
    encoding: Once,
}

impl PageHeader {
    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Bad> {
        let mut header = Self::default();
        cursor.fields(|cursor, id, kind| {
            let encoding_id = match id {
                1 => return header.kind.take(cursor, kind),
                2 => return header.uncompressed.take(cursor, kind),
                3 => return header.compressed.take(cursor, kind),
                // The sub-headers of data pages, dictionary pages and data pages of version 2.
                5 | 7 => 2,
                8 => 4,
                _ => return Ok(false),
            };
            if kind != STRUCT {
                return Err("a header field is malformed");
            }
            cursor.fields(|cursor, id, kind| match id {
                1 => header.values.take(cursor, kind),
                id if id == encoding_id => header.encoding.take(cursor, kind),
                _ => Ok(false),
            })?;
            Ok(true)
        })?;
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn varint(value: i64) -> Vec<u8> {
        let mut rest = ((value << 1) ^ (value >> 63)) as u64;
        let mut bytes = Vec::new();
        while rest >= 0x80 {
            bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        bytes.push(rest as u8);
        bytes
    }

    /// A page header and its (compressed) bytes.
    fn page(kind: i64, uncompressed: i64, body: usize, values: i64, encoding: i64) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in [kind, uncompressed, body as i64] {
            bytes.push(0x15);
            bytes.extend(varint(number));
        }
        // The sub-header's field comes after field 3: 5 for a data page, 7 for a dictionary.
        bytes.push(if kind == DICTIONARY_PAGE { 0x4c } else { 0x2c });
        for number in [values, encoding] {
            bytes.push(0x15);
            bytes.extend(varint(number));
        }
        bytes.extend([0, 0]);
        bytes.resize(bytes.len() + body, 0);
        bytes
    }

    #[test]
    fn honest_pages_pass() {
        let chunk = [
            page(DICTIONARY_PAGE, 40, 30, 10, 0),
            page(DATA_PAGE, 100, 20, 50, 8),
        ]
        .concat();
        assert_eq!(check_pages(&chunk, Type::INT32, 50), Ok(()));
    }

    #[test]
    fn a_dictionary_of_more_entries_than_bytes() {
        let chunk = [
            page(DICTIONARY_PAGE, 40, 30, i64::from(i32::MAX), 0),
            page(DATA_PAGE, 9, 9, 1, 8),
        ]
        .concat();
        let bad = check_pages(&chunk, Type::BYTE_ARRAY, 1);
        assert_eq!(
            bad,
            Err("a dictionary claims more entries than it has bytes for")
        );
    }

    #[test]
    fn a_page_of_two_gigabytes() {
        let chunk = page(DATA_PAGE, i64::from(i32::MAX), 9, 1, 0);
        assert_eq!(
            check_pages(&chunk, Type::INT64, 1),
            Err("a page claims an absurd size")
        );
    }

    #[test]
    fn a_page_cut_off() {
        let chunk = page(DATA_PAGE, 100, 50, 1, 0);
        assert_eq!(
            check_pages(&chunk[..chunk.len() - 1], Type::INT64, 1),
            Err("a page is cut off")
        );
        assert_eq!(check_pages(&chunk[..5], Type::INT64, 1), Err("cut off"));
    }

    #[test]
    fn more_or_fewer_rows_than_the_file_has() {
        let chunk = page(DATA_PAGE, 100, 50, 10, 5);
        assert_eq!(
            check_pages(&chunk, Type::INT64, 9),
            Err("pages claim more rows than the file has")
        );
        assert_eq!(
            check_pages(&chunk, Type::INT64, 11),
            Err("pages hold fewer rows than the file claims")
        );
    }

    #[test]
    fn a_size_given_twice() {
        let mut chunk = vec![0x15, 0, 0x15, 8, 0x05];
        // Field 2 again, in the long form.
        chunk.extend(varint(2));
        chunk.extend(varint(i64::from(i32::MAX)));
        assert_eq!(
            check_pages(&chunk, Type::INT64, 1),
            Err("a header field is malformed")
        );
    }
}
