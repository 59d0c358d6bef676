//! A recording, put together: threads, pools and requests.

use std::collections::{BTreeMap, HashMap};

use whywait_events::recording::Meta;
use whywait_events::{Ns, Request, Sample, StackId, Wait, WakeContext};

use crate::cpu::bursts::{Bursts, Spinner};
use crate::cpu::{CpuSummary, CpuTime};
use crate::input::{Input, latency_ns};
use crate::path::{self, Path, PathStep};
use crate::pools::{self, Pool};
use crate::requests::account::{self, Account};
use crate::requests::summary::{Coverage, Requests, Slow, Step, Target, Time};
use crate::rings::{RingRow, RingState};
use crate::stacks::StackNames;
use crate::timeline;
use crate::timeline::Thread;
use crate::waits::futex::{Class, Primitive};
use crate::waits::kernel::Kind;
use crate::waits::locks::LetGo;
use crate::waits::objects::{Key, Objects};
use crate::waits::table::{self, WaitRow};

/// Requests whose critical path is told.
const SLOWEST: usize = 5;

/// A recording, put together.
#[derive(Debug, Clone)]
pub struct Model {
    /// What was recorded, where and how.
    pub meta: Meta,
    /// The threads of the target, by id.
    pub threads: BTreeMap<u32, Thread>,
    /// Threads that can stand in for each other.
    pub pools: Vec<Pool>,
    /// The slowest requests, by when they came.
    pub requests: Vec<Request>,
    /// The rings of io_uring, by their number.
    pub rings: BTreeMap<u32, RingState>,
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
    pub objects: Objects,
    /// What CPU time was for.
    pub cpu: CpuTime,
    /// What bursts of system-call tracing saw.
    pub bursts: Bursts,
    input: Input,
    accounts: Vec<Account>,
    truncated_paths: u64,
    pub(crate) let_go: HashMap<Key, Vec<LetGo>>,
}

impl Model {
    /// Puts it together.
    pub fn new(mut input: Input) -> Self {
        let threads = timeline::threads(
            &std::mem::take(&mut input.threads),
            std::mem::take(&mut input.waits),
            std::mem::take(&mut input.busy),
            std::mem::take(&mut input.preempted),
            std::mem::take(&mut input.samples),
        );
        let mut requests = std::mem::take(&mut input.requests);
        requests.sort_by_key(|request| (request.ready_ns, request.socket, request.seq));
        let cpus = input.meta.host.cpus;
        let pools = pools::find(&input.polls, &input.parks, &input.stacks, &threads, cpus);
        let end_ns = input
            .meta
            .ended_ns
            .unwrap_or_else(|| last_seen(&threads, &requests));
        let mut objects = std::mem::take(&mut input.objects);
        objects.settle(&input.stacks, &pools, &threads, end_ns);
        let mut model = Self {
            meta: input.meta.clone(),
            threads,
            pools,
            requests,
            rings: std::mem::take(&mut input.rings.states),
            stacks: std::mem::take(&mut input.stacks),
            counters: input.counters.clone(),
            left_out: input.left_out.saturating_add(objects.left_out()),
            damaged: std::mem::take(&mut input.damaged),
            end_ns,
            objects,
            cpu: std::mem::take(&mut input.cpu),
            bursts: std::mem::take(&mut input.bursts),
            input,
            accounts: Vec::new(),
            truncated_paths: 0,
            let_go: HashMap::new(),
        };
        model.let_go = model.let_go();
        let accounted: Vec<(Account, bool)> = model
            .requests
            .iter()
            .map(|request| {
                let path = path::path(&model, request);
                (account::account(&model, request, &path), path.truncated)
            })
            .collect();
        model.truncated_paths = accounted.iter().filter(|(_, truncated)| *truncated).count() as u64;
        model.accounts = accounted.into_iter().map(|(account, _)| account).collect();
        model
    }

    /// Where the time of the `index`-th request went.
    pub fn account_of(&self, index: usize) -> Option<&Account> {
        self.accounts.get(index)
    }

    /// The pool that serves a request, as far as known.
    pub fn pool_of(&self, request: &Request) -> Option<&Pool> {
        if request.epoll != 0 {
            return self.pools.iter().find(|pool| {
                pool.epoll == request.epoll && (request.tgid == 0 || pool.tgid == request.tgid)
            });
        }
        // Not registered with an epoll instance (any more): the pool of the thread that read it, if
        // it is in one only.
        let mut of_reader = self
            .pools
            .iter()
            .filter(|pool| pool.members.contains_key(&request.recv_tid));
        match (of_reader.next(), of_reader.next()) {
            (Some(pool), None) => Some(pool),
            _ => None,
        }
    }

    /// When the wait of a request ended: it was read, or the recording was over.
    pub fn served_ns(&self, request: &Request) -> Ns {
        request.recv_ns.unwrap_or(self.end_ns).max(request.ready_ns)
    }

    /// The stack in which a thread was seen most in a stretch, by samples; 0 without any.
    pub fn sampled_stack(&self, thread: &Thread, from_ns: Ns, to_ns: Ns) -> StackId {
        path::sampled_stack(self, thread, from_ns, to_ns)
    }

    /// Whether the clock that ticks on each CPU bears out that a thread ran for `on_cpu_ns` in a
    /// stretch. A virtual machine may lose its CPU to others for tens of milliseconds, and its
    /// kernel knows nothing of it: the thread is then on a CPU that stands still, as the clock
    /// does. Of two ticks and more that were to be expected a quarter must have come, and the clock
    /// must not have stood still for half of that time: it ticks once for all that it missed, so
    /// such a stretch may have its ticks before and after. True where the clock tells nothing:
    /// there is none, the thread had no tick in all of the recording, or ticks were lost.
    pub fn clock_agrees(&self, thread: &Thread, from_ns: Ns, to_ns: Ns, on_cpu_ns: u64) -> bool {
        let hz = u128::from(self.meta.options.sample_hz);
        let expected = u128::from(on_cpu_ns) * hz / 1_000_000_000;
        let lost = |name: &str| self.counters.get(name).copied().unwrap_or(0) > 0;
        if expected < 2 || thread.samples.is_empty() || lost("lost.stack-ring-full") {
            return true;
        }
        let at = |ns: Ns| thread.samples.partition_point(|sample| sample.at_ns < ns);
        let (first, last) = (at(from_ns), at(to_ns).max(at(from_ns)));
        let period_ns = 1_000_000_000 / u64::from(self.meta.options.sample_hz).max(1);
        let within = &thread.samples[first..last];
        let ticks: u64 = within.iter().map(Sample::weight).sum();
        // How often the clock ticked then: the slower of the rates on both sides of a gap.
        let mut weight = match thread.samples[..first].last() {
            Some(before) => before.weight(),
            None => within.first().map_or(1, Sample::weight),
        };
        let mut before_ns = from_ns;
        let mut still_ns = 0_u64;
        for (tick_ns, next_weight) in within
            .iter()
            .map(|sample| (sample.at_ns, sample.weight()))
            .chain([(to_ns, 1)])
        {
            let gap_ns = tick_ns.saturating_sub(before_ns);
            let due_ns = period_ns.saturating_mul(weight.max(next_weight));
            // CPUs tick at different moments: a thread that goes from one to another may miss a
            // tick.
            if gap_ns > due_ns.saturating_mul(3) {
                still_ns = still_ns.saturating_add(gap_ns - due_ns);
            }
            before_ns = tick_ns;
            weight = next_weight;
        }
        // While the thread was on no CPU there was nothing to tick for.
        let off_cpu_ns = to_ns.saturating_sub(from_ns).saturating_sub(on_cpu_ns);
        let still_ns = still_ns.saturating_sub(off_cpu_ns);
        u128::from(ticks) * 4 >= expected && still_ns.saturating_mul(2) <= on_cpu_ns
    }

    /// Whether a thread's CPU was kept by interrupts for most of a stretch, by samples: the kernel
    /// then works for whoever is due (packets of others, timers), on the time of the thread that
    /// happens to be there. What a thread's own call sets off runs within that call, and is its
    /// own.
    pub fn kept_by_interrupts(&self, thread: &Thread, from_ns: Ns, to_ns: Ns) -> bool {
        let interrupted = |sample: &&Sample| self.in_interrupt(sample.kernel_stack);
        let within = thread.samples_within(from_ns, to_ns);
        let all: u64 = within.iter().map(Sample::weight).sum();
        let by_interrupts: u64 = within.iter().filter(interrupted).map(Sample::weight).sum();
        by_interrupts * 2 > all
    }

    /// Whether a sample's kernel stack is that of an interrupt.
    pub fn in_interrupt(&self, kernel_stack: StackId) -> bool {
        // The entries of arch/x86/include/asm/idtentry.h; the sampling clock's own is not in its
        // samples.
        let entered = |name: &str| {
            name.starts_with("asm_sysvec_") || name.starts_with("asm_common_interrupt")
        };
        let stack = self.stacks.get(kernel_stack);
        stack.is_some_and(|stack| stack.labels.iter().any(|label| entered(&label.name)))
    }

    /// A thread's name, hostile; `?` when it was not seen.
    pub fn thread_name(&self, tid: u32) -> &str {
        self.threads
            .get(&tid)
            .map(|thread| thread.name.as_str())
            .filter(|name| !name.is_empty())
            .unwrap_or("?")
    }

    /// The time of all answered requests, nanoseconds.
    pub fn time_of_requests_ns(&self) -> u64 {
        self.requests
            .iter()
            .filter_map(latency_ns)
            .fold(self.input.sums.total_ns, u64::saturating_add)
    }

    /// How many requests were answered.
    pub fn requests_count(&self) -> u64 {
        let answered = self.requests.iter().filter_map(latency_ns).count() as u64;
        self.input.sums.count.saturating_add(answered)
    }

    /// The latency that this share of the requests does not exceed, nanoseconds; `None` without
    /// requests. Within a bucket of the kernel's histogram latencies are taken as evenly spread: so
    /// two recordings compare better than with middles.
    pub fn latency_quantile_ns(&self, share: f64) -> Option<f64> {
        let mut slowest_ns: Vec<u64> = Vec::new();
        // Slow requests that have no row may be anywhere among those that have.
        if self.input.sums.slow == 0 {
            slowest_ns.extend(self.requests.iter().filter_map(latency_ns));
            slowest_ns.sort_unstable();
        }
        self.input.latency.quantile(share, &slowest_ns)
    }

    /// The recording's threshold for what is slow or long, nanoseconds.
    pub fn threshold_ns(&self) -> u64 {
        self.meta.options.threshold_ns
    }

    /// What was watched.
    pub fn target(&self) -> Target {
        Target {
            pid: self.meta.pid.unwrap_or(0),
            command: self.meta.command.join(" "),
            duration_ns: self.end_ns.saturating_sub(self.meta.started_ns),
            threads: self.threads.len() as u32,
        }
    }

    /// The figures over all requests.
    pub fn requests_summary(&self) -> Requests {
        let sums = &self.input.sums;
        let answered = self
            .requests
            .iter()
            .filter(|request| latency_ns(request).is_some())
            .count() as u64;
        let count = sums.count.saturating_add(answered);
        if count == 0 {
            return Requests {
                slow_threshold_ns: self.threshold_ns(),
                ..Requests::default()
            };
        }
        let mut account = Account::of_sums(sums);
        for (request, one) in self.requests.iter().zip(&self.accounts) {
            if latency_ns(request).is_some() {
                account += *one;
            }
        }
        let mut slowest_ns: Vec<u64> = self.requests.iter().filter_map(latency_ns).collect();
        slowest_ns.sort_unstable();
        let total = account.total_ns();
        let closure = if total == 0 {
            1.0
        } else {
            account.attributed_ns() as f64 / total as f64
        };
        Requests {
            count,
            slow: sums.slow.saturating_add(answered),
            slow_threshold_ns: self.threshold_ns(),
            latency_ns: self.input.latency.latency(&slowest_ns),
            time: account.time(),
            closure: Some(closure),
            slowest: self.slowest(),
        }
    }

    fn slowest(&self) -> Vec<Slow> {
        let mut order: Vec<(u64, usize)> = self
            .requests
            .iter()
            .enumerate()
            .filter_map(|(index, request)| Some((latency_ns(request)?, index)))
            .collect();
        order.sort_by_key(|(ns, index)| (std::cmp::Reverse(*ns), *index));
        order
            .into_iter()
            .take(SLOWEST)
            .map(|(_, index)| self.slow(index))
            .collect()
    }

    fn slow(&self, index: usize) -> Slow {
        let request = &self.requests[index];
        Slow {
            id: id_of(request),
            port: (request.local_port != 0).then_some(request.local_port),
            at_ns: request.ready_ns.saturating_sub(self.meta.started_ns),
            latency_ns: latency_ns(request).unwrap_or(0),
            time: self
                .accounts
                .get(index)
                .map_or_else(Time::default, Account::time),
            path: self.steps(request),
        }
    }

    /// A request's critical path, from arrival to response.
    fn steps(&self, request: &Request) -> Vec<Step> {
        path::path(self, request)
            .steps
            .iter()
            .map(|step| self.step(step))
            .collect()
    }

    fn step(&self, step: &PathStep) -> Step {
        Step {
            state: step.state.to_owned(),
            tid: step.tid,
            thread: if step.tid == 0 {
                String::new()
            } else {
                self.thread_name(step.tid).to_owned()
            },
            ns: step.ns(),
            function: self.stacks.telling(step.stack),
            stack: self.stacks.names(step.stack),
            woken_by: (step.woken_by != 0).then_some(step.woken_by),
            kind: step.kind.map(|kind| kind.name.to_owned()),
            kernel: self.stacks.names(step.kernel_stack),
            meanwhile: step.meanwhile.iter().map(|step| self.step(step)).collect(),
        }
    }

    /// A request by its name, `SOCKET:SEQ`, with its critical path; `None` when it is not one that
    /// is looked at one by one.
    pub fn slow_request(&self, id: &str) -> Option<Slow> {
        let index = self
            .requests
            .iter()
            .position(|request| id_of(request) == id)?;
        Some(self.slow(index))
    }

    /// The critical path of the `index`-th request.
    pub fn path_of(&self, index: usize) -> Path {
        self.requests
            .get(index)
            .map_or_else(Path::default, |request| path::path(self, request))
    }

    /// The table of waits, the longest first.
    pub fn waits(&self) -> Vec<WaitRow> {
        table::table(self)
    }

    /// The rings that were used, the busiest first.
    pub fn rings(&self) -> Vec<RingRow> {
        let mut rows: Vec<RingRow> = self
            .rings
            .values()
            .map(|state| state.row(self.thread_name(state.thread())))
            .collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.submitted), row.ring));
        rows
    }

    /// What CPU time was for; `None` when the recording does not tell.
    pub fn cpu_summary(&self) -> Option<CpuSummary> {
        // Only bursts prove that what looks futile is.
        let mut spinners = self.bursts.threads();
        spinners.retain(Spinner::goes_round);
        self.cpu
            .summary(|tid| self.thread_name(tid).to_owned(), spinners)
    }

    /// What a sleep was for.
    pub fn key_of(&self, wait: &Wait) -> Key {
        self.objects.key(wait, &self.stacks)
    }

    /// What a sleep on a futex, or for a lock, was for, as far as the evidence goes; `None` for
    /// other sleeps.
    pub fn class_of(&self, wait: &Wait) -> Option<Class> {
        let key = self.key_of(wait);
        // CPython asks for its lock every 5 ms until it has it.
        if wait.timeout
            && wait.wake_context == WakeContext::Hardirq
            && key.object.primitive() != Some(Primitive::Gil)
        {
            return Some(Class::Timer);
        }
        self.objects.get(&key)?.class
    }

    /// What a thread that slept on a futex, or for a lock, called, as its stack tells.
    pub fn primitive_of(&self, wait: &Wait) -> Option<Primitive> {
        self.key_of(wait).object.primitive()
    }

    /// What a sleep was for, as the kernel's stack tells.
    pub fn kind_of(&self, wait: &Wait) -> Option<Kind> {
        self.objects.kind(wait, &self.stacks)
    }

    /// What the report rests on.
    pub fn coverage(&self) -> Coverage {
        let mut lost_by_reason: BTreeMap<String, u64> = self
            .counters
            .iter()
            .filter(|(name, value)| **value > 0 && name.starts_with("lost."))
            .map(|(name, value)| (name["lost.".len()..].to_owned(), *value))
            .collect();
        if self.left_out > 0 {
            lost_by_reason.insert("rows-left-out-of-analysis".to_owned(), self.left_out);
        }
        Coverage {
            events: self.counters.get("events").copied().unwrap_or(0),
            lost: lost_by_reason
                .values()
                .copied()
                .fold(0, u64::saturating_add),
            lost_by_reason,
            unmatched_wakes: self.counters.get("unmatched-wakes").copied().unwrap_or(0),
            farewells: self
                .counters
                .get("requests.farewells")
                .copied()
                .unwrap_or(0),
            frames_symbolised: self.stacks.named_share(),
            truncated_stacks: self.stacks.truncated(),
            waits: self.counters.get("waits.ended").copied().unwrap_or(0),
            waits_without_stack: self
                .counters
                .get("waits.without-stack")
                .copied()
                .unwrap_or(0),
            truncated_paths: self.truncated_paths,
            bursts: self.counters.get("bursts.count").copied().unwrap_or(0),
            traced_ns: self.counters.get("bursts.traced-ns").copied().unwrap_or(0),
            stolen_ns: self.counters.get("cpu.stolen-ns").copied().unwrap_or(0),
            tier: if self.meta.options.detail.is_empty() {
                "waits".to_owned()
            } else {
                self.meta.options.detail.clone()
            },
            complete: self.meta.complete && self.damaged.is_empty(),
        }
    }
}

/// The name of a request in reports.
fn id_of(request: &Request) -> String {
    format!("{}:{}", request.socket, request.seq)
}

fn last_seen(threads: &BTreeMap<u32, Thread>, requests: &[Request]) -> Ns {
    let waits = threads
        .values()
        .filter_map(|thread| thread.timeline.waits().last());
    let of_waits = waits
        .map(|wait| wait.in_ns.unwrap_or(wait.out_ns))
        .max()
        .unwrap_or(0);
    let of_requests = requests
        .iter()
        .map(|row| row.last_send_ns.unwrap_or(row.ready_ns))
        .max()
        .unwrap_or(0);
    of_waits.max(of_requests)
}
