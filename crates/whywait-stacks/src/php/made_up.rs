//! A PHP that is made up, in memory of this process: for tests, and to be made worse of.

use super::*;
use crate::made_up::ObjectMemory;

pub(super) const WORDS: usize = 512;
pub(super) const OWN_ID: u32 = 77;
pub(super) const MOST: usize = 100;
pub(super) const LAYOUT: &PhpLayout = &LAYOUTS[0].1;
/// What an entry of a table takes.
const ENTRY: u64 = 32;

/// An engine in a method that calls a function in C, in memory of its own. Other functions are
/// declared: one now, and one by the request before.
pub(super) struct MadeUpPhp {
    pub(super) memory: ObjectMemory,
    pub(super) globals: u64,
    pub(super) frames: [u64; 2],
    pub(super) class: u64,
    pub(super) in_c: u64,
    /// The method.
    pub(super) function: u64,
    /// The functions that it is not in.
    pub(super) now: u64,
    pub(super) before: u64,
    /// The table of functions.
    pub(super) table: u64,
    pub(super) runs_one: bool,
}

impl MadeUpPhp {
    pub(super) fn new() -> Self {
        let mut made = Self {
            memory: ObjectMemory::new(WORDS),
            globals: 0,
            frames: [0; 2],
            class: 0,
            in_c: 0,
            function: 0,
            now: 0,
            before: 0,
            table: 0,
            runs_one: false,
        };
        made.globals = made.memory.take(512);
        let [sleep, class_name, file] =
            ["sleep", "Orders", "/srv/Orders.php"].map(|text| made.string(text));
        made.class = made.memory.take(128);
        made.memory.set(made.class, 2);
        made.memory.set(made.class + LAYOUT.class_name, class_name);
        made.set_flags(made.class + LAYOUT.class_flags, LAYOUT.immutable);
        made.function = made.in_php("load", file, 30);
        made.memory.set(made.function + LAYOUT.class, made.class);
        made.now = made.in_php("now", file, 40);
        made.before = made.in_php("before", file, 50);
        let in_c = made.memory.take(192);
        made.in_c = in_c;
        made.memory.set(in_c, u64::from(IN_C));
        made.memory.set(in_c + LAYOUT.name, sleep);
        made.frames = [made.memory.take(80), made.memory.take(80)];
        let [inner, outer] = made.frames;
        let code = made.code_of(made.function);
        made.memory.set(made.globals + LAYOUT.current, inner);
        made.memory.set(inner + LAYOUT.function, in_c);
        made.memory.set(inner + LAYOUT.previous, outer);
        made.memory.set(outer + LAYOUT.function, made.function);
        made.memory.set(outer + LAYOUT.instruction, code + 32);
        made.memory
            .set(outer + LAYOUT.call_info, u64::from(LAYOUT.top));
        made.tables(in_c);
        made
    }

    /// What is declared.
    fn tables(&mut self, in_c: u64) {
        let own = self.memory.take(128);
        self.memory.set(own, 1);
        self.table = self.memory.take(56);
        self.fill(self.table, &[in_c, self.now, self.before], 2);
        let classes = self.memory.take(56);
        self.fill(classes, &[own, self.class], 2);
        let methods = self.class + LAYOUT.class_functions;
        self.fill(methods, &[self.function], 1);
        self.memory.set(self.globals + LAYOUT.functions, self.table);
        self.memory.set(self.globals + LAYOUT.classes, classes);
    }

    /// A table with so many entries, and those that it had before.
    fn fill(&mut self, table: u64, values: &[u64], used: u64) {
        let items = self.memory.take(values.len() * ENTRY as usize);
        self.memory.set(table + LAYOUT.table_items, items);
        self.memory.set(table + LAYOUT.table_used, used);
        self.memory
            .set(table + LAYOUT.table_size, values.len() as u64);
        for (value, at) in values.iter().zip((items..).step_by(ENTRY as usize)) {
            self.memory.set(at + LAYOUT.item_value, *value);
            let kind = u64::from(LAYOUT.pointer);
            self.memory.set(at + LAYOUT.item_type, kind);
        }
    }

    /// A function of two instructions, that stays.
    fn in_php(&mut self, name: &str, file: u64, line: u64) -> u64 {
        let name = self.string(name);
        let code = self.memory.take(64);
        self.memory.set(code + LAYOUT.line, line);
        self.memory.set(code + 32 + LAYOUT.line, line + 1);
        let function = self.memory.take(192);
        self.set_flags(function + LAYOUT.flags, LAYOUT.immutable);
        self.memory.set(function + LAYOUT.name, name);
        self.memory.set(function + LAYOUT.code, code);
        self.memory.set(function + LAYOUT.code_count, 2);
        self.memory.set(function + LAYOUT.file, file);
        self.memory.set(function + LAYOUT.first_line, line - 1);
        function
    }

    /// Of a function or a class in PHP: the flags are the upper half of a word.
    pub(super) fn set_flags(&mut self, at: u64, flags: u32) {
        self.memory
            .set(at - 4, u64::from(flags) << 32 | u64::from(IN_PHP));
    }

    pub(super) fn code_of(&self, function: u64) -> u64 {
        let at = function + LAYOUT.code - self.memory.address();
        self.memory.words[at as usize / 8]
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

    fn php(&self) -> Php {
        self.memory.is_read();
        Php {
            layout: *LAYOUT,
            globals: self.globals,
            runs_one: self.runs_one,
            thread: OWN_ID,
            functions: HashMap::new(),
            places: CodePlaces::default(),
            places_charge: Budget::default().nothing(),
            next_look: NextLook::default(),
            budget: Budget::default(),
        }
    }

    /// The functions that are read, innermost first.
    pub(super) fn read(&self, process: &mut Process) -> Result<Vec<(String, u32)>, Unread> {
        let mut php = self.php();
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

    /// What is known of functions that came with a stack, innermost first, by their instructions.
    pub(super) fn copied(
        &self,
        process: &mut Process,
        functions: &[(u64, u64)],
    ) -> (Vec<Option<String>>, bool) {
        let mut php = self.php();
        let copied = functions.iter().map(|&(code, instruction)| CopiedFunction {
            code,
            instruction,
            last: true,
        });
        let copied: Vec<CopiedFunction> = copied.collect();
        let CopiedFrames { frames, cut } = php.copied(process, &copied);
        let mut name = |raw: &RawFrame| php.code(process, raw).map(|code| code.name.clone());
        (frames.iter().map(&mut name).collect(), cut)
    }

    /// What a function that was not met is called, by its second instruction.
    pub(super) fn not_met(&self, process: &mut Process, function: u64) -> Option<(String, u32)> {
        let mut php = self.php();
        let instruction = self.code_of(function).wrapping_add(32);
        let (raw, code) = php.current(process, [self.frames[0], instruction])?;
        Some((code.name.clone(), php.line(&code, &raw)))
    }
}
