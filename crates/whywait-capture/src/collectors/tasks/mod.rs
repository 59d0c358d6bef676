//! Tasks: for which one a thread works as it reads or writes, where the runtime of its program
//! keeps that in a register (Go), or a few reads of its memory away (Python, from 3.11). Other
//! programs pay nothing for it. What is found stands in the rows of requests and exchanges. While
//! requests are slow tasks are looked at, too.

use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapFlags};
use whywait_stacks::{CoroutinePlaces, FramePlaces, LastOfCall, Runtimes, StatePlace, own_id};

use looks::SlowTasks;

use crate::core::collector::{Collector, Keeper};
use crate::core::error::CaptureError;
use crate::core::programs::Programs;
use crate::core::shared::Shared;
use crate::core::skel::types::{self, last_frame, runtime_kind};

mod looks;
mod streams;

/// An interpreter that begins takes some time until it has threads: the longer it has taken, the
/// later it is looked for again.
const BEGINS: Duration = Duration::from_millis(100);
/// So often it is.
const TRIES: u32 = 20;

/// Its programs are the hooks of sockets.
pub(crate) const COLLECTOR: Collector = Collector {
    keeper: |_| Box::new(Tasks::default()),
    ..Collector::NONE
};

/// What is known of the target's programs.
#[derive(Default)]
struct Tasks {
    runtimes: Runtimes,
    /// Interpreters that are young: when each is looked at again, and how often it was.
    young: Vec<(u32, Instant, u32)>,
    /// Those of which it is known where they have frames.
    interpreters: Vec<u32>,
    /// There is a program whose tasks are known.
    any: bool,
    slow: SlowTasks,
}

impl Keeper for Tasks {
    fn turn(&mut self, programs: &mut Programs, shared: &mut Shared) -> Result<(), CaptureError> {
        self.follow(programs, shared);
        if self.any {
            self.slow.turn(programs, shared)?;
        }
        Ok(())
    }

    fn look(&mut self, programs: &mut Programs, shared: &mut Shared) -> Result<(), CaptureError> {
        self.interpreters
            .retain(|tgid| follow_interpreter(programs, shared, *tgid).is_some());
        // What is stuck was never seen to be slow.
        if self.any {
            self.slow.look(programs, shared)?;
            self.slow.so_far(shared)?;
        }
        Ok(())
    }

    fn counters(&mut self, _: &Programs) -> Vec<(String, u64)> {
        match self.any {
            true => self.slow.counters(),
            false => Vec::new(),
        }
    }
}

impl Tasks {
    /// Says of the processes that have begun how their tasks are found. BPF forgets those that end.
    fn follow(&mut self, programs: &mut Programs, shared: &mut Shared) {
        let now = Instant::now();
        let mut found = false;
        for tgid in shared.processes.take_begun() {
            self.interpreters.retain(|other| *other != tgid);
            self.young.retain(|(other, ..)| *other != tgid);
            if let Some(code) = self.runtimes.go_code(tgid) {
                let runtime = types::runtime {
                    kind: runtime_kind::RUNTIME_GO.0,
                    code: code.start,
                    code_bytes: code.end - code.start,
                    ..types::runtime::default()
                };
                if set(programs, tgid, &runtime) {
                    found = true;
                    self.any = true;
                }
            } else if Runtimes::is_interpreter(tgid) {
                self.young.push((tgid, now, 0));
            }
        }
        // Programs that have an interpreter within, as uWSGI: by their stacks.
        for tgid in shared.output.unwinder.take_interpreters() {
            let is_known = self.interpreters.contains(&tgid)
                || self.young.iter().any(|(other, ..)| *other == tgid);
            if !is_known {
                self.young.push((tgid, now, 0));
            }
        }
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.young)
            .into_iter()
            .partition(|(_, at, _)| *at <= now);
        self.young = later;
        for (tgid, _, tries) in due {
            if let Some(tasks) = follow_interpreter(programs, shared, tgid) {
                found = true;
                self.any |= tasks == HasTasks::Yes;
                self.interpreters.push(tgid);
            } else if tries < TRIES {
                let next = (tgid, now + BEGINS * (tries + 1), tries + 1);
                self.young.push(next);
            }
        }
        if let Some(variables) = programs.variables_mut().filter(|_| found) {
            variables.runtimes_known = true;
        }
    }
}

/// Beyond so many processes the tasks of the others are not known, as of most programs.
fn set(programs: &Programs, tgid: u32, runtime: &types::runtime) -> bool {
    let map = &programs.skel.maps.runtimes;
    let (key, value) = (tgid.to_ne_bytes(), bytes_of(runtime));
    map.update(&key, &value, MapFlags::ANY).is_ok()
}

/// Whether an interpreter has tasks that are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HasTasks {
    Yes,
    No,
}

/// Says where the threads of an interpreter have their frames. `None`: that is not known.
fn follow_interpreter(programs: &Programs, shared: &mut Shared, tgid: u32) -> Option<HasTasks> {
    let places = shared.output.unwinder.frame_places(tgid)?;
    let runtime = runtime_of(&places)?;
    let tasks = match places.coroutines {
        Some(_) => HasTasks::Yes,
        None => HasTasks::No,
    };
    let states = &programs.skel.maps.python_threads;
    let mut found = !matches!(places.state, StatePlace::Own { at: None, .. });
    if let Some(CoroutinePlaces { threads, .. }) = &places.coroutines {
        for tid in shared.processes.threads(tgid) {
            let own = own_id(tgid, tid);
            if let Some((_, state)) = threads.iter().find(|(thread, _)| Some(*thread) == own) {
                let (key, value) = (tid.to_ne_bytes(), state.to_ne_bytes());
                found |= states.update(&key, &value, MapFlags::ANY).is_ok();
            }
        }
    }
    (found && set(programs, tgid, &runtime)).then_some(tasks)
}

/// As much of a frame is read (`sweep.bpf.h`) as lies around this.
const MOST_FRAME_OFFSET: u32 = 104;

/// As BPF has it; `None` with offsets that cannot be.
fn runtime_of(places: &FramePlaces) -> Option<types::runtime> {
    let offset = |at: u64| u32::try_from(at).ok();
    let of_frame = |at: u64| offset(at).filter(|at| *at <= MOST_FRAME_OFFSET);
    let (last_by, last, mask) = match places.last_of_call {
        LastOfCall::Flag { at, mask } => (last_frame::LAST_BY_FLAG, at, mask),
        LastOfCall::Shim(at) => (last_frame::LAST_IS_SHIM, at, 0),
        LastOfCall::Each => (last_frame::LAST_IS_EACH, 0, 0),
    };
    let kind = match places.coroutines {
        Some(_) => runtime_kind::RUNTIME_PYTHON,
        None => runtime_kind::RUNTIME_INTERPRETED,
    };
    let owner = places.coroutines.as_ref().map_or(0, |places| places.owner);
    let (own_state, thread_pointer, state) = match places.state {
        StatePlace::Own { at, thread_pointer } => (at.unwrap_or(0), thread_pointer, 0),
        StatePlace::First(state) => (0, 0, state),
    };
    Some(types::runtime {
        kind: kind.0,
        current: offset(places.current)?,
        current_in_cframe: match places.current_in_cframe {
            Some(at) => offset(at)?.checked_add(1)?,
            None => 0,
        },
        previous: of_frame(places.previous)?,
        owner: offset(owner)?,
        code_object: of_frame(places.code)?,
        instruction: of_frame(places.instruction)?,
        last: of_frame(last)?,
        last_mask: u32::from(mask),
        last_by: last_by.0,
        own_state: offset(own_state)?,
        thread_pointer: offset(thread_pointer)?,
        state,
        ..types::runtime::default()
    })
}

/// As it lies in the map.
fn bytes_of(runtime: &types::runtime) -> Vec<u8> {
    let types::runtime {
        kind,
        current,
        current_in_cframe,
        previous,
        owner,
        code_object,
        instruction,
        last,
        last_mask,
        last_by,
        own_state,
        thread_pointer,
        state,
        code,
        code_bytes,
    } = *runtime;
    let words = [
        kind,
        current,
        current_in_cframe,
        previous,
        owner,
        code_object,
        instruction,
        last,
        last_mask,
        last_by,
        own_state,
        thread_pointer,
    ];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.extend(state.to_ne_bytes());
    bytes.extend(code.to_ne_bytes());
    bytes.extend(code_bytes.to_ne_bytes());
    bytes
}
