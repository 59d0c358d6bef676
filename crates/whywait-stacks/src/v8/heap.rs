//! Objects of V8's heap, read from a program that may run on meanwhile. Each object says by its map
//! what it is; nothing is taken for something that it does not say it is.

use std::collections::HashMap;

use super::layout::V8Layout;
use crate::arch;
use crate::elf::{ReadAt, u16_at, u32_at, u64_at};

/// Maps that are remembered. Those of the types used here are never moved and never go.
const MAX_MAPS: usize = 1024;
/// How deep strings may be made of others.
const MAX_NESTED: usize = 16;
/// A name that is longer is cut.
const MAX_NAME: u64 = 512;

/// Nothing is mapped below.
const LOWEST: u64 = 4096;

/// A reference to an object: its address and one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Reference(u64);

impl Reference {
    /// A word that can be a reference; weak ones are none.
    pub(super) fn of(word: u64) -> Option<Self> {
        (word & 3 == V8Layout::HEAP_OBJECT && word > LOWEST && word < arch::USER_END)
            .then_some(Self(word))
    }

    pub(super) fn word(self) -> u64 {
        self.0
    }

    /// The address of a field.
    pub(super) fn field(self, offset: u64) -> u64 {
        self.0 - V8Layout::HEAP_OBJECT + offset
    }
}

/// The value of a word that is a small integer.
pub(super) fn small_integer(word: u64) -> Option<i64> {
    (word & 0xffff_ffff == 0).then_some((word as i64) >> 32)
}

/// A string's characters, where they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Characters {
    pub(super) address: u64,
    /// How many.
    pub(super) length: u64,
    pub(super) one_byte: bool,
}

/// Reads objects of one process.
pub(super) struct V8Heap<'a> {
    pub(super) memory: &'a dyn ReadAt,
    pub(super) layout: &'a V8Layout,
    /// Types of objects by their maps; `None`: it is no map.
    pub(super) maps: &'a mut HashMap<u64, Option<u16>>,
}

impl V8Heap<'_> {
    pub(super) fn word(&mut self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.bytes(address, &mut bytes)?;
        Some(u64::from_le_bytes(bytes))
    }

    /// The first words of an object, its map's first.
    pub(super) fn words<const N: usize>(&mut self, object: Reference) -> Option<[u64; N]> {
        let mut words = [0; N];
        let mut bytes = [0; 512];
        let bytes = bytes.get_mut(..N * 8)?;
        self.bytes(object.field(0), bytes)?;
        for (at, word) in words.iter_mut().enumerate() {
            *word = u64_at(bytes, at * 8)?;
        }
        Some(words)
    }

    pub(super) fn bytes(&mut self, address: u64, buffer: &mut [u8]) -> Option<()> {
        let end = address.checked_add(buffer.len() as u64)?;
        if address < LOWEST || end >= arch::USER_END {
            return None;
        }
        self.memory.read_exact_at(buffer, address).ok()
    }

    /// What type an object is of.
    pub(super) fn kind(&mut self, object: Reference) -> Option<u16> {
        let map = self.word(object.field(0))?;
        self.kind_by_map(map)
    }

    /// What type objects of a map are of.
    pub(super) fn kind_by_map(&mut self, map: u64) -> Option<u16> {
        if let Some(known) = self.maps.get(&map) {
            return *known;
        }
        let found = self.look_at_map(map);
        if self.maps.len() >= MAX_MAPS {
            self.maps.clear();
        }
        self.maps.insert(map, found);
        found
    }

    fn look_at_map(&mut self, map: u64) -> Option<u16> {
        let map = Reference::of(map)?;
        // The map of a map is one, and its own: not so where an object has moved away.
        let of_map = Reference::of(self.word(map.field(0))?)?;
        let own = self.word(of_map.field(0))?;
        let is_map = own == of_map.word() && self.type_in(of_map)? == self.layout.types.map;
        is_map.then_some(())?;
        self.type_in(map)
    }

    fn type_in(&mut self, map: Reference) -> Option<u16> {
        let mut bytes = [0; 2];
        self.bytes(map.field(self.layout.instance_type), &mut bytes)?;
        u16_at(&bytes, 0)
    }

    /// The text of a string, at most so much of it; `None`: it is none.
    pub(super) fn text(&mut self, string: Reference) -> Option<String> {
        let mut text = String::new();
        // What is left to be read of strings that are made of two, the next one last.
        let mut left = vec![string];
        for _ in 0..MAX_NESTED * 4 {
            let Some(next) = left.pop() else {
                break;
            };
            if let Some([first, second]) = self.two_parts(next)? {
                left.extend([second, first]);
                continue;
            }
            let found = self.characters(next)?;
            let cut = found.length.min(MAX_NAME.saturating_sub(text.len() as u64));
            self.append(
                Characters {
                    length: cut,
                    ..found
                },
                &mut text,
            )?;
            if cut < found.length {
                return Some(text);
            }
        }
        left.is_empty().then_some(text)
    }

    fn append(&mut self, characters: Characters, text: &mut String) -> Option<()> {
        let size = characters.length << u32::from(!characters.one_byte);
        let mut bytes = vec![0; usize::try_from(size).ok()?];
        self.bytes(characters.address, &mut bytes)?;
        if characters.one_byte {
            text.extend(bytes.iter().map(|&byte| char::from(byte)));
        } else {
            let units = bytes
                .chunks_exact(2)
                .map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
            text.extend(
                char::decode_utf16(units)
                    .map(|character| character.unwrap_or(char::REPLACEMENT_CHARACTER)),
            );
        }
        Some(())
    }

    /// The parts of a string that is made of two; `Some(None)`: it is not.
    fn two_parts(&mut self, string: Reference) -> Option<Option<[Reference; 2]>> {
        let layout = &self.layout.strings;
        let (first, second) = (layout.cons_first, layout.cons_second);
        if self.representation(string)? != layout.cons {
            return Some(None);
        }
        let first = Reference::of(self.word(string.field(first))?)?;
        let second = Reference::of(self.word(string.field(second))?)?;
        Some(Some([first, second]))
    }

    fn representation(&mut self, string: Reference) -> Option<u16> {
        let kind = self.string_kind(string)?;
        Some(kind & self.layout.strings.representation)
    }

    fn string_kind(&mut self, string: Reference) -> Option<u16> {
        let kind = self.kind(string)?;
        (kind < self.layout.types.first_non_string).then_some(kind)
    }

    fn length(&mut self, string: Reference) -> Option<u64> {
        let mut bytes = [0; 4];
        self.bytes(string.field(self.layout.strings.length), &mut bytes)?;
        Some(u64::from(u32_at(&bytes, 0)?))
    }

    /// Where a string has its characters, if it has them in one piece.
    pub(super) fn characters(&mut self, mut string: Reference) -> Option<Characters> {
        let layout = self.layout;
        let strings = &layout.strings;
        let length = self.length(string)?;
        let mut skipped = 0u64;
        for _ in 0..MAX_NESTED {
            let kind = self.string_kind(string)?;
            let representation = kind & strings.representation;
            let of_all = self.length(string)?;
            if skipped.checked_add(length)? > of_all {
                return None;
            }
            let next = if representation == strings.thin {
                strings.thin_actual
            } else if representation == strings.cons {
                // A flattened one: all is in the first part.
                let second = Reference::of(self.word(string.field(strings.cons_second))?)?;
                (self.length(second)? == 0).then_some(strings.cons_first)?
            } else if representation == strings.sliced {
                let offset = self.word(string.field(strings.sliced_offset))?;
                skipped = skipped.checked_add(u64::try_from(small_integer(offset)?).ok()?)?;
                strings.sliced_parent
            } else {
                let one_byte = kind & strings.encoding == strings.one_byte;
                let begin = match representation {
                    tag if tag == strings.sequential && one_byte => {
                        string.field(strings.one_byte_characters)
                    }
                    tag if tag == strings.sequential => string.field(strings.two_byte_characters),
                    // The resource's own copy of its address follows it, unless it may change.
                    tag if tag == strings.external && kind & UNCACHED == 0 => {
                        self.word(string.field(strings.external_resource + V8Layout::WORD))?
                    }
                    _ => return None,
                };
                return Some(Characters {
                    address: begin.checked_add(skipped << u32::from(!one_byte))?,
                    length,
                    one_byte,
                });
            };
            string = Reference::of(self.word(string.field(next))?)?;
        }
        None
    }
}

/// Of a string whose characters are elsewhere: their address is not kept in it
/// (`kUncachedExternalStringMask` in src/objects/instance-type.h).
const UNCACHED: u16 = 1 << 4;
