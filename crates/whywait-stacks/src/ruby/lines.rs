//! Which line an instruction is of (`iseq.c`: `succ_index_lookup`).
//!
//! An entry of the table of lines holds for its own instruction and those after it, up to the next
//! entry's. How many entries begin up to an instruction is in an index: for the first 54 words of
//! code 7 bits each, 9 of them in 8 bytes, and from there on a bit for each word in which an entry
//! begins, in blocks of 512 with counts of those before.

use crate::elf::{u32_at, u64_at};

const COUNTED: usize = 54;
const COUNTS: usize = 9;
/// `struct succ_dict_block`: the number of entries before it, those before each of its words but
/// the first, 9 bits each, and the bits.
const BLOCK: usize = 80;
const BLOCK_BITS: usize = 512;
const RANKS: usize = 8;
const BITS: usize = 16;

/// How many bytes the index for so many words of code has at most.
pub(super) fn index_bytes(words: usize) -> usize {
    COUNTED / COUNTS * 8 + words.saturating_sub(COUNTED).div_ceil(BLOCK_BITS) * BLOCK
}

/// How many entries begin up to a word of code.
pub(super) fn entries_to(index: &[u8], word: usize) -> Option<usize> {
    let Some(beyond) = word.checked_sub(COUNTED) else {
        let counts = u64_at(index, word / COUNTS * 8)?;
        return Some((counts >> (word % COUNTS * 7)) as usize & 0x7f);
    };
    let block = COUNTED / COUNTS * 8 + beyond / BLOCK_BITS * BLOCK;
    let bit = beyond % BLOCK_BITS;
    let ranks = u64_at(index, block + RANKS)?;
    let before = match bit / 64 {
        0 => 0,
        part => (ranks >> ((part - 1) * 9)) as usize & 0x1ff,
    };
    let bits = u64_at(index, block + BITS + bit / 64 * 8)?;
    let here = (bits << (63 - bit % 64)).count_ones() as usize;
    Some(u32_at(index, block)? as usize + before + here)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Ruby makes it of the words at which entries begin (`succ_index_table_create`).
    fn index(words: usize, begins: &[usize]) -> Vec<u8> {
        let up_to = |word: usize| begins.iter().filter(|at| **at <= word).count() as u64;
        let mut bytes = Vec::new();
        for first in (0..COUNTED).step_by(COUNTS) {
            let counts = (0..COUNTS).map(|i| up_to(first + i) << (i * 7));
            bytes.extend(counts.sum::<u64>().to_le_bytes());
        }
        for first in (COUNTED..words).step_by(BLOCK_BITS) {
            bytes.extend(up_to(first - 1).to_le_bytes());
            let within = |part: usize| up_to(first + part * 64 - 1) - up_to(first - 1);
            let ranks = (1..8).map(|part| within(part) << ((part - 1) * 9));
            bytes.extend(ranks.sum::<u64>().to_le_bytes());
            for part in 0..8 {
                let has = |bit: &usize| begins.contains(&(first + part * 64 + bit));
                let bits: u64 = (0..64).filter(has).map(|bit| 1 << bit).sum();
                bytes.extend(bits.to_le_bytes());
            }
        }
        bytes
    }

    #[test]
    fn entries_are_found_by_words_of_code() {
        let begins: Vec<usize> = (0..3000)
            .filter(|word| word % 7 == 0 || word % 5 == 3)
            .collect();
        let index = index(3000, &begins);
        assert_eq!(index.len(), index_bytes(3000));
        for word in 0..3000 {
            let up_to = begins.iter().filter(|at| **at <= word).count();
            let expected = if word < COUNTED { up_to & 0x7f } else { up_to };
            assert_eq!(entries_to(&index, word), Some(expected), "{word}");
        }
        assert_eq!(entries_to(&index, 1 << 20), None);
        assert_eq!(entries_to(&[], 0), None);
    }
}
