//! Unwinding a thread's copied stack.

use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use framehop::{FrameAddress, Unwinder as _};
use whywait_events::{Frame, Module, ModuleKind, Symbol};

use crate::arch::{self, Registers, UnwindRegs};
use crate::cfi::UnwindContext;
#[cfg(target_arch = "x86_64")]
use crate::code::{BpAtReturn, CodeExit, StackPlace};
use crate::go::{GoEnd, GoFrame};
use crate::goroutine::{self, Goroutine, GoroutineRead};
use crate::goroutines::{Family, families};
use crate::interpreter::{CopiedFunctions, FramePlaces, Interpreters, Runner};
use crate::kernel::Kernel;
use crate::loss::{Loss, Losses};
use crate::managed::{ManagedExit, ManagedPlace};
use crate::modules::Modules;
use crate::process::{CodeAddress, FrameExit, Process};
use crate::python::{self, CoroutineTask, TaskPlace};
use crate::sleep::{Sleep, Sleeper};
use crate::unread::UnreadRuntime;

/// A thread's stack, unwound.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unwound {
    /// Frames, innermost first.
    pub frames: Vec<Frame>,
    /// Unwinding ended before the thread's start.
    pub truncated: bool,
    /// The frames follow from the registers and the return addresses alone: whenever those are the
    /// same, so are these. Not so where an interpreter keeps its frames elsewhere, where the stack
    /// goes on at another place, or where a runtime waits in many functions of its own, beyond
    /// which nothing is compared, and whose callers' frames are of few sizes.
    pub repeats: bool,
}

/// A frame that is larger than what is copied of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LargeFrame {
    /// The process.
    pub tgid: u32,
    /// Where a thread is whose stack has it.
    pub ip: u64,
    /// How far above the stack pointer what is behind it begins, in bytes.
    pub distance: u32,
}

/// A second piece of a thread's stack, from behind a [`LargeFrame`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackBehind {
    /// Where the thread was: instruction and stack pointer.
    pub place: [u64; 2],
    /// How far above the stack pointer it begins, in bytes.
    pub distance: u32,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// A thread as it was when it was sampled.
#[derive(Debug, Clone, Copy)]
pub struct RunningThread {
    /// Its process, by an id in this process's pid namespace.
    pub tgid: u32,
    /// Its own id there.
    pub tid: u32,
    /// When that was (`CLOCK_MONOTONIC`).
    pub at_ns: u64,
    /// Its registers.
    pub registers: Registers,
    /// Two more, in which some interpreters have their frame and instruction: r14 and r15.
    pub kept: Option<[u64; 2]>,
}

/// Unwinds stacks of running processes, for one recording.
///
/// Module ids are dense from 1 and shared between processes: the same file is read once.
#[derive(Default)]
pub struct Unwinder {
    modules: Modules,
    processes: HashMap<u32, Process>,
    interpreters: Interpreters,
    kernel: Kernel,
    losses: Losses,
    context: UnwindContext,
    walk: Vec<Walked>,
    /// Where the last walk ended for lack of bytes: the address that it looked for.
    missed: u64,
    /// Where frames are that are larger than what is copied: process and instruction, and how far
    /// above the stack pointer what is behind them begins. And those that nobody was told of yet.
    large: HashMap<(u32, u64), u32>,
    new_large: Vec<LargeFrame>,
    /// By thread: what was copied from behind such a frame, of which the stack is to come.
    behind: HashMap<u32, StackBehind>,
    /// By thread, and the time of a sample or 0: functions of which the stack is to come.
    copied: HashMap<(u32, u64), CopiedFunctions>,
    /// When there was no room for another process.
    no_room_since: Option<Instant>,
}

/// A native frame, with its address in the process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Walked {
    pub(crate) frame: Frame,
    /// Of the call instruction (of the instruction itself in the innermost frame).
    pub(crate) address: u64,
    /// Where its frame on the stack begins: the stack pointer as it is while the frame is the
    /// innermost.
    pub(crate) sp: u64,
    /// It is of code that a runtime made.
    pub(crate) managed: bool,
}

/// Deeper stacks are cut. A copy of 64 KiB holds less.
const MAX_FRAMES: usize = 2048;
/// How much of a sleeping thread's stack is read when the copy was too short.
const LONG_STACK: usize = 256 << 10;
/// Processes beyond this many push out the others; each costs some 40 KB.
const MAX_PROCESSES: usize = 4096;
/// A piece begins and ends at multiples of it.
const STACK_PIECE: u64 = 512;
/// So many large frames are known, and so many pieces from behind them wait for their stacks.
const MAX_LARGE: usize = 1024;
const MAX_BEHIND: usize = 256;
/// So many threads' functions wait for their stacks, which come at once.
const MAX_COPIED: usize = 4096;
/// When there was no room for a process, others are not tried before this.
const ROOM_AGAIN_AFTER: Duration = Duration::from_secs(1);

impl StackBehind {
    /// The stack with this piece; what lies between is not known, and is zero. `None`: they do not
    /// belong together.
    fn joined(&self, stack: &[u8]) -> Option<Vec<u8>> {
        let distance = self.distance as usize;
        if distance > LONG_STACK || self.bytes.is_empty() {
            return None;
        }
        let mut joined = stack.get(..distance.min(stack.len()))?.to_vec();
        joined.resize(distance, 0);
        joined.extend_from_slice(&self.bytes);
        Some(joined)
    }
}

impl Unwinder {
    /// Makes an unwinder that knows no process yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Unwinds from registers and a copy of the stack: the bytes from `regs.sp` upwards. Reads what
    /// it needs of process `tgid` (an id in this process's pid namespace) from `/proc` when it
    /// meets the process, or a mapping, first.
    ///
    /// Frames come innermost first. An ELF frame's address is that of the call instruction (return
    /// address - 1), and of the instruction itself for the innermost frame, as the file states
    /// addresses. Just-in-time compiled code without a name is the one frame `[jit]`; neighbours of
    /// this kind are joined. A stack is complete when unwinding reached the thread's start.
    pub fn unwind(&mut self, tgid: u32, regs: Registers, stack: &[u8]) -> Unwound {
        let ended = self.walk(tgid, regs, stack);
        self.note_lack_of_map(tgid);
        self.unwound(ended)
    }

    /// As [`unwind`](Self::unwind), for a sample of a running thread. Where the loop of CPython
    /// (3.8 to 3.14), Ruby (3.1 to 3.4) or PHP (8.2, 8.4) is on the stack, its functions are put in
    /// its place as far as they are certain: the thread is looked at
    /// now, and if it was so before the sample too and did not sleep in between, the functions that
    /// were there both times are those of the sample. The loop's frame stays where inner functions
    /// are not known. A function that is named was on the thread's stack within 25 ms of the
    /// sample; its line is the function's first unless it is certain. Call this soon after the
    /// sample: one that is older than 50 ms gets no functions. Of Ruby and PHP the innermost
    /// function is also known by the registers that their loops keep. The thread is not stopped.
    pub fn unwind_running(&mut self, thread: RunningThread, stack: &[u8]) -> Unwound {
        let copied = self.take_functions((thread.tid, thread.at_ns), thread.registers);
        let ended = self.walk(thread.tgid, thread.registers, stack);
        let mut unwound = self.unwound(ended);
        if let Some(process) = self.processes.get_mut(&thread.tgid) {
            let stack = CopiedStack::new(thread.registers.sp, stack);
            let runner = Runner { thread, stack };
            let native = (&self.walk[..], ended.is_ok());
            let (modules, losses) = (&mut self.modules, &mut self.losses);
            let spliced = self.interpreters.splice_running(
                process,
                (runner, copied.as_ref()),
                native,
                modules,
                losses,
            );
            if let Some(frames) = spliced {
                unwound.frames = frames;
            }
        }
        self.note_lack_of_map(thread.tgid);
        unwound
    }

    /// As [`unwind`](Self::unwind), for a thread that sleeps. While it still sleeps at the same
    /// place, two things are read from the process: the rest of the stack, where the copy was too
    /// short, and the functions of Python, Ruby and PHP, which then replace the frames of the
    /// interpreter's loop.
    pub fn unwind_sleeping(
        &mut self,
        tgid: u32,
        tid: u32,
        regs: Registers,
        stack: &[u8],
    ) -> Unwound {
        self.unwind_slept((tgid, tid), regs, None, stack)
    }

    /// As [`unwind_sleeping`](Self::unwind_sleeping), for a thread that may have gone on since.
    /// `kept`: r14 and r15, in which Ruby and PHP have their frame and instruction. By these, or by
    /// what functions further in have saved of them, the innermost function of each call of the
    /// interpreter's loop is known then, too.
    pub fn unwind_slept(
        &mut self,
        (tgid, tid): (u32, u32),
        regs: Registers,
        kept: Option<[u64; 2]>,
        stack: &[u8],
    ) -> Unwound {
        let sleeper = Sleeper {
            tid,
            regs,
            kept: kept.map_or([None; 2], |kept| kept.map(Some)),
            stack,
        };
        let copied = self.take_functions((tid, 0), regs);
        let behind = self.behind.remove(&tid);
        let mut ended = self.walk(tgid, regs, stack);
        if ended == Err(WalkEnd::Lost(Loss::StackBytes)) {
            self.note_large_frame(tgid, regs, stack);
            let behind = behind.filter(|behind| behind.place == [regs.ip, regs.sp]);
            if let Some(longer) = behind.and_then(|behind| behind.joined(stack)) {
                ended = self.walk(tgid, regs, &longer);
            }
        }
        if ended == Err(WalkEnd::Lost(Loss::StackBytes)) {
            let longer = self.read_stack(tgid, sleeper, regs.sp);
            if longer.len() > stack.len() {
                ended = self.walk(tgid, regs, &longer);
            }
        }
        let switched = matches!(ended, Err(WalkEnd::Switched { .. }));
        if let Err(WalkEnd::Switched { frame_pointer }) = ended {
            let other = self.read_stack(tgid, sleeper, frame_pointer);
            if let Some(caller) = arch::caller(frame_pointer, &other) {
                // Two words were the caller's registers; the rest is its stack.
                ended = self.walk_on(tgid, caller, &other[16..]);
            }
        }
        let mut unwound = self.unwound(ended);
        if let Some(process) = self.processes.get_mut(&tgid) {
            let native = (&self.walk[..], ended.is_ok());
            let (modules, losses) = (&mut self.modules, &mut self.losses);
            let spliced = self.interpreters.splice(
                process,
                (sleeper, copied.as_ref()),
                native,
                modules,
                losses,
            );
            if let Some(frames) = spliced {
                unwound.frames = frames;
            }
        }
        self.note_lack_of_map(tgid);
        unwound.repeats &= !switched && !self.interpreters.reads(tgid);
        unwound
    }

    /// The functions that were copied with the stack of a thread that is unwound later. They are
    /// those of its interpreter at that moment, and nothing of it is read for them but their names.
    pub fn functions_came(&mut self, tid: u32, functions: CopiedFunctions) {
        if self.copied.len() >= MAX_COPIED {
            self.copied.clear();
        }
        self.copied.insert((tid, functions.at_ns), functions);
    }

    /// A piece from behind a large frame was copied, of a stack that is unwound later.
    pub fn stack_behind_came(&mut self, tid: u32, behind: StackBehind) {
        if self.behind.len() >= MAX_BEHIND {
            self.behind.clear();
        }
        self.behind.insert(tid, behind);
    }

    /// The stack of its sleep is not unwound.
    pub fn forget_pieces(&mut self, tid: u32) {
        self.copied.remove(&(tid, 0));
        self.behind.remove(&tid);
    }

    /// The frames that were met since the last call and are larger than what is copied of a stack:
    /// what is behind them should be copied too.
    pub fn take_large_frames(&mut self) -> Vec<LargeFrame> {
        std::mem::take(&mut self.new_large)
    }

    /// The last walk ran out of bytes. If most of these are of one frame, as where a function has a
    /// buffer on the stack, it is noted how large that is.
    fn note_large_frame(&mut self, tgid: u32, regs: Registers, stack: &[u8]) {
        let begins = self.walk.last().map_or(regs.sp, |last| last.sp);
        let is_large = self.missed.saturating_sub(begins) > stack.len() as u64 / 2;
        let distance = self.missed.saturating_sub(regs.sp) & !(STACK_PIECE - 1);
        let Ok(distance) = u32::try_from(distance) else {
            return;
        };
        if !is_large || distance as usize > LONG_STACK {
            return;
        }
        if self.large.len() >= MAX_LARGE {
            self.large.clear();
        }
        if self.large.insert((tgid, regs.ip), distance) != Some(distance) {
            self.new_large.push(LargeFrame {
                tgid,
                ip: regs.ip,
                distance,
            });
        }
    }

    fn take_functions(
        &mut self,
        thread_at: (u32, u64),
        regs: Registers,
    ) -> Option<CopiedFunctions> {
        let copied = self.copied.remove(&thread_at)?;
        (copied.place == [regs.ip, regs.sp]).then_some(copied)
    }

    /// What the goroutine at an address of a process does, and its stack if it is on no thread.
    /// `None`: there is none, it changed while it was read, or its program's version of Go is not
    /// known; each is counted.
    pub fn goroutine(&mut self, tgid: u32, address: u64) -> Option<Goroutine> {
        let read = self.meet(tgid).and_then(|()| {
            let process = self.processes.get_mut(&tgid).ok_or(Loss::NoMaps)?;
            goroutine::read(process, address, &mut self.modules, &mut self.context)
        });
        match read {
            Ok(GoroutineRead { id, state, parked }) => Some(Goroutine {
                id,
                state,
                stack: parked.map(|(registers, stack)| self.unwind(tgid, registers, &stack)),
            }),
            Err(loss) => {
                self.losses.count(loss);
                None
            }
        }
    }

    /// The families of goroutines of a process, each by its address. `None`: its goroutines are not
    /// found, or there are too many, or its version of Go is not known; each is counted.
    pub fn families(&mut self, tgid: u32, goroutines: &[u64]) -> Option<Vec<Family>> {
        let read = self.meet(tgid).and_then(|()| {
            let process = self.processes.get_mut(&tgid).ok_or(Loss::NoMaps)?;
            families(process, goroutines, &mut self.modules, &mut self.context)
        });
        self.counted(read)
    }

    /// Where the tasks of a process's asyncio are. None are known before
    /// [`frame_places`](Self::frame_places) was asked for.
    pub fn tasks(&mut self, tgid: u32) -> Vec<TaskPlace> {
        let read = self.meet(tgid).and_then(|()| {
            let process = self.processes.get_mut(&tgid).ok_or(Loss::NoMaps)?;
            python::tasks(&mut self.interpreters.python, process, &mut self.modules)
        });
        self.counted(read).unwrap_or_default()
    }

    /// What the task at a place does. `None`: there is none, it changed while it was read, or it
    /// could not be read; the last two are counted.
    pub fn task(&mut self, tgid: u32, place: TaskPlace) -> Option<CoroutineTask> {
        let read = self.meet(tgid).and_then(|()| {
            let process = self.processes.get_mut(&tgid).ok_or(Loss::NoMaps)?;
            python::task(
                &mut self.interpreters.python,
                process,
                place,
                &mut self.modules,
            )
        });
        self.counted(read).flatten()
    }

    fn counted<T>(&mut self, read: Result<T, Loss>) -> Option<T> {
        read.map_err(|loss| self.losses.count(loss)).ok()
    }

    /// A sleeping thread's stack from an address, as far up as anyone needs it; nothing when it
    /// does not sleep there any more.
    fn read_stack(&mut self, tgid: u32, sleeper: Sleeper<'_>, from: u64) -> Vec<u8> {
        let read = |process: &mut Process| {
            let sleep = Sleep::now(process, sleeper)?;
            let bytes = process.read_up_to(from, LONG_STACK);
            sleep.goes_on(process, sleeper).then_some(bytes)
        };
        self.processes
            .get_mut(&tgid)
            .and_then(read)
            .unwrap_or_default()
    }

    fn unwound(&mut self, ended: Result<(), WalkEnd>) -> Unwound {
        match ended {
            Ok(()) => {}
            Err(WalkEnd::Lost(loss)) => self.losses.count(loss),
            Err(WalkEnd::Switched { .. }) => self.losses.count(Loss::OtherStack),
        }
        let mut frames = self.walk.iter().map(|w| w.frame).collect();
        self.modules.join_unnamed(&mut frames);
        Unwound {
            frames,
            truncated: ended.is_err(),
            repeats: !matches!(ended, Err(WalkEnd::Switched { .. }))
                && !self.walk.iter().any(|walked| walked.managed),
        }
    }

    /// Notes if code on the walk has no name, and the process's runtime is not read.
    fn note_lack_of_map(&mut self, tgid: u32) {
        let process = self.processes.get(&tgid);
        let is_read =
            || self.interpreters.reads(tgid) || process.is_some_and(Process::reads_managed);
        let mut walk = self.walk.iter();
        if walk.any(|walked| self.modules.is_unnamed(walked.frame)) && !is_read() {
            let runtime = process.map_or(UnreadRuntime::Other, Process::unread_runtime);
            self.modules.note_unread(runtime);
        }
    }

    /// Begins to read what is needed only once, on a thread of its own, rather than at the first
    /// stack.
    pub fn prepare(&mut self) {
        self.kernel.prepare();
    }

    /// Waits until that thread has come to its end, which keeps the privileges that it began with.
    pub fn prepared(&mut self) {
        self.kernel.prepared();
    }

    /// Frames of a kernel stack, innermost first. An address is replaced by the number of its
    /// function's name, so that no kernel address reaches a recording.
    pub fn kernel(&mut self, addresses: &[u64]) -> Vec<Frame> {
        self.kernel
            .frames(addresses, &mut self.modules, &mut self.losses)
    }

    /// Forgets what is known of a process: it ended, or became another program.
    pub fn forget(&mut self, tgid: u32) {
        self.processes.remove(&tgid);
        self.interpreters.forget(tgid);
    }

    /// Whether frames are looked for in the memory of a process that goes on meanwhile, as those of
    /// interpreters and of V8 are: look for them soon.
    pub fn reads_memory(&self) -> bool {
        self.interpreters.reads_any() || self.processes.values().any(Process::moves_objects)
    }

    /// Modules that frames named for the first time since the last call.
    pub fn take_new_modules(&mut self) -> Vec<Module> {
        self.modules.take_new()
    }

    /// The very file of a module that was mapped, also when it was deleted or replaced since.
    /// `None`: it was not kept open. For [`Symboliser`](crate::Symboliser::symbolise).
    pub fn file(&self, module: u32) -> Option<File> {
        self.modules.open_file(module)
    }

    /// How often something of the target was not kept, because all that is kept of it took too much
    /// memory.
    pub fn not_kept(&self) -> u64 {
        self.modules.budget.refused()
    }

    /// The paths of files with code that could not be read: their frames have neither names nor
    /// callers by unwind tables.
    pub fn unreadable(&self) -> impl Iterator<Item = &str> {
        self.modules.unreadable()
    }

    /// Runtimes that are not read, and of whose code some had no name in a perf map.
    pub fn unread_runtimes(&self) -> impl Iterator<Item = UnreadRuntime> {
        self.modules.unread()
    }

    /// Whether a module is the file of an interpreter or a virtual machine that is read: what its
    /// own functions are called says nothing of the program that it runs.
    pub fn is_runtime(&self, module: u32) -> bool {
        self.modules.is_runtime(module)
    }

    /// Whether the kernel shows no names of its functions.
    pub fn hides_kernel(&self) -> bool {
        self.kernel.is_hidden()
    }

    /// Names, since the last call, that only the running process or kernel can give: of frames of
    /// the kernel, Python, just-in-time compiled code and the vDSO. Names of other frames:
    /// [`Symboliser`](crate::Symboliser).
    pub fn take_new_symbols(&mut self) -> Vec<Symbol> {
        self.modules.take_new_symbols()
    }

    /// How often something was lost, by reason. Reasons that never occurred are there with 0.
    pub fn losses(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.losses.iter()
    }

    /// The processes in which an interpreter was found since this was asked whose functions can be
    /// copied with the stacks.
    pub fn take_interpreters(&mut self) -> Vec<u32> {
        self.interpreters.take_found()
    }

    /// Where a process's interpreter has what its threads run; `None`: it has none (Python, PHP) of
    /// a version that is known, or that has begun to run.
    pub fn frame_places(&mut self, tgid: u32) -> Option<FramePlaces> {
        let process = match self.processes.entry(tgid) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(Process::open(tgid, &self.modules.budget).ok()?),
        };
        let (modules, losses) = (&mut self.modules, &mut self.losses);
        self.interpreters.places(process, modules, losses)
    }

    /// Reads a process's mappings. Where there is no room for them, other processes make some.
    fn open(&mut self, tgid: u32) -> Result<Process, Loss> {
        let recently = self
            .no_room_since
            .is_some_and(|since| since.elapsed() < ROOM_AGAIN_AFTER);
        if recently {
            return Err(Loss::Memory);
        }
        match Process::open(tgid, &self.modules.budget) {
            Err(Loss::Memory) => {
                self.no_room_since = Some(Instant::now());
                self.processes.clear();
                Process::open(tgid, &self.modules.budget)
            }
            other => other,
        }
    }

    /// Reads a process's mappings, unless it is known.
    fn meet(&mut self, tgid: u32) -> Result<(), Loss> {
        if self.processes.len() > MAX_PROCESSES {
            // Ends are reported by `forget`; this is for those that were missed.
            self.processes.clear();
            self.losses.count(Loss::TooManyProcesses);
        }
        if !self.processes.contains_key(&tgid) {
            let process = self.open(tgid)?;
            self.processes.insert(tgid, process);
        }
        Ok(())
    }

    /// Unwinds into `self.walk`; `Ok` when the thread's start was reached.
    fn walk(&mut self, tgid: u32, regs: Registers, stack: &[u8]) -> Result<(), WalkEnd> {
        self.walk.clear();
        self.walk_on(tgid, regs, stack)
    }

    /// Goes on unwinding, after the frames in `self.walk`.
    fn walk_on(&mut self, tgid: u32, regs: Registers, stack: &[u8]) -> Result<(), WalkEnd> {
        self.meet(tgid)?;
        let process = self.processes.get_mut(&tgid).ok_or(Loss::NoMaps)?;
        let missed = &mut Cell::new(0);
        let stack = CopiedStack {
            missed: Some(missed),
            ..CopiedStack::new(regs.sp, stack)
        };
        let mut modules = ModulesAndContext {
            modules: &mut self.modules,
            context: &mut self.context,
            losses: &mut self.losses,
        };
        let walk = &mut self.walk;
        // framehop's arithmetic is not checked everywhere; in a build with overflow checks hostile
        // tables could panic.
        let ended = catch_unwind(AssertUnwindSafe(|| {
            walk_frames(process, regs, stack, &mut modules, walk)
        }))
        .unwrap_or_else(|_| {
            self.context = UnwindContext::new();
            self.processes.remove(&tgid);
            Err(Loss::Panicked.into())
        });
        self.missed = missed.get();
        ended
    }
}

/// Why a walk stopped short of the thread's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WalkEnd {
    Lost(Loss),
    /// At a switch of stacks; the caller's frame, on the other stack, is at the frame pointer.
    Switched {
        frame_pointer: u64,
    },
}

impl From<Loss> for WalkEnd {
    fn from(loss: Loss) -> Self {
        Self::Lost(loss)
    }
}

pub(crate) struct ModulesAndContext<'a> {
    pub(crate) modules: &'a mut Modules,
    pub(crate) context: &'a mut UnwindContext,
    pub(crate) losses: &'a mut Losses,
}

/// A copy of a part of a thread's stack.
#[derive(Clone, Copy)]
pub(crate) struct CopiedStack<'a> {
    pub(crate) sp: u64,
    pub(crate) bytes: &'a [u8],
    /// What was looked for behind the bytes last.
    missed: Option<&'a Cell<u64>>,
}

impl<'a> CopiedStack<'a> {
    pub(crate) fn new(sp: u64, bytes: &'a [u8]) -> Self {
        Self {
            sp,
            bytes,
            missed: None,
        }
    }

    pub(crate) fn read(&self, address: u64) -> Option<u64> {
        let start = usize::try_from(address.checked_sub(self.sp)?).ok()?;
        let bytes = self.bytes.get(start..start.checked_add(8)?)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    /// The address behind the copied bytes.
    pub(crate) fn end(&self) -> u64 {
        self.sp.saturating_add(self.bytes.len() as u64)
    }

    /// The copied words in a range of addresses, lowest first.
    pub(crate) fn words(&self, range: Range<u64>) -> impl Iterator<Item = u64> + '_ {
        let size = self.bytes.len();
        let at = |address: u64| {
            usize::try_from(address.saturating_sub(self.sp)).map_or(size, |at| at.min(size))
        };
        let (start, end) = (at(range.start), at(range.end));
        let bytes = self.bytes.get(start..end).unwrap_or_default();
        bytes
            .chunks_exact(8)
            .filter_map(|word| crate::elf::u64_at(word, 0))
    }

    /// Why an address could not be read.
    pub(crate) fn loss(&self, address: u64) -> Loss {
        // No stack is larger than this: beyond it the address is garbage, or on another stack.
        const FAR: u64 = 64 << 20;
        match address.checked_sub(self.sp) {
            Some(distance) if distance < FAR => {
                self.missed.inspect(|missed| missed.set(address));
                Loss::StackBytes
            }
            _ => Loss::OffStack,
        }
    }
}

/// Unwinds; `Ok` when the thread's start was reached.
pub(crate) fn walk_frames(
    process: &mut Process,
    start: Registers,
    stack: CopiedStack<'_>,
    modules: &mut ModulesAndContext<'_>,
    walk: &mut Vec<Walked>,
) -> Result<(), WalkEnd> {
    // Keeps sums of addresses and frame sizes far from overflow.
    if start.sp < 4096 || start.sp >= arch::USER_END || start.ip >= arch::USER_END {
        return Err(WalkEnd::Lost(Loss::Registers));
    }
    let mut regs = UnwindRegs::new(start);
    let mut code = match walk.is_empty() {
        true => FrameAddress::from_instruction_pointer(start.ip),
        // Going on where an earlier walk stopped.
        false => FrameAddress::from_return_address(start.ip).ok_or(WalkEnd::Lost(Loss::Misled))?,
    };
    loop {
        let step = match put_frames(process, (code, &regs), stack, modules, walk)? {
            Put::Native(step) => step,
            Put::Managed(ManagedExit::ByCode) => FrameExit::NoTables,
            Put::Managed(ManagedExit::Lost(loss)) => return Err(WalkEnd::Lost(loss)),
            Put::Managed(ManagedExit::To(caller)) => {
                if walk.len() >= MAX_FRAMES {
                    return Err(WalkEnd::Lost(Loss::TooDeep));
                }
                if caller.sp <= regs.sp() || caller.sp >= arch::USER_END {
                    return Err(WalkEnd::Lost(Loss::Misled));
                }
                regs = UnwindRegs::new(caller);
                code = FrameAddress::from_return_address(caller.ip).ok_or(Loss::Misled)?;
                continue;
            }
        };
        if walk.len() >= MAX_FRAMES {
            return Err(WalkEnd::Lost(Loss::TooDeep));
        }
        let step = match step {
            #[cfg(target_arch = "x86_64")]
            FrameExit::NoTables => process
                .code_exit(code.address())
                // framehop takes an innermost function without tables for one without a frame,
                // which in assembly it is.
                .map_or(FrameExit::FramePointer, FrameExit::Code),
            known => known,
        };
        let return_address = match step {
            FrameExit::Start
            | FrameExit::Go(GoFrame {
                end: GoEnd::Start, ..
            }) => return Ok(()),
            // In the innermost function itself the switch may not have happened yet.
            FrameExit::Go(GoFrame {
                end: GoEnd::Scheduler,
                ..
            }) if walk.len() > 1 => return Ok(()),
            FrameExit::Go(GoFrame {
                end: GoEnd::OtherStack,
                ..
            }) if walk.len() > 1 => {
                return Err(WalkEnd::Switched {
                    frame_pointer: regs.bp(),
                });
            }
            FrameExit::Refused => return Err(WalkEnd::Lost(Loss::Refused)),
            FrameExit::Go(GoFrame {
                size: Some(size), ..
            }) => leave_go_frame(&mut regs, size, stack)?,
            #[cfg(target_arch = "x86_64")]
            FrameExit::Code(exit) => leave_by_code(&mut regs, exit, stack)?,
            FrameExit::Signal => {
                let sp = regs.sp();
                let inner =
                    arch::interrupted(sp, |a| stack.read(a)).ok_or_else(|| stack.loss(sp))?;
                if inner.sp <= sp || inner.ip >= arch::USER_END {
                    return Err(WalkEnd::Lost(Loss::OffStack));
                }
                regs = UnwindRegs::new(inner);
                code = FrameAddress::from_instruction_pointer(inner.ip);
                continue;
            }
            // framehop takes a frame pointer of 0 for the end of the stack. That it is only where
            // frames are chained by it, and not when we were not given it to begin with.
            FrameExit::Tables {
                by_frame_pointer: true,
            } if regs.bp() == 0 => return Err(WalkEnd::Lost(Loss::FramePointer)),
            FrameExit::FramePointer if start.bp == 0 && regs.bp() == 0 && walk.len() > 1 => {
                return Err(WalkEnd::Lost(Loss::FramePointer));
            }
            FrameExit::Tables { .. }
            | FrameExit::NoTables
            | FrameExit::FramePointer
            | FrameExit::Go(_) => {
                let sp = regs.sp();
                let mut read = |a| stack.read(a).ok_or(());
                match process.unwinder.unwind_frame(
                    code,
                    &mut regs.0,
                    &mut process.cache,
                    &mut read,
                ) {
                    Ok(None) => return Ok(()),
                    Ok(Some(_)) if regs.sp() <= sp && walk.len() > 1 => {
                        return Err(WalkEnd::Lost(Loss::Misled));
                    }
                    Ok(Some(return_address)) => return_address,
                    Err(error) => return Err(lost(error, step, &stack).into()),
                }
            }
        };
        code = FrameAddress::from_return_address(return_address).ok_or(Loss::Misled)?;
    }
}

/// Whose frames were found.
enum Put {
    Native(FrameExit),
    Managed(ManagedExit),
}

/// Puts the frames of an address on the walk.
fn put_frames(
    process: &mut Process,
    (code, regs): (FrameAddress, &UnwindRegs),
    stack: CopiedStack<'_>,
    modules: &mut ModulesAndContext<'_>,
    walk: &mut Vec<Walked>,
) -> Result<Put, WalkEnd> {
    let (address, sp) = (code.address_for_lookup(), regs.sp());
    let walked = |frame, managed| Walked {
        frame,
        address,
        sp,
        managed,
    };
    let place = ManagedPlace {
        registers: Registers {
            ip: code.address(),
            sp,
            bp: regs.bp(),
            lr: regs.lr(),
        },
        innermost: matches!(code, FrameAddress::InstructionPointer(_)),
        stack,
    };
    if let Some(found) = process.managed(place, modules.modules, modules.losses) {
        let frames = found.frames.iter().copied();
        walk.extend(frames.map(|frame| walked(frame, true)));
        return Ok(Put::Managed(found.exit));
    }
    let Some(CodeAddress { frame, step }) =
        process.place(address, modules.modules, modules.context)
    else {
        if walk.is_empty() {
            let module = modules.modules.special(ModuleKind::Unknown);
            let frame = modules.modules.symbols.frame(module, "[no code]", "", 0);
            walk.push(walked(frame, false));
        }
        return Err(WalkEnd::Lost(Loss::NotCode));
    };
    walk.push(walked(frame, false));
    Ok(Put::Native(step))
}

fn leave_go_frame(regs: &mut UnwindRegs, size: u32, stack: CopiedStack<'_>) -> Result<u64, Loss> {
    let (at, frame_pointer_at, sp) = arch::go_frame(regs.sp(), size);
    let return_address = match at {
        Some(at) => stack.read(at).ok_or_else(|| stack.loss(at))?,
        None => regs.lr(),
    };
    let bp = frame_pointer_at.and_then(|at| stack.read(at));
    regs.leave(return_address, sp, bp.unwrap_or(regs.bp()));
    Ok(return_address)
}

/// Leaves a function in the way in which its code is about to.
#[cfg(target_arch = "x86_64")]
fn leave_by_code(
    regs: &mut UnwindRegs,
    exit: CodeExit,
    stack: CopiedStack<'_>,
) -> Result<u64, Loss> {
    let (sp, bp) = (regs.sp(), regs.bp());
    let address = |place| match place {
        StackPlace::FromSp(bytes) => Ok(sp.wrapping_add_signed(bytes)),
        StackPlace::FromBp(_) if bp == 0 => Err(Loss::FramePointer),
        StackPlace::FromBp(bytes) => Ok(bp.wrapping_add_signed(bytes)),
    };
    let read = |at| stack.read(at).ok_or_else(|| stack.loss(at));
    let at = address(exit.return_address)?;
    let return_address = read(at)?;
    // Nothing but a frame pointer that is none leads downwards.
    if at < sp {
        return Err(Loss::OffStack);
    }
    let bp = match exit.bp {
        BpAtReturn::Same => bp,
        BpAtReturn::Saved(place) => read(address(place)?)?,
        BpAtReturn::Unknown => 0,
    };
    regs.leave(return_address, at.saturating_add(8), bp);
    Ok(return_address)
}

fn lost(error: framehop::Error, step: FrameExit, stack: &CopiedStack<'_>) -> Loss {
    match error {
        framehop::Error::CouldNotReadStack(address) => match stack.loss(address) {
            Loss::OffStack if step == FrameExit::FramePointer => Loss::NoUnwindData,
            loss => loss,
        },
        _ if step == FrameExit::FramePointer => Loss::NoUnwindData,
        _ => Loss::Misled,
    }
}
