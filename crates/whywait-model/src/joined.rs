//! Rows that are about the same thing, put together: what each thread did when, what it waited for,
//! which threads can stand in for each other.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::slice;

use whywait_events::Ns;
use whywait_words::{KEPT_NAME_BYTES, program_name};

use crate::calls::Calls;
use crate::input::Input;
use crate::maps::HashSet;
use crate::pools::{self, EpollPool};
use crate::recorded::Recorded;
use crate::requests::kept::KeptRequests;
use crate::rings::{self, RingState, Workers};
use crate::roles::{Role, SameProgram, without_numbers};
use crate::stops::Stopped;
use crate::timeline::{self, Thread};
use crate::waits::monitors;
use crate::waits::objects::WaitObjects;

/// What was recorded, with the rows put together that are about the same thing.
#[derive(Debug, Clone)]
pub struct Joined {
    recorded: Recorded,
    /// Rows that were left out because there were too many.
    pub left_out: u64,
    /// When the recording ended, as far as known.
    pub end_ns: Ns,
    /// When the last thread ended, or else the recording.
    pub(crate) alive_until_ns: Ns,
    /// The threads of the target, by id.
    pub threads: BTreeMap<u32, Thread>,
    /// Their ids, by process.
    of_processes: BTreeMap<u32, Vec<u32>>,
    /// Threads that can stand in for each other.
    pub pools: Vec<EpollPool>,
    /// The io_uring rings, by their number.
    pub rings: BTreeMap<u32, RingState>,
    /// io_uring's workers, by process.
    pub workers: BTreeMap<u32, Workers>,
    /// What was waited for.
    pub objects: WaitObjects,
    /// What the target asked of others.
    pub(crate) calls: Calls,
    /// Which processes run the same program.
    programs: SameProgram,
    /// Threads with which a runtime looks after the others.
    monitors: HashSet<u32>,
    /// When processes were stopped from outside, merged and in order.
    pub(crate) stop_spans: Vec<(Ns, Ns)>,
}

impl Deref for Joined {
    type Target = Recorded;

    fn deref(&self) -> &Recorded {
        &self.recorded
    }
}

impl Joined {
    /// Joins rows. Pools show by who reads the requests, too.
    pub(crate) fn new(input: Input, requests: &KeptRequests) -> Self {
        let left_out = input.left_out();
        let recorded = input.recorded;
        let threads = timeline::threads(
            &input.threads,
            input.waits.into_kept(),
            input.busy.into_kept(),
            input.preempted.into_kept(),
            input.cpu_waits.into_kept(),
            input.samples.into_kept(),
        );
        let mut pools = pools::find(
            &input.polls,
            &input.parks,
            &recorded.stacks,
            &threads,
            &requests.rows,
            recorded.meta.host.cpus,
        );
        for pool in &mut pools {
            pool.find_spans(&threads);
        }
        let end_ns = recorded
            .meta
            .ended_ns
            .unwrap_or_else(|| timeline::last_seen(&threads).max(requests.last_seen()));
        let mut objects = input.objects;
        objects.settle(&recorded.stacks, &pools, &threads, end_ns);
        let mut calls = input.calls;
        calls.settle();
        let mut of_processes: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for thread in threads.values() {
            let of_process = of_processes.entry(thread.tgid).or_default();
            of_process.push(thread.tid);
        }
        Self {
            left_out,
            end_ns,
            alive_until_ns: timeline::alive_until(&threads, end_ns),
            programs: SameProgram::of(&threads, &recorded.stacks),
            monitors: monitors::among(threads.values(), &recorded.stacks),
            stop_spans: recorded.stops.spans(&threads),
            workers: rings::workers(&input.threads),
            rings: input.rings.states,
            recorded,
            threads,
            of_processes,
            pools,
            objects,
            calls,
        }
    }

    /// The threads that waited for a connection at this descriptor of a process.
    pub fn acceptors(&self, tgid: u32, fd: i32) -> impl Iterator<Item = &Thread> {
        let tids = self.acceptors.get(&(tgid, fd)).into_iter().flatten();
        tids.filter_map(|tid| self.threads.get(tid))
    }

    /// Whether a thread is one with which a runtime looks after the others: whom it wakes did not
    /// wait for its sleep.
    pub(crate) fn is_monitor(&self, tid: u32) -> bool {
        self.monitors.contains(&tid)
    }

    /// The threads of a process, by id.
    pub fn threads_of(&self, tgid: u32) -> impl Iterator<Item = &Thread> + Clone {
        let tids = self.of_processes.get(&tgid).into_iter().flatten();
        tids.filter_map(|tid| self.threads.get(tid))
    }

    /// A thread's name, hostile; `?` when it was not seen.
    pub fn thread_name(&self, tid: u32) -> &str {
        self.threads
            .get(&tid)
            .map(|thread| thread.name.as_str())
            .filter(|name| !name.is_empty())
            .unwrap_or("?")
    }

    /// The program that a process runs, by the first process that runs it.
    pub fn program(&self, tgid: u32) -> u32 {
        self.programs.of_process(tgid)
    }

    /// What a thread does: threads of the same role can be taken together. A nameless one is alone.
    pub fn role(&self, tid: u32) -> Role {
        let tgid = self.threads.get(&tid).map_or(0, |thread| thread.tgid);
        let name = match self.thread_name(tid) {
            "?" => format!("? {tid}"),
            name => without_numbers(name),
        };
        Role {
            program: self.program(tgid),
            name,
        }
    }

    /// The name of a thread's role, which holds from run to run. A number in the program's own name
    /// is its version's, as in `python3`: it tells no worker from another one.
    pub fn role_name(&self, tid: u32) -> String {
        let name = self.thread_name(tid);
        match self.is_programs(tid, name) {
            true => name.to_owned(),
            false => without_numbers(name),
        }
    }

    /// Whether a thread has the name of the program that its process runs, or the target does.
    fn is_programs(&self, tid: u32, name: &str) -> bool {
        let thread = self.threads.get(&tid);
        let process = thread.and_then(|thread| self.threads.get(&thread.tgid));
        let commands = [
            process.map(|process| slice::from_ref(&process.command)),
            Some(self.meta.command.as_slice()),
        ];
        let mut names = commands.into_iter().flatten().map(program_name);
        names.any(|program| {
            program == name || (name.len() >= KEPT_NAME_BYTES && program.starts_with(name))
        })
    }

    /// The processes of these threads.
    pub fn processes_of(&self, tids: impl IntoIterator<Item = u32>) -> BTreeSet<u32> {
        let threads = tids.into_iter().filter_map(|tid| self.threads.get(&tid));
        threads.map(|thread| thread.tgid).collect()
    }

    /// For how long the target was stopped, the process that was for longest; `None` when it was
    /// not.
    pub fn stopped(&self) -> Option<Stopped> {
        self.stops.longest(&self.threads, self.end_ns)
    }

    /// From when on it is known what a thread did.
    pub(crate) fn known_from(&self, tid: u32) -> Ns {
        let waits = self.threads.get(&tid).map(|thread| thread.timeline.waits());
        let first = waits.and_then(|waits| waits.first());
        let found = first
            .filter(|wait| wait.since_before)
            .map(|wait| wait.out_ns);
        found.unwrap_or(0).max(self.meta.started_ns)
    }
}
