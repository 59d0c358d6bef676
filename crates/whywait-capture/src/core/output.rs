//! The recording that is written, and the stacks in it: unwound, numbered, each written once.

use std::collections::HashMap;

use whywait_events::recording::{WriteError, Writer};
use whywait_events::{Event, Frame, Module, StackId};
use whywait_stacks::{Registers, Unwinder, Unwound};

use super::stack_numbers::StackNumbers;

/// Writes events in the order in which they come.
pub(crate) struct Output {
    /// This and what follows is too large to be handed from one stack frame to another.
    pub(crate) writer: Box<Writer>,
    pub(crate) unwinder: Box<Unwinder>,
    stacks: StackNumbers,
    modules: Vec<Module>,
    /// Kernel addresses of epoll instances, numbered: the addresses themselves stay out of the
    /// recording.
    epolls: HashMap<u64, u32>,
    /// Tasks by process and address, numbered likewise.
    tasks: HashMap<(u32, u64), u32>,
    last_task: u32,
}

/// So many tasks are known at a time: beyond them, all get new numbers.
const MAX_TASKS: usize = 1 << 18;

impl Output {
    pub(crate) fn new(writer: Box<Writer>, unwinder: Box<Unwinder>) -> Self {
        Self {
            writer,
            unwinder,
            stacks: StackNumbers::default(),
            modules: Vec::new(),
            epolls: HashMap::new(),
            tasks: HashMap::new(),
            last_task: 0,
        }
    }

    pub(crate) fn write(&mut self, event: &Event) -> Result<(), WriteError> {
        self.writer.write(event)
    }

    /// The number of the user stack of a thread that sleeps, or has just slept; and whether its
    /// return addresses tell it.
    pub(crate) fn stack_of_sleeper(
        &mut self,
        (tgid, tid): (u32, u32),
        registers: Registers,
        kept: Option<[u64; 2]>,
        stack: &[u8],
    ) -> Result<(StackId, bool), WriteError> {
        let unwinder = &mut self.unwinder;
        let unwound = unwinder.unwind_slept((tgid, tid), registers, kept, stack);
        self.unwound(unwound)
    }

    /// The same of a thread of which only its process is known to be there.
    pub(crate) fn stack_of_waker(
        &mut self,
        tgid: u32,
        registers: Registers,
        stack: &[u8],
    ) -> Result<(StackId, bool), WriteError> {
        let unwound = self.unwinder.unwind(tgid, registers, stack);
        self.unwound(unwound)
    }

    /// The number of a stack, and whether its return addresses tell it.
    pub(crate) fn unwound(&mut self, unwound: Unwound) -> Result<(StackId, bool), WriteError> {
        let repeats = unwound.repeats;
        Ok((self.number(unwound.frames, unwound.truncated)?, repeats))
    }

    /// The number of a kernel stack.
    pub(crate) fn kernel_stack(&mut self, addresses: &[u64]) -> Result<StackId, WriteError> {
        let frames = self.unwinder.kernel(addresses);
        self.number(frames, false)
    }

    /// The number of a stack; its frames are written when it is new.
    fn number(&mut self, frames: Vec<Frame>, truncated: bool) -> Result<StackId, WriteError> {
        if frames.is_empty() {
            return Ok(0);
        }
        for module in self.unwinder.take_new_modules() {
            self.writer.write(&Event::Module(module.clone()))?;
            self.modules.push(module);
        }
        for symbol in self.unwinder.take_new_symbols() {
            self.writer.write(&Event::Symbol(symbol))?;
        }
        let (id, new) = self.stacks.number(frames, truncated);
        if let Some(stack) = new {
            self.writer.write(&Event::Stack(stack))?;
        }
        Ok(id)
    }

    /// The number of an epoll instance, 0 for none.
    pub(crate) fn epoll(&mut self, address: u64) -> u32 {
        if address == 0 {
            return 0;
        }
        let next = self.epolls.len() as u32 + 1;
        *self.epolls.entry(address).or_insert(next)
    }

    /// The number of a task of a process, 0 for none.
    pub(crate) fn task(&mut self, tgid: u32, address: u64) -> u32 {
        if address == 0 {
            return 0;
        }
        if self.tasks.len() >= MAX_TASKS {
            self.tasks.clear();
        }
        let last = &mut self.last_task;
        *self.tasks.entry((tgid, address)).or_insert_with(|| {
            *last += 1;
            *last
        })
    }

    /// Counters of what could not be unwound.
    pub(crate) fn count(&mut self) {
        let losses: Vec<(&'static str, u64)> = self.unwinder.losses().collect();
        for (name, value) in losses {
            self.writer.counter(&format!("stacks.{name}"), value);
        }
        self.writer
            .counter("lost.over-memory", self.unwinder.not_kept());
    }

    /// The modules that were written.
    pub(crate) fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// The distinct frames that were written.
    pub(crate) fn frames(&self) -> Vec<Frame> {
        self.stacks.frames()
    }
}
