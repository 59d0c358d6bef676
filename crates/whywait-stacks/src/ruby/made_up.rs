//! A Ruby that is made up, in memory of this process: for tests, and to be made worse of.

use super::*;
use crate::made_up::ObjectMemory;

pub(super) const WORDS: usize = 1024;
pub(super) const OWN_ID: u32 = 77;
pub(super) const INTERNAL_FUNCTION: u64 = 0x701a;
pub(super) const MOST: usize = 100;

/// A machine with a thread that is in a function, in memory of its own.
pub(super) struct MadeUpRuby {
    pub(super) memory: ObjectMemory,
    pub(super) vm: u64,
    pub(super) thread: u64,
    pub(super) body: u64,
    pub(super) frames: u64,
}

impl MadeUpRuby {
    pub(super) fn new() -> Self {
        let layout = RubyLayout::of((3, 1)).expect("a layout");
        let mut made = Self {
            memory: ObjectMemory::new(WORDS),
            vm: 0,
            thread: 0,
            body: 0,
            frames: 0,
        };
        made.vm = made.memory.take(64);
        let ractor = made.memory.take(640);
        made.thread = made.memory.take(160);
        let context = made.memory.take(128);
        let (vm, thread) = (made.vm, made.thread);
        let lists = [
            (vm + layout.vm_ractors, ractor + layout.ractor_node),
            (ractor + layout.ractor_threads, thread + layout.thread_node),
        ];
        for (head, node) in lists {
            for (at, other) in [(head, node), (node, head)] {
                made.memory.set(at, other);
                made.memory.set(at + 8, other);
            }
        }
        made.memory.set(thread + layout.thread_ractor, ractor);
        made.memory.set(thread + layout.thread_vm, vm);
        made.memory.set(thread + layout.thread_context, context);
        made.memory.set(thread + 88, u64::from(OWN_ID));

        let label = made.string("render");
        let path = made.string("shop.rb");
        let code = made.memory.take(32);
        let lines = made.memory.take(16);
        made.memory.set(lines, 42);
        made.body = made.memory.take(200);
        let body = made.body;
        made.memory.set(body, 4 << 32);
        made.memory.set(body + layout.body_code, code);
        made.memory.set(body + layout.body_label, label);
        made.memory.set(body + layout.body_path, path);
        made.memory.set(body + 88, 41 << 1 | 1);
        made.memory.set(body + layout.body_lines, lines);
        made.memory.set(body + layout.body_line_count, 1);
        let function = made.memory.take(32);
        made.memory.set(function, INTERNAL_FUNCTION);
        made.memory.set(function + layout.iseq_body, body);

        // Environments of two frames, and the frames behind them; the outer one is a dummy.
        let stack = made.memory.take(64 + 2 * 64);
        made.frames = stack + 64;
        made.memory.set(stack, OF_RUBY[0] | FINISH);
        made.memory.set(stack + 8, DUMMY | FINISH);
        for (frame, function, environment) in [
            (made.frames, function, stack),
            (made.frames + 64, 0, stack + 8),
        ] {
            made.memory.set(frame + layout.frame_pc, code + 16);
            made.memory.set(frame + layout.frame_values, stack + 16);
            made.memory.set(frame + layout.frame_iseq, function);
            made.memory
                .set(frame + layout.frame_environment, environment);
        }
        made.memory.set(context + layout.context_stack, stack);
        made.memory.set(context + layout.context_stack_words, 24);
        made.memory.set(context + layout.context_frame, made.frames);
        made.memory.set(context + layout.context_thread, thread);
        made
    }

    pub(super) fn string(&mut self, text: &str) -> u64 {
        let at = self.memory.take(40);
        self.memory.set(at, 0x05 | (text.len() as u64) << 14);
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(24, 0);
        for (i, word) in bytes.chunks_exact(8).enumerate() {
            let word = u64_at(word, 0).expect("a word");
            self.memory.set(at + 16 + i as u64 * 8, word);
        }
        at
    }

    /// The functions that are read of the thread, innermost first.
    pub(super) fn read(&self, process: &mut Process) -> Result<Vec<(String, u32)>, Unread> {
        self.memory.is_read();
        let layout = RubyLayout::of((3, 1)).expect("a layout");
        let mut ruby = Ruby::new(layout, self.vm, &Budget::default());
        let thread = Interpreter::thread(&mut ruby, process, OWN_ID)?;
        let chain = ruby.chain(process, thread, MOST).ok_or(Unread::Memory)?;
        assert!(chain.len() <= MOST);
        let mut found = Vec::new();
        for raw in &chain {
            let code = ruby.code(process, raw).ok_or(Unread::Memory)?;
            found.push((code.name.clone(), ruby.line(&code, raw)));
        }
        Ok(found)
    }
}
