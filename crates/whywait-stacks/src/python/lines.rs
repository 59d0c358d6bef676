//! From an instruction's offset to its line, in the three formats that CPython has used.

use super::layout::LineFormat;

/// The line of the instruction at byte offset `offset`, 0 when the table has none for it.
pub(super) fn line(format: LineFormat, table: &[u8], first_line: u32, offset: u64) -> u32 {
    let line = match format {
        LineFormat::Lnotab => lnotab(table, first_line, offset),
        LineFormat::Deltas => deltas(table, first_line, offset),
        LineFormat::Locations => locations(table, first_line, offset),
    };
    line.and_then(|line| u32::try_from(line).ok()).unwrap_or(0)
}

fn lnotab(table: &[u8], first_line: u32, offset: u64) -> Option<i64> {
    let (mut line, mut address) = (i64::from(first_line), 0u64);
    for pair in table.chunks_exact(2) {
        address += u64::from(pair[0]);
        if address > offset {
            break;
        }
        line += i64::from(pair[1] as i8);
    }
    Some(line)
}

fn deltas(table: &[u8], first_line: u32, offset: u64) -> Option<i64> {
    let (mut line, mut end) = (i64::from(first_line), 0u64);
    for pair in table.chunks_exact(2) {
        end += u64::from(pair[0]);
        let delta = pair[1] as i8;
        if delta != -128 {
            line += i64::from(delta);
        }
        if offset < end {
            return (delta != -128).then_some(line);
        }
    }
    None
}

fn locations(table: &[u8], first_line: u32, offset: u64) -> Option<i64> {
    let (mut line, mut end) = (i64::from(first_line), 0u64);
    let mut at = 0;
    while let Some(&first) = table.get(at) {
        // A first byte has its top bit set, the others have not.
        if first & 0x80 == 0 {
            return None;
        }
        let rest = &table[at + 1..];
        let length = rest
            .iter()
            .position(|b| b & 0x80 != 0)
            .unwrap_or(rest.len());
        let rest = &rest[..length];
        let code = first >> 3 & 15;
        let none = code == 15;
        line += match code {
            13 | 14 => signed_varint(rest)?,
            10..=12 => i64::from(code - 10),
            _ => 0,
        };
        end += (u64::from(first & 7) + 1) * 2;
        if offset < end {
            return (!none).then_some(line);
        }
        at += 1 + length;
    }
    None
}

fn signed_varint(bytes: &[u8]) -> Option<i64> {
    let mut value = 0u64;
    for (i, byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x3f) << (6 * i);
        if byte & 0x40 == 0 {
            let half = i64::try_from(value >> 1).ok()?;
            // Lines are ints; this also keeps sums from overflowing.
            let half = (half <= i64::from(i32::MAX)).then_some(half)?;
            return Some(if value & 1 != 0 { -half } else { half });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_table() {
        let table = [0, 1, 8, 1, 10, 0xff];
        let at = |offset| line(LineFormat::Lnotab, &table, 10, offset);
        assert_eq!([at(0), at(7), at(8), at(17), at(18)], [11, 11, 12, 12, 11]);
    }

    #[test]
    fn table_of_deltas() {
        let table = [4, 1, 2, 0x80, 6, 2];
        let at = |offset| line(LineFormat::Deltas, &table, 10, offset);
        assert_eq!([at(0), at(3), at(4), at(6), at(12)], [11, 11, 0, 13, 0]);
    }

    #[test]
    fn table_of_locations() {
        // one unit, no column, +0; two units, short form; one unit, next line (form 11); one unit,
        // long form, line -1.
        let table = [
            0x80 | 13 << 3,
            0,
            0x80 | 2 << 3 | 1,
            0x11,
            0x80 | 11 << 3,
            1,
            2,
            0x80 | 14 << 3,
            3,
            0,
            1,
            1,
        ];
        let at = |offset| line(LineFormat::Locations, &table, 7, offset);
        assert_eq!(
            [at(0), at(2), at(4), at(6), at(8), at(10)],
            [7, 7, 7, 8, 7, 0]
        );
    }

    #[test]
    fn any_bytes_do() {
        let mut state = 3u64;
        for length in 0..300 {
            let table: Vec<u8> = (0..length)
                .map(|_| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                    (state >> 40) as u8
                })
                .collect();
            for format in [
                LineFormat::Lnotab,
                LineFormat::Deltas,
                LineFormat::Locations,
            ] {
                line(format, &table, u32::MAX, state >> 50);
            }
        }
    }
}
