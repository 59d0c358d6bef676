//! Objects of CPython that say what they are: by the names of their types.
//!
//! The fields used here have the same place in 3.11 to 3.14 (computed with `offsetof` from the
//! headers of 3.11.7, 3.12.1, 3.13.0 and 3.14.8); `PyTypeObject` is part of the stable interface.

use std::collections::HashMap;
use std::sync::Arc;

use super::read::CPython;
use crate::elf::{c_string, u64_at};
use crate::process::{OBJECT, Process, field, object, word};

/// `tp_name`, `tp_basicsize`, `tp_base`.
const TYPE_NAME: u64 = 24;
const TYPE_SIZE: u64 = 32;
const TYPE_BASE: u64 = 256;
const MAX_BASES: usize = 16;
const MAX_TYPE_NAME: usize = 128;
/// Types that are remembered.
const MAX_TYPES: usize = 4096;
/// A program with more modules, or a module with more names, is not looked through.
const MAX_ENTRIES: u64 = 1 << 15;

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ObjectKind {
    /// A coroutine, or a generator of any kind: it has a frame.
    Coroutine,
    /// What awaits the coroutine or the iterator that is its first field.
    Wrapper,
    /// `_asyncio.Future`, or a class made of it.
    Future,
    /// `_asyncio.Task`, or a class made of it.
    Task,
    /// What awaits the future that is its first field.
    FutureIterator,
    Function,
    Context,
    Module,
    Dictionary,
    Set,
    List,
    WeakReference,
    Other,
}

/// A type.
#[derive(Debug, Clone)]
pub(super) struct TypeSeen {
    pub(super) kind: ObjectKind,
    pub(super) name: Arc<str>,
    /// Of its objects, in bytes.
    pub(super) size: u64,
}

/// Types by their addresses.
pub(super) type Types = HashMap<u64, TypeSeen>;

fn kind_of(name: &str) -> ObjectKind {
    match name {
        "coroutine" | "generator" | "async_generator" => ObjectKind::Coroutine,
        "coroutine_wrapper"
        | "async_generator_asend"
        | "async_generator_athrow"
        | "anext_awaitable" => ObjectKind::Wrapper,
        "_asyncio.Future" => ObjectKind::Future,
        "_asyncio.Task" => ObjectKind::Task,
        "_asyncio.FutureIter" => ObjectKind::FutureIterator,
        "function" => ObjectKind::Function,
        "_contextvars.Context" => ObjectKind::Context,
        "module" => ObjectKind::Module,
        "dict" => ObjectKind::Dictionary,
        "set" => ObjectKind::Set,
        "list" => ObjectKind::List,
        "weakref" | "weakref.ReferenceType" => ObjectKind::WeakReference,
        _ => ObjectKind::Other,
    }
}

impl CPython {
    /// The type of an object.
    pub(super) fn type_of(&mut self, process: &mut Process, at: u64) -> Option<TypeSeen> {
        let address = word(process, at.checked_add(8)?).filter(|_| at != 0)?;
        self.type_by_address(process, address)
    }

    /// The type of an object, and its first field.
    pub(super) fn with_first_field(
        &mut self,
        process: &mut Process,
        at: u64,
    ) -> Option<(ObjectKind, u64)> {
        let bytes = object(process, at, 24)?;
        let seen = self.type_by_address(process, u64_at(&bytes, 8)?)?;
        Some((seen.kind, u64_at(&bytes, 16)?))
    }

    /// The type at an address.
    pub(super) fn type_by_address(
        &mut self,
        process: &mut Process,
        address: u64,
    ) -> Option<TypeSeen> {
        if let Some(known) = self.tasks.types.get(&address) {
            return Some(known.clone());
        }
        let found = type_at(process, address)?;
        if self.tasks.types.len() >= MAX_TYPES {
            self.tasks.types = Types::new();
        }
        self.tasks.types.insert(address, found.clone());
        Some(found)
    }

    /// What an object is; one that cannot be read is nothing known.
    pub(super) fn kind(&mut self, process: &mut Process, at: u64) -> ObjectKind {
        let seen = self.type_of(process, at);
        seen.map_or(ObjectKind::Other, |seen| seen.kind)
    }

    /// What a dictionary has for a name.
    pub(super) fn item(
        &mut self,
        process: &mut Process,
        dictionary: u64,
        name: &str,
    ) -> Option<u64> {
        const KEYS: u64 = 32;
        /// `dk_log2_index_bytes`, `dk_kind`, `dk_nentries`, and where the indices are.
        const INDEX: usize = 9;
        const KIND: usize = 10;
        const COUNT: usize = 24;
        const INDICES: u64 = 32;
        if self.kind(process, dictionary) != ObjectKind::Dictionary {
            return None;
        }
        let keys = field(process, dictionary, KEYS)?;
        let head = object(process, keys, INDICES as usize)?;
        let count = u64_at(&head, COUNT).filter(|count| *count <= MAX_ENTRIES)?;
        // A key and a value, behind a hash unless all keys are strings.
        let skip = match head[KIND] {
            0 => 8,
            1 => 0,
            _ => return None,
        };
        let size = skip + 16;
        let indices = 1u64.checked_shl(u32::from(head[INDEX]))?;
        let first = keys.checked_add(INDICES)?.checked_add(indices)?;
        let mut bytes = vec![0; usize::try_from(count).ok()? * size];
        process.read_memory(first, &mut bytes).then_some(())?;
        bytes.chunks_exact(size).find_map(|entry| {
            let key = u64_at(entry, skip)?;
            let value = u64_at(entry, skip + 8)?;
            (value != 0 && self.is_string(process, key, name)).then_some(value)
        })
    }

    /// Whether an object is that string, of ASCII.
    fn is_string(&self, process: &mut Process, at: u64, wanted: &str) -> bool {
        let Some(head) = object(process, at, 40) else {
            return false;
        };
        let is_as_long = u64_at(&head, 16) == Some(wanted.len() as u64);
        is_as_long && self.string(process, at).is_some_and(|is| is == wanted)
    }
}

fn type_at(process: &mut Process, address: u64) -> Option<TypeSeen> {
    let bytes = object(process, address, (TYPE_BASE + 8) as usize)?;
    let name = type_name(process, &bytes)?;
    let mut kind = kind_of(&name);
    let mut base = u64_at(&bytes, TYPE_BASE as usize)?;
    for _ in 0..MAX_BASES {
        if kind != ObjectKind::Other || base == 0 {
            break;
        }
        let bytes = object(process, base, (TYPE_BASE + 8) as usize)?;
        // Only futures and tasks are what the classes are that they were made of: the others may
        // not be subclassed, or are of no use here if they were.
        let of_base = kind_of(&type_name(process, &bytes)?);
        if matches!(of_base, ObjectKind::Future | ObjectKind::Task) {
            kind = of_base;
        }
        base = u64_at(&bytes, TYPE_BASE as usize)?;
    }
    Some(TypeSeen {
        kind,
        name,
        size: u64_at(&bytes, TYPE_SIZE as usize)?,
    })
}

fn type_name(process: &mut Process, bytes: &[u8; OBJECT]) -> Option<Arc<str>> {
    let at = u64_at(bytes, TYPE_NAME as usize)?;
    let text = process.read_up_to(at, MAX_TYPE_NAME);
    let name = std::str::from_utf8(c_string(&text, 0, MAX_TYPE_NAME)?).ok()?;
    Some(Arc::from(name))
}
