//! From the system calls of a thread to its turns, and from the turns that led to nothing to the
//! cycle that it goes round in.
//!
//! A turn begins when a poll returns and ends when the next one does. It made progress when
//! anything was read, written, accepted or otherwise moved on: only calls that are known to change
//! nothing (more polls, changes of what is polled for, questions about a socket, calls that failed)
//! leave a turn without. What is not known counts as progress.
//!
//! io_uring_enter is a poll too. Its turn made progress if entries were submitted, or if the
//! program took completions before the next such call on the same ring, as the head of their queue
//! tells.

use std::collections::HashMap;
use std::mem::offset_of;

use whywait_events::BurstCall;

use super::files::Files;
use crate::core::skel::types;

const POLL: i32 = 7;
const SELECT: i32 = 23;
const PSELECT6: i32 = 270;
const PPOLL: i32 = 271;
const EPOLL_CTL: i32 = 233;
const IOCTL: i32 = 16;
const FUTEX: i32 = 202;
const IO_URING_ENTER: i32 = 426;
const EPOLL_EVENT_BYTES: usize = size_of::<libc::epoll_event>();
const EPOLL_DATA_AT: usize = offset_of!(libc::epoll_event, u64);
const POLLFD_BYTES: usize = 8;
const FD_SET_BYTES: usize = 32;
const EINTR: i64 = -4;
const EAGAIN: i64 = -11;
const ETIME: i64 = -62;
const EPOLLIN: u32 = 1;
const EPOLLPRI: u32 = 2;
const EPOLLOUT: u32 = 4;
const EPOLLET: u32 = 1 << 31;
/// `IORING_ENTER_REGISTERED_RING` of `linux/io_uring.h`.
const REGISTERED_RING: u64 = 16;
/// A turn that takes longer on the CPU computes something.
const COMPUTES_NS: u64 = 1_000_000;
/// The longest cycle that is looked for, in turns; and the most of its calls that are recorded.
const MAX_TURNS: usize = 8;
const MAX_STEPS: usize = 32;
/// A cycle is one if so many of a hundred turns are like the ones a cycle before.
const ALIKE_PERCENT: usize = 80;

/// What the calls of a thread show.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct CallsSeen {
    pub(crate) turns: u64,
    pub(crate) spins: u64,
    pub(crate) lost_races: u64,
    pub(crate) progress: u64,
    pub(crate) cycle_turns: u64,
    pub(crate) cycle_length: u64,
    pub(crate) cycle: Vec<BurstCall>,
}

enum TurnOutcome {
    Spin,
    LostRace,
    Progress,
    Neither,
}

/// Looks at the calls of one thread.
pub(crate) fn look(mut calls: Vec<types::call_record>, files: &mut Files) -> CallsSeen {
    calls.sort_by_key(|call| call.at_ns);
    learn(&calls, files);
    let mut seen = CallsSeen::default();
    let mut futile: Vec<Vec<BurstCall>> = Vec::new();
    let polls: Vec<usize> = (1..calls.len())
        .filter(|at| is_poll(calls[*at].nr))
        .collect();
    for pair in polls.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        // The call before tells whether the thread slept in the poll.
        let slept = calls[from].sleeps != calls[from - 1].sleeps;
        let computes = calls[to].on_cpu_ns.saturating_sub(calls[from].on_cpu_ns) > COMPUTES_NS;
        let turn: Vec<BurstCall> = calls[from..to]
            .iter()
            .map(|call| step(call, &calls[from..to], files))
            .collect();
        seen.turns += 1;
        let outcome = if calls[from].nr == IO_URING_ENTER {
            ring_outcome(&calls[from..=to], slept, computes)
        } else {
            outcome(&calls[from..to], &turn, files, slept, computes)
        };
        match outcome {
            TurnOutcome::Progress => seen.progress += 1,
            TurnOutcome::Neither => {}
            TurnOutcome::Spin => {
                seen.spins += 1;
                futile.push(turn);
            }
            TurnOutcome::LostRace => {
                seen.lost_races += 1;
                futile.push(turn);
            }
        }
    }
    find_cycle(&futile, &mut seen);
    for call in &mut seen.cycle {
        if call.syscall == IO_URING_ENTER as u32 {
            call.kind = "io_uring".to_owned();
        } else if call.kind.is_empty() && call.fd >= 0 {
            call.kind = files.kind(call.fd, 0, 0, 0);
        }
    }
    seen
}

fn is_poll(nr: i32) -> bool {
    matches!(
        nr,
        POLL | SELECT | 232 | PSELECT6 | PPOLL | 281 | 441 | IO_URING_ENTER
    )
}

/// Registrations that the calls themselves tell of: a descriptor may be closed by the time the
/// files are looked at.
fn learn(calls: &[types::call_record], files: &mut Files) {
    for call in calls.iter().filter(|call| call.nr == EPOLL_CTL) {
        if let Some((events, data)) = epoll_event(&call.bytes[..EPOLL_EVENT_BYTES])
            && call.bytes_len as usize >= EPOLL_EVENT_BYTES
            && files.named(data).is_none()
        {
            files.add(types::file_record {
                r#type: 33,
                fd: call.fd,
                data,
                events,
                mode: call.mode,
                local_port: call.local_port,
                peer_port: call.peer_port,
                state: call.state,
                family: call.family.min(u32::from(u8::MAX)) as u8,
                registered: 1,
            });
        }
    }
}

/// What became of a turn: the calls from the end of one poll to before the end of the next.
fn outcome(
    calls: &[types::call_record],
    turn: &[BurstCall],
    files: &Files,
    slept: bool,
    computes: bool,
) -> TurnOutcome {
    let (poll, rest) = (&calls[0], &calls[1..]);
    if rest.iter().any(moves) {
        return TurnOutcome::Progress;
    }
    // A timeout, or a program that polls without waiting by its own decision: nothing woke it.
    if poll.ret <= 0 || computes || asked_not_to_wait(poll) {
        return TurnOutcome::Neither;
    }
    let tried_in_vain = |call: &types::call_record| call.ret == EAGAIN && is_read(call.nr);
    let lost_accept = |call: &types::call_record| call.ret == EAGAIN && is_accept(call.nr);
    if rest.iter().any(lost_accept) || slept && rest.iter().any(tried_in_vain) {
        return TurnOutcome::LostRace;
    }
    if slept {
        // Somebody took the trouble to wake it: what for is not to be seen.
        return TurnOutcome::Neither;
    }
    // Edge-triggered: each return is an event of its own, unless the program itself asks for it
    // anew.
    let ready = &turn[0];
    let asked_anew = turn[1..]
        .iter()
        .any(|call| call.syscall == EPOLL_CTL as u32 && call.fd == ready.fd);
    // What is not registered any more may have been so.
    let unknown = files.complete && is_epoll(poll.nr) && ready.armed == 0 && ready.fd < 0;
    if (unknown || ready.armed & EPOLLET != 0) && !asked_anew {
        return TurnOutcome::Neither;
    }
    if taken_unseen(ready.fd, rest, files) {
        return TurnOutcome::Neither;
    }
    TurnOutcome::Spin
}

/// A poll with a timeout of 0: the program goes round anyway, whatever is ready. Where the timeout
/// lies in memory it is not known.
fn asked_not_to_wait(poll: &types::call_record) -> bool {
    match poll.nr {
        POLL => poll.args[2] as i32 == 0,
        232 | 281 => poll.args[3] as i32 == 0,
        _ => false,
    }
}

/// See [`Files::taken_unseen`].
fn taken_unseen(fd: i32, calls: &[types::call_record], files: &Files) -> bool {
    let same = calls
        .iter()
        .find(|call| has_descriptor(call.nr) && call.fd == fd)
        .map(|call| (call.mode, call.family));
    let registered = files
        .under(fd)
        .map(|file| (file.mode, u32::from(file.family)));
    // Of what is polled for otherwise only its name is left to look at.
    let (mode, family) = same.or(registered).unwrap_or((0, 0));
    files.taken_unseen(fd, mode, family)
}

/// Head and tail of the completions of the ring that was entered, when the call ended.
fn completions(call: &types::call_record) -> Option<(u32, u32)> {
    let bytes = call.bytes.get(..8).filter(|_| call.bytes_len >= 8)?;
    let head = u32::from_le_bytes(bytes[..4].try_into().ok()?);
    let tail = u32::from_le_bytes(bytes[4..].try_into().ok()?);
    Some((head, tail))
}

/// What became of a turn that begins with io_uring_enter; `calls` has the poll that ends it, too.
fn ring_outcome(calls: &[types::call_record], slept: bool, computes: bool) -> TurnOutcome {
    let [enter, rest @ .., next] = calls else {
        return TurnOutcome::Progress;
    };
    if enter.ret > 0 || rest.iter().any(moves) {
        return TurnOutcome::Progress;
    }
    // Only the next look at the same ring tells what was taken from it; where there is none the
    // turn says nothing.
    let (Some(before), Some(after)) = (completions(enter), completions(next)) else {
        return TurnOutcome::Progress;
    };
    let same_ring = next.nr == IO_URING_ENTER
        && next.args[0] == enter.args[0]
        && (next.args[3] ^ enter.args[3]) & REGISTERED_RING == 0;
    if !same_ring || before.0 != after.0 {
        return TurnOutcome::Progress;
    }
    if slept || computes || matches!(enter.ret, EINTR | ETIME) {
        return TurnOutcome::Neither;
    }
    TurnOutcome::Spin
}

fn is_epoll(nr: i32) -> bool {
    matches!(nr, 232 | 281 | 441)
}

fn is_accept(nr: i32) -> bool {
    matches!(nr, 43 | 288)
}

fn is_read(nr: i32) -> bool {
    matches!(nr, 0 | 19 | 43 | 45 | 47 | 288 | 299)
}

/// Whether a call moved anything on.
fn moves(call: &types::call_record) -> bool {
    if call.ret < 0 {
        return false;
    }
    match call.nr {
        // What moves as many bytes, or items, as it returns: read, write and their like, futex
        // (threads that it woke).
        0 | 1 | 17 | 18 | 19 | 20 | 40 | 44 | 45 | 46 | 47 | 275 | 276 | 278 | 295 | 296 | 299
        | 307 | 327 | 328 => call.ret > 0,
        FUTEX => call.ret > 0,
        // Polls; memory (9 to 12, 25, 28); ioctl, yields, questions about sockets (51, 52, 54, 55),
        // processes and times; locks of signals (13, 14); fcntl, epoll_ctl.
        nr if is_poll(nr) => false,
        9..=16
        | 24
        | 25
        | 28
        | 51
        | 52
        | 54
        | 55
        | 39
        | 72
        | 96
        | 97
        | 98
        | 102
        | 104
        | 107
        | 108
        | 110
        | 186
        | 201
        | 228
        | EPOLL_CTL
        | 309 => false,
        _ => true,
    }
}

fn epoll_event(bytes: &[u8]) -> Option<(u32, u64)> {
    let events = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
    let data = u64::from_le_bytes(
        bytes
            .get(EPOLL_DATA_AT..EPOLL_EVENT_BYTES)?
            .try_into()
            .ok()?,
    );
    Some((events, data))
}

/// A call as a step of a cycle.
fn step(call: &types::call_record, turn: &[types::call_record], files: &Files) -> BurstCall {
    let mut step = BurstCall {
        syscall: call.nr.max(0) as u32,
        fd: if has_descriptor(call.nr) { call.fd } else { -1 },
        op: match call.nr {
            EPOLL_CTL | IOCTL => call.args[1] as u32,
            _ => 0,
        },
        value: call.value,
        ret: call.ret,
        ..BurstCall::default()
    };
    if call.nr == IO_URING_ENTER {
        step.fd = if call.args[3] & REGISTERED_RING == 0 {
            call.args[0] as i32
        } else {
            -1
        };
        step.op = call.args[3] as u32;
        step.armed = call.args[2].min(u64::from(u32::MAX)) as u32;
        step.value = completions(call).map_or(0, |(head, tail)| u64::from(tail.wrapping_sub(head)));
        return step;
    }
    if is_poll(call.nr) {
        step.fd = -1;
        if let Some((fd, events, armed)) = ready(call, turn, files) {
            (step.fd, step.events, step.armed) = (fd, events, armed);
        }
        // The descriptor's own calls know what it is; else what is registered.
        let same = turn[1..]
            .iter()
            .find(|other| other.mode != 0 && has_descriptor(other.nr) && other.fd == step.fd);
        let known = match (same, files.under(step.fd)) {
            (Some(call), _) => Some((call.mode, call.state, call.local_port, call.peer_port)),
            (None, Some(file)) => Some((file.mode, file.state, file.local_port, file.peer_port)),
            (None, None) => None,
        };
        if let Some((mode, state, local_port, peer_port)) = known {
            name(&mut step, files, mode, state, local_port, peer_port);
        }
        return step;
    }
    if call.nr == EPOLL_CTL {
        step.op = call.args[1] as u32;
        if call.bytes_len as usize >= EPOLL_EVENT_BYTES
            && let Some((events, _)) = epoll_event(&call.bytes)
        {
            step.events = events;
        }
    }
    if step.fd >= 0 {
        name(
            &mut step,
            files,
            call.mode,
            call.state,
            call.local_port,
            call.peer_port,
        );
    }
    step
}

fn name(
    step: &mut BurstCall,
    files: &Files,
    mode: u32,
    state: u16,
    local_port: u16,
    peer_port: u16,
) {
    // What has no type of its own is named in the end, for the steps that are recorded.
    if mode & 0o170_000 != 0 {
        step.kind = files.kind(step.fd, mode, state, local_port);
    }
    step.local_port = local_port;
    step.peer_port = u16::from_be(peer_port);
}

/// Whether the first argument (or, of `epoll_ctl`, the third) is a descriptor.
fn has_descriptor(nr: i32) -> bool {
    matches!(
        nr,
        0 | 1
            | 16
            | 17..=20
            | 40
            | 42..=49
            | 50..=52
            | 54
            | 55
            | 72
            | 288
            | 299
            | 307
            | EPOLL_CTL
    )
}

/// What made a poll return: the descriptor (-1: not known), what it was ready for, and what it is
/// polled for.
fn ready(
    call: &types::call_record,
    turn: &[types::call_record],
    files: &Files,
) -> Option<(i32, u32, u32)> {
    if call.ret <= 0 {
        return None;
    }
    let bytes = &call.bytes[..(call.bytes_len as usize).min(call.bytes.len())];
    match call.nr {
        POLL | PPOLL => bytes.chunks_exact(POLLFD_BYTES).find_map(|one| {
            let fd = i32::from_le_bytes(one[..4].try_into().ok()?);
            let asked = u16::from_le_bytes(one[4..6].try_into().ok()?);
            let came = u16::from_le_bytes(one[6..8].try_into().ok()?);
            // The low bits are epoll's.
            (came != 0).then_some((fd, u32::from(came), u32::from(asked)))
        }),
        SELECT | PSELECT6 => {
            let nfds = call.args[0].min(8 * FD_SET_BYTES as u64) as usize;
            [EPOLLIN, EPOLLOUT, EPOLLPRI]
                .into_iter()
                .zip(bytes.chunks_exact(FD_SET_BYTES))
                .find_map(|(event, set)| {
                    let fd = (0..nfds).find(|fd| set[fd / 8] & (1 << (fd % 8)) != 0)?;
                    Some((fd as i32, event, event))
                })
        }
        _ => {
            let (events, data) = epoll_event(bytes)?;
            if let Some(file) = files.named(data) {
                return Some((file.fd, events, file.events));
            }
            // Many programs use the descriptor itself.
            let fd = data as u32 as i32;
            let used = turn[1..]
                .iter()
                .any(|other| has_descriptor(other.nr) && other.fd == fd);
            Some((if used { fd } else { -1 }, events, 0))
        }
    }
}

/// What makes two calls the same step: whatever counts up (bytes, times) is left out.
type CallKey = (u32, i32, u32, u32, i64);

fn key(call: &BurstCall) -> CallKey {
    let outcome = if call.ret < 0 {
        call.ret
    } else {
        i64::from(call.ret > 0)
    };
    (call.syscall, call.fd, call.op, call.events, outcome)
}

fn find_cycle(turns: &[Vec<BurstCall>], seen: &mut CallsSeen) {
    // Turns that are alike have the same number.
    let mut numbers: HashMap<Vec<CallKey>, usize> = HashMap::new();
    let sequence: Vec<usize> = turns
        .iter()
        .map(|turn| {
            let next = numbers.len();
            *numbers
                .entry(turn.iter().map(key).collect())
                .or_insert(next)
        })
        .collect();
    if sequence.is_empty() {
        return;
    }
    let length = (1..=MAX_TURNS.min(sequence.len() / 2))
        .find(|length| {
            let pairs = sequence.len() - length;
            let alike = (0..pairs)
                .filter(|at| sequence[*at] == sequence[at + length])
                .count();
            alike * 100 >= pairs * ALIKE_PERCENT
        })
        .unwrap_or(1);
    let mut counts: HashMap<&[usize], (usize, usize)> = HashMap::new();
    for (at, window) in sequence.windows(length).enumerate() {
        // The first place at which it comes, from the end: the last values are the freshest.
        let entry = counts.entry(window).or_insert((0, at));
        entry.0 += 1;
        entry.1 = at;
    }
    let Some((window, (_, at))) = counts
        .into_iter()
        .max_by_key(|(window, (count, at))| (*count, *at, *window))
    else {
        return;
    };
    seen.cycle_length = length as u64;
    seen.cycle_turns = sequence
        .iter()
        .filter(|number| window.contains(number))
        .count() as u64;
    seen.cycle = turns[at..at + length]
        .iter()
        .flatten()
        .take(MAX_STEPS)
        .cloned()
        .collect();
}

#[cfg(test)]
#[path = "turns_tests.rs"]
mod tests;
