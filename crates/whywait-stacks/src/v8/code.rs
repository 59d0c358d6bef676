//! Which function compiled code is of.
//!
//! Machine code lies in an object of the heap, behind a few words that say what it is and lead to
//! what is known of it. So the code's object is looked for backwards from an address in it.

use std::collections::BTreeMap;

use super::heap::{Reference, V8Heap};
use super::inlined::{LeavingData, inlined_in};
use super::layout::V8Layout;
use crate::elf::u64_at;

/// What is known of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compiled {
    /// By an optimising compiler.
    Optimised {
        /// What the closures of the function share that was compiled.
        shared: Reference,
        /// Whether functions were inlined into it, of which can be told where.
        inlines: bool,
    },
    /// As it is, from this bytecode.
    Baseline(Reference),
    /// Of a regular expression, where its frame does not say so.
    RegularExpression,
}

/// Code that was seen, by where its object begins. What is in no object of one function has
/// nothing, as regular expressions.
#[derive(Debug, Default)]
pub(super) struct JsCode(BTreeMap<u64, Seen>);

#[derive(Debug, Clone, Copy)]
struct Seen {
    /// The object's first words: as long as they are there, it is.
    head: [u64; 2],
    /// The highest address that is known to be in it.
    last: u64,
    compiled: Option<Compiled>,
}

/// No function's code is larger: compilers give up long before.
const MAX_SIZE: u64 = 512 << 10;
/// The number of such code before V8 11 (`CodeKind` in src/objects/code-kind.h).
const REGULAR_EXPRESSION: u32 = 3;
const PIECE: u64 = 4096;
/// Words that look like references and are looked at for one address.
const MAX_LOOKS: usize = 64;
const MAX_KNOWN: usize = 1 << 12;

impl JsCode {
    /// The code at an address: where its object begins, and what it is; `None`: there is none, or
    /// it could not be found.
    pub(super) fn find(
        &mut self,
        heap: &mut V8Heap<'_>,
        address: u64,
    ) -> Option<(u64, Option<Compiled>)> {
        if let Some((&begin, seen)) = self.0.range(..=address).next_back()
            && address <= seen.last
        {
            if heap.head(begin) == Some(seen.head) {
                return Some((begin, seen.compiled));
            }
            self.0.remove(&begin);
        }
        let (begin, head) = heap.code_before(address)?;
        let compiled = heap.compiled(begin);
        if self.0.len() >= MAX_KNOWN {
            self.0.clear();
        }
        let known = self.0.get(&begin).filter(|known| known.head == head);
        let last = known.map_or(address, |known| known.last.max(address));
        let seen = Seen {
            head,
            last,
            compiled,
        };
        self.0.insert(begin, seen);
        Some((begin, compiled))
    }
}

impl V8Heap<'_> {
    /// The first words of the object that begins at an address.
    fn head(&mut self, begin: u64) -> Option<[u64; 2]> {
        self.words(Reference::of(begin + V8Layout::HEAP_OBJECT)?)
    }

    /// The object of machine code that begins before an address, the nearest one: its beginning and
    /// first words.
    fn code_before(&mut self, address: u64) -> Option<(u64, [u64; 2])> {
        // Behind what stands before the code itself.
        let mut end = (address & !7).checked_sub(self.layout.instructions)? + 8;
        let lowest = address.saturating_sub(MAX_SIZE);
        let mut looks = 0;
        while end > lowest {
            // Whole pages, so that reading ends where the memory does.
            let begin = (end - 1) & !(PIECE - 1);
            let mut bytes = vec![0; (end - begin) as usize];
            self.bytes(begin, &mut bytes)?;
            for at in (0..bytes.len()).step_by(8).rev() {
                let word = u64_at(&bytes, at)?;
                let Some(reference) = Reference::of(word) else {
                    continue;
                };
                if !self.maps.contains_key(&reference.word()) {
                    looks += 1;
                    if looks > MAX_LOOKS {
                        return None;
                    }
                }
                if self.kind_by_map(word) != Some(self.layout.types.instructions) {
                    continue;
                }
                let found = begin + at as u64;
                return Some((found, self.head(found)?));
            }
            end = begin;
        }
        None
    }

    /// What is known of the code in the object that begins there.
    pub(super) fn described(&mut self, begin: u64) -> Option<Reference> {
        let object = Reference::of(begin + V8Layout::HEAP_OBJECT)?;
        if self.layout.code_is_one {
            return Some(object);
        }
        let code = Reference::of(self.word(object.field(V8Layout::WORD))?)?;
        let words: [u64; 8] = self.words(code)?;
        let is_its_code =
            self.kind_by_map(words[0])? == self.layout.types.code && words.contains(&object.word());
        is_its_code.then_some(code)
    }

    /// What the code in the object that begins there was compiled from.
    fn compiled(&mut self, begin: u64) -> Option<Compiled> {
        let code = self.described(begin)?;
        let marked = self.layout.frame.regular_expression.is_some();
        if !marked && self.kind_of_code(code, begin) == Some(REGULAR_EXPRESSION) {
            return Some(Compiled::RegularExpression);
        }
        let words: [u64; 4] = self.words(code)?;
        for word in &words[1..] {
            let Some(data) = Reference::of(*word) else {
                continue;
            };
            let Some(kind) = self.kind(data) else {
                continue;
            };
            let types = &self.layout.types;
            if kind == types.bytecode {
                return Some(Compiled::Baseline(data));
            }
            if kind == types.interpreter_data {
                let bytecode = Reference::of(self.word(data.field(V8Layout::WORD))?)?;
                let is = self.kind(bytecode)? == self.layout.types.bytecode;
                return is.then_some(Compiled::Baseline(bytecode));
            }
            if types.lists.contains(&kind) {
                let leaving: LeavingData = self.words(data)?;
                let (_, shared) = self.function_in(&leaving)?;
                let inlines = inlined_in(&leaving).is_some_and(|count| count > 0)
                    && self.kind_of_code(code, begin) == Some(self.layout.code_kind.last);
                return Some(Compiled::Optimised { shared, inlines });
            }
        }
        None
    }

    /// The function in the data on how to leave optimised code, and at which word.
    pub(super) fn function_in(&mut self, leaving: &LeavingData) -> Option<(usize, Reference)> {
        for (at, word) in leaving.iter().enumerate().skip(2) {
            let Some(element) = Reference::of(*word) else {
                continue;
            };
            let Some(kind) = self.kind(element) else {
                continue;
            };
            if kind == self.layout.types.shared {
                return Some((at, element));
            }
            if Some(kind) == self.layout.types.shared_wrapper {
                let shared = self.word(element.field(V8Layout::WORD))?;
                return Some((at, Reference::of(shared)?));
            }
        }
        None
    }
}
