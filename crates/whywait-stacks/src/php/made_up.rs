//! A PHP that is made up, in memory of this process: for tests, and to be made worse of.

use super::*;
use crate::made_up::ObjectMemory;

pub(super) const WORDS: usize = 512;
pub(super) const OWN_ID: u32 = 77;
pub(super) const MOST: usize = 100;

/// An engine in a method that calls a function in C, in memory of its own.
pub(super) struct MadeUpPhp {
    pub(super) memory: ObjectMemory,
    pub(super) globals: u64,
    pub(super) frames: [u64; 2],
    pub(super) function: u64,
}

impl MadeUpPhp {
    pub(super) fn new() -> Self {
        let layout = LAYOUTS[0].1;
        let mut made = Self {
            memory: ObjectMemory::new(WORDS),
            globals: 0,
            frames: [0; 2],
            function: 0,
        };
        made.globals = made.memory.take(512);
        let [sleep, load, class_name, file] =
            ["sleep", "load", "Orders", "/srv/Orders.php"].map(|text| made.string(text));
        let class = made.memory.take(16);
        made.memory.set(class, 2);
        made.memory.set(class + layout.class_name, class_name);
        let code = made.memory.take(64);
        made.memory.set(code + layout.line, 30);
        made.memory.set(code + 32 + layout.line, 31);
        made.function = made.memory.take(192);
        let method = made.function;
        made.memory.set(method, u64::from(IN_PHP));
        made.memory.set(method + layout.name, load);
        made.memory.set(method + layout.class, class);
        made.memory.set(method + layout.code, code);
        made.memory.set(method + layout.code_count, 2);
        made.memory.set(method + layout.file, file);
        made.memory.set(method + layout.first_line, 29);
        let in_c = made.memory.take(192);
        made.memory.set(in_c, u64::from(IN_C));
        made.memory.set(in_c + layout.name, sleep);
        made.frames = [made.memory.take(80), made.memory.take(80)];
        let [inner, outer] = made.frames;
        made.memory.set(made.globals + layout.current, inner);
        made.memory.set(inner + layout.function, in_c);
        made.memory.set(inner + layout.previous, outer);
        made.memory.set(outer + layout.function, method);
        made.memory.set(outer + layout.instruction, code + 32);
        made.memory
            .set(outer + layout.call_info, u64::from(layout.top));
        made
    }

    pub(super) fn string(&mut self, text: &str) -> u64 {
        let at = self.memory.take(24 + 16);
        self.memory.set(at, u64::from(STRING) << 32 | 1);
        self.memory.set(at + 16, text.len() as u64);
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(16, 0);
        for (i, word) in bytes.chunks_exact(8).enumerate() {
            let word = u64_at(word, 0).expect("a word");
            self.memory.set(at + 24 + i as u64 * 8, word);
        }
        at
    }

    /// The functions that are read, innermost first.
    pub(super) fn read(&self, process: &mut Process) -> Result<Vec<(String, u32)>, Unread> {
        self.memory.is_read();
        let mut php = Php {
            layout: LAYOUTS[0].1,
            globals: self.globals,
            thread: OWN_ID,
            functions: HashMap::new(),
            places: CodePlaces::default(),
            budget: Budget::default(),
        };
        let thread = php.thread(process, OWN_ID)?;
        let chain = php.chain(process, thread, MOST).ok_or(Unread::Memory)?;
        assert!(chain.len() <= MOST);
        let mut found = Vec::new();
        for raw in &chain {
            let code = php.code(process, raw).ok_or(Unread::Memory)?;
            found.push((code.name.clone(), php.line(&code, raw)));
        }
        Ok(found)
    }
}
