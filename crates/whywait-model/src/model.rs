//! A recording, put together.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use whywait_events::Ns;
use whywait_events::recording::Meta;

use crate::calls::Calls;
use crate::calls::links::Links;
use crate::cpu::bursts::Bursts;
use crate::cpu::{CpuTime, Sampled};
use crate::dns::LateDns;
use crate::input::Input;
use crate::path::PathStep;
use crate::pools::{self, EpollPool};
use crate::requests::accept_queues::AcceptQueues;
use crate::requests::histogram::Histogram;
use crate::requests::open::Rests;
use crate::requests::tails::Tails;
use crate::requests::{self, AbandonedRequests, Accounted, OwnRequests, RequestSums};
use crate::rings::{self, RingState, Workers};
use crate::roles::SameProgram;
use crate::stacks::StackNames;
use crate::stops::Stops;
use crate::timeline::{self, Thread};
use crate::waits::locks::LetGo;
use crate::waits::objects::{WaitKey, WaitObjects};

/// A recording, put together: what threads, pools and rings did, and where the time of requests
/// went.
#[derive(Debug, Clone)]
pub struct Model {
    /// What was recorded, where and how.
    pub meta: Meta,
    /// The threads of the target, by id.
    pub threads: BTreeMap<u32, Thread>,
    /// Threads that can stand in for each other.
    pub pools: Vec<EpollPool>,
    /// The io_uring rings, by their number.
    pub rings: BTreeMap<u32, RingState>,
    /// io_uring's workers, by process.
    pub workers: BTreeMap<u32, Workers>,
    /// Names of stacks.
    pub stacks: StackNames,
    /// The recording's counters.
    pub counters: BTreeMap<String, u64>,
    /// Rows that were left out because there were too many.
    pub left_out: u64,
    /// What of the recording could not be read, in words.
    pub damaged: Vec<String>,
    /// When the recording ended, as far as known.
    pub end_ns: Ns,
    /// What was waited for.
    pub objects: WaitObjects,
    /// Who waited for connections: by process and descriptor.
    pub(crate) acceptors: BTreeMap<(u32, i32), BTreeSet<u32>>,
    /// The accept queues of the target's listeners.
    pub accept_queues: AcceptQueues,
    /// Ends of responses that the kernel held back.
    pub tails: Tails,
    /// Requests that were answered for clients that had gone.
    pub abandoned: AbandonedRequests,
    /// DNS queries that were not answered in time.
    pub dns: LateDns,
    /// What CPU time was for.
    pub cpu: CpuTime,
    /// Where threads were sampled on a CPU, over the whole recording.
    pub sampled: Sampled,
    /// What the target asked of others.
    pub(crate) calls: Calls,
    /// What bursts of system-call tracing saw.
    pub bursts: Bursts,
    /// The requests that are looked at one by one, by when they came.
    pub(crate) requests: Vec<Accounted>,
    /// The steps of their critical paths, each once.
    pub(crate) path_steps: Vec<PathStep>,
    /// The other requests.
    pub(crate) sums: RequestSums,
    /// Latencies of all requests.
    pub(crate) latency: Histogram,
    /// Those of the target to itself.
    pub(crate) own: OwnRequests,
    /// Which processes run the same program.
    pub(crate) programs: SameProgram,
    /// When threads were stopped from outside.
    pub(crate) stops: Stops,
    /// When processes were stopped from outside.
    pub(crate) stop_spans: Vec<(Ns, Ns)>,
    /// When the last thread ended, or else the recording.
    pub(crate) alive_until_ns: Ns,
    /// Where threads sleep that have no request in hand.
    pub(crate) rests: Rests,
    /// When each lock was let go, and by whom.
    pub(crate) let_go: HashMap<WaitKey, Vec<LetGo>>,
    /// Which calls are which request's.
    pub(crate) links: Links,
}

impl Model {
    /// Puts it together.
    pub fn new(input: Input) -> Self {
        let left_out = input.left_out();
        let threads = timeline::threads(
            &input.threads,
            input.waits.into_kept(),
            input.busy.into_kept(),
            input.preempted.into_kept(),
            input.samples.into_kept(),
        );
        let cpus = input.meta.host.cpus;
        let mut pools = pools::find(
            &input.polls,
            &input.parks,
            &input.stacks,
            &threads,
            &input.requests,
            cpus,
        );
        for pool in &mut pools {
            pool.find_spans(&threads);
        }
        let end_ns = input.meta.ended_ns.unwrap_or_else(|| {
            timeline::last_seen(&threads).max(requests::last_seen(&input.requests))
        });
        let mut objects = input.objects;
        objects.settle(&input.stacks, &pools, &threads, end_ns);
        let programs = SameProgram::of(&threads, &input.stacks);
        let alive_until_ns = timeline::alive_until(&threads, end_ns);
        let mut requests = requests::in_order(input.requests);
        requests::end_with_processes(&mut requests, &threads, alive_until_ns);
        let mut model = Self {
            meta: input.meta,
            threads,
            pools,
            rings: input.rings.states,
            workers: rings::workers(&input.threads),
            stacks: input.stacks,
            counters: input.counters,
            left_out,
            damaged: input.damaged,
            end_ns,
            objects,
            acceptors: input.acceptors,
            accept_queues: input.accept_queues,
            tails: input.tails,
            abandoned: input.abandoned,
            dns: input.dns,
            cpu: input.cpu,
            sampled: input.sampled,
            calls: input.calls,
            bursts: input.bursts,
            requests,
            path_steps: Vec::new(),
            sums: input.sums,
            latency: input.latency,
            own: input.own,
            programs,
            stops: input.stops,
            stop_spans: Vec::new(),
            alive_until_ns,
            rests: Rests::default(),
            let_go: HashMap::new(),
            links: Links::default(),
        };
        model.calls.settle();
        model.stop_spans = model.find_stop_spans();
        model.rests = Rests::of(&model);
        model.let_go = model.let_go();
        // Paths have the calls in them.
        model.links = Links::of(&model);
        model.account();
        model
    }

    /// The threads that waited for a connection at this descriptor of a process.
    pub fn acceptors(&self, tgid: u32, fd: i32) -> impl Iterator<Item = &Thread> {
        let tids = self.acceptors.get(&(tgid, fd)).into_iter().flatten();
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

    /// The recording's threshold for what is slow or long, nanoseconds.
    pub fn threshold_ns(&self) -> u64 {
        self.meta.options.threshold_ns
    }
}
