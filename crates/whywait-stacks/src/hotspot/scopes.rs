//! Which functions a compiled one has inlined at a place in its code: the compilers write it down
//! for the places where a thread can stop (`PcDesc`, `ScopeDesc`).

use std::ops::Range;

use super::cache::Blob;
use super::layout::{DebugLayout, DebugTables};
use super::loops::LoopFlow;
use super::memory::{bytes, bytes_up_to, word};
use crate::elf::ReadAt;

/// A function, and where in it: the number of a bytecode, if known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CodeScope {
    pub(super) method: u64,
    pub(super) bytecode: Option<u16>,
}

/// Inlining goes 15 deep, and some more over forms of lambdas.
const MAX_DEPTH: usize = 256;
/// Entries of a method of 64 KiB of code.
const MAX_ENTRIES: u64 = 1 << 14;
/// Methods are compiled in pieces that are smaller, or not at all.
const MAX_CODE: usize = 1 << 18;
/// A scope begins with three numbers of up to five bytes.
const MAX_SCOPE: usize = 15;
/// What stands for no scope.
const NO_SCOPE: u32 = 0;

/// The debug information of a compiled method.
pub(super) struct Scopes<'a> {
    layout: &'a DebugLayout,
    memory: &'a dyn ReadAt,
    blob: &'a Blob,
    entries: Range<u64>,
    scopes: u64,
    metadata: u64,
}

/// A place where a thread can stop: from the code's beginning, and its scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StopPlace {
    offset: i32,
    scope: u32,
}

impl<'a> Scopes<'a> {
    pub(super) fn of(
        layout: &'a DebugLayout,
        memory: &'a dyn ReadAt,
        blob: &'a Blob,
    ) -> Option<Self> {
        let head = |field: super::memory::FieldPlace| field.of(&blob.head);
        let from_blob = |field| blob.start.checked_add(head(field)?);
        let (entries, scopes, metadata) = match layout.tables {
            DebugTables::Behind {
                entries,
                entries_end,
                scopes,
                metadata,
            } => (
                from_blob(entries)?..from_blob(entries_end)?,
                head(scopes)?,
                from_blob(metadata)?,
            ),
            DebugTables::Apart {
                tables,
                entries,
                scopes,
                objects,
                metadata,
            } => {
                let tables = head(tables)?;
                let scopes = tables.checked_add(head(scopes)?)?;
                (
                    tables.checked_add(head(entries)?)?..scopes,
                    scopes,
                    head(objects)?.checked_add(head(metadata)?)?,
                )
            }
        };
        Some(Self {
            layout,
            memory,
            blob,
            entries,
            scopes,
            metadata,
        })
    }

    /// Where a thread is that will return to an address: all functions, innermost first; `None`:
    /// it is not written down.
    pub(super) fn returning_to(&self, address: u64) -> Option<Vec<CodeScope>> {
        let offset = self.offset(address)?;
        let found = self.entry(self.first_from(offset)?)?;
        (found.offset == offset).then(|| self.chain(found))?
    }

    /// The functions, innermost first, in which a thread certainly is at an address at which it
    /// need not be able to stop: those of the innermost loop around it. In more of them it may be:
    /// which were inlined, and where a thread cannot stop, is not written down.
    pub(super) fn around(&self, address: u64) -> Option<Vec<CodeScope>> {
        let count = usize::try_from(self.count()).ok()?;
        let all = bytes(self.memory, self.entries.start, count * self.layout.entry)?;
        let mut places = Vec::new();
        for entry in all.chunks_exact(self.layout.entry) {
            let entry = self.read(entry)?;
            let place = self.blob.code.start.checked_add_signed(entry.offset.into());
            if let Some(place) = place.filter(|place| self.blob.code.contains(place)) {
                places.push((place, entry));
            }
        }
        let size = usize::try_from(self.blob.code.end - self.blob.code.start).ok()?;
        (size <= MAX_CODE).then_some(())?;
        let mut flow = LoopFlow::of(
            self.blob.code.start,
            bytes(self.memory, self.blob.code.start, size)?,
        );
        let stops: Vec<u64> = places.iter().map(|(place, _)| *place).collect();
        let found = flow.innermost_around(address, &stops)?;
        let (_, entry) = places.into_iter().find(|(place, _)| *place == found)?;
        let mut chain = self.chain(entry)?;
        if let Some(innermost) = chain.first_mut() {
            innermost.bytecode = None;
        }
        Some(chain)
    }

    fn offset(&self, address: u64) -> Option<i32> {
        i32::try_from(address.checked_sub(self.blob.code.start)?).ok()
    }

    fn count(&self) -> u64 {
        let bytes = self.entries.end.saturating_sub(self.entries.start);
        (bytes / self.layout.entry as u64).min(MAX_ENTRIES)
    }

    fn entry(&self, at: u64) -> Option<StopPlace> {
        (at < self.count()).then_some(())?;
        let from = at.checked_mul(self.layout.entry as u64)?;
        let from = self.entries.start.checked_add(from)?;
        self.read(&bytes(self.memory, from, self.layout.entry)?)
    }

    fn read(&self, entry: &[u8]) -> Option<StopPlace> {
        // The first one's offset is negative, and so is that of none: no field is.
        let number = |field: super::memory::FieldPlace| crate::elf::u32_at(entry, field.offset);
        Some(StopPlace {
            offset: number(self.layout.code)? as i32,
            scope: number(self.layout.scope)?,
        })
    }

    /// The first entry of at least that offset: they are in order.
    fn first_from(&self, offset: i32) -> Option<u64> {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.entry(middle)?.offset < offset {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        Some(low)
    }

    /// The functions of an entry, innermost first; `None`: it has none, or they cannot be read.
    fn chain(&self, entry: StopPlace) -> Option<Vec<CodeScope>> {
        let mut chain = Vec::new();
        let mut at = entry.scope;
        while at != NO_SCOPE {
            (chain.len() < MAX_DEPTH).then_some(())?;
            let from = self.scopes.checked_add(at.into())?;
            let bytes = bytes_up_to(self.memory, from, MAX_SCOPE);
            let mut numbers = Compressed::new(&bytes, self.layout.excludes_zero);
            let (caller, method, bytecode) = (numbers.next()?, numbers.next()?, numbers.next()?);
            let method = self
                .metadata
                .checked_add(8 * u64::from(method.checked_sub(1)?))?;
            chain.push(CodeScope {
                method: word(self.memory, method)?,
                // They are numbered from one less than the first one, which is the call itself.
                bytecode: bytecode.checked_sub(1).and_then(|it| it.try_into().ok()),
            });
            // Callers are written first.
            (caller < at).then_some(())?;
            at = caller;
        }
        (!chain.is_empty()).then_some(chain)
    }
}

/// Numbers of one to five bytes (`UNSIGNED5`).
pub(super) struct Compressed<'a> {
    bytes: std::slice::Iter<'a, u8>,
    /// What no byte is: 0 or nothing.
    excluded: u32,
}

impl<'a> Compressed<'a> {
    pub(super) fn new(bytes: &'a [u8], excludes_zero: bool) -> Self {
        Self {
            bytes: bytes.iter(),
            excluded: u32::from(excludes_zero),
        }
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.bytes.next().copied()
    }

    /// The next number.
    pub(super) fn next(&mut self) -> Option<u32> {
        /// Higher bytes say that there are more.
        const HIGH: u32 = 64;
        let low = 256 - HIGH - self.excluded;
        let mut sum = 0u32;
        for at in 0..5 {
            let digit = u32::from(self.byte()?).checked_sub(self.excluded)?;
            sum = sum.wrapping_add(digit.wrapping_shl(6 * at));
            if digit < low {
                break;
            }
        }
        Some(sum)
    }

    /// The next number that may be negative.
    pub(super) fn signed(&mut self) -> Option<i32> {
        let number = self.next()?;
        Some((number >> 1) as i32 ^ -((number & 1) as i32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_one_to_five_bytes() {
        let numbers = |bytes: &[u8], excludes_zero| {
            let mut all = Compressed::new(bytes, excludes_zero);
            std::iter::from_fn(|| all.next()).collect::<Vec<_>>()
        };
        assert_eq!(
            numbers(&[0, 191, 192, 0, 192, 1], false),
            [0, 191, 192, 256]
        );
        assert_eq!(numbers(&[1, 191, 192, 1, 192, 2], true), [0, 190, 191, 255]);
        assert_eq!(numbers(&[255; 5], false).len(), 1);
        assert_eq!(numbers(&[255; 4], false), [] as [u32; 0]);
        assert_eq!(numbers(&[0], true), [] as [u32; 0]);
        let mut signed = Compressed::new(&[3, 4], false);
        assert_eq!((signed.signed(), signed.signed()), (Some(-2), Some(2)));
    }
}
