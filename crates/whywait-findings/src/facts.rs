//! What detectors know of a recording besides the model: each thing is found out once, when the
//! first of them asks for it.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use whywait_events::{Ns, Request, StackId};
use whywait_model::path::run::ProgramRun;
use whywait_model::requests::TaskWaits;
use whywait_model::{FrameOrigin, Label, Model, RequestRef, Role, origin};

use crate::shared::given_up::GivenUp;
use crate::shared::jobs::{JobQueue, QueuedJob};
use crate::shared::lanes::Lane;
use crate::shared::pauses::Pauses;
use crate::shared::queues::Queue;
use crate::shared::replay::Behind;
use crate::shared::slow_paths::{self, Answers, SlowRequest, SlowRequests, UnderWay, dominates};
use crate::shared::tails::of_client_ns;
use crate::shared::traffic::Traffic;

/// What is known of a recording.
pub struct Facts<'m> {
    pub(crate) model: &'m Model,
    slow: OnceCell<SlowRequests<'m>>,
    pauses: OnceCell<Pauses>,
    answers: OnceCell<Answers<'m>>,
    under_way: OnceCell<ByWhom>,
    places: OnceCell<Places<'m>>,
    readers: OnceCell<Readers<'m>>,
    traffic: OnceCell<Vec<Traffic<'m>>>,
    queues: OnceCell<Vec<Queue<'m>>>,
    jobs: OnceCell<Vec<JobQueue<'m>>>,
    lanes: OnceCell<Vec<Lane<'m>>>,
    task_waits: OnceCell<Option<TaskWaits>>,
    queued: OnceCell<HashSet<(u64, u32)>>,
    job_began: OnceCell<HashMap<(u64, u32), Ns>>,
    behind: OnceCell<Behind<'m>>,
    given_up: OnceCell<GivenUp<'m>>,
    functions: RefCell<HashMap<StackId, Option<Rc<str>>>>,
    run: OnceCell<Option<ProgramRun>>,
    roles: RefCell<HashMap<u32, Rc<Role>>>,
}

/// Requests by where they came in, in order of arrival. Those during which the target was stopped,
/// by its runtime or from outside, tell nothing.
pub(crate) type Places<'m> = BTreeMap<(u32, u16), Vec<RequestRef<'m>>>;

/// Requests by the thread that read them, in order of arrival.
pub(crate) type Readers<'m> = BTreeMap<u32, Vec<RequestRef<'m>>>;

/// When how many requests were under way.
pub(crate) struct ByWhom {
    /// By process and epoll instance.
    pub(crate) by_epoll: HashMap<(u32, u32), UnderWay>,
    /// By the thread that read them.
    pub(crate) by_reader: HashMap<u32, UnderWay>,
    /// By process.
    pub(crate) by_process: HashMap<u32, UnderWay>,
}

impl<'m> Facts<'m> {
    /// Those of a recording.
    pub fn of(model: &'m Model) -> Self {
        Self {
            model,
            slow: OnceCell::new(),
            pauses: OnceCell::new(),
            answers: OnceCell::new(),
            under_way: OnceCell::new(),
            places: OnceCell::new(),
            readers: OnceCell::new(),
            traffic: OnceCell::new(),
            queues: OnceCell::new(),
            jobs: OnceCell::new(),
            lanes: OnceCell::new(),
            task_waits: OnceCell::new(),
            queued: OnceCell::new(),
            job_began: OnceCell::new(),
            behind: OnceCell::new(),
            given_up: OnceCell::new(),
            run: OnceCell::new(),
            functions: RefCell::default(),
            roles: RefCell::default(),
        }
    }

    /// What it did, if it is a program that serves nobody.
    pub fn run(&self) -> Option<&ProgramRun> {
        self.run.get_or_init(|| self.model.run()).as_ref()
    }

    /// The slow requests, with their paths, but for those that pauses made slow.
    pub(crate) fn slow(&self) -> &SlowRequests<'m> {
        let made_slow = |request| self.pauses().made_slow(request);
        self.slow
            .get_or_init(|| SlowRequests::of(self.model, made_slow))
    }

    /// When all threads of a process were stopped.
    pub(crate) fn pauses(&self) -> &Pauses {
        self.pauses.get_or_init(|| Pauses::of(self.model))
    }

    /// When each thread answered which requests.
    pub(crate) fn answers(&self) -> &Answers<'m> {
        self.answers.get_or_init(|| Answers::of(self.model))
    }

    /// How many requests were under way when.
    pub(crate) fn under_way(&self) -> &ByWhom {
        self.under_way.get_or_init(|| ByWhom {
            by_epoll: UnderWay::by_epoll(self.model),
            by_reader: UnderWay::by_reader(self.model),
            by_process: UnderWay::by_process(self.model),
        })
    }

    /// The requests by where they came in.
    pub(crate) fn places(&self) -> &Places<'m> {
        self.places.get_or_init(|| {
            let mut places = Places::new();
            let requests = self.model.requests();
            let stopped = |request: &RequestRef<'_>| {
                request.was_stopped() || self.pauses().made_slow(*request)
            };
            for request in requests.filter(|request| !stopped(request)) {
                places.entry(request.place()).or_default().push(request);
            }
            places
        })
    }

    /// What each thread read.
    pub(crate) fn readers(&self) -> &Readers<'m> {
        self.readers.get_or_init(|| {
            let mut readers = Readers::new();
            for request in self.model.requests() {
                readers.entry(request.recv_tid).or_default().push(request);
            }
            readers.remove(&0);
            readers
        })
    }

    /// What this thread read.
    pub(crate) fn read_by(&self, tid: u32) -> &[RequestRef<'m>] {
        self.readers().get(&tid).map_or(&[], Vec::as_slice)
    }

    /// The calls of each process to each peer.
    pub(crate) fn traffic(&self) -> &[Traffic<'m>] {
        self.traffic.get_or_init(|| Traffic::of(self.model))
    }

    /// The requests that queue for calls to a peer.
    pub(crate) fn queues(&self) -> &[Queue<'m>] {
        self.queues.get_or_init(|| Queue::of(self))
    }

    /// The jobs that readers hand to others.
    pub(crate) fn jobs(&self) -> &[JobQueue<'m>] {
        self.jobs.get_or_init(|| JobQueue::of(self))
    }

    /// What requests pass one at a time inside a program.
    pub(crate) fn lanes(&self) -> &[Lane<'m>] {
        self.lanes.get_or_init(|| Lane::of(self))
    }

    /// What the tasks of slow requests did; `None`: none was looked at.
    pub(crate) fn task_waits(&self) -> Option<&TaskWaits> {
        let waits = self.task_waits.get_or_init(|| self.model.task_waits());
        waits.as_ref()
    }

    /// The slow requests but for those that waited for others' jobs, or for others to pass, for
    /// most of their time: what those do, and wait for, is not what made these slow.
    pub(crate) fn slow_by_themselves(&self) -> Vec<&SlowRequest<'m>> {
        let queued = self.queued.get_or_init(|| {
            let victims = self.jobs().iter().flat_map(JobQueue::victims);
            let queued = victims.map(|job| (job.request, job.waited_ns));
            let victims = self.lanes().iter().flat_map(Lane::victims);
            let passed = victims.map(|one| (one.request, one.waited_ns));
            let all = queued.chain(passed);
            let clients = self.model.requests();
            let clients = clients.map(|one| (one, of_client_ns(self.model, one)));
            let all = all.chain(clients.filter(|(_, ns)| *ns > 0));
            let mostly = all.filter(|(request, ns)| dominates(*ns, request.age_ns()));
            mostly
                .map(|(request, _)| (request.socket, request.seq))
                .collect()
        });
        let slow = self.slow().requests.iter();
        slow.filter(|slow| !queued.contains(&(slow.request.socket, slow.request.seq)))
            .collect()
    }

    /// Whether most of an interval on a request's path lies before its job began: what was done and
    /// waited for then was for the jobs before it.
    pub(crate) fn is_of_jobs_before(&self, request: &Request, (from_ns, to_ns): (Ns, Ns)) -> bool {
        let began = self.job_began.get_or_init(|| {
            let queues = self.jobs().iter().filter(|queue| queue.in_order);
            let victims = queues.flat_map(JobQueue::victims);
            let began = |job: &QueuedJob<'_>| {
                let name = (job.request.socket, job.request.seq);
                (name, job.worked.taken_ns)
            };
            victims.map(began).collect()
        });
        let began_ns = began.get(&(request.socket, request.seq));
        began_ns.is_some_and(|ns| from_ns + to_ns.saturating_sub(from_ns) / 2 < *ns)
    }

    /// Who queues behind requests.
    pub(crate) fn behind(&self) -> &Behind<'m> {
        self.behind.get_or_init(|| Behind::of(self))
    }

    /// Connections that were given up before they were made.
    pub(crate) fn given_up(&self) -> &GivenUp<'m> {
        self.given_up.get_or_init(|| GivenUp::of(self.model))
    }

    /// What a thread does.
    pub(crate) fn role(&self, tid: u32) -> Rc<Role> {
        let mut roles = self.roles.borrow_mut();
        let role = roles
            .entry(tid)
            .or_insert_with(|| self.model.role(tid).into());
        Rc::clone(role)
    }

    /// The function in which a stack was sampled; `None`: it is not known. A stack that was cut off
    /// in the C library or in the kernel's vDSO does not say who called that.
    pub(crate) fn function(&self, stack: StackId) -> Option<Rc<str>> {
        let mut functions = self.functions.borrow_mut();
        let function = functions.entry(stack).or_insert_with(|| {
            let labels = &self.model.stacks.get(stack)?.labels;
            let of_system = |label: &Label| origin(label) == FrameOrigin::System;
            if labels.iter().all(of_system) {
                return None;
            }
            let function = slow_paths::function(self.model, stack);
            function
                .filter(|name| name != slow_paths::IN_PYTHON)
                .map(Rc::from)
        });
        function.clone()
    }
}
