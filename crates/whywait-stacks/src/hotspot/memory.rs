//! Reading a running virtual machine's memory. Whatever is there may be anything: each length is
//! bounded by who asks, and each address is one that may turn out not to be mapped.

use std::collections::HashMap;

use crate::arch::USER_END;
use crate::elf::{ReadAt, u16_at, u32_at, u64_at};

/// Where a number lies in a structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FieldPlace {
    pub(super) offset: usize,
    pub(super) width: Width,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    U8,
    U16,
    I16,
    /// Of 32 bits, signed or not: what is read is never as large.
    I32,
    U64,
}

impl Width {
    fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::U16 | Self::I16 => 2,
            Self::I32 => 4,
            Self::U64 => 8,
        }
    }
}

impl FieldPlace {
    /// Its value in the structure's bytes; `None`: they do not reach so far, or it is negative.
    pub(super) fn of(self, structure: &[u8]) -> Option<u64> {
        let at = self.offset;
        match self.width {
            Width::U8 => structure.get(at).copied().map(u64::from),
            Width::U16 => u16_at(structure, at).map(u64::from),
            Width::I16 => u64::try_from(u16_at(structure, at)? as i16).ok(),
            Width::I32 => u64::try_from(u32_at(structure, at)? as i32).ok(),
            Width::U64 => u64_at(structure, at),
        }
    }

    /// Its value in the structure at an address.
    pub(super) fn at(self, memory: &dyn ReadAt, structure: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        let bytes = &mut bytes[..self.width.bytes()];
        let at = structure.checked_add(self.offset as u64)?;
        read(memory, at, bytes)?;
        FieldPlace { offset: 0, ..self }.of(bytes)
    }
}

fn read(memory: &dyn ReadAt, at: u64, into: &mut [u8]) -> Option<()> {
    (at != 0 && at < USER_END).then_some(())?;
    memory.read_exact_at(into, at).ok()
}

pub(super) fn word(memory: &dyn ReadAt, at: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    read(memory, at, &mut bytes)?;
    Some(u64::from_le_bytes(bytes))
}

/// So many bytes, all of them.
pub(super) fn bytes(memory: &dyn ReadAt, at: u64, size: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; size];
    read(memory, at, &mut bytes)?;
    Some(bytes)
}

/// Up to so many bytes, fewer where there is no more memory: what is asked for may end with a page.
pub(super) fn bytes_up_to(memory: &dyn ReadAt, at: u64, size: usize) -> Vec<u8> {
    if let Some(all) = bytes(memory, at, size) {
        return all;
    }
    let to_page = (PAGE - (at % PAGE as u64) as usize).min(size);
    bytes(memory, at, to_page).unwrap_or_default()
}

/// The text up to its zero.
pub(super) fn c_string(memory: &dyn ReadAt, at: u64, at_most: usize) -> Option<String> {
    let bytes = bytes_up_to(memory, at, at_most);
    let end = bytes.iter().position(|&byte| byte == 0)?;
    String::from_utf8(bytes[..end].to_vec()).ok()
}

const PAGE: usize = 4096;
/// Names of types and fields are shorter.
const MAX_TEXT: u64 = 256;
/// The tables of a virtual machine and their texts take some 100.
const MAX_PAGES: usize = 1024;

/// Memory of which much is read in small pieces: each page once.
pub(super) struct Pages<'m> {
    memory: &'m dyn ReadAt,
    pages: HashMap<u64, Option<Vec<u8>>>,
}

impl<'m> Pages<'m> {
    pub(super) fn new(memory: &'m dyn ReadAt) -> Self {
        Self {
            memory,
            pages: HashMap::new(),
        }
    }

    fn byte(&mut self, at: u64) -> Option<u8> {
        let number = at / PAGE as u64;
        if !self.pages.contains_key(&number) && self.pages.len() >= MAX_PAGES {
            return None;
        }
        let memory = self.memory;
        let page = self
            .pages
            .entry(number)
            .or_insert_with(|| bytes(memory, number.checked_mul(PAGE as u64)?, PAGE));
        page.as_ref()?.get((at % PAGE as u64) as usize).copied()
    }

    pub(super) fn word(&mut self, at: u64) -> Option<u64> {
        let mut value = [0; 8];
        for (byte, offset) in value.iter_mut().zip(0..) {
            *byte = self.byte(at.checked_add(offset)?)?;
        }
        Some(u64::from_le_bytes(value))
    }

    /// The text to which the pointer at an address leads.
    pub(super) fn text(&mut self, pointer: u64) -> Option<String> {
        let at = self.word(pointer)?;
        let mut text = Vec::new();
        for offset in 0..MAX_TEXT {
            match self.byte(at.checked_add(offset)?)? {
                0 => return String::from_utf8(text).ok(),
                byte => text.push(byte),
            }
        }
        None
    }
}

#[cfg(test)]
mod memory_tests {
    use super::super::made_up::JvmMemory;
    use super::*;

    #[test]
    fn a_negative_number_is_none() {
        let field = |offset, width| FieldPlace { offset, width };
        let bytes = [0xff, 0xff, 0xff, 0xff, 1, 0];
        assert_eq!(field(0, Width::I32).of(&bytes), None);
        assert_eq!(field(0, Width::I16).of(&bytes), None);
        assert_eq!(field(0, Width::U16).of(&bytes), Some(0xffff));
        assert_eq!(field(4, Width::U16).of(&bytes), Some(1));
        assert_eq!(field(4, Width::I32).of(&bytes), None);
    }

    #[test]
    fn a_text_without_an_end_is_none() {
        let mut memory = JvmMemory(vec![(PAGE as u64, vec![b'a'; PAGE])]);
        let mut text = |at: u64| {
            memory.put(PAGE as u64, &at.to_le_bytes());
            Pages::new(&memory).text(PAGE as u64)
        };
        assert_eq!(text(PAGE as u64 + 100), None);
        assert_eq!(text(2 * PAGE as u64 - 10), None);
        assert_eq!(c_string(&memory, PAGE as u64 + 10, 2 * PAGE), None);
    }
}
