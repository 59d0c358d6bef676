//! Events written down as a script, for tests of the model and of the detectors.
//!
//! ```
//! use whywait_model::script::Script;
//! let mut script = Script::new();
//! script.thread(1, "loop");
//! script.polls(1, 7, 0, 10);
//! script.request(1).ready(10).read(11, 1).answered(15, 1);
//! let model = script.model();
//! assert_eq!(model.requests_summary().count, 1);
//! ```
//! Times are milliseconds from the recording's start.

use whywait_events::uring::{Lag, Op, Pending, Ring, RingSample, Sum};
use whywait_events::{
    AcceptQueue, Burst, BurstCall, Busy, Connection, Cpu, CpuWait, Exchange, FileLock, ModuleKind,
    NameKind, NameRow, NoCpu, Ns, Part, PeerSums, Preempted, Request, ResponseLook, Sample,
    StackId, TaskLook, ThreadChange, ThreadEvent, UNNAMED_JIT, Wait, WakeContext, WorkKind,
};

mod wire;

use crate::input::Input;
use crate::model::Model;
use crate::recorded::Recorded;
use crate::requests::kept::Counted;
use crate::rings::RingState;
use crate::stacks::{Label, StackText};
use crate::waits::sleeps::Sleeps;

/// System call numbers that scripts use.
const EPOLL_WAIT: u32 = 232;
const FUTEX: u32 = 202;
const CLOCK_NANOSLEEP: u32 = 230;

/// The process in which threads are, unless said otherwise.
pub const TGID: u32 = 100;
/// Recordings start at this time, so that no time is 0 by chance.
const START_NS: Ns = 1_000_000_000;

/// A script of events.
#[derive(Debug)]
pub struct Script {
    input: Input,
    next_stack: StackId,
    next_seq: u32,
}

impl Default for Script {
    fn default() -> Self {
        Self::new()
    }
}

/// Milliseconds from the start, as the events have it.
pub fn ms(ms: u64) -> Ns {
    START_NS + ms * 1_000_000
}

impl Script {
    /// Nothing has happened.
    pub fn new() -> Self {
        let mut input = Input::default();
        input.recorded.meta.started_ns = START_NS;
        input.recorded.meta.options.threshold_ns = 1_000_000;
        input.calls.threshold_ns = 1_000_000;
        input.recorded.meta.options.sample_hz = 200;
        input.recorded.meta.complete = true;
        input.recorded.meta.pid = Some(TGID);
        input.recorded.meta.host.cpus = 4;
        Self {
            input,
            next_stack: 1,
            next_seq: 1,
        }
    }

    /// A thread of the process.
    pub fn thread(&mut self, tid: u32, name: &str) -> &mut Self {
        self.thread_of(TGID, tid, name)
    }

    /// A thread of another process.
    pub fn thread_of(&mut self, tgid: u32, tid: u32, name: &str) -> &mut Self {
        self.input.threads.push(ThreadEvent {
            at_ns: START_NS,
            tid,
            tgid,
            parent_tid: 0,
            change: ThreadChange::Found,
            comm: name.to_owned(),
            command: String::new(),
        });
        self
    }

    /// A thread that another one makes.
    pub fn made(&mut self, tid: u32, name: &str, at_ms: u64, by: u32) -> &mut Self {
        self.input.threads.push(ThreadEvent {
            at_ns: ms(at_ms),
            tid,
            tgid: TGID,
            parent_tid: by,
            change: ThreadChange::Fork,
            comm: name.to_owned(),
            command: String::new(),
        });
        self
    }

    /// A process that another thread makes.
    pub fn process_made(&mut self, pid: u32, name: &str, at_ms: u64, by: u32) -> &mut Self {
        self.input.threads.push(ThreadEvent {
            at_ns: ms(at_ms),
            tid: pid,
            tgid: pid,
            parent_tid: by,
            change: ThreadChange::Fork,
            comm: name.to_owned(),
            command: String::new(),
        });
        self
    }

    /// A thread ends.
    pub fn ends_thread(&mut self, tid: u32, at_ms: u64) -> &mut Self {
        let begun = self.input.threads.iter().find(|event| event.tid == tid);
        let begun = begun.expect("it has begun").clone();
        self.input.threads.push(ThreadEvent {
            at_ns: ms(at_ms),
            change: ThreadChange::Exit,
            ..begun
        });
        self
    }

    /// A stack, outermost function first, as one reads a call.
    pub fn stack(&mut self, calls: &[&str]) -> StackId {
        self.stack_in("/srv/app", calls)
    }

    /// The same, of functions in this module. `file+0x12` is a function without a name, and
    /// [`UNNAMED_JIT`] one of a just-in-time compiler.
    pub fn stack_in(&mut self, module: &str, calls: &[&str]) -> StackId {
        let id = self.next_stack;
        self.next_stack += 1;
        let label = |name: &&str| Label {
            name: (*name).into(),
            named: !name.contains("+0x") && *name != UNNAMED_JIT,
            file: "".into(),
            line: 0,
            module: module.into(),
            kind: if *name == UNNAMED_JIT {
                ModuleKind::Jit
            } else {
                ModuleKind::Elf
            },
        };
        self.input.recorded.stacks.insert(
            id,
            StackText {
                labels: calls.iter().rev().map(label).collect(),
                truncated: false,
            },
        );
        id
    }

    /// The coroutines of a task of Python, outermost first: name, file and line of each.
    pub fn coroutines(&mut self, calls: &[(&str, &str, u32)]) -> StackId {
        let id = self.next_stack;
        self.next_stack += 1;
        let label = |(name, file, line): &(&str, &str, u32)| Label {
            name: (*name).into(),
            named: true,
            file: (*file).into(),
            line: *line,
            module: "python".into(),
            kind: ModuleKind::Python,
        };
        let labels = calls.iter().rev().map(label).collect();
        let truncated = false;
        let text = StackText { labels, truncated };
        self.input.recorded.stacks.insert(id, text);
        id
    }

    /// What a thread or a port used of the CPUs.
    pub fn cpu(&mut self, row: &Cpu) -> &mut Self {
        self.input.recorded.cpu.add(row);
        self
    }

    /// What a burst saw of a thread, with its cycle.
    pub fn burst(&mut self, row: &Burst, cycle: &[BurstCall]) -> &mut Self {
        self.input.recorded.bursts.add(row);
        cycle
            .iter()
            .for_each(|call| self.input.recorded.bursts.add_step(call));
        self
    }

    /// A sleep; the details are set on the result.
    pub fn wait(&mut self, tid: u32, syscall: u32, from_ms: u64, to_ms: u64) -> WaitLine<'_> {
        let tgid = self
            .input
            .threads
            .iter()
            .rev()
            .find(|thread| thread.tid == tid)
            .map_or(TGID, |thread| thread.tgid);
        let seq = self.next_seq;
        self.next_seq += 1;
        let wait = Wait {
            tid,
            tgid,
            seq,
            out_ns: ms(from_ms),
            wake_ns: Some(ms(to_ms)),
            in_ns: Some(ms(to_ms)),
            syscall: Some(syscall),
            wake_context: WakeContext::Hardirq,
            ..Wait::default()
        };
        WaitLine { script: self, wait }
    }

    /// It sleeps in epoll and a packet wakes it.
    pub fn polls(&mut self, tid: u32, epoll: u32, from_ms: u64, to_ms: u64) -> &mut Self {
        self.wait(tid, EPOLL_WAIT, from_ms, to_ms)
            .epoll(epoll)
            .by_softirq()
            .done()
    }

    /// It sleeps in epoll with this stack and a packet wakes it.
    pub fn polls_in(
        &mut self,
        tid: u32,
        epoll: u32,
        stack: StackId,
        from_ms: u64,
        to_ms: u64,
    ) -> &mut Self {
        self.wait(tid, EPOLL_WAIT, from_ms, to_ms)
            .epoll(epoll)
            .by_softirq()
            .stack(stack)
            .done()
    }

    /// It sleeps on a futex with this stack until thread `by` wakes it.
    pub fn parks(
        &mut self,
        tid: u32,
        stack: StackId,
        from_ms: u64,
        to_ms: u64,
        by: u32,
    ) -> &mut Self {
        self.wait(tid, FUTEX, from_ms, to_ms)
            .stack(stack)
            .by(by)
            .done()
    }

    /// It sleeps for a time, with this stack.
    pub fn sleeps(&mut self, tid: u32, stack: StackId, from_ms: u64, to_ms: u64) -> &mut Self {
        self.wait(tid, CLOCK_NANOSLEEP, from_ms, to_ms)
            .stack(stack)
            .done()
    }

    /// It does no I/O, on the CPU all the time.
    pub fn burns(&mut self, tid: u32, stack: StackId, from_ms: u64, to_ms: u64) -> &mut Self {
        self.busy(tid, from_ms, to_ms, (to_ms - from_ms) * 1_000_000, 0)
            .sampled(tid, stack, from_ms, to_ms)
    }

    /// The clock finds it on a CPU, every 5 ms.
    pub fn sampled(&mut self, tid: u32, stack: StackId, from_ms: u64, to_ms: u64) -> &mut Self {
        for at in (from_ms..to_ms).step_by(5) {
            self.input.samples.push(Sample {
                at_ns: ms(at),
                tid,
                tgid: TGID,
                cpu: 0,
                user_stack: stack,
                kernel_stack: 0,
                periods: 1,
            });
        }
        self
    }

    /// The slower clock finds it on a CPU, every 20 ms.
    pub fn sampled_sparsely(
        &mut self,
        tid: u32,
        stack: StackId,
        from_ms: u64,
        to_ms: u64,
    ) -> &mut Self {
        for at in (from_ms..to_ms).step_by(20) {
            self.sampled(tid, stack, at, at + 1);
            if let Some(sample) = self.input.samples.last_mut() {
                sample.periods = 4;
            }
        }
        self
    }

    /// The clock finds its CPU in the kernel, every 5 ms.
    pub fn sampled_in_kernel(
        &mut self,
        tid: u32,
        kernel: StackId,
        from_ms: u64,
        to_ms: u64,
    ) -> &mut Self {
        let before = self.input.samples.len();
        self.sampled(tid, 0, from_ms, to_ms);
        for sample in &mut self.input.samples[before..] {
            sample.kernel_stack = kernel;
        }
        self
    }

    /// It does no I/O.
    pub fn busy(
        &mut self,
        tid: u32,
        from_ms: u64,
        to_ms: u64,
        on_cpu_ns: u64,
        runnable_ns: u64,
    ) -> &mut Self {
        self.input.busy.push(Busy {
            tid,
            tgid: TGID,
            start_ns: ms(from_ms),
            end_ns: ms(to_ms),
            on_cpu_ns,
            runnable_ns,
        });
        self
    }

    /// It has no CPU, though it did not sleep.
    pub fn preempted(&mut self, tid: u32, from_ms: u64, to_ms: u64) -> &mut Self {
        self.input.preempted.push(Preempted {
            tid,
            tgid: TGID,
            out_ns: ms(from_ms),
            in_ns: ms(to_ms),
        });
        self
    }

    /// It has no CPU, though it did not sleep, as another process has it for all of that time.
    pub fn preempted_by(
        &mut self,
        tid: u32,
        from_ms: u64,
        to_ms: u64,
        by: (u32, &str),
    ) -> &mut Self {
        self.cpu_wait(tid, from_ms, to_ms, NoCpu::Task, by)
            .preempted(tid, from_ms, to_ms)
    }

    /// Who left the CPU that it got at `to_ms`, after it could have run since `from_ms`; the
    /// thread 0: nobody.
    pub fn cpu_wait(
        &mut self,
        tid: u32,
        from_ms: u64,
        to_ms: u64,
        why: NoCpu,
        (by_tid, by_name): (u32, &str),
    ) -> &mut Self {
        self.input.cpu_waits.push(CpuWait {
            tid,
            tgid: TGID,
            from_ns: ms(from_ms),
            in_ns: ms(to_ms),
            why,
            by_tid,
            by_tgid: by_tid,
            by_ran_ns: ms(to_ms) - ms(from_ms),
            by_name: by_name.to_owned(),
            ..CpuWait::default()
        });
        self
    }

    /// A request on a socket of its own.
    pub fn request(&mut self, socket: u64) -> RequestLine<'_> {
        let request = Request {
            socket,
            seq: 1,
            tgid: TGID,
            fd: 10,
            local_port: 8080,
            ..Request::default()
        };
        RequestLine {
            script: self,
            request,
        }
    }

    /// The requests so far are jobs, which took so long all together.
    pub fn are_jobs(&mut self, total_ms: u64) -> &mut Self {
        let requests = &mut self.input.requests;
        requests.counted = Counted::Jobs;
        requests.jobs.count = requests.rows.len() as u64;
        requests.jobs.total_ns = total_ms * 1_000_000;
        self
    }

    /// The sockets of all requests so far have their read interest off.
    pub fn read_interest_off(&mut self) -> &mut Self {
        for request in &mut self.input.requests.rows {
            request.read_armed = Some(false);
        }
        self
    }

    /// An io_uring ring with the sums of its operations.
    pub fn ring(&mut self, ring: Ring, sums: Vec<Sum>) -> &mut Self {
        self.input.rings.states.insert(
            ring.id,
            RingState {
                ring,
                sums,
                ..RingState::default()
            },
        );
        self
    }

    /// Something waited in a ring. After the sleeps that go with it.
    pub fn ring_lag(&mut self, lag: &Lag) -> &mut Self {
        self.input.rings.add_lag(lag);
        for wait in self.input.waits.clone().iter() {
            self.input.rings.add_wait(wait);
        }
        self
    }

    /// An operation of a ring that has a row.
    pub fn ring_op(&mut self, op: &Op) -> &mut Self {
        self.input.rings.add_op(op);
        self
    }

    /// An operation that a ring's kernel still had in the end.
    pub fn ring_pending(&mut self, pending: &Pending) -> &mut Self {
        self.input.rings.add_pending(pending);
        self
    }

    /// A thread was sampled `times` in this stack, while so much waited in its ring.
    pub fn ring_samples(
        &mut self,
        (user_stack, kernel_stack): (StackId, StackId),
        standing: &RingSample,
        times: u64,
    ) -> &mut Self {
        let sample = Sample {
            at_ns: standing.at_ns,
            tid: standing.tid,
            tgid: TGID,
            cpu: 0,
            user_stack,
            kernel_stack,
            periods: 1,
        };
        for _ in 0..times {
            self.input.rings.add_sample(&sample, Some(standing));
        }
        self
    }

    /// The kernel's poller of a ring was sampled so often.
    pub fn poller_samples(&mut self, ring: u32, times: u64) -> &mut Self {
        if let Some(state) = self.input.rings.states.get_mut(&ring) {
            state.poller_samples += times;
        }
        self
    }

    /// The recording begins.
    pub fn starts(&mut self, at_ms: u64) -> &mut Self {
        self.input.recorded.meta.started_ns = ms(at_ms);
        self
    }

    /// The recording ends.
    pub fn ends(&mut self, at_ms: u64) -> &mut Self {
        self.input.recorded.meta.ended_ns = Some(ms(at_ms));
        self
    }

    /// The accept queue of a listener, as somebody saw it.
    pub fn accept_queue(&mut self, look: AcceptQueue) -> &mut Self {
        self.input.recorded.accept_queues.add(&look);
        self
    }

    /// A file that another process had locked.
    pub fn file_lock(&mut self, row: &FileLock) -> &mut Self {
        self.input.recorded.file_locks.add(row);
        self
    }

    /// An accepted connection, as somebody saw it.
    pub fn connection(&mut self, look: &Connection) -> &mut Self {
        self.input.recorded.open_connections.add(look);
        self
    }

    /// A response that was under way when somebody looked.
    pub fn response(&mut self, look: &ResponseLook) -> &mut Self {
        self.input.recorded.responses.add(look);
        self
    }

    /// A look at the task of a request.
    pub fn task_look(&mut self, look: &TaskLook) -> &mut Self {
        self.input.recorded.task_looks.add(look);
        self
    }

    /// What the exchanges with a peer came to.
    pub fn peer(&mut self, sums: &PeerSums) -> &mut Self {
        self.input.calls.sums.insert(sums.id, sums.clone());
        self
    }

    /// An exchange with a peer.
    pub fn exchange(&mut self, row: &Exchange) -> &mut Self {
        self.input.calls.add(row);
        self
    }

    /// What a request or an exchange is called.
    pub fn name(&mut self, (socket, seq): (u64, u32), kind: NameKind, name: &str) -> &mut Self {
        self.input.recorded.given_names.add(&NameRow {
            socket,
            seq,
            kind,
            name: name.to_owned(),
            ..NameRow::default()
        });
        self
    }

    /// A counter of the recording.
    pub fn counter(&mut self, name: &str, value: u64) -> &mut Self {
        self.input.recorded.counters.insert(name.to_owned(), value);
        self
    }

    /// Changes what is said of the recording as a whole.
    pub fn recorded(&mut self, change: impl FnOnce(&mut Recorded)) -> &mut Self {
        change(&mut self.input.recorded);
        self
    }

    /// The recording was cut off.
    pub fn cut_off(&mut self) -> &mut Self {
        self.input.recorded.meta.complete = false;
        self
    }

    /// What the model makes of it.
    pub fn model(&self) -> Model {
        let mut input = self.input.clone();
        input.take_counters("");
        let tids = input.threads.iter().map(|thread| thread.tid).collect();
        input.objects.serve(&input.requests.rows);
        for sample in input.samples.iter() {
            input.recorded.sampled.add(sample);
        }
        let mut sleeps = Sleeps::default();
        let rows = std::mem::take(&mut input.waits);
        let mut settled = |wait: &Wait, _until_ns| {
            input.note(wait, &tids);
            input.waits.push(wait.clone());
        };
        for row in rows.iter() {
            sleeps.add(row, &mut settled);
        }
        sleeps.finish(&mut settled);
        Model::new(input)
    }
}

/// A sleep that is being written down.
#[derive(Debug)]
pub struct WaitLine<'a> {
    script: &'a mut Script,
    wait: Wait,
}

impl<'a> WaitLine<'a> {
    /// In this epoll instance.
    pub fn epoll(mut self, epoll: u32) -> Self {
        self.wait.epoll = epoll;
        self
    }

    /// With this stack.
    pub fn stack(mut self, stack: StackId) -> Self {
        self.wait.user_stack = stack;
        self
    }

    /// With this stack in the kernel.
    pub fn kernel(mut self, stack: StackId) -> Self {
        self.wait.kernel_stack = stack;
        self
    }

    /// In no system call.
    pub fn in_no_call(mut self) -> Self {
        self.wait.syscall = None;
        self
    }

    /// No signal ends it.
    pub fn uninterruptible(mut self) -> Self {
        self.wait.uninterruptible = true;
        self
    }

    /// For a device: no signal ends it.
    pub fn for_io(mut self) -> Self {
        self.wait.uninterruptible = true;
        self.wait.io_wait = true;
        self
    }

    /// On this futex word.
    pub fn word(mut self, address: u64) -> Self {
        self.wait.args[0] = address;
        self
    }

    /// The call's first two arguments.
    pub fn args(mut self, args: [u64; 2]) -> Self {
        self.wait.args[..2].copy_from_slice(&args);
        self
    }

    /// The word's surroundings name this thread as the lock's owner.
    pub fn owner(mut self, tid: u32) -> Self {
        self.wait.owner_tid = tid;
        self
    }

    /// The thread's stack points to this lock.
    pub fn holds(mut self, address: u64) -> Self {
        self.wait.holds = address;
        self
    }

    /// It has a timeout.
    pub fn timeout(mut self) -> Self {
        self.wait.timeout = true;
        self
    }

    /// A packet ended it.
    pub fn by_softirq(mut self) -> Self {
        self.wait.wake_context = WakeContext::Softirq;
        self
    }

    /// Its time was up.
    pub fn by_timer(mut self) -> Self {
        self.wait.wake_context = WakeContext::Hardirq;
        self
    }

    /// This thread ended it …
    pub fn by(mut self, tid: u32) -> Self {
        self.wait.wake_context = WakeContext::Task;
        self.wait.waker_tid = tid;
        self.wait.waker_tgid = TGID;
        self
    }

    /// … where it was.
    pub fn in_its(mut self, stack: StackId) -> Self {
        self.wait.waker_stack = stack;
        self
    }

    /// Before it the thread spent so much on this, since its last row.
    pub fn after(mut self, part: Part, ms: u64) -> Self {
        self.wait.segment[part] += ms * 1_000_000;
        self
    }

    /// It was back on a CPU only then.
    pub fn on_cpu_at(mut self, at_ms: u64) -> Self {
        self.wait.in_ns = Some(ms(at_ms));
        self
    }

    /// What ended it was not seen.
    pub fn by_unseen(mut self) -> Self {
        self.wait.wake_ns = None;
        self.wait.wake_context = WakeContext::Unknown;
        self
    }

    /// Nothing ended it.
    pub fn forever(mut self) -> Self {
        self.wait.in_ns = None;
        self.by_unseen()
    }

    /// Writes it down.
    pub fn done(self) -> &'a mut Script {
        self.script.input.waits.push(self.wait);
        self.script
    }
}

/// A request that is being written down.
#[derive(Debug)]
pub struct RequestLine<'a> {
    script: &'a mut Script,
    request: Request,
}

impl<'a> RequestLine<'a> {
    /// The kernel has its first byte.
    pub fn ready(mut self, at_ms: u64) -> Self {
        self.request.ready_ns = ms(at_ms);
        self
    }

    /// It was there before the recording began.
    pub fn since_before(mut self) -> Self {
        self.request.since_before = true;
        self
    }

    /// Its socket is one of another process.
    pub fn of(mut self, tgid: u32) -> Self {
        self.request.tgid = tgid;
        self
    }

    /// It came in at this port.
    pub fn port(mut self, port: u16) -> Self {
        self.request.local_port = port;
        self
    }

    /// Its connection had not been accepted when it came.
    pub fn before_accept(mut self) -> Self {
        self.request.before_accept = true;
        self
    }

    /// Its socket is registered with this epoll instance.
    pub fn epoll(mut self, epoll: u32) -> Self {
        self.request.epoll = epoll;
        self
    }

    /// A thread reads it.
    pub fn read(mut self, at_ms: u64, tid: u32) -> Self {
        self.request.recv_ns = Some(ms(at_ms));
        self.request.recv_tid = tid;
        self
    }

    /// It is a stream of messages that goes on until then: the answer is the first of them.
    pub fn goes_on_until(mut self, at_ms: u64) -> Self {
        self.request.ended_ns = Some(ms(at_ms));
        self
    }

    /// It was seen lying in an io_uring ring until then, at least.
    pub fn taken(mut self, at_ms: u64) -> Self {
        self.request.taken_ns = Some(ms(at_ms));
        self
    }

    /// This task reads it.
    pub fn read_by(mut self, task: u32) -> Self {
        self.request.recv_task = task;
        self
    }

    /// This task answers it.
    pub fn task(mut self, task: u32) -> Self {
        self.request.send_task = task;
        self
    }

    /// Its connection is this descriptor of the process; 10 otherwise.
    pub fn descriptor(mut self, fd: i32) -> Self {
        self.request.fd = fd;
        self
    }

    /// It is a stream of HTTP/2.
    pub fn stream(mut self) -> Self {
        self.request.kind = WorkKind::Http2;
        self
    }

    /// It is a job of the broker with this number, of which no thread shows that it works on it.
    pub fn hidden_job(mut self, broker: u32) -> Self {
        self.request.kind = WorkKind::Job;
        self.request.broker = broker;
        self
    }

    /// It is a job that this thread handed on.
    pub fn handed(mut self, by: u32) -> Self {
        self.request.kind = WorkKind::HandedJob;
        self.request.handed_by = by;
        self.request.local_port = 0;
        self
    }

    /// Its connection carries several at once.
    pub fn multiplexed(mut self) -> Self {
        self.request.multiplexed = true;
        self
    }

    /// Its reader was being woken for so long.
    pub fn wakeup_us(mut self, us: u64) -> Self {
        self.request.unserved_wakeup_ns = us * 1000;
        self
    }

    /// So the serving thread spent its time, in milliseconds.
    pub fn spent(mut self, part: Part, ms: u64) -> Self {
        self.request.service[part] += ms * 1_000_000;
        self
    }

    /// The first part of the response is written.
    pub fn begins_to_answer(mut self, at_ms: u64) -> Self {
        self.request.first_send_ns = Some(ms(at_ms));
        self
    }

    /// A thread writes the response.
    pub fn answered(mut self, at_ms: u64, tid: u32) -> &'a mut Script {
        self.request.first_send_ns.get_or_insert(ms(at_ms));
        self.request.last_send_ns = Some(ms(at_ms));
        self.request.send_tid = tid;
        self.script.input.take_request(&self.request);
        self.script
    }

    /// Its connection ends without an answer.
    pub fn gone(mut self, at_ms: u64) -> &'a mut Script {
        self.request.gone_ns = Some(ms(at_ms));
        self.unanswered()
    }

    /// Its connection is in the accept queue in the end.
    pub fn unaccepted(mut self) -> &'a mut Script {
        self.request.before_accept = true;
        self.request.unaccepted = true;
        self.unanswered()
    }

    /// Nobody answers.
    pub fn unanswered(self) -> &'a mut Script {
        self.script.input.take_request(&self.request);
        self.script
    }
}
