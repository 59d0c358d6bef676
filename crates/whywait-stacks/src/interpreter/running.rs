//! Functions of a thread that runs on while they are read.
//!
//! A sample's stack bytes are of the moment of the sample; the frames they belong to are in memory
//! that is read a few milliseconds later. What is taken for true:
//!
//! - The thread is looked at when a sample arrives, and the last look before the sample was taken
//!   is kept. Only frames that both looks have (same place in memory, same code, same call of the
//!   interpreter's loop) count, and only when the thread did not sleep in between, by the kernel's
//!   count of its voluntary switches: a server's thread sits in the same function before and after
//!   each request.
//! - The native frames are those of the sample: without its call of the loop a function was not
//!   there. CPython to 3.12 also keeps, on the C stack, the address of the innermost frame.
//!
//! The native frame of the loop stays where functions further in are not known.
//!
//! What was tried and is not done: to take, beyond the common frames, one whose next instruction a
//! word of the copied stack points to. The interpreter leaves such words behind; one name in ten
//! was then of another function.
//!
//! What remains: between two looks, [`MAX_GAP_NS`] at most, a function may have returned and been
//! called again. So a function that is named was on the thread's stack within half of that of the
//! sample, not necessarily at it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use rustix::time::{ClockId, clock_gettime};

use super::{CodeNames, Interpreter, LoopCalls, RawFrame};
use crate::loss::Unread;
use crate::perf_map::Status;
use crate::process::Process;
use crate::unwind::CopiedStack;

/// Between the two looks around a sample, from the first one's begin to the second one's end.
const MAX_GAP_NS: u64 = 50_000_000;
/// Deeper stacks get no functions while running: each costs two reads.
const MAX_FRAMES: usize = 300;
/// How many innermost frames may be missing from the copied stack.
const MAX_GONE: usize = 8;
/// So many are remembered, with two stacks each.
const MAX_THREADS: usize = 512;

/// What was seen of the running threads of a process.
#[derive(Debug, Default)]
pub(super) struct Running(HashMap<u32, SeenThread>);

#[derive(Debug, Default)]
struct SeenThread {
    /// Address of the thread state.
    state: u64,
    before: Option<Look>,
    last: Option<Look>,
}

/// A thread's frames at some time between two.
#[derive(Debug, Clone, Default)]
pub(super) struct Look {
    pub(super) begun_ns: u64,
    pub(super) ended_ns: u64,
    /// How often the thread had gone to sleep. It is asked for once, as it is half of a look's
    /// price; the frames were there before that and after it.
    pub(super) sleeps: u64,
    /// Innermost first.
    pub(super) frames: Vec<ThreadSeen>,
}

#[derive(Debug, Clone)]
pub(super) struct ThreadSeen {
    pub(super) raw: RawFrame,
    pub(super) code: Arc<CodeNames>,
}

impl ThreadSeen {
    fn same(&self, other: &Self) -> bool {
        let key = |seen: &Self| (seen.raw.address, seen.raw.code, seen.raw.call);
        key(self) == key(other) && Arc::ptr_eq(&self.code, &other.code)
    }
}

/// A sample and what its native frames say.
#[derive(Clone, Copy)]
pub(super) struct StackSample<'a> {
    pub(super) at_ns: u64,
    pub(super) stack: CopiedStack<'a>,
    /// Where on the stack the calls of the interpreter's loop have their frames, innermost first.
    pub(super) calls: &'a [Range<u64>],
    /// The native frames reach the thread's start.
    pub(super) complete: bool,
}

/// The functions that a sample gets.
#[derive(Debug)]
pub(super) struct CertainFrames<'a> {
    /// Innermost first: the frame, the call of the loop that it belongs to (`None`: one further out
    /// than the copied bytes, or it is not known which), and whether its last instruction is known
    /// to be that of the sample.
    pub(super) frames: Vec<(&'a ThreadSeen, Option<usize>, bool)>,
    /// Nothing is missing further in.
    pub(super) innermost: bool,
}

pub(super) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec)
        .unwrap_or(0)
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

impl Running {
    /// Sees to it that the thread was looked at since `at_ns`, and not much later. Returns the
    /// looks around that time.
    pub(super) fn look<I: Interpreter>(
        &mut self,
        interpreter: &mut I,
        process: &mut Process,
        tid: u32,
        at_ns: u64,
    ) -> Result<(Option<Look>, Look), Unread> {
        let mut thread = self.0.remove(&tid).unwrap_or_default();
        // Samples come in batches: one look serves all that came before it.
        let fresh = thread
            .last
            .as_ref()
            .is_some_and(|last| last.begun_ns >= at_ns);
        let mut found = Ok(());
        if !fresh {
            // Also for a sample that is too old: those to come need a look before them.
            match look_now(interpreter, process, tid, &mut thread.state) {
                Ok(look) => {
                    thread.before = thread.last.take();
                    thread.last = Some(look);
                }
                Err(unread) => found = Err(unread),
            }
        }
        let looks = thread
            .last
            .clone()
            .map(|last| (thread.before.clone(), last));
        if self.0.len() >= MAX_THREADS {
            self.0.clear();
        }
        self.0.insert(tid, thread);
        found?;
        looks.ok_or(Unread::Memory)
    }
}

fn look_now<I: Interpreter>(
    interpreter: &mut I,
    process: &mut Process,
    tid: u32,
    state: &mut u64,
) -> Result<Look, Unread> {
    let begun_ns = now_ns();
    let status = |process: &Process| Status::read(process.tgid(), tid).ok_or(Unread::Thread);
    let mut unread = Unread::Memory;
    // A chain that changes under the eyes can lead into the void.
    for _ in 0..3 {
        if *state == 0 {
            *state = interpreter.thread(process, status(process)?.own_id)?;
        }
        let Some(chain) = interpreter.chain(process, *state, MAX_FRAMES) else {
            *state = 0;
            continue;
        };
        // From the outside in, as far as there are code objects.
        let mut frames: Vec<ThreadSeen> = chain
            .iter()
            .rev()
            .map_while(|&raw| {
                let code = interpreter.code(process, &raw)?;
                Some(ThreadSeen { raw, code })
            })
            .collect();
        let status = status(process)?;
        if interpreter.is_of(process, *state, status.own_id) != Some(true) {
            *state = 0;
            continue;
        }
        let Some(again) = interpreter.chain(process, *state, MAX_FRAMES) else {
            continue;
        };
        let key = |raw: &RawFrame| (raw.address, raw.code, raw.call);
        let both = frames
            .iter()
            .zip(again.iter().rev())
            .take_while(|(seen, raw)| key(&seen.raw) == key(raw))
            .count();
        frames.truncate(both);
        frames.reverse();
        if frames.is_empty() && !chain.is_empty() {
            unread = Unread::Changed;
            continue;
        }
        return Ok(Look {
            begun_ns,
            ended_ns: now_ns(),
            sleeps: status.sleeps,
            frames,
        });
    }
    Err(unread)
}

/// What can be said of a sample by the looks around it.
pub(super) fn certain<'a>(
    loop_calls: LoopCalls,
    sample: StackSample<'_>,
    before: Option<&Look>,
    last: &'a Look,
) -> Result<CertainFrames<'a>, Unread> {
    if last.ended_ns.saturating_sub(sample.at_ns) > MAX_GAP_NS {
        return Err(Unread::Late);
    }
    let around = |before: &&Look| {
        before.ended_ns <= sample.at_ns
            && last.ended_ns.saturating_sub(before.begun_ns) <= MAX_GAP_NS
            && before.sleeps == last.sleeps
    };
    let before = before.filter(around).ok_or(Unread::Uncertain)?;
    let frames = &last.frames;
    let pairs = frames.iter().rev().zip(before.frames.iter().rev());
    let common = pairs.take_while(|(a, b)| a.same(b)).count();
    let mut from = frames.len() - common;
    let mut innermost = from == 0 && common == before.frames.len();

    let call_of = |seen: &ThreadSeen| sample.calls.iter().position(|c| c.contains(&seen.raw.call));

    // Native frames are those of the sample: of more calls of the loop the inner ones were not
    // there.
    let there = match loop_calls {
        LoopCalls::OnStack { .. } => {
            let end = sample.calls.last().map_or(0, |call| call.end);
            let gone = |seen: &&ThreadSeen| call_of(seen).is_none() && seen.raw.call < end;
            from + frames[from..].iter().take_while(gone).count()
        }
        LoopCalls::Counted { .. } if sample.complete => {
            let gone = calls_of(frames).saturating_sub(sample.calls.len());
            let mut seen = frames.iter().zip(numbered(frames));
            seen.position(|(_, call)| call >= gone)
                .unwrap_or(frames.len())
        }
        LoopCalls::Counted { by_pointer: false } => from,
        LoopCalls::Counted { by_pointer: true } => {
            let fits =
                |&skip: &usize| by_pointer(sample, frames.get(skip..).unwrap_or(&[])).is_ok();
            let skip = (from..from + MAX_GONE).find(fits);
            skip.ok_or(Unread::Unmatched)?
        }
    };
    if there > from {
        (from, innermost) = (there, false);
    }
    if let LoopCalls::OnStack {
        current: Some(current),
    } = loop_calls
        && let Some(seen) = frames.get(from)
    {
        let call = seen.raw.call;
        let current = call
            .checked_add(current)
            .and_then(|at| sample.stack.read(at));
        let at = frames
            .iter()
            .position(|f| f.raw.call == call && Some(f.raw.address) == current);
        innermost = at.is_some_and(|at| at >= from);
        from = from.max(at.unwrap_or(from));
    }
    let inner = &frames[from..];
    if inner.is_empty() {
        return Err(Unread::Uncertain);
    }
    let calls = match loop_calls {
        LoopCalls::OnStack { .. } => by_address(sample, inner)?,
        LoopCalls::Counted { .. } if sample.complete => by_count(sample, inner)?,
        LoopCalls::Counted { by_pointer: false } => vec![None; inner.len()],
        LoopCalls::Counted { by_pointer: true } => by_pointer(sample, inner)?,
    };
    // A call of the loop that is further in has functions too, which are not known.
    let reaches = calls.first() == Some(&Some(0));
    innermost = match loop_calls {
        // One frame for each call.
        LoopCalls::Counted { by_pointer: true } => reaches,
        LoopCalls::OnStack { .. } | LoopCalls::Counted { .. } => innermost && reaches,
    };
    let earlier = &before.frames;
    let frames = inner.iter().zip(calls).enumerate();
    let frames = frames.map(|(i, (seen, call))| {
        // As far from the outer end.
        let twin = (earlier.len() + i).checked_sub(inner.len());
        let stayed = twin
            .and_then(|twin| earlier.get(twin))
            .is_some_and(|twin| twin.same(seen) && twin.raw.instruction == seen.raw.instruction);
        (seen, call, i > 0 && stayed)
    });
    Ok(CertainFrames {
        frames: frames.collect(),
        innermost,
    })
}

/// The number of each frame's call of the loop, from the innermost on.
fn numbered(frames: &[ThreadSeen]) -> impl Iterator<Item = usize> + '_ {
    let mut last = frames.first().map(|seen| seen.raw.call);
    let mut number = 0;
    frames.iter().map(move |seen| {
        number += usize::from(last.replace(seen.raw.call) != Some(seen.raw.call));
        number
    })
}

/// How many calls of the loop frames belong to.
fn calls_of(frames: &[ThreadSeen]) -> usize {
    numbered(frames).last().map_or(0, |last| last + 1)
}

/// The call of the loop for each frame, by the address on the C stack that the frames state.
fn by_address(
    sample: StackSample<'_>,
    frames: &[ThreadSeen],
) -> Result<Vec<Option<usize>>, Unread> {
    let end = sample.calls.last().map_or(0, |call| call.end);
    let mut calls: Vec<Option<usize>> = Vec::with_capacity(frames.len());
    for seen in frames {
        let address = seen.raw.call;
        let call = sample.calls.iter().position(|c| c.contains(&address));
        let last = calls.last().copied();
        let in_order = match (last, call) {
            (None, Some(_)) => true,
            // None is left out.
            (Some(Some(last)), Some(call)) => call == last || call == last + 1,
            (Some(last), None) => {
                let all = last.is_none_or(|last| last + 1 == sample.calls.len());
                all && !sample.complete && address >= end
            }
            (None | Some(None), _) => false,
        };
        if !in_order {
            return Err(Unread::Unmatched);
        }
        calls.push(call);
    }
    match calls.last() {
        Some(&Some(last)) if last + 1 != sample.calls.len() => Err(Unread::Unmatched),
        _ => Ok(calls),
    }
}

/// The call of the loop for each frame, by counting from the thread's start.
fn by_count(sample: StackSample<'_>, frames: &[ThreadSeen]) -> Result<Vec<Option<usize>>, Unread> {
    let first = sample.calls.len().checked_sub(calls_of(frames));
    let first = first.ok_or(Unread::Unmatched)?;
    Ok(numbered(frames).map(|call| Some(first + call)).collect())
}

/// The call of the loop for each frame, one each, where the outer calls are beyond the copied
/// bytes: each call, or the function that entered it, has its frame's address on the stack. There
/// must be one way only for all of them.
fn by_pointer(
    sample: StackSample<'_>,
    frames: &[ThreadSeen],
) -> Result<Vec<Option<usize>>, Unread> {
    let calls = sample.calls;
    let has = |call: usize, frame: u64| {
        let end = calls.get(call + 1).map_or(sample.stack.end(), |c| c.start);
        sample
            .stack
            .words(calls[call].start..end)
            .any(|w| w == frame)
    };
    let fits = |&first: &usize| {
        // The outermost call's bytes may be cut off in the middle: the others decide.
        let mut pairs = frames
            .iter()
            .zip(first..calls.len().saturating_sub(1))
            .peekable();
        pairs.peek().is_some() && pairs.all(|(seen, call)| has(call, seen.raw.address))
    };
    // The outer ones must not lack a frame.
    let least = calls.len().saturating_sub(frames.len());
    let mut ways = (least..calls.len()).filter(fits);
    match (ways.next(), ways.next()) {
        (Some(first), None) => Ok((0..frames.len())
            .map(|i| Some(first + i).filter(|&call| call < calls.len()))
            .collect()),
        _ => Err(Unread::Unmatched),
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Innermost first: address, code, call of the loop.
    fn look(at_ms: u64, sleeps: u64, frames: &[(u64, u64, u64)]) -> Look {
        let seen = |&(address, code, call): &(u64, u64, u64)| ThreadSeen {
            raw: RawFrame {
                address,
                code,
                instruction: 1,
                call,
            },
            code: CodeNames::test(code),
        };
        Look {
            begun_ns: at_ms * MS,
            ended_ns: at_ms * MS + 50_000,
            sleeps,
            frames: frames.iter().map(seen).collect(),
        }
    }

    /// Addresses of the frames that a sample gets, and whether they reach the innermost.
    fn take(
        loop_calls: LoopCalls,
        calls: &[Range<u64>],
        words: &[u64],
        before: &Look,
        last: &Look,
    ) -> Result<(Vec<u64>, bool), Unread> {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let sample = StackSample {
            at_ns: 15 * MS,
            stack: CopiedStack::new(0x1000, &bytes),
            calls,
            complete: true,
        };
        // Arcs are compared: what has the same code must be the same.
        let mut last = last.clone();
        for seen in &mut last.frames {
            let known = before.frames.iter().find(|b| b.raw.code == seen.raw.code);
            seen.code = known.map_or(Arc::clone(&seen.code), |known| Arc::clone(&known.code));
        }
        let certain = certain(loop_calls, sample, Some(before), &last)?;
        let addresses = certain.frames.iter().map(|(seen, ..)| seen.raw.address);
        Ok((addresses.collect(), certain.innermost))
    }

    /// As CPython 3.11 has it.
    const ON_STACK: LoopCalls = LoopCalls::OnStack { current: Some(8) };

    #[test]
    fn only_what_both_looks_have() {
        let call = 0x1010;
        let outer = [(0x20, 2, call), (0x10, 1, call)];
        let with = |inner: (u64, u64, u64)| [&[inner][..], &outer[..]].concat();
        let (one, other) = (with((0x30, 3, call)), with((0x30, 4, call)));
        // The loop's frame on the C stack says that 0x30 was the innermost.
        let words = [0, 0, 0, 0x30];
        let calls = [0x1000..0x1020];
        let of = |before: &[_], last: &[_]| {
            take(
                ON_STACK,
                &calls,
                &words,
                &look(10, 1, before),
                &look(20, 1, last),
            )
        };
        assert_eq!(of(&one, &one), Ok((vec![0x30, 0x20, 0x10], true)));
        assert_eq!(of(&one, &other), Ok((vec![0x20, 0x10], false)));
        assert_eq!(of(&outer, &one), Ok((vec![0x20, 0x10], false)));
        let strange = [(0x20, 8, call), (0x10, 9, call)];
        assert_eq!(of(&strange, &one), Err(Unread::Uncertain));
    }

    #[test]
    fn a_frame_that_was_not_there_is_left_out() {
        let frames = [(0x30, 3, 0x1010), (0x20, 2, 0x1010), (0x10, 1, 0x1030)];
        let (before, last) = (look(10, 1, &frames), look(20, 1, &frames));
        let words = [0, 0, 0, 0x20, 0, 0, 0, 0x10];
        let both = [0x1000..0x1020, 0x1020..0x1040];
        let of = |calls: &[_]| take(ON_STACK, calls, &words, &before, &last);
        assert_eq!(of(&both), Ok((vec![0x20, 0x10], true)));
        // Without the inner call of the loop its frames were not there either.
        assert_eq!(of(&both[1..]), Ok((vec![0x10], true)));
        // An outer call that no frame belongs to: something is amiss.
        let more = [both.to_vec(), vec![0x1040..0x1060]].concat();
        assert_eq!(of(&more), Err(Unread::Unmatched));
    }

    #[test]
    fn looks_too_far_apart_or_with_a_sleep_between_say_nothing() {
        let frames = [(0x10, 1, 0x1010)];
        let of = |before: Look, last: Look| {
            take(
                ON_STACK,
                &[0x1000..0x1020],
                &[0, 0, 0, 0x10],
                &before,
                &last,
            )
        };
        let look = |at, sleeps| look(at, sleeps, &frames);
        assert_eq!(of(look(10, 1), look(20, 1)), Ok((vec![0x10], true)));
        assert_eq!(of(look(10, 1), look(20, 2)), Err(Unread::Uncertain));
        assert_eq!(of(look(1, 1), look(60, 1)), Err(Unread::Uncertain));
        assert_eq!(of(look(10, 1), look(80, 1)), Err(Unread::Late));
        // Both after the sample.
        assert_eq!(of(look(16, 1), look(20, 1)), Err(Unread::Uncertain));
    }

    #[test]
    fn to_3_10_calls_of_the_loop_are_counted() {
        let frames = [(0x30, 3, 0x30), (0x20, 2, 0x20), (0x10, 1, 0x10)];
        let (before, last) = (look(10, 1, &frames), look(20, 1, &frames));
        let counted = LoopCalls::Counted { by_pointer: true };
        let of = |calls: &[_]| take(counted, calls, &[], &before, &last);
        let calls = [
            0x1000..0x1010,
            0x1010..0x1020,
            0x1020..0x1030,
            0x1030..0x1040,
        ];
        assert_eq!(of(&calls[1..]), Ok((vec![0x30, 0x20, 0x10], true)));
        assert_eq!(of(&calls[2..]), Ok((vec![0x20, 0x10], true)));
        assert_eq!(of(&calls), Ok((vec![0x30, 0x20, 0x10], false)));
    }
}
