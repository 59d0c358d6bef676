//! Virtual machines that are made up as real ones are laid out: for tests, and to be made worse of.

use std::io;

use super::layout::{BlobPlace, DebugTables, SourceName, VERSIONS};
use super::memory::{FieldPlace, Width};
use super::*;

pub(super) const DESCRIBED: [&str; 4] = [
    include_str!("described/11.txt"),
    include_str!("described/17.txt"),
    include_str!("described/21.txt"),
    include_str!("described/25.txt"),
];

pub(super) const STATICS: u64 = 0x1000;
pub(super) const STRUCTURES: u64 = 0x10_0000;
pub(super) const HEAP: u64 = 0x20_0000;
pub(super) const MAP: u64 = 0x30_0000;
pub(super) const METADATA: u64 = 0x40_0000;
pub(super) const STACK: u64 = 0x7fff_0000;
pub(super) const SEGMENT_LOG2: u64 = 7;
pub(super) const INTERPRETER: Range<u64> = HEAP + 0x8000..HEAP + 0x9000;
pub(super) const CALL_STUB_RETURN: u64 = HEAP + 0x9010;
pub(super) const CODE: u64 = 0x400;
pub(super) const FRAME_WORDS: u64 = 4;
pub(super) const OUTER_LINE: u32 = 12;
pub(super) const INNER_LINE: u32 = 30;

/// A virtual machine in memory: one heap with the interpreter and one compiled method,
/// `Server.outer`, which has inlined `Server.inner`.
#[derive(Clone)]
pub(super) struct MadeUpJvm {
    pub(super) layout: JvmLayout,
    pub(super) memory: JvmMemory,
    pub(super) blob: u64,
    pub(super) outer: u64,
    pub(super) inner: u64,
}

impl MadeUpJvm {
    pub(super) fn of(version: usize) -> Self {
        let description = Description::written(DESCRIBED[version], STATICS);
        let layout = JvmLayout::of_version(&description, VERSIONS[version]);
        let layout = layout.expect("it describes all that is read");
        let piece = |at, size| (at, vec![0; size]);
        let memory = JvmMemory(vec![
            piece(STATICS, 0x1000),
            piece(STRUCTURES, 0x4000),
            piece(HEAP, 0x1_0000),
            piece(MAP, 0x1000),
            piece(METADATA, 0x1_0000),
        ]);
        let mut world = Self {
            blob: HEAP + layout.cache.block as u64,
            layout,
            memory,
            outer: METADATA + 0x1000,
            inner: METADATA + 0x4000,
        };
        world.make_cache();
        world.make_method(world.outer, "outer", OUTER_LINE);
        world.make_method(world.inner, "inner", INNER_LINE);
        world.make_blob();
        world
    }

    pub(super) fn word(&mut self, at: u64, value: u64) {
        self.memory.put(at, &value.to_le_bytes());
    }

    pub(super) fn set(&mut self, structure: u64, field: FieldPlace, value: u64) {
        let size = match field.width {
            Width::U8 => 1,
            Width::U16 | Width::I16 => 2,
            Width::I32 => 4,
            Width::U64 => 8,
        };
        let at = structure + field.offset as u64;
        self.memory.put(at, &value.to_le_bytes()[..size]);
    }

    pub(super) fn make_cache(&mut self) {
        let layout = self.layout.clone();
        let (array, elements, heap, queue) = (
            STRUCTURES,
            STRUCTURES + 0x100,
            STRUCTURES + 0x200,
            STRUCTURES + 0x1000,
        );
        self.word(layout.cache.heaps, array);
        self.set(array, layout.cache.array.0, 1);
        self.set(array, layout.cache.array.1, elements);
        self.word(elements, heap);
        self.set(heap, layout.cache.segment_log2, SEGMENT_LOG2);
        let spaces = [
            (layout.cache.memory, HEAP..HEAP + 0x1_0000),
            (layout.cache.map, MAP..MAP + 0x200),
        ];
        for (part, range) in spaces {
            self.set(heap + part, layout.cache.low, range.start);
            self.set(heap + part, layout.cache.high, range.end);
        }
        // The compiled method's segments; the others are not in use.
        self.memory.put(MAP, &[0xff; 0x200]);
        let segments: Vec<u8> = (0..0x20).collect();
        self.memory.put(MAP, &segments);
        self.set(HEAP, layout.cache.used, 1);
        self.word(layout.interpreter, queue);
        self.set(queue, layout.codelets.0, INTERPRETER.start);
        let size = INTERPRETER.end - INTERPRETER.start;
        self.set(queue, layout.codelets.1, size);
        self.word(layout.call_stub_return, CALL_STUB_RETURN);
    }

    pub(super) fn make_symbol(&mut self, at: u64, text: &str) {
        let layout = self.layout.method.clone();
        self.set(at, layout.text_length, text.len() as u64);
        self.memory.put(at + layout.text, text.as_bytes());
    }

    pub(super) fn make_method(&mut self, at: u64, name: &str, line: u32) {
        let layout = self.layout.method.clone();
        let (constant, pool, class, symbols) = (at + 0x200, at + 0x600, at + 0xa00, at + 0x1000);
        self.set(at, layout.constant, constant);
        self.set(constant, layout.pool, pool);
        self.set(constant, layout.words, 0x20);
        self.set(constant, layout.flags, layout.has_lines);
        self.set(constant, layout.code_size, 16);
        self.set(constant, layout.name, 1);
        let lines = constant + layout.head as u64 + 16;
        // From the first bytecode on.
        let number = 2 * line as u8 + u8::from(self.layout.debug.excludes_zero);
        let zero = u8::from(self.layout.debug.excludes_zero);
        self.memory.put(lines, &[0xff, zero, number, 0]);
        self.set(pool, layout.pool_length, 3);
        self.set(pool, layout.class, class);
        self.set(class, layout.class_name, symbols);
        self.make_symbol(symbols, "com/acme/Server");
        let entries = pool + layout.pool_head as u64;
        self.word(entries + 8, symbols + 0x100);
        self.make_symbol(symbols + 0x100, name);
        self.word(entries + 16, symbols + 0x200);
        self.make_symbol(symbols + 0x200, "Server.java");
        match layout.source {
            SourceName::Pool(field) => self.set(pool, field, 2),
            SourceName::Class(field) => self.set(class, field, 2),
        }
    }

    pub(super) fn place(&mut self, place: BlobPlace, address: u64) {
        let blob = self.blob;
        match place {
            BlobPlace::Address(field) => self.set(blob, field, address),
            BlobPlace::FromBlob(field) => self.set(blob, field, address - blob),
            BlobPlace::FromCode(field) => self.set(blob, field, address - (blob + CODE)),
        }
    }

    pub(super) fn make_blob(&mut self) {
        let layout = self.layout.clone();
        let blob = self.blob;
        let code = blob + CODE..blob + CODE + 0x200;
        let name = STRUCTURES + 0x2000;
        self.memory.put(name, b"nmethod\0");
        self.set(blob, layout.blob.name, name);
        self.set(blob, layout.blob.size, 0xf00);
        self.set(blob, layout.blob.frame_size, FRAME_WORDS);
        self.set(blob, layout.blob.frame_complete, 0x10);
        self.place(layout.blob.code.0, code.start);
        self.place(layout.blob.code.1, code.end);
        self.set(blob, layout.compiled.method, self.outer);
        self.set(blob, layout.compiled.id, 7);
        self.place(layout.compiled.entry, code.start);
        for handler in layout.compiled.deoptimise {
            self.place(handler, code.end - 0x10);
        }
        self.set(blob, layout.compiled.original, 8);
        self.memory.put(code.start, &[0x90; 0x200]);
        let (entries, scopes, metadata) = match layout.debug.tables {
            DebugTables::Behind {
                entries,
                entries_end,
                scopes,
                metadata,
            } => {
                self.set(blob, entries, 0xa00);
                self.set(blob, entries_end, 0xa00 + 4 * 16);
                self.set(blob, scopes, blob + 0xb00);
                self.set(blob, metadata, 0xc00);
                (blob + 0xa00, blob + 0xb00, blob + 0xc00)
            }
            DebugTables::Apart {
                tables,
                entries,
                scopes,
                objects,
                metadata,
            } => {
                self.set(blob, tables, METADATA + 0x8000);
                self.set(blob, entries, 0);
                self.set(blob, scopes, 4 * 16);
                self.set(blob, objects, METADATA + 0x9000);
                self.set(blob, metadata, 0x40);
                (METADATA + 0x8000, METADATA + 0x8040, METADATA + 0x9040)
            }
        };
        // At 0x40 in `outer`, at 0x80 in `inner` called by it; the first and the last mean nothing.
        let scope = [(-1i32, 0u32), (0x40, 1), (0x80, 4), (i32::MAX, 0)];
        for (at, (offset, scope)) in (0..).zip(scope) {
            let entry = entries + 16 * at;
            self.memory.put(entry, &offset.to_le_bytes());
            self.memory.put(entry + 4, &scope.to_le_bytes());
        }
        // Caller, method, bytecode and one: of `outer`, and of `inner`.
        let one = u8::from(layout.debug.excludes_zero);
        let numbers = [0, 0, 1, 4, 1, 2, 6].map(|number| number + one);
        self.memory.put(scopes, &numbers);
        self.word(metadata, self.outer);
        self.word(metadata + 8, self.inner);
    }

    pub(super) fn vm(&self) -> HotSpot {
        HotSpot::new(self.layout.clone(), &Budget::default())
    }
}

/// The words of a stack, from [`STACK`] on.
pub(super) fn stack(words: &[(u64, u64)]) -> Vec<u8> {
    let mut bytes = vec![0; 0x400];
    for &(at, value) in words {
        bytes[at as usize..at as usize + 8].copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// A frame of the interpreter, whose frame pointer is at 0x80.
pub(super) fn interpreted(method: u64, bytecode: u64) -> Vec<u8> {
    stack(&[
        (0x80 - 64, bytecode),
        (0x80 - 24, method),
        (0x80 - 8, STACK + 0xa0),
        (0x80, STACK + 0x200),
        (0x88, 0x1234),
    ])
}

/// Made-up memory: pieces at addresses.
#[derive(Debug, Default, Clone)]
pub(super) struct JvmMemory(pub(super) Vec<(u64, Vec<u8>)>);

impl JvmMemory {
    pub(super) fn put(&mut self, at: u64, bytes: &[u8]) {
        for (start, piece) in &mut self.0 {
            let offset = at.wrapping_sub(*start) as usize;
            if let Some(into) = piece.get_mut(offset..)
                && into.len() >= bytes.len()
            {
                into[..bytes.len()].copy_from_slice(bytes);
                return;
            }
        }
        self.0.push((at, bytes.to_vec()));
    }
}

impl ReadAt for JvmMemory {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let found = self.0.iter().find_map(|(start, piece)| {
            let from = usize::try_from(offset.checked_sub(*start)?).ok()?;
            piece.get(from..from.checked_add(buffer.len())?)
        });
        buffer.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
    fn len(&self) -> u64 {
        u64::MAX
    }
}
