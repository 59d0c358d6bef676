//! Ruby's frames of a thread, read from outside out of the interpreter's own structures (3.1 to
//! 3.4): see [`interpreter`](crate::interpreter).
//!
//! A thread's frames lie one behind the other at the end of its stack of values. Each has its
//! function, the next instruction, and an environment whose first word says what kind of frame it
//! is and whether C has called it: then a call of the interpreter's loop ends with it.
//!
//! That the layout is right shows in each process: its lists of ractors and threads lead back to
//! their owners, the frames fit into their stack, and the instructions of functions are addresses
//! within one function of the library, which is the loop. Code of Ruby's just-in-time compiler
//! counts as the loop, too.

mod find;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod layout;
mod lines;
#[cfg(any(test, fuzzing))]
mod made_up;
mod objects;
mod tables;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use whywait_events::ModuleKind;

use crate::budget::Budget;
use crate::elf::{u32_at, u64_at};
use crate::interpreter::{
    CodeNames, CodePlace, CodePlaces, FoundInterpreter, Interpreter, LoopCalls, RawFrame, frame_at,
};
use crate::loss::{Language, Unread};
use crate::modules::{Image, Modules};
use crate::process::{Process, object, word};
use layout::{FirstLine, NativeId, RubyLayout};
use objects::RubyInternal;

/// The interpreter in a process.
#[derive(Debug)]
pub(crate) struct Ruby {
    layout: RubyLayout,
    /// Address of `rb_vm_t`.
    vm: u64,
    /// The code of its loop, in the process.
    code: Range<u64>,
    /// The array with the names of all ids; `None`: not found, and functions of C have no names.
    names: Option<u64>,
    /// Where each of the kernel's threads was found.
    threads: HashMap<u32, u64>,
    functions: HashMap<[u64; 4], Arc<CodeNames>>,
    places: CodePlaces,
    budget: Budget,
}

/// An `rb_execution_context_t` that agrees with itself.
struct RubyContext {
    frame: u64,
    stack: u64,
    end: u64,
}

const MAX_RACTORS: usize = 256;
const MAX_THREADS: usize = 8192;
const MAX_FUNCTIONS: usize = 1 << 16;
/// A stack of frames and values of 16 MiB: by default it has 1 MiB.
const MAX_STACK_WORDS: u64 = 2 << 20;
/// Functions of thousands of lines have less.
const MAX_LINES: u64 = 128 << 10;
/// So many bytes of values are read together.
const MAX_VALUES: u64 = 128 << 10;
/// What a function takes beside its strings and lines.
const FUNCTION: usize = 2 * size_of::<([u64; 4], Arc<CodeNames>)>() + size_of::<CodeNames>();

/// In the first word of a frame's environment (`vm_core.h`).
const KIND: u64 = 0x7fff_0001;
const OF_C: u64 = 0x5555_0001;
const OF_RUBY: [u64; 6] = [
    0x1111_0001,
    0x2222_0001,
    0x3333_0001,
    0x4444_0001,
    0x7777_0001,
    0x7888_0001,
];
const OF_BLOCK_OF_C: u64 = 0x6666_0001;
const DUMMY: u64 = 0x7999_0001;
const FINISH: u64 = 0x20;
/// Behind that word, downwards: the method.
const METHOD: u64 = 16;

impl Ruby {
    fn new(layout: RubyLayout, vm: u64, budget: &Budget) -> Self {
        Self {
            layout,
            vm,
            code: 0..0,
            names: None,
            threads: HashMap::new(),
            functions: HashMap::new(),
            places: CodePlaces::default(),
            budget: budget.clone(),
        }
    }

    /// All threads, as the lists of ractors and of theirs say.
    fn threads(&self, process: &mut Process) -> Option<Vec<u64>> {
        let layout = &self.layout;
        let head = self.vm.checked_add(layout.vm_ractors)?;
        let ractors = list(process, head, layout.ractor_node, MAX_RACTORS)?;
        let mut threads = Vec::new();
        for ractor in ractors {
            let head = ractor.checked_add(layout.ractor_threads)?;
            for thread in list(process, head, layout.thread_node, MAX_THREADS)? {
                let its = word(process, thread.checked_add(layout.thread_ractor)?)?;
                (its == ractor).then_some(())?;
                threads.push(thread);
            }
        }
        Some(threads)
    }

    /// The id of the kernel's thread that a thread is on; 0: on none.
    fn native_id(&self, process: &mut Process, thread: u64) -> Option<u32> {
        let at = match self.layout.native_id {
            NativeId::OfThread(id) => thread.checked_add(id)?,
            NativeId::OfNative { native, id } => {
                match word(process, thread.checked_add(native)?)? {
                    0 => return Some(0),
                    native => native.checked_add(id)?,
                }
            }
        };
        let mut bytes = [0; 4];
        process
            .read_memory(at, &mut bytes)
            .then(|| u32::from_le_bytes(bytes))
    }

    fn context(&self, process: &mut Process, thread: u64) -> Option<RubyContext> {
        let layout = &self.layout;
        let context = word(process, thread.checked_add(layout.thread_context)?)?;
        let bytes = object(process, context, 128)?;
        let field = |at: u64| u64_at(&bytes, at as usize);
        let words = field(layout.context_stack_words)?;
        let stack = field(layout.context_stack)?;
        let end = stack.checked_add(words.checked_mul(8)?)?;
        let frame = field(layout.context_frame)?;
        let agrees = field(layout.context_thread)? == thread
            && words <= MAX_STACK_WORDS
            && (stack..end).contains(&frame)
            && (end - frame).is_multiple_of(layout.frame_bytes);
        agrees.then_some(RubyContext { frame, stack, end })
    }

    /// The frames of a thread, innermost first; those that have no function are left out.
    fn frames(&self, process: &mut Process, thread: u64, most: usize) -> Option<Vec<RawFrame>> {
        let layout = &self.layout;
        let context = self.context(process, thread)?;
        let size = usize::try_from(context.end - context.frame).ok()?;
        let each = layout.frame_bytes as usize;
        // The outermost has no function.
        if size / each > most + 1 {
            return None;
        }
        let mut bytes = vec![0; size];
        process
            .read_memory(context.frame, &mut bytes)
            .then_some(())?;
        let values = self.values(process, &context, &bytes)?;
        let mut frames: Vec<RawFrame> = Vec::new();
        let mut group = 0;
        for (i, frame) in bytes.chunks_exact(each).enumerate() {
            let field = |at: u64| u64_at(frame, at as usize);
            let environment = field(layout.frame_environment)?;
            let kind = values.word(process, environment)?;
            let address = context.frame + (i * each) as u64;
            let (code, instruction) = match kind & KIND {
                OF_C if self.names.is_some() => {
                    let method = environment.checked_sub(METHOD)?;
                    (values.word(process, method)?, 0)
                }
                OF_C | OF_BLOCK_OF_C | DUMMY => (0, 0),
                kind if OF_RUBY.contains(&kind) => {
                    (field(layout.frame_iseq)?, field(layout.frame_pc)?)
                }
                _ => return None,
            };
            if code != 0 {
                frames.push(RawFrame {
                    address,
                    code,
                    instruction,
                    call: 0,
                });
            }
            if kind & FINISH != 0 {
                frames[group..]
                    .iter_mut()
                    .for_each(|raw| raw.call = address);
                group = frames.len();
            }
        }
        Some(frames)
    }

    /// The values that a thread uses, up to where its innermost frame says: most environments lie
    /// among them.
    fn values(
        &self,
        process: &mut Process,
        context: &RubyContext,
        frames: &[u8],
    ) -> Option<RubyValues> {
        let end = u64_at(frames, self.layout.frame_values as usize)?;
        let used = end.checked_sub(context.stack)?;
        let from = end - used.min(MAX_VALUES);
        let size = usize::try_from(end - from).ok()?;
        Some(RubyValues {
            from,
            bytes: process.read_up_to(from, size),
        })
    }

    fn method(&self, process: &mut Process, method: u64) -> Option<([u64; 4], u64)> {
        let layout = &self.layout;
        let definition = word(process, method.checked_add(layout.method_definition)?)?;
        let id = word(process, definition.checked_add(layout.definition_name)?)?;
        Some(([method, definition, id, 0], id))
    }

    fn name_method(&self, process: &mut Process, id: u64) -> Option<CodeNames> {
        let name = self.name(process, self.names?, id)?;
        let charge = self.budget.take(FUNCTION + name.len())?;
        Some(CodeNames::new(name, CodePlace::default(), None, charge))
    }

    fn name_function(&self, process: &mut Process, body: &[u8]) -> Option<CodeNames> {
        let layout = &self.layout;
        let field = |at: u64| u64_at(body, at as usize);
        let name = self.string(process, field(layout.body_label)?)?;
        let file = self.path(process, field(layout.body_path)?)?;
        let first_line = match layout.first_line {
            FirstLine::Value(at) => (field(at)? >> 1) as u32,
            FirstLine::Int(at) => u32_at(body, at as usize)?,
        };
        let mut charge = self.budget.take(FUNCTION + name.len() + file.len())?;
        let lines = self.lines(process, body)?;
        let kept = lines.filter(|lines| charge.grow(lines.len()));
        let place = CodePlace {
            file,
            first_line,
            begin: field(layout.body_code)?,
        };
        Some(CodeNames::new(name, place, kept, charge))
    }

    /// A function's index of lines, its size in front of it, and the lines behind it;
    /// `Some(None)`: they are too many.
    fn lines(&self, process: &mut Process, body: &[u8]) -> Option<Option<Vec<u8>>> {
        let layout = &self.layout;
        let words = u32_at(body, layout.body_words as usize)?;
        let count = u32_at(body, layout.body_line_count as usize)?;
        let size = u64::from(count) * layout.line_bytes;
        let index_size = match count {
            0 | 1 => 0,
            _ => lines::index_bytes(words as usize),
        };
        if size + index_size as u64 > MAX_LINES {
            self.budget.refuse();
            return Some(None);
        }
        let index = match index_size {
            0 => Vec::new(),
            // Shorter than that if the last entry begins far before the end.
            _ => process.read_up_to(u64_at(body, layout.body_line_index as usize)?, index_size),
        };
        let mut entries = vec![0; size as usize];
        let at = u64_at(body, layout.body_lines as usize)?;
        process.read_memory(at, &mut entries).then_some(())?;
        let mut lines = (index.len() as u32).to_le_bytes().to_vec();
        lines.extend(index);
        lines.extend(entries);
        Some(Some(lines))
    }

    fn look_up(&self, lines: &[u8], word: usize) -> Option<u32> {
        let (size, rest) = lines.split_at_checked(4)?;
        let (index, entries) = rest.split_at_checked(u32_at(size, 0)? as usize)?;
        let entry = match index.is_empty() {
            true => 0,
            false => lines::entries_to(index, word)?.checked_sub(1)?,
        };
        let at = entry.checked_mul(self.layout.line_bytes as usize)?;
        u32_at(entries, at.checked_add(self.layout.line_number as usize)?)
    }
}

impl Interpreter for Ruby {
    const KIND: ModuleKind = ModuleKind::Ruby;
    const LANGUAGE: Language = Language::Ruby;

    fn find(process: &mut Process, modules: &mut Modules) -> FoundInterpreter<Self> {
        find::find(process, modules)
    }

    fn is_in(image: &Image) -> bool {
        image.ruby.is_some()
    }

    fn loops(&self, process: &Process) -> Vec<Range<u64>> {
        let compiled = process.compiled_code();
        std::iter::once(self.code.clone()).chain(compiled).collect()
    }

    fn loop_calls(&self) -> LoopCalls {
        LoopCalls::Counted { by_pointer: false }
    }

    fn thread(&mut self, process: &mut Process, own_id: u32) -> Result<u64, Unread> {
        if let Some(&known) = self.threads.get(&own_id)
            && self.is_of(process, known, own_id) == Some(true)
        {
            return Ok(known);
        }
        if self.threads.len() >= MAX_THREADS {
            self.threads.clear();
        }
        let threads = Ruby::threads(self, process).ok_or(Unread::Memory)?;
        for thread in threads {
            if self.is_of(process, thread, own_id) == Some(true) {
                self.threads.insert(own_id, thread);
                return Ok(thread);
            }
        }
        Err(Unread::Thread)
    }

    fn is_of(&mut self, process: &mut Process, thread: u64, own_id: u32) -> Option<bool> {
        let vm = word(process, thread.checked_add(self.layout.thread_vm)?)?;
        Some(vm == self.vm && self.native_id(process, thread)? == own_id)
    }

    fn chain(&mut self, process: &mut Process, thread: u64, most: usize) -> Option<Vec<RawFrame>> {
        self.frames(process, thread, most)
    }

    fn code(&mut self, process: &mut Process, raw: &RawFrame) -> Option<Arc<CodeNames>> {
        let head = object(process, raw.code, 32)?;
        let (key, body, id) = match objects::internal(u64_at(&head, 0)?)? {
            RubyInternal::Method => {
                let (key, id) = self.method(process, raw.code)?;
                (key, None, id)
            }
            RubyInternal::Function => {
                let at = u64_at(&head, self.layout.iseq_body as usize)?;
                let body = object(process, at, 200)?;
                let field = |at: u64| u64_at(&body, at as usize);
                let layout = &self.layout;
                let (label, code) = (field(layout.body_label)?, field(layout.body_code)?);
                ([raw.code, at, label, code], Some(body), 0)
            }
        };
        if let Some(known) = self.functions.get(&key) {
            return Some(Arc::clone(known));
        }
        if self.functions.len() >= MAX_FUNCTIONS || self.budget.is_short() {
            self.functions = HashMap::new();
            self.places = CodePlaces::default();
        }
        let names = match body {
            Some(body) => {
                let names = self.name_function(process, &body)?;
                let words = u32_at(&body, self.layout.body_words as usize)?;
                self.places
                    .add(names.place.begin, u64::from(words) * 8, raw.code);
                names
            }
            None => self.name_method(process, id)?,
        };
        let names = Arc::new(names);
        self.functions.insert(key, Arc::clone(&names));
        Some(names)
    }

    fn line(&self, code: &CodeNames, raw: &RawFrame) -> u32 {
        // The next instruction: the one before is the one that goes on.
        let word = (raw.instruction.wrapping_sub(code.place.begin) / 8).saturating_sub(1);
        code.line(word, |lines| {
            let found = self.look_up(lines, word as usize);
            found.unwrap_or(code.place.first_line)
        })
    }

    fn current(
        &mut self,
        process: &mut Process,
        [instruction, address]: [u64; 2],
    ) -> Option<(RawFrame, Arc<CodeNames>)> {
        // The next instruction may be behind the last one.
        let function = self.layout.frame_iseq;
        frame_at(self, process, (address, instruction), function, |it| {
            &it.places
        })
    }

    fn is_outside(frame: u64, of: u64) -> bool {
        frame > of
    }
}

/// What the innermost part of a thread's values was.
struct RubyValues {
    from: u64,
    bytes: Vec<u8>,
}

impl RubyValues {
    /// A word of them, or of an environment that was moved elsewhere.
    fn word(&self, process: &mut Process, at: u64) -> Option<u64> {
        let within = at
            .checked_sub(self.from)
            .and_then(|at| u64_at(&self.bytes, usize::try_from(at).ok()?));
        match within {
            Some(word) => Some(word),
            None => word(process, at),
        }
    }
}

/// The members of one of Ruby's lists (`ccan/list`), whose places in it are at `node` in them. Each
/// is to point back to the one before it.
fn list(process: &mut Process, head: u64, node: u64, most: usize) -> Option<Vec<u64>> {
    let mut members = Vec::new();
    let (mut before, mut at) = (head, word(process, head)?);
    while at != head {
        if members.len() >= most || word(process, at.checked_add(8)?)? != before {
            return None;
        }
        members.push(at.checked_sub(node)?);
        before = at;
        at = word(process, at)?;
    }
    Some(members)
}

#[cfg(test)]
mod tests {
    use super::made_up::*;
    use super::*;
    use crate::made_up::own_process;
    use crate::memory_tests::Random;

    #[test]
    fn a_thread_that_agrees_with_itself() {
        let process = &mut own_process();
        let mut made = MadeUpRuby::new();
        let render = vec![("render".to_owned(), 42)];
        assert_eq!(made.read(process), Ok(render));
        // No lines: that on which the function begins.
        made.memory.set(made.body + 136, 0);
        assert_eq!(made.read(process), Ok(vec![("render".to_owned(), 41)]));
        let mut made = MadeUpRuby::new();
        // A list that leads to itself, and never back to its head.
        made.memory.set(made.thread, made.thread);
        assert_eq!(made.read(process), Err(Unread::Memory));
        let mut made = MadeUpRuby::new();
        made.memory.set(made.thread + 88, 3);
        assert_eq!(made.read(process), Err(Unread::Thread), "another thread's");
        let mut made = MadeUpRuby::new();
        made.memory.set(made.frames + 16, made.thread);
        assert_eq!(made.read(process), Err(Unread::Memory), "no function");
        let mut made = MadeUpRuby::new();
        made.memory.set(made.frames + 32, made.thread + 8);
        assert_eq!(made.read(process), Err(Unread::Memory), "no environment");
    }

    /// Whatever is in memory: what is taken for a thread keeps its bounds.
    #[test]
    fn made_up_memory_is_bounded() {
        let process = &mut own_process();
        let mut made = MadeUpRuby::new();
        let original = made.memory.clone_words();
        let mut random = Random::new();
        let mut taken = 0;
        for _ in 0..5_000 {
            made.memory.damage(&original, &mut random);
            if let Ok(found) = made.read(process) {
                taken += 1;
                let length = |(name, _): &(String, u32)| name.len();
                // A byte that is no text becomes three.
                assert!(found.iter().map(length).all(|length| length <= 3 * 4096));
            }
        }
        assert!(taken > 500, "some are left as they were: {taken}");
    }
}
