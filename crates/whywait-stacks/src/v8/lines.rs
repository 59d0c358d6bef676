//! On which line a position in a script is.

use std::collections::HashMap;

use super::heap::Characters;
use crate::budget::{Budget, Charge};

/// Where the lines of scripts end.
#[derive(Debug)]
pub(super) struct Lines {
    scripts: HashMap<u64, Ends>,
    charge: Charge,
}

#[derive(Debug)]
struct Ends {
    text: Characters,
    /// Positions of the characters that end lines.
    ends: Vec<u32>,
}

/// Larger scripts have no lines: a bundle of a large application is some 20 MB.
const MAX_BYTES: u64 = 64 << 20;
const MAX_SCRIPTS: usize = 1024;
const PIECE: usize = 256 << 10;

impl Lines {
    pub(super) fn new(budget: &Budget) -> Self {
        Self {
            scripts: HashMap::new(),
            charge: budget.nothing(),
        }
    }

    /// The line of a position, from 1, if the script was read before.
    pub(super) fn known(&self, script: u64, text: Characters, position: u64) -> Option<u32> {
        let known = self.scripts.get(&script)?;
        if known.text != text {
            return None;
        }
        let before = known.ends.partition_point(|&end| u64::from(end) < position);
        u32::try_from(before).ok()?.checked_add(1)
    }

    /// Reads a script. `read` fills a buffer with the bytes at an address.
    pub(super) fn read(
        &mut self,
        script: u64,
        text: Characters,
        mut read: impl FnMut(u64, &mut [u8]) -> bool,
    ) -> Option<()> {
        let width = if text.one_byte { 1 } else { 2 };
        let size = text.length.checked_mul(width)?;
        if size > MAX_BYTES {
            return None;
        }
        let mut ends = Vec::new();
        let mut piece = vec![0; PIECE.min(usize::try_from(size).ok()?)];
        let mut done = 0;
        // A carriage return before a newline ends no line.
        let mut pending_return = false;
        while done < size {
            let bytes = piece.get_mut(..PIECE.min(usize::try_from(size - done).ok()?))?;
            read(text.address.checked_add(done)?, bytes).then_some(())?;
            for (at, unit) in bytes.chunks_exact(width as usize).enumerate() {
                let unit = u16::from_le_bytes([unit[0], unit.get(1).copied().unwrap_or(0)]);
                let position = (done / width) as u32 + at as u32;
                if pending_return && unit != NEWLINE {
                    ends.push(position - 1);
                }
                pending_return = unit == CARRIAGE_RETURN;
                if unit == NEWLINE || SEPARATORS.contains(&unit) {
                    ends.push(position);
                }
            }
            done += bytes.len() as u64;
        }
        ends.shrink_to_fit();
        if self.scripts.len() >= MAX_SCRIPTS {
            self.scripts.clear();
            self.charge = self.charge.emptied();
        }
        self.charge
            .grow(size_of::<(u64, Ends)>() * 2 + ends.len() * size_of::<u32>())
            .then_some(())?;
        self.scripts.insert(script, Ends { text, ends });
        Some(())
    }
}

const NEWLINE: u16 = 0x0a;
const CARRIAGE_RETURN: u16 = 0x0d;
const SEPARATORS: [u16; 2] = [0x2028, 0x2029];

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_at(text: &str, one_byte: bool, positions: &[u64]) -> Vec<Option<u32>> {
        let bytes: Vec<u8> = match one_byte {
            true => text.chars().map(|c| c as u8).collect(),
            false => text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        };
        let length = bytes.len() as u64 / if one_byte { 1 } else { 2 };
        let text = Characters {
            address: 0,
            length,
            one_byte,
        };
        let mut lines = Lines::new(&Budget::default());
        lines
            .read(1, text, |at, buffer| {
                let at = at as usize;
                buffer.copy_from_slice(&bytes[at..at + buffer.len()]);
                true
            })
            .unwrap();
        positions
            .iter()
            .map(|&at| lines.known(1, text, at))
            .collect()
    }

    #[test]
    fn lines_end_as_in_the_language() {
        let text = "a\nb\r\nc\rd\u{2028}e";
        let wide = lines_at(text, false, &[0, 1, 2, 5, 7, 9]);
        assert_eq!(wide, [1, 1, 2, 3, 4, 5].map(Some));
        let narrow = lines_at("a\nb\r\nc\rd", true, &[0, 2, 5, 7]);
        assert_eq!(narrow, [1, 2, 3, 4].map(Some));
    }

    #[test]
    fn a_script_in_pieces_is_as_in_one() {
        let text = format!("{}\r\nx\n", "y".repeat(PIECE - 1));
        let at = PIECE as u64;
        assert_eq!(lines_at(&text, true, &[at + 1, at + 3]), [Some(2), Some(3)]);
    }

    #[test]
    fn another_text_at_the_same_place_is_not_known() {
        let text = |length| Characters {
            address: 0,
            length,
            one_byte: true,
        };
        let mut lines = Lines::new(&Budget::default());
        lines.read(1, text(3), |_, _| true).unwrap();
        assert_eq!(lines.known(1, text(3), 2), Some(1));
        assert_eq!(lines.known(1, text(4), 2), None);
        assert_eq!(lines.read(2, text(u64::MAX), |_, _| true), None);
        assert_eq!(lines.read(2, text(3), |_, _| false), None);
    }
}
