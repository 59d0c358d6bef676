//! Functions of languages whose interpreters keep them elsewhere than on the thread's stack, read
//! from outside out of the interpreter's own structures, and their place between the native frames.
//! How that goes while the thread runs: [`running`].
//!
//! Nothing is guessed. A sleeping thread must sleep where its stack was copied, before and after
//! the reading, without having run in between; the bytes of its stack must still be the copied
//! ones; what is read as an object must be one by its type. Otherwise there are no functions, and a
//! counter says so.

mod copied;
mod running;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use whywait_events::{Frame, ModuleKind};

use crate::budget::Charge;
use crate::cfi::UnwindContext;
use crate::loss::{Language, Losses, Unread};
use crate::modules::{Image, Modules};
use crate::perf_map::own_id;
use crate::php::Php;
use crate::process::{Process, holds, word};
use crate::python::{self, CPython};
use crate::ruby::Ruby;
use crate::sleep::{Sleep, Sleeper};
use crate::unwind::{CopiedStack, RunningThread, Walked};
pub(crate) use copied::CopiedFrames;
pub use copied::{
    CopiedFunction, CopiedFunctions, CoroutinePlaces, FramePlaces, LastOfCall, StatePlace,
};
use running::{CertainFrames, Running, StackSample};

/// Deeper stacks are not read.
const MAX_FRAMES: usize = 4096;

/// A language's interpreter in one process.
pub(crate) trait Interpreter: Sized {
    /// Of the module that has its functions.
    const KIND: ModuleKind;
    const LANGUAGE: Language;

    /// Looks for it in a process.
    fn find(process: &mut Process, modules: &mut Modules) -> FoundInterpreter<Self>;

    /// Whether a mapped file has it.
    fn is_in(image: &Image) -> bool;

    /// Where the code of its loop is in the process.
    fn loops(&self, process: &Process) -> Vec<Range<u64>>;

    /// How its functions and the calls of its loop belong together.
    fn loop_calls(&self) -> LoopCalls;

    /// Where it keeps what thread `own_id` (in the process's own pid namespace) runs.
    fn thread(&mut self, process: &mut Process, own_id: u32) -> Result<u64, Unread>;

    /// Whether that is still the thread's.
    fn is_of(&mut self, process: &mut Process, thread: u64, own_id: u32) -> Option<bool>;

    /// The frames of a thread, innermost first, as they are chained; `None`: that could not be
    /// read, or is deeper than `most`.
    fn chain(&mut self, process: &mut Process, thread: u64, most: usize) -> Option<Vec<RawFrame>>;

    /// The function of a frame.
    fn code(&mut self, process: &mut Process, raw: &RawFrame) -> Option<Arc<CodeNames>>;

    /// The line that a frame is at.
    fn line(&self, code: &CodeNames, raw: &RawFrame) -> u32;

    /// The frame that the loop runs, by the registers that it keeps (r14, r15), if its function is
    /// known.
    fn current(&mut self, _: &mut Process, _kept: [u64; 2]) -> Option<(RawFrame, Arc<CodeNames>)> {
        None
    }

    /// The frames of functions that were copied with a stack, up to the first that is not what it
    /// was.
    fn copied(&self, _: &mut Process, _: &[CopiedFunction]) -> CopiedFrames {
        CopiedFrames::default()
    }

    /// Whether a frame that is on the stack with another one, which is the innermost, can be
    /// outside of it, by their addresses.
    fn is_outside(_frame: u64, _of: u64) -> bool {
        true
    }
}

/// What became of looking for an interpreter.
#[derive(Debug)]
pub(crate) enum FoundInterpreter<I> {
    Yes(I),
    /// The process has none.
    No,
    /// It has one that has not begun yet.
    NotYet,
    /// One of which it is not known where it keeps what, or that is not as it should be.
    Unknown,
}

/// How it is known to which call of the interpreter's loop a function belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoopCalls {
    /// [`RawFrame::call`] is an address within the loop's own frame on the C stack. `current`: from
    /// there, where the address of the innermost frame is.
    OnStack { current: Option<u64> },
    /// By counting from the thread's start. `by_pointer`: where that was not copied, by the
    /// addresses of frames that the loop has on the C stack. Each call has one frame.
    Counted { by_pointer: bool },
}

/// A frame as it is chained, not yet known to be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RawFrame {
    pub(crate) address: u64,
    /// Address of the code object.
    pub(crate) code: u64,
    /// The last instruction: its number or its address.
    pub(crate) instruction: u64,
    /// Identifies a call of the interpreter's loop.
    pub(crate) call: u64,
}

/// What a function is called.
#[derive(Debug)]
pub(crate) struct CodeNames {
    pub(crate) name: String,
    pub(crate) place: CodePlace,
    /// Its lines as the language writes them down. `None`: too large.
    lines: Option<Vec<u8>>,
    /// The instruction that was asked for last, and its line: a function on a stack is the same
    /// from look to look, and its table may be long.
    last: AtomicU64,
    _charge: Charge,
}

/// Where a function is.
#[derive(Debug, Default)]
pub(crate) struct CodePlace {
    pub(crate) file: String,
    pub(crate) first_line: u32,
    /// Where its instructions begin, if frames have their addresses.
    pub(crate) begin: u64,
}

impl CodeNames {
    pub(crate) fn new(
        name: String,
        place: CodePlace,
        lines: Option<Vec<u8>>,
        charge: Charge,
    ) -> Self {
        Self {
            name,
            place,
            lines,
            last: AtomicU64::new(u64::MAX),
            _charge: charge,
        }
    }

    /// The line of an instruction; the function's first where the table was too large.
    pub(crate) fn line(&self, offset: u64, look_up: impl FnOnce(&[u8]) -> u32) -> u32 {
        let Some(lines) = &self.lines else {
            return self.place.first_line;
        };
        let Ok(short) = u32::try_from(offset) else {
            return 0;
        };
        let last = self.last.load(Relaxed);
        if last >> 32 == u64::from(short) && last != u64::MAX {
            return last as u32;
        }
        let line = look_up(lines);
        self.last
            .store(u64::from(short) << 32 | u64::from(line), Relaxed);
        line
    }
}

#[cfg(test)]
impl CodeNames {
    pub(crate) fn test(code: u64) -> Arc<Self> {
        let charge = crate::budget::Budget::default().nothing();
        Arc::new(Self::new(
            code.to_string(),
            CodePlace::default(),
            None,
            charge,
        ))
    }
}

/// Where the code of functions is, to know them by their instructions.
#[derive(Debug, Default)]
pub(crate) struct CodePlaces(BTreeMap<u64, (u64, u64)>);

impl CodePlaces {
    /// Code begins at an address, and a code object has it.
    pub(crate) fn add(&mut self, begin: u64, bytes: u64, object: u64) {
        self.0.insert(begin, (begin.saturating_add(bytes), object));
    }

    /// Of how many it is known.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Where the code with an instruction, or with the last one before it, begins, and the code
    /// object that had it when it was seen.
    pub(crate) fn at(&self, instruction: u64) -> Option<(u64, u64)> {
        let (begin, (end, object)) = self.0.range(..=instruction).next_back()?;
        (instruction <= *end).then_some((*begin, *object))
    }
}

/// The frame at `address` that the loop runs at an instruction, if the function that has that
/// instruction in its code is known, and still has that code, or is the one that the frame has by
/// now (at `function_at` in it).
pub(crate) fn frame_at<I: Interpreter>(
    interpreter: &mut I,
    process: &mut Process,
    (address, instruction): (u64, u64),
    function_at: u64,
    places: fn(&I) -> &CodePlaces,
) -> Option<(RawFrame, Arc<CodeNames>)> {
    let known = places(interpreter).at(instruction);
    let by_now = |process: &mut Process| word(process, address.checked_add(function_at)?);
    for at in 0..2 {
        let code = match at {
            0 => known.map(|(_, code)| code),
            _ => by_now(process),
        };
        let Some(code) = code else { continue };
        let raw = RawFrame {
            address,
            code,
            instruction,
            call: 0,
        };
        let Some(names) = interpreter.code(process, &raw) else {
            continue;
        };
        if places(interpreter).at(instruction) == Some((names.place.begin, code)) {
            return Some((raw, names));
        }
    }
    None
}

/// Reads the functions of one language, of any number of processes.
#[derive(Debug)]
pub(crate) struct Reader<I> {
    /// `None`: it has no such interpreter, or not one that can be read.
    processes: HashMap<u32, Option<ReadInterpreter<I>>>,
    /// In which processes one was found since that was asked.
    found: Vec<u32>,
}

/// An interpreter, and what was seen of the running threads of its process.
#[derive(Debug)]
struct ReadInterpreter<I> {
    interpreter: I,
    running: Running,
    /// Its functions come with the stacks.
    come: bool,
}

impl<I> Default for Reader<I> {
    fn default() -> Self {
        Self {
            processes: HashMap::new(),
            found: Vec::new(),
        }
    }
}

impl<I: Interpreter> Reader<I> {
    /// The processes in which one was found since this was asked.
    pub(crate) fn take_found(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.found)
    }

    /// Forgets a process.
    pub(crate) fn forget(&mut self, tgid: u32) {
        self.processes.remove(&tgid);
    }

    /// Whether functions of this process were looked for, and can be found.
    pub(crate) fn reads(&self, tgid: u32) -> bool {
        self.processes.get(&tgid).is_some_and(Option::is_some)
    }

    /// Whether there is any process of which that is so, and whose functions are to be read soon:
    /// they do not come with the stacks.
    pub(crate) fn reads_any(&self) -> bool {
        self.processes.values().flatten().any(|known| !known.come)
    }

    /// The interpreter that was found in a process.
    pub(crate) fn interpreter(&mut self, tgid: u32) -> Option<&mut I> {
        let known = self.processes.get_mut(&tgid)?.as_mut()?;
        Some(&mut known.interpreter)
    }

    /// Looks for an interpreter that was not found before: perhaps it has only just begun.
    pub(crate) fn look_again(
        &mut self,
        process: &mut Process,
        modules: &mut Modules,
        losses: &mut Losses,
    ) {
        if self.reads(process.tgid()) {
            return;
        }
        process.reread();
        self.forget(process.tgid());
        if self.find(process, modules, losses).flatten().is_none() {
            self.forget(process.tgid());
        }
    }

    /// What is known of a process; `None`: nothing yet.
    fn find(
        &mut self,
        process: &mut Process,
        modules: &mut Modules,
        losses: &mut Losses,
    ) -> Option<Option<&mut ReadInterpreter<I>>> {
        let tgid = process.tgid();
        if let Entry::Vacant(unknown) = self.processes.entry(tgid) {
            let found = match I::find(process, modules) {
                FoundInterpreter::Yes(interpreter) => {
                    if let Some((image, _)) = process.holding(I::is_in) {
                        modules.note_runtime(image.id);
                    }
                    self.found.push(tgid);
                    Some(ReadInterpreter {
                        interpreter,
                        running: Running::default(),
                        come: false,
                    })
                }
                FoundInterpreter::No => None,
                FoundInterpreter::NotYet => return None,
                FoundInterpreter::Unknown => {
                    losses.count_unread(I::LANGUAGE, Unread::Version);
                    None
                }
            };
            unknown.insert(found);
        }
        self.processes.get_mut(&tgid).map(Option::as_mut)
    }

    /// The native frames (and whether they reach the thread's start) with those of the
    /// interpreter's loop replaced by its functions: those that were copied with the stack, or all
    /// that there are if these are more and the thread still sleeps. `None`: there are none, or
    /// there was a doubt.
    pub(crate) fn splice(
        &mut self,
        process: &mut Process,
        (sleeper, copied): (Sleeper<'_>, Option<&CopiedFunctions>),
        native: (&[Walked], bool),
        modules: &mut Modules,
        losses: &mut Losses,
    ) -> Option<Vec<Frame>> {
        if let Some(all) = copied.filter(|copied| copied.all) {
            let spliced = self.splice_copied(process, all, native, modules, losses);
            if spliced.is_some() {
                return spliced;
            }
        }
        let ReadInterpreter { interpreter, .. } = self.find(process, modules, losses)??;
        match read_asleep(process, sleeper, interpreter) {
            Ok(groups) => self.merge_groups(process, &groups, native, modules, losses),
            Err(unread) => {
                if let Some(some) = copied.filter(|copied| !copied.all) {
                    let spliced = self.splice_copied(process, some, native, modules, losses);
                    if spliced.is_some() {
                        return spliced;
                    }
                }
                losses.count_unread(I::LANGUAGE, unread);
                self.splice_woken(process, sleeper, native.0, modules)
            }
        }
    }

    /// As [`splice`](Self::splice), with the functions that were copied with the stack. `None`:
    /// they are not what they were.
    pub(crate) fn splice_copied(
        &mut self,
        process: &mut Process,
        copied: &CopiedFunctions,
        (native, complete): (&[Walked], bool),
        modules: &mut Modules,
        losses: &mut Losses,
    ) -> Option<Vec<Frame>> {
        process.holding(I::is_in)?;
        let ReadInterpreter {
            interpreter, come, ..
        } = self.find(process, modules, losses)??;
        let CopiedFrames { frames, cut } = interpreter.copied(process, &copied.functions);
        let (groups, unread) = grouped(process, &frames, interpreter);
        // The innermost function is not what it was, or there is none.
        groups.first()?.first()?;
        *come = true;
        let native = (native, complete && copied.all && !cut && unread.is_none());
        self.merge_groups(process, &groups, native, modules, losses)
    }

    /// Puts functions in the place of the loop's frames; each group is of one call of it.
    fn merge_groups(
        &mut self,
        process: &mut Process,
        groups: &[OfOneCall],
        (native, complete): (&[Walked], bool),
        modules: &mut Modules,
        losses: &mut Losses,
    ) -> Option<Vec<Frame>> {
        let interpreter = self.interpreter(process.tgid())?;
        let loops = interpreter.loops(process);
        let is_loop: Vec<bool> = native
            .iter()
            .map(|walked| holds(&loops, walked.address))
            .collect();
        let module = modules.special(I::KIND);
        let mut frame = |(code, line): &(Arc<CodeNames>, u32)| {
            modules
                .symbols
                .frame(module, &code.name, &code.place.file, *line)
        };
        let groups: Vec<Vec<Frame>> = groups
            .iter()
            .map(|group| group.iter().map(&mut frame).collect())
            .collect();
        let native: Vec<Frame> = native.iter().map(|w| w.frame).collect();
        let (frames, matched) = merge(&native, &is_loop, &groups, complete);
        if !matched {
            losses.count_unread(I::LANGUAGE, Unread::Unmatched);
        }
        Some(frames)
    }

    /// As [`splice`](Self::splice), of a thread that has gone on meanwhile: the function that each
    /// call of the loop was in when its registers were put on the stack that was copied.
    fn splice_woken(
        &mut self,
        process: &mut Process,
        sleeper: Sleeper<'_>,
        native: &[Walked],
        modules: &mut Modules,
    ) -> Option<Vec<Frame>> {
        let interpreter = self.interpreter(process.tgid())?;
        let loops = interpreter.loops(process);
        let stack = CopiedStack::new(sleeper.regs.sp, sleeper.stack);
        let mut frames: Vec<Frame> = native.iter().map(|walked| walked.frame).collect();
        let mut is_one_known = false;
        for (at, walked) in native.iter().enumerate() {
            // A compiler's code keeps other things there.
            if !holds(&loops, walked.address) || modules.is_compiled(walked.frame) {
                continue;
            }
            let kept = kept_at(sleeper.kept, (native, at), stack, process, modules);
            let current = kept.and_then(|kept| interpreter.current(process, kept));
            if let Some((raw, code)) = current {
                let line = interpreter.line(&code, &raw);
                let module = modules.special(I::KIND);
                let (name, file) = (&code.name, &code.place.file);
                frames[at] = modules.symbols.frame(module, name, file, line);
                is_one_known = true;
            }
        }
        is_one_known.then_some(frames)
    }

    /// As [`splice`](Self::splice), of a thread that runs on meanwhile.
    pub(crate) fn splice_running(
        &mut self,
        process: &mut Process,
        runner: Runner<'_>,
        (native, complete): (&[Walked], bool),
        modules: &mut Modules,
        losses: &mut Losses,
    ) -> Option<Vec<Frame>> {
        // The walk has looked at each mapping that it led into.
        process.holding(I::is_in)?;
        let known = self.find(process, modules, losses)??;
        let loops = known.interpreter.loops(process);
        let LoopFrames { at, calls } = LoopFrames::of(native, &loops, runner.stack.end());
        let innermost_call = *at.first()?;
        let ReadInterpreter {
            interpreter,
            running,
            ..
        } = known;
        let RunningThread { tid, at_ns, .. } = runner.thread;
        let looks = running.look(interpreter, process, tid, at_ns);
        // A compiler's code is a call of the loop, or several.
        let compiled = at.iter().any(|at| modules.is_compiled(native[*at].frame));
        let innermost_is_compiled = modules.is_compiled(native[innermost_call].frame);
        let sample = StackSample {
            at_ns,
            stack: runner.stack,
            calls: &calls,
            complete: complete && !compiled,
        };
        let loop_calls = interpreter.loop_calls();
        let certain = looks.as_ref().map_err(|unread| *unread);
        let certain = certain
            .and_then(|(before, last)| running::certain(loop_calls, sample, before.as_ref(), last));
        let kept = runner.thread.kept.filter(|_| !innermost_is_compiled);
        let current = kept
            .and_then(|kept| {
                let place = (native, innermost_call);
                kept_at(kept.map(Some), place, runner.stack, process, modules)
            })
            .and_then(|kept| interpreter.current(process, kept));
        // Also when the looks say nothing: the registers are those of the sample.
        let functions = functions(
            interpreter,
            current.as_ref(),
            certain.as_ref().ok(),
            modules,
        );
        let innermost = match &certain {
            Ok(certain) => certain.innermost || current.is_some(),
            Err(unread) => {
                losses.count_unread(I::LANGUAGE, *unread);
                current.is_some()
            }
        };
        let first = functions.first()?.0;
        if !innermost {
            losses.count_unread(I::LANGUAGE, Unread::Innermost);
        }
        let native: Vec<Frame> = native.iter().map(|walked| walked.frame).collect();
        let counted = loop_calls == LoopCalls::Counted { by_pointer: false };
        if first.is_none() && !counted {
            return None;
        }
        if counted && functions.iter().any(|(call, _)| call.is_none()) {
            // In the place of all calls of the loop. The innermost one stays for the functions that
            // are not known, unless it is one of those itself.
            let stays = !innermost && !innermost_is_compiled;
            let mut frames = native[..innermost_call + usize::from(stays)].to_vec();
            frames.extend(functions.iter().map(|(_, frame)| frame));
            frames.extend(&native[at.last()? + 1..]);
            return Some(frames);
        }
        // Of calls with one frame each none is in doubt.
        let keeps_first = !innermost && loop_calls != LoopCalls::Counted { by_pointer: true };
        Some(put(&native, &at, &functions, keeps_first))
    }
}

/// The native frames that are calls of the interpreter's loop.
struct LoopFrames {
    /// Which they are, innermost first.
    at: Vec<usize>,
    /// Where they are on the stack.
    calls: Vec<Range<u64>>,
}

impl LoopFrames {
    fn of(native: &[Walked], loops: &[Range<u64>], stack_end: u64) -> Self {
        let (mut at, mut calls) = (Vec::new(), Vec::new());
        for (i, walked) in native.iter().enumerate() {
            if holds(loops, walked.address) {
                let end = native.get(i + 1).map(|outer| outer.sp);
                at.push(i);
                calls.push(walked.sp..end.unwrap_or(stack_end));
            }
        }
        Self { at, calls }
    }
}

/// The functions of a sample, innermost first, each with its call of the loop if that is known:
/// the current one, and those outside of it that are certain.
fn functions<I: Interpreter>(
    interpreter: &I,
    current: Option<&(RawFrame, Arc<CodeNames>)>,
    certain: Option<&CertainFrames<'_>>,
    modules: &mut Modules,
) -> Vec<(Option<usize>, Frame)> {
    let module = modules.special(I::KIND);
    let mut frame = |code: &CodeNames, line| {
        let (name, file) = (&code.name, &code.place.file);
        modules.symbols.frame(module, name, file, line)
    };
    let mut functions = Vec::new();
    let certain = certain.map_or(&[][..], |certain| &certain.frames);
    let mut from = 0;
    if let Some((raw, code)) = current {
        functions.push((Some(0), frame(code, interpreter.line(code, raw))));
        let same = certain
            .iter()
            .position(|(seen, ..)| seen.raw.address == raw.address)
            .map(|at| at + 1);
        let outside = || {
            certain
                .iter()
                .position(|(seen, ..)| I::is_outside(seen.raw.address, raw.address))
        };
        from = same.or_else(outside).unwrap_or(certain.len());
    }
    for (seen, call, line_is_known) in &certain[from..] {
        let line = match line_is_known {
            true => interpreter.line(&seen.code, &seen.raw),
            false => seen.code.place.first_line,
        };
        functions.push((*call, frame(&seen.code, line)));
    }
    functions
}

/// Reads the functions of all languages. A process has one of them.
#[derive(Debug, Default)]
pub(crate) struct Interpreters {
    pub(crate) python: Reader<CPython>,
    ruby: Reader<Ruby>,
    php: Reader<Php>,
}

impl Interpreters {
    /// The processes in which an interpreter was found since this was asked, of which functions can
    /// be copied with the stacks.
    pub(crate) fn take_found(&mut self) -> Vec<u32> {
        let mut found = self.python.take_found();
        found.append(&mut self.php.take_found());
        found
    }

    /// Where a process's interpreter has what its threads run, if that is known.
    pub(crate) fn places(
        &mut self,
        process: &mut Process,
        modules: &mut Modules,
        losses: &mut Losses,
    ) -> Option<FramePlaces> {
        let tgid = process.tgid();
        if !self.php.reads(tgid) {
            let python = python::places(&mut self.python, process, modules, losses);
            if python.is_some() {
                return python;
            }
            self.php.look_again(process, modules, losses);
        }
        self.php.interpreter(tgid).map(|php| php.places())
    }

    /// As [`Reader::splice`].
    pub(crate) fn splice(
        &mut self,
        process: &mut Process,
        asleep: (Sleeper<'_>, Option<&CopiedFunctions>),
        native: (&[Walked], bool),
        modules: &mut Modules,
        losses: &mut Losses,
    ) -> Option<Vec<Frame>> {
        let Self { python, ruby, php } = self;
        python
            .splice(process, asleep, native, modules, losses)
            .or_else(|| ruby.splice(process, asleep, native, modules, losses))
            .or_else(|| php.splice(process, asleep, native, modules, losses))
    }

    /// As [`Reader::splice_running`].
    pub(crate) fn splice_running(
        &mut self,
        process: &mut Process,
        (runner, copied): (Runner<'_>, Option<&CopiedFunctions>),
        native: (&[Walked], bool),
        modules: &mut Modules,
        losses: &mut Losses,
    ) -> Option<Vec<Frame>> {
        let Self { python, ruby, php } = self;
        copied
            .and_then(|copied| {
                python
                    .splice_copied(process, copied, native, modules, losses)
                    .or_else(|| php.splice_copied(process, copied, native, modules, losses))
            })
            .or_else(|| python.splice_running(process, runner, native, modules, losses))
            .or_else(|| ruby.splice_running(process, runner, native, modules, losses))
            .or_else(|| php.splice_running(process, runner, native, modules, losses))
    }

    /// Forgets a process.
    pub(crate) fn forget(&mut self, tgid: u32) {
        self.python.forget(tgid);
        self.ruby.forget(tgid);
        self.php.forget(tgid);
    }

    /// Whether functions of this process were looked for, and can be found.
    pub(crate) fn reads(&self, tgid: u32) -> bool {
        self.python.reads(tgid) || self.ruby.reads(tgid) || self.php.reads(tgid)
    }

    /// Whether there is any process of which that is so.
    pub(crate) fn reads_any(&self) -> bool {
        self.python.reads_any() || self.ruby.reads_any() || self.php.reads_any()
    }
}

/// A sampled thread, and its stack as it was copied.
#[derive(Clone, Copy)]
pub(crate) struct Runner<'a> {
    pub(crate) thread: RunningThread,
    pub(crate) stack: CopiedStack<'a>,
}

/// What the registers that interpreters keep were in a native frame: those that it has called may
/// have saved them on the stack. `kept`: what they are, if known.
fn kept_at(
    mut kept: [Option<u64>; 2],
    (native, frame): (&[Walked], usize),
    stack: CopiedStack<'_>,
    process: &mut Process,
    modules: &mut Modules,
) -> Option<[u64; 2]> {
    let mut context = UnwindContext::new();
    for pair in native[..=frame].windows(2) {
        let saved = process.saved(pair[0].address, modules, &mut context)?;
        for (register, offset) in kept.iter_mut().zip(saved) {
            if let Some(offset) = offset {
                *register = Some(stack.read(pair[1].sp.checked_add_signed(offset)?)?);
            }
        }
    }
    let [one, other] = kept;
    Some([one?, other?])
}

/// Puts functions in the place of the calls of the loop that they belong to, from the innermost of
/// those on. `keeps_first`: that call stays, for functions further in that are not known.
fn put(
    native: &[Frame],
    at: &[usize],
    functions: &[(Option<usize>, Frame)],
    keeps_first: bool,
) -> Vec<Frame> {
    let mut functions = functions.iter().copied().peekable();
    let first = functions.peek().and_then(|(call, _)| *call);
    let mut frames = Vec::with_capacity(native.len() + functions.len());
    for (i, native) in native.iter().enumerate() {
        let call = at.iter().position(|&at| at == i);
        let Some(call) = call.filter(|call| first.is_some_and(|first| *call >= first)) else {
            frames.push(*native);
            continue;
        };
        if Some(call) == first && keeps_first {
            frames.push(*native);
        }
        while let Some((_, frame)) = functions.next_if(|(of, _)| *of == Some(call)) {
            frames.push(frame);
        }
    }
    frames.extend(functions.map(|(_, frame)| frame));
    frames
}

/// Puts functions in the place of the loop's frames. Whether the two agreed.
fn merge(
    native: &[Frame],
    is_loop: &[bool],
    groups: &[Vec<Frame>],
    complete: bool,
) -> (Vec<Frame>, bool) {
    let calls = is_loop.iter().filter(|&&is| is).count();
    // A cut stack lacks the outer calls; the inner ones still correspond.
    if calls == groups.len() || (!complete && calls < groups.len()) {
        let mut groups = groups.iter();
        let mut frames = Vec::new();
        for (&frame, &is) in native.iter().zip(is_loop) {
            match is {
                true => frames.extend(groups.next().into_iter().flatten()),
                false => frames.push(frame),
            }
        }
        frames.extend(groups.flatten());
        return (frames, true);
    }
    let (Some(first), Some(last)) = (
        is_loop.iter().position(|&is| is),
        is_loop.iter().rposition(|&is| is),
    ) else {
        return (native.to_vec(), false);
    };
    if groups.is_empty() {
        return (native.to_vec(), false);
    }
    let mut frames = native[..first].to_vec();
    frames.extend(groups.iter().flatten());
    frames.extend(&native[last + 1..]);
    (frames, false)
}

/// Functions that one call of the interpreter's loop runs, innermost first, each with its line.
type OfOneCall = Vec<(Arc<CodeNames>, u32)>;

/// The functions of a thread that sleeps, innermost first, in groups: one for each call of the
/// interpreter's loop.
fn read_asleep<I: Interpreter>(
    process: &mut Process,
    sleeper: Sleeper<'_>,
    interpreter: &mut I,
) -> Result<Vec<OfOneCall>, Unread> {
    let sleep = Sleep::now(process, sleeper).ok_or(Unread::Moved)?;
    let status = format!("/proc/{}/task/{}/status", process.tgid(), sleeper.tid);
    let own_id = own_id(&status).ok_or(Unread::Thread)?;
    let groups = groups(process, own_id, interpreter);
    if !sleep.goes_on(process, sleeper) {
        return Err(Unread::Moved);
    }
    groups
}

/// The same, of a thread by its id in the process's own pid namespace.
pub(crate) fn groups<I: Interpreter>(
    process: &mut Process,
    own_id: u32,
    interpreter: &mut I,
) -> Result<Vec<OfOneCall>, Unread> {
    let thread = interpreter.thread(process, own_id)?;
    let chain = interpreter
        .chain(process, thread, MAX_FRAMES)
        .ok_or(Unread::Memory)?;
    match grouped(process, &chain, interpreter) {
        (groups, None) => Ok(groups),
        (_, Some(unread)) => Err(unread),
    }
}

/// A thread's frames, as groups of one call of the loop each, up to the first that cannot be read.
fn grouped<I: Interpreter>(
    process: &mut Process,
    chain: &[RawFrame],
    interpreter: &mut I,
) -> (Vec<OfOneCall>, Option<Unread>) {
    let mut groups: Vec<OfOneCall> = Vec::new();
    let mut last = None;
    for raw in chain {
        if last.replace(raw.call) != Some(raw.call) {
            groups.push(Vec::new());
        }
        let Some(code) = interpreter.code(process, raw) else {
            return (groups, Some(Unread::Memory));
        };
        let line = interpreter.line(&code, raw);
        if let Some(group) = groups.last_mut() {
            group.push((code, line));
        }
    }
    (groups, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(addresses: &[u64]) -> Vec<Frame> {
        addresses
            .iter()
            .map(|&address| Frame { module: 1, address })
            .collect()
    }

    #[test]
    fn each_call_of_the_loop_becomes_its_python_frames() {
        let native = frames(&[1, 2, 3, 4, 5]);
        let eval = [false, true, false, true, false];
        let groups = [frames(&[21, 22]), frames(&[41])];
        assert_eq!(
            merge(&native, &eval, &groups, true),
            (frames(&[1, 21, 22, 3, 41, 5]), true)
        );
    }

    #[test]
    fn a_cut_stack_still_gets_all_python_frames() {
        let groups = [frames(&[21]), frames(&[41])];
        assert_eq!(
            merge(&frames(&[1, 2]), &[false, true], &groups, false),
            (frames(&[1, 21, 41]), true)
        );
        assert_eq!(
            merge(&frames(&[1]), &[false], &groups, false),
            (frames(&[1, 21, 41]), true)
        );
    }

    #[test]
    fn when_counts_differ_the_whole_region_is_replaced() {
        let native = frames(&[1, 2, 3, 4, 5]);
        let eval = [false, true, false, true, false];
        assert_eq!(
            merge(&native, &eval, &[frames(&[21])], true),
            (frames(&[1, 21, 5]), false)
        );
        assert_eq!(
            merge(&native, &[false; 5], &[frames(&[21])], true),
            (native.clone(), false)
        );
        assert_eq!(merge(&native, &eval, &[], true), (native.clone(), false));
    }
}
