//! What a flight recorder must record again in each segment: its oldest segments go, and with them
//! would go the stacks and the threads that later events name.
//!
//! The simplest rule that holds whatever is deleted: every segment is complete in itself. It begins
//! with a `found` row for each living thread, and repeats a stack, its modules and its symbols when
//! an event of the segment names it.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::table::Record;
use crate::{Event, Frame, Module, Ns, Stack, StackId, Symbol, ThreadChange, ThreadEvent};

/// Everything said so far that later events may refer to, and which of it the open segment has.
#[derive(Default)]
pub(crate) struct Context {
    threads: BTreeMap<u32, (u32, String)>,
    stacks: HashMap<StackId, Stack>,
    modules: HashMap<u32, Module>,
    symbols: HashMap<Frame, BTreeMap<u16, Symbol>>,
    stacks_here: HashSet<StackId>,
    modules_here: HashSet<u32>,
    symbols_here: HashSet<(Frame, u16)>,
    now: Ns,
}

impl Context {
    /// What a new segment begins with.
    pub(crate) fn begin_segment(&mut self) -> Vec<Event> {
        self.stacks_here.clear();
        self.modules_here.clear();
        self.symbols_here.clear();
        let at_ns = self.now;
        let found = |(tid, (tgid, comm)): (&u32, &(u32, String))| {
            let (tid, tgid, comm) = (*tid, *tgid, comm.clone());
            Event::Thread(ThreadEvent {
                at_ns,
                tid,
                tgid,
                parent_tid: 0,
                change: ThreadChange::Found,
                comm,
                command: String::new(),
            })
        };
        self.threads.iter().map(found).collect()
    }

    /// Takes note of an event that is about to be written; returns what must be written before it.
    pub(crate) fn learn(&mut self, event: &Event) -> Vec<Event> {
        if let Some((start, end)) = event.span() {
            self.now = self.now.max(start).max(end.unwrap_or(0));
        }
        let mut before = Vec::new();
        match event {
            Event::Thread(thread) => {
                if thread.change == ThreadChange::Exit {
                    self.threads.remove(&thread.tid);
                } else {
                    self.threads
                        .insert(thread.tid, (thread.tgid, thread.comm.clone()));
                }
            }
            Event::Stack(stack) => {
                self.stacks_here.insert(stack.id);
                self.stacks.insert(stack.id, stack.clone());
                self.restate_frames(&stack.frames, &mut before);
            }
            Event::Module(module) => {
                self.modules_here.insert(module.id);
                self.modules.insert(module.id, module.clone());
            }
            Event::Symbol(symbol) => {
                self.symbols_here.insert((symbol.frame, symbol.depth));
                self.symbols
                    .entry(symbol.frame)
                    .or_default()
                    .insert(symbol.depth, symbol.clone());
            }
            other => self.restate(&other.stacks(), &mut before),
        }
        before
    }

    fn restate(&mut self, stacks: &[StackId], events: &mut Vec<Event>) {
        for id in stacks.iter().copied() {
            if id == 0 || self.stacks_here.contains(&id) {
                continue;
            }
            let Some(stack) = self.stacks.get(&id).cloned() else {
                continue;
            };
            self.stacks_here.insert(id);
            self.restate_frames(&stack.frames, events);
            events.push(Event::Stack(stack));
        }
    }

    fn restate_frames(&mut self, frames: &[Frame], events: &mut Vec<Event>) {
        for frame in frames {
            if let Some(module) = self.modules.get(&frame.module)
                && self.modules_here.insert(frame.module)
            {
                events.push(Event::Module(module.clone()));
            }
            for (depth, symbol) in self.symbols.get(frame).into_iter().flatten() {
                if self.symbols_here.insert((*frame, *depth)) {
                    events.push(Event::Symbol(symbol.clone()));
                }
            }
        }
    }
}
