//! Tasks: for which one a thread works as it reads or writes, where the runtime of its program
//! keeps that in a register (Go), or a few reads of its memory away (Python, from 3.11). Other
//! programs pay nothing for it. What is found stands in the rows of requests and exchanges. While
//! requests are slow tasks are looked at, too.

use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapFlags};
use whywait_stacks::{CoroutinePlaces, LastOfCall, PythonPlaces, Runtimes, own_id};

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
    /// Interpreters of which threads are known.
    pythons: Vec<u32>,
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
        self.pythons
            .retain(|tgid| follow_python(programs, shared, *tgid));
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
            self.pythons.retain(|other| *other != tgid);
            self.young.retain(|(other, ..)| *other != tgid);
            if let Some(code) = self.runtimes.go_code(tgid) {
                let runtime = types::runtime {
                    kind: runtime_kind::RUNTIME_GO.0,
                    code: code.start,
                    code_bytes: code.end - code.start,
                    ..types::runtime::default()
                };
                found |= set(programs, tgid, &runtime);
            } else if Runtimes::is_python(tgid) {
                self.young.push((tgid, now, 0));
            }
        }
        // Programs that have the interpreter within, as uWSGI: by their stacks.
        for tgid in shared.output.unwinder.take_pythons() {
            let is_known =
                self.pythons.contains(&tgid) || self.young.iter().any(|(other, ..)| *other == tgid);
            if !is_known {
                self.young.push((tgid, now, 0));
            }
        }
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.young)
            .into_iter()
            .partition(|(_, at, _)| *at <= now);
        self.young = later;
        for (tgid, _, tries) in due {
            if follow_python(programs, shared, tgid) {
                found = true;
                self.pythons.push(tgid);
            } else if tries < TRIES {
                let next = (tgid, now + BEGINS * (tries + 1), tries + 1);
                self.young.push(next);
            }
        }
        self.any |= found;
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

/// Says where the threads of an interpreter have their frames. Whether any has.
fn follow_python(programs: &Programs, shared: &mut Shared, tgid: u32) -> bool {
    let Some(places) = shared.output.unwinder.python_places(tgid) else {
        return false;
    };
    let Some(runtime) = runtime_of(&places) else {
        return false;
    };
    let states = &programs.skel.maps.python_threads;
    let mut found = places.own_state.is_some();
    if let Some(CoroutinePlaces { threads, .. }) = &places.coroutines {
        for tid in shared.processes.threads(tgid) {
            let own = own_id(tgid, tid);
            if let Some((_, state)) = threads.iter().find(|(thread, _)| Some(*thread) == own) {
                let (key, value) = (tid.to_ne_bytes(), state.to_ne_bytes());
                found |= states.update(&key, &value, MapFlags::ANY).is_ok();
            }
        }
    }
    found && set(programs, tgid, &runtime)
}

/// As BPF has it; `None` with offsets that cannot be.
fn runtime_of(places: &PythonPlaces) -> Option<types::runtime> {
    let offset = |at: u64| u32::try_from(at).ok();
    let (last_by, last) = match places.last_of_call {
        LastOfCall::Flag(at) => (last_frame::LAST_BY_FLAG, at),
        LastOfCall::Shim(at) => (last_frame::LAST_IS_SHIM, at),
        LastOfCall::Each => (last_frame::LAST_IS_EACH, 0),
    };
    let kind = match places.coroutines {
        Some(_) => runtime_kind::RUNTIME_PYTHON,
        None => runtime_kind::RUNTIME_OLD_PYTHON,
    };
    let owner = places.coroutines.as_ref().map_or(0, |places| places.owner);
    Some(types::runtime {
        kind: kind.0,
        current: offset(places.current)?,
        current_in_cframe: match places.current_in_cframe {
            Some(at) => offset(at)?.checked_add(1)?,
            None => 0,
        },
        previous: offset(places.previous)?,
        owner: offset(owner)?,
        code_object: offset(places.code)?,
        instruction: offset(places.instruction)?,
        last: offset(last)?,
        last_by: last_by.0,
        own_state: offset(places.own_state.unwrap_or(0))?,
        thread_pointer: offset(places.thread_pointer)?,
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
        last_by,
        own_state,
        thread_pointer,
        pad,
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
        last_by,
        own_state,
        thread_pointer,
        pad,
    ];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.extend(code.to_ne_bytes());
    bytes.extend(code_bytes.to_ne_bytes());
    bytes
}
