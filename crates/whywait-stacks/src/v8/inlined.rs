//! Functions that were inlined into optimised code, where it calls.
//!
//! The compiler writes down which position in the source each call is from, and which functions
//! were inlined there. It does so for calls alone: between them nothing says what the code is from.
//! Nor does it hold for the code of the quicker one of the two optimising compilers (Maglev).

use super::heap::{Reference, V8Heap, small_integer};
use super::layout::V8Layout;
use crate::elf::{u32_at, u64_at};

/// More than the compiler inlines.
const MAX_DEPTH: usize = 64;
const MAX_BYTES: u64 = 256 << 10;
/// Of where a function was inlined: a position, and the number of the function.
const INLINED_AT: usize = 16;

/// The first words of the data on how to leave optimised code.
pub(super) type LeavingData = [u64; 14];

/// How many functions were inlined: the second element.
pub(super) fn inlined_in(leaving: &LeavingData) -> Option<u64> {
    u64::try_from(small_integer(leaving[3])?).ok()
}

impl V8Heap<'_> {
    /// The functions that were inlined into the code in the object at `begin` where it calls at
    /// `address`, innermost first; not the function itself that was compiled.
    pub(super) fn inlined(&mut self, begin: u64, address: u64) -> Option<Vec<Reference>> {
        let code = self.described(begin)?;
        let words: [u64; 4] = self.words(code)?;
        let lists = &self.layout.types.lists;
        let is_list = |heap: &mut Self, word: u64| {
            let kind = Reference::of(word).and_then(|it| heap.kind(it));
            kind.is_some_and(|kind| lists.contains(&kind))
        };
        let at = (1..3).find(|&at| is_list(self, words[at]))?;
        let data = Reference::of(words[at])?;
        let leaving: LeavingData = self.words(data)?;
        let (own, function) = self.function_in(&leaving)?;
        let count = inlined_in(&leaving)?;
        let calls = self.byte_array(words[at + 1])?;
        let inlined_at = self.byte_array(*leaving.get(own + 1)?)?;
        let offset = address.checked_sub(begin + self.layout.instructions)?;
        let mut position = position_at(&calls, offset)?;
        let functions = leaving[4..own].iter().copied();
        let mut found = Vec::new();
        while let Some(id) = inlining(position) {
            if found.len() >= MAX_DEPTH {
                return None;
            }
            let entry = inlined_at.get(id * INLINED_AT..(id + 1) * INLINED_AT)?;
            position = u64_at(entry, 0)?;
            found.push(match u32_at(entry, 8)? {
                u32::MAX => function,
                number if u64::from(number) < count => {
                    self.inlined_function(functions.clone(), u64::from(number))?
                }
                _ => return None,
            });
        }
        // What was read may have moved meanwhile.
        (self.words(code)? == words && self.words(data)? == leaving).then_some(found)
    }

    /// One of the functions that were inlined, in a list of what the code refers to.
    fn inlined_function(
        &mut self,
        lists: impl Iterator<Item = u64>,
        number: u64,
    ) -> Option<Reference> {
        for word in lists {
            let Some(list) = Reference::of(word) else {
                continue;
            };
            if !self.layout.types.weak_lists.contains(&self.kind(list)?) {
                continue;
            }
            let length = self.word(list.field(V8Layout::WORD))?;
            let is_in = number < u64::try_from(small_integer(length)?).ok()?;
            let at = list.field((2 + number) * V8Layout::WORD);
            return Reference::of(is_in.then(|| self.word(at))??);
        }
        None
    }

    fn byte_array(&mut self, word: u64) -> Option<Vec<u8>> {
        let array = Reference::of(word)?;
        let kind = self.kind(array)?;
        if !self.layout.types.byte_arrays.contains(&kind) {
            return None;
        }
        let length = small_integer(self.word(array.field(V8Layout::WORD))?)?;
        let length = u64::try_from(length).ok().filter(|it| *it <= MAX_BYTES)?;
        let mut bytes = vec![0; length as usize];
        self.bytes(array.field(2 * V8Layout::WORD), &mut bytes)?;
        Some(bytes)
    }

    /// What kind of code it is, by its flags.
    pub(super) fn kind_of_code(&mut self, code: Reference, begin: u64) -> Option<u32> {
        let kinds = &self.layout.code_kind;
        let mask = kinds.mask;
        let at = match kinds.flags {
            Some(offset) => offset,
            // Not exported by V8 11: behind the address of the code.
            None => {
                let words: [u64; 8] = self.words(code)?;
                let start = begin + self.layout.instructions;
                let at = words.iter().position(|word| *word == start)?;
                (at as u64 + 1) * V8Layout::WORD
            }
        };
        let mut flags = [0; 4];
        self.bytes(code.field(at), &mut flags)?;
        Some(u32_at(&flags, 0)? & mask)
    }
}

/// The position in the source that the instruction at an offset is from
/// (src/codegen/source-position-table.cc): deltas of offsets and of positions.
fn position_at(table: &[u8], offset: u64) -> Option<u64> {
    let mut bytes = table.iter().copied();
    let (mut code, mut position) = (0i64, 0i64);
    let mut found = None;
    while let Some(delta) = next_number(&mut bytes) {
        // Whether a statement begins there is in the sign.
        code = code.checked_add(if delta < 0 { !delta } else { delta })?;
        position = position.wrapping_add(next_number(&mut bytes)?);
        if u64::try_from(code).ok()? > offset {
            break;
        }
        found = Some(position as u64);
    }
    found
}

/// Seven bits a byte, lowest first, the sign in the lowest.
fn next_number(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = bytes.next()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((value >> 1) as i64 ^ -((value & 1) as i64));
        }
    }
    None
}

/// The number of where a function was inlined that a position is in; `None`: in none.
/// (src/codegen/source-position.h: a bit for positions in files of C++, 30 for the offset, 16 for
/// this, both one more.)
fn inlining(position: u64) -> Option<usize> {
    let in_script = position & 1 == 0;
    let id = (position >> 31 & 0xffff) as usize;
    id.checked_sub(1).filter(|_| in_script)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(value: i64) -> Vec<u8> {
        let mut left = ((value << 1) ^ (value >> 63)) as u64;
        let mut bytes = Vec::new();
        loop {
            let more = left > 0x7f;
            bytes.push((left & 0x7f) as u8 | if more { 0x80 } else { 0 });
            left >>= 7;
            if !more {
                return bytes;
            }
        }
    }

    #[test]
    fn a_call_is_from_the_last_position_before_it() {
        let first = 41 << 1;
        let second = 7 << 1 | 3 << 31;
        let table = [
            number(10),
            number(first),
            number(!20),
            number(second - first),
        ]
        .concat();
        assert_eq!(position_at(&table, 9), None);
        assert_eq!(position_at(&table, 29), Some(first as u64));
        assert_eq!(position_at(&table, 30), Some(second as u64));
        assert_eq!(position_at(&table, 1 << 40), Some(second as u64));
        assert_eq!(inlining(first as u64), None);
        assert_eq!(inlining(second as u64), Some(2));
        assert_eq!(position_at(&[0xff; 40], 0), None);
        assert_eq!(position_at(&table[..1], 20), None);
    }
}
