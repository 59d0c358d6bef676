//! Ruby's objects, as far as they say what a function is called.

use super::Ruby;
use crate::elf::u64_at;
use crate::process::{Process, object, word};

const MAX_STRING: u64 = 4096;
/// In an object's first word.
const TYPE: u64 = 0x1f;
const STRING: u64 = 0x05;
const ARRAY: u64 = 0x07;
const INTERNAL: u64 = 0x1a;
/// An array's items are within itself; a string's bytes are not.
const USER_1: u64 = 1 << 13;
/// Of a string within itself: its length.
const LENGTH_AT: u64 = 14;
const LENGTH: u64 = 0x1f;
/// Of what Ruby keeps for itself: what it is.
const INTERNAL_AT: u64 = 12;
const INTERNAL_KIND: u64 = 0xf;
/// An operator's id is the character or the number that the parser has for it. Others are numbers
/// of names, moved to the left.
const OPERATORS: u64 = 256;
const ID_KIND_BITS: u64 = 4;
/// Names are kept in arrays of so many, each with its symbol.
const NAMES_EACH: u64 = 512;

/// What Ruby keeps for itself (`enum imemo_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RubyInternal {
    Method,
    Function,
}

/// What an object's first word says it is, if it is Ruby's own.
pub(super) fn internal(flags: u64) -> Option<RubyInternal> {
    match (flags & TYPE, flags >> INTERNAL_AT & INTERNAL_KIND) {
        (INTERNAL, 6) => Some(RubyInternal::Method),
        (INTERNAL, 7) => Some(RubyInternal::Function),
        _ => None,
    }
}

impl Ruby {
    pub(super) fn string(&self, process: &mut Process, at: u64) -> Option<String> {
        let layout = &self.layout.string;
        let head = object(process, at, 40)?;
        let flags = u64_at(&head, 0)?;
        if flags & TYPE != STRING {
            return None;
        }
        let embedded = flags & USER_1 == 0;
        let length = match embedded && layout.embedded == layout.length {
            true => flags >> LENGTH_AT & LENGTH,
            false => u64_at(&head, layout.length as usize)?,
        };
        let from = match embedded {
            true => at.checked_add(layout.embedded)?,
            false => u64_at(&head, layout.bytes as usize)?,
        };
        let mut bytes = vec![0; length.min(MAX_STRING) as usize];
        process.read_memory(from, &mut bytes).then_some(())?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// An item of an array. One whose items are within itself has few.
    pub(super) fn item(&self, process: &mut Process, array: u64, index: u64) -> Option<u64> {
        let layout = &self.layout;
        let head = object(process, array, 40)?;
        let flags = u64_at(&head, 0)?;
        if flags & TYPE != ARRAY {
            return None;
        }
        if flags & USER_1 != 0 {
            let at = usize::try_from(layout.array_embedded + index.checked_mul(8)?).ok()?;
            return (at < 40).then(|| u64_at(&head, at))?;
        }
        (index < u64_at(&head, layout.array_length as usize)?).then_some(())?;
        let items = u64_at(&head, layout.array_items as usize)?;
        word(process, items.checked_add(index.checked_mul(8)?)?)
    }

    /// Where a function's file is named: its path, or an array of that and the real one.
    pub(super) fn path(&self, process: &mut Process, at: u64) -> Option<String> {
        match self.item(process, at, 0) {
            Some(path) => self.string(process, path),
            None => self.string(process, at),
        }
    }

    /// The name with this id, from the table of names.
    pub(super) fn name(&self, process: &mut Process, table: u64, id: u64) -> Option<String> {
        let number = match id {
            ..OPERATORS => id,
            _ => id >> ID_KIND_BITS,
        };
        let names = self.item(process, table, number / NAMES_EACH)?;
        let name = self.item(process, names, number % NAMES_EACH * 2)?;
        self.string(process, name)
    }

    /// Whether an object is the table of names: those of some operators are in it.
    pub(super) fn is_table(&self, process: &mut Process, table: u64) -> bool {
        ["*", "+", "/", "<"].iter().all(|operator| {
            let id = u64::from(operator.as_bytes()[0]);
            self.name(process, table, id).as_deref() == Some(operator)
        })
    }
}
