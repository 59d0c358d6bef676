//! An interpreter's memory, made up in this process: for tests, and to be made worse of.

use super::layout::PythonLayout;
use super::read::CPython;
use super::tasks::OWNED_BY_GENERATOR;
use crate::budget::Budget;
use crate::elf::u64_at;

/// Room for more than is there.
pub(super) const WORDS: usize = 1024;
/// Behind which there is room for so many words of others.
const ROOM: usize = 2 * WORDS;

/// Objects of 3.12, made up in this process: what an interpreter's memory would have.
pub(super) struct MadeUpMemory {
    pub(super) words: Vec<u64>,
    /// Addresses of what is there.
    pub(super) code: u64,
    pub(super) task: u64,
    pub(super) coroutine: u64,
    pub(super) future: u64,
    pub(super) types: [u64; 3],
}

impl MadeUpMemory {
    pub(super) fn new() -> Self {
        let mut made = Self {
            words: Vec::with_capacity(ROOM),
            code: 0,
            task: 0,
            coroutine: 0,
            future: 0,
            types: [0; 3],
        };
        let types = ["code", "str", "bytes"].map(|name| made.of_type(name));
        let [task, coroutine, future, iterator, context, wakeup] = [
            "_asyncio.Task",
            "coroutine",
            "_asyncio.Future",
            "_asyncio.FutureIter",
            "_contextvars.Context",
            "_asyncio.TaskStepMethWrapper",
        ]
        .map(|name| made.of_type(name));
        made.types = types;
        let name = made.object(types[1], &[(16, 7), (32, 1 << 2 | 1 << 5 | 1 << 6)], 56);
        made.set(name + 40, u64::from_le_bytes(*b"handler\0"));
        let lines = made.object(types[2], &[(16, 0)], 40);
        let code = [(16, 4), (112, name), (128, name), (136, lines), (68, 7)];
        let code = made.object(types[0], &code, 208);
        made.code = code;
        let event_loop = made.object(context, &[], 16);
        let wakeup = made.object(wakeup, &[], 24);
        made.future = made.object(future, &[(16, event_loop), (24, wakeup)], 128);
        let awaited = made.object(iterator, &[(16, made.future)], 24);
        let suspended = 0xff << 24;
        let owned = u64::from(OWNED_BY_GENERATOR) << 48;
        let fields = [
            (64, suspended),
            (72, code),
            (128, code + 200),
            (136, owned | 1),
            (144, awaited),
        ];
        made.coroutine = made.object(coroutine, &fields, 160);
        let context = made.object(context, &[], 24);
        let fields = [
            (16, event_loop),
            (128, made.future),
            (136, made.coroutine),
            (152, context),
        ];
        made.task = made.object(task, &fields, 176);
        made
    }

    pub(super) fn address(&self) -> u64 {
        self.words.as_ptr() as u64
    }

    pub(super) fn set(&mut self, at: u64, value: u64) {
        let index = (at - self.address()) / 8;
        self.words[index as usize] = value;
    }

    fn object(&mut self, of: u64, fields: &[(u64, u64)], bytes: usize) -> u64 {
        let at = self.address() + self.words.len() as u64 * 8;
        assert!(
            self.words.len() + bytes / 8 <= WORDS,
            "it stays where it is"
        );
        self.words.extend(std::iter::repeat_n(0, bytes / 8));
        self.set(at + 8, of);
        for (field, value) in fields {
            // Fields of four bytes begin in the middle of a word.
            let (word, shift) = (at + field / 8 * 8, field % 8 * 8);
            self.set(word, value << shift);
        }
        at
    }

    fn of_type(&mut self, name: &str) -> u64 {
        let bytes = name.len() / 8 * 8 + 8;
        let at = self.address() + self.words.len() as u64 * 8;
        let mut text = name.as_bytes().to_vec();
        text.resize(bytes, 0);
        let words = text.chunks_exact(8).filter_map(|word| u64_at(word, 0));
        self.words.extend(words);
        self.object(0, &[(24, at), (32, 176)], 288)
    }

    /// An interpreter that has its types.
    pub(super) fn interpreter(&self, layout: PythonLayout, budget: &Budget) -> CPython {
        // It is read by way of the kernel.
        std::hint::black_box(&self.words);
        CPython::new(layout, 0, self.types, budget)
    }
}
