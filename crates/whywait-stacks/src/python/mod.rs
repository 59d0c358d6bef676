//! Python frames of a thread, read from outside out of CPython's own structures, and their place
//! between the native frames. How that goes while the thread runs: [`running`].
//!
//! Nothing is guessed. A sleeping thread must sleep where its stack was copied, before and after
//! the reading, without having run in between; the bytes of its stack must still be the copied
//! ones; what is read as a code object or a string must be one by its type. Otherwise there are no
//! Python frames, and a counter says so.

mod layout;
mod lines;
mod read;
mod running;

use std::collections::HashMap;

use whywait_events::{Frame, ModuleKind};

use crate::loss::{Loss, Losses};
use crate::modules::{Modules, PythonImage};
use crate::perf_map::own_id;
use crate::process::{Process, holds};
use crate::sleep::{Sleep, Sleeper};
use crate::unwind::{CopiedStack, Walked};
use layout::{Frames, PythonLayout};
use read::{Interpreter, PythonFrame};
use running::StackSample;

/// Where CPython (from 3.11) has what a thread runs: offsets, and each thread's state.
///
/// A coroutine has its frame within itself. So the outermost of the frames that a generator owns is
/// that of the task, for as long as that lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coroutines {
    /// In a thread's state: the innermost frame, or …
    pub current: u64,
    /// … what has it here.
    pub current_in_cframe: Option<u64>,
    /// In a frame: the one outside of it.
    pub previous: u64,
    /// In a frame: who owns it.
    pub owner: u64,
    /// Ids in the process's own pid namespace, and addresses of the states.
    pub threads: Vec<(u32, u64)>,
}

/// Reads Python frames, of any number of processes.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// `None`: not Python, or not one that can be read.
    processes: HashMap<u32, Option<Interpreter>>,
}

impl Reader {
    /// Forgets a process.
    pub(crate) fn forget(&mut self, tgid: u32) {
        self.processes.remove(&tgid);
    }

    /// Whether frames of this process were looked for, and can be found.
    pub(crate) fn reads(&self, tgid: u32) -> bool {
        self.processes.get(&tgid).is_some_and(Option::is_some)
    }

    /// Whether there is any process of which that is so.
    pub(crate) fn reads_any(&self) -> bool {
        self.processes.values().any(Option::is_some)
    }

    /// How to find the coroutine that each thread of a process runs; `None`: it is not Python, of a
    /// version that keeps frames elsewhere, or has not begun to run.
    pub(crate) fn coroutines(
        &mut self,
        process: &mut Process,
        modules: &mut Modules,
        losses: &mut Losses,
    ) -> Option<Coroutines> {
        let tgid = process.tgid();
        if !self.reads(tgid) {
            process.reread();
            process.look_for_python(modules);
            // What is not found is looked for again: perhaps it has only just begun.
            process.python()?;
            let found = find_runtime(process, modules, losses)?;
            self.processes.insert(tgid, Some(found));
        }
        let runtime = self.processes.get(&tgid)?.as_ref()?;
        let Frames::Light {
            current,
            indirect,
            previous,
            entry,
            ..
        } = runtime.layout.frames
        else {
            return None;
        };
        let threads = runtime.threads(process)?;
        Some(Coroutines {
            current,
            current_in_cframe: indirect.map(|cframe| cframe.current),
            previous,
            owner: entry.owner(),
            threads,
        })
    }

    /// The native frames (and whether they reach the thread's start) with those of the
    /// interpreter's loop replaced by Python's; `None`: there are none, or there was a doubt.
    pub(crate) fn splice(
        &mut self,
        process: &mut Process,
        sleeper: Sleeper<'_>,
        (native, complete): (&[Walked], bool),
        modules: &mut Modules,
        losses: &mut Losses,
    ) -> Option<Vec<Frame>> {
        let tgid = process.tgid();
        self.processes
            .entry(tgid)
            .or_insert_with(|| find_runtime(process, modules, losses));
        let runtime = self.processes.get_mut(&tgid)?.as_mut()?;
        let groups = match read_asleep(process, sleeper, runtime) {
            Ok(groups) => groups,
            Err(loss) => {
                losses.count(loss);
                return None;
            }
        };
        let (image, bias) = process.python()?;
        let eval = &image.python.as_ref()?.eval;
        let is_eval: Vec<bool> = native
            .iter()
            .map(|w| holds(eval, w.address.wrapping_sub(bias)))
            .collect();
        let module = modules.special(ModuleKind::Python);
        let mut frame = |f: &PythonFrame| {
            modules
                .symbols
                .frame(module, &f.code.name, &f.code.file, f.line)
        };
        let groups: Vec<Vec<Frame>> = groups
            .iter()
            .map(|group| group.iter().map(&mut frame).collect())
            .collect();
        let native: Vec<Frame> = native.iter().map(|w| w.frame).collect();
        let (frames, matched) = merge(&native, &is_eval, &groups, complete);
        if !matched {
            losses.count(Loss::PythonUnmatched);
        }
        Some(frames)
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
        let (image, bias) = process.python()?;
        let eval = &image.python.as_ref()?.eval;
        let (mut at, mut calls) = (Vec::new(), Vec::new());
        for (i, walked) in native.iter().enumerate() {
            if holds(eval, walked.address.wrapping_sub(bias)) {
                let end = native.get(i + 1).map(|outer| outer.sp);
                at.push(i);
                calls.push(walked.sp..end.unwrap_or(runner.stack.end()));
            }
        }
        if calls.is_empty() {
            return None;
        }
        let tgid = process.tgid();
        self.processes
            .entry(tgid)
            .or_insert_with(|| find_runtime(process, modules, losses));
        let runtime = self.processes.get_mut(&tgid)?.as_mut()?;
        let looks = runtime.look(process, runner.tid, runner.at_ns);
        let sample = StackSample {
            at_ns: runner.at_ns,
            stack: runner.stack,
            calls: &calls,
            complete,
        };
        let certain = match &looks {
            Ok((before, last)) => running::certain(&runtime.layout, sample, before.as_ref(), last),
            Err(loss) => Err(*loss),
        };
        let certain = match certain {
            Ok(certain) => certain,
            Err(loss) => {
                losses.count(loss);
                return None;
            }
        };
        if !certain.innermost {
            losses.count(Loss::PythonInnermost);
        }
        let module = modules.special(ModuleKind::Python);
        let mut python = certain.frames.iter().map(|&(seen, call, line_is_known)| {
            let line = match line_is_known {
                true => runtime.line(&seen.code, &seen.raw),
                false => seen.code.first_line,
            };
            let symbols = &mut modules.symbols;
            (
                call,
                symbols.frame(module, &seen.code.name, &seen.code.file, line),
            )
        });
        let mut python = python.by_ref().peekable();
        let first = python.peek().and_then(|&(call, _)| call)?;
        let mut frames = Vec::with_capacity(native.len() + certain.frames.len());
        let light = matches!(runtime.layout.frames, Frames::Light { .. });
        for (i, walked) in native.iter().enumerate() {
            let Some(call) = at.iter().position(|&at| at == i).filter(|&c| c >= first) else {
                frames.push(walked.frame);
                continue;
            };
            if call == first && !certain.innermost && light {
                // In the place of the functions that are not known.
                frames.push(walked.frame);
            }
            while let Some((_, frame)) = python.next_if(|&(of, _)| of == Some(call)) {
                frames.push(frame);
            }
        }
        frames.extend(python.map(|(_, frame)| frame));
        Some(frames)
    }
}

/// A sampled thread: its stack as it was copied, and when.
#[derive(Clone, Copy)]
pub(crate) struct Runner<'a> {
    pub(crate) tid: u32,
    pub(crate) at_ns: u64,
    pub(crate) stack: CopiedStack<'a>,
}

/// Puts Python's frames in the place of the loop's. Whether the two agreed.
fn merge(
    native: &[Frame],
    is_eval: &[bool],
    groups: &[Vec<Frame>],
    complete: bool,
) -> (Vec<Frame>, bool) {
    let calls = is_eval.iter().filter(|&&eval| eval).count();
    // A cut stack lacks the outer calls; the inner ones still correspond.
    if calls == groups.len() || (!complete && calls < groups.len()) {
        let mut groups = groups.iter();
        let mut frames = Vec::new();
        for (&frame, &eval) in native.iter().zip(is_eval) {
            match eval {
                true => frames.extend(groups.next().into_iter().flatten()),
                false => frames.push(frame),
            }
        }
        frames.extend(groups.flatten());
        return (frames, true);
    }
    let (Some(first), Some(last)) = (
        is_eval.iter().position(|&e| e),
        is_eval.iter().rposition(|&e| e),
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

fn find_runtime(
    process: &mut Process,
    modules: &mut Modules,
    losses: &mut Losses,
) -> Option<Interpreter> {
    process.look_for_python(modules);
    let (image, bias) = process.python()?;
    let python = image.python.clone()?;
    let address = |symbol: u64| bias.wrapping_add(symbol);
    let runtime = address(python.runtime);
    let layout = find_layout(process, &python, bias, runtime);
    if layout.is_none() || python.types.contains(&0) {
        losses.count(Loss::PythonVersion);
        return None;
    }
    Some(Interpreter::new(
        layout?,
        runtime,
        python.types.map(address),
        &modules.budget,
    ))
}

fn find_layout(
    process: &mut Process,
    python: &PythonImage,
    bias: u64,
    runtime: u64,
) -> Option<PythonLayout> {
    let mut bytes = [0; PythonLayout::DEBUG_OFFSETS];
    process.read_memory(runtime, &mut bytes).then_some(())?;
    if bytes.starts_with(b"xdebugpy") {
        return PythonLayout::from_debug_offsets(&bytes);
    }
    let minor = match python.version {
        Some(symbol) => {
            let mut version = [0; 4];
            process
                .read_memory(bias.wrapping_add(symbol), &mut version)
                .then_some(())?;
            let version = u32::from_le_bytes(version);
            (version >> 24 == 3).then_some(version >> 16 & 0xff)?
        }
        None => minor_of(&python.file_name)?,
    };
    PythonLayout::of(minor)
}

/// The version in names such as `python3.10` and `libpython3.8.so.1.0`.
fn minor_of(file_name: &str) -> Option<u32> {
    let (_, rest) = file_name.split_once("python3.")?;
    let digits = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    rest[..digits].parse().ok()
}

fn read_asleep(
    process: &mut Process,
    sleeper: Sleeper<'_>,
    runtime: &mut Interpreter,
) -> Result<Vec<Vec<PythonFrame>>, Loss> {
    let sleep = Sleep::now(process, sleeper).ok_or(Loss::PythonMoved)?;
    let status = format!("/proc/{}/task/{}/status", process.tgid(), sleeper.tid);
    let tid = own_id(&status).ok_or(Loss::PythonThread)?;
    let frames = runtime.frames(process, tid);
    if !sleep.goes_on(process, sleeper) {
        return Err(Loss::PythonMoved);
    }
    frames
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

    #[test]
    fn versions_in_file_names() {
        assert_eq!(minor_of("libpython3.10.so.1.0"), Some(10));
        assert_eq!(minor_of("python3.8"), Some(8));
        assert_eq!(minor_of("python3"), None);
        assert_eq!(minor_of("python3."), None);
    }
}
