//! Requests that queue for calls to a peer: never more than so many are under way at a time, and
//! when one ends the next begins at once, for somebody has waited for that.

use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::{Value, json};
use whywait_events::{Exchange, Ns};
use whywait_model::{Activity, Model, Peer, RequestRef};
use whywait_replay::Average;
use whywait_words::{counted_as, duration, list};

use crate::facts::Facts;
use crate::finding::{Evidence, Saving};
use crate::numbers::{
    BY_CHANCE, CONNECTION_EACH, MIN_REQUESTS, MOST, NEARLY_ALL, NOTABLE, QUEUE_AT_ONCE_NS,
    QUEUE_FEW, QUEUE_FULL, QUEUE_MIN_HANDOVERS, QUEUE_PAIRED, QUEUE_PROMPT, QUEUE_SERVES,
    QUEUE_SHORTER, QUEUE_WORTH, SLOW_NS, Share,
};
use crate::shared::intervals::{
    Covered, Interval, in_proportion, merged, most_at_a_time, overlap_ns, sum,
};
use crate::shared::replay::{ServersAsTheyWere, Worked, median_ns};
use crate::shared::slow_paths::Shares;
use crate::shared::traffic::{
    Traffic, TrafficEvent, calls_each, length, paired, served, steps, whole, with_peer,
};
use crate::shared::workers::{OfProcess, OfProgram};

mod bystanders;

/// What a peer does with more calls at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Capacity {
    /// A call takes as long with many others under way as with few.
    Serves {
        few_ns: u64,
        full_ns: u64,
    },
    /// It takes longer, the more there are: they queue there.
    Saturated {
        few_ns: u64,
        full_ns: u64,
        /// The time from one answer to the next one, where they come in turn.
        apart_ns: Option<u64>,
    },
    Unknown,
}

/// Requests of a process that queue for calls to one peer.
pub(crate) struct Queue<'m> {
    pub(crate) traffic: Traffic<'m>,
    /// So many calls were under way at most.
    pub(crate) most: usize,
    /// The requests that waited for [`SLOW_NS`], each with how long, and what it and its call took.
    pub(crate) victims: Vec<QueuedRequest<'m>>,
    /// What a fix spares the others, each: they would be quicker, too.
    shorter_ns: Vec<u64>,
    /// Of the time in which somebody waited: as many calls as ever were under way.
    pub(crate) full_ns: u64,
    /// … and all of it.
    pub(crate) waited_ns: u64,
    /// How many requests were under way then, on average.
    pub(crate) open: f64,
    /// From a call's end to the next one's beginning, in the middle.
    pub(crate) handover_ns: u64,
    /// A call, in the middle, or several of a request for which it kept a connection.
    pub(crate) call_ns: u64,
    pub(crate) kept: bool,
    /// So many of those that waited make no call to it: the connections to it are not what they
    /// wait for.
    pub(crate) calls_none: usize,
    /// So much of that is in calls, in the middle.
    pub(crate) in_calls_ns: u64,
    /// Whom a request calls while it keeps a connection, and how long that takes, in the middle.
    meanwhile: Vec<(Peer<'m>, u64)>,
    /// When each request used which connections, by its connection and number.
    uses: HashMap<(u64, u32), Vec<Interval>>,
    pub(crate) capacity: Capacity,
    pub(crate) replay: Option<QueueReplay>,
}

/// How long requests take, and by replay with more calls at a time. The replay serves requests in
/// the order in which they come. Where they are served in another one, as by Go's database/sql,
/// some wait for longer, and others for less: then the middle one is not what it says, and the mean
/// is.
pub(crate) struct QueueReplay {
    average: Average,
    real_ns: u64,
    more: Vec<(usize, u64)>,
}

/// A request that waited.
#[derive(Clone, Copy)]
pub(crate) struct QueuedRequest<'m> {
    pub(crate) request: RequestRef<'m>,
    pub(crate) waited_ns: u64,
    /// What it may have waited besides, before the recording showed what was under way.
    before_ns: u64,
    pub(crate) called_ns: u64,
}

impl QueuedRequest<'_> {
    /// At most.
    fn spared_ns(&self) -> u64 {
        let all_ns = self.waited_ns.saturating_add(self.before_ns);
        all_ns.min(self.request.age_ns())
    }
}

/// Requests with the calls that are taken for theirs.
struct Pairs<'m> {
    requests: Vec<RequestRef<'m>>,
    served: Vec<Interval>,
    /// Positions in the traffic's calls, and later among the [`uses`].
    calls: Vec<Vec<usize>>,
}

impl Pairs<'_> {
    /// When each request used which connections.
    fn uses(&self, calls: &[Interval]) -> HashMap<(u64, u32), Vec<Interval>> {
        let own = self.requests.iter().zip(&self.calls);
        own.map(|(request, own)| {
            let uses = own.iter().map(|at| calls[*at]);
            ((request.socket, request.seq), uses.collect())
        })
        .collect()
    }
}

/// What the calls of a request take, in the middle.
fn in_calls(calls: &[&Exchange], pairs: &Pairs<'_>) -> u64 {
    let of_request = |own: &Vec<usize>| sum(own.iter().map(|at| length(whole(calls[*at]))));
    median_ns(pairs.calls.iter().map(of_request).collect())
}

impl<'m> Queue<'m> {
    /// All of them.
    pub(crate) fn of(facts: &Facts<'m>) -> Vec<Queue<'m>> {
        let mut requests: HashMap<u32, Vec<RequestRef<'_>>> = HashMap::new();
        let counts = |request: &RequestRef<'_>| !request.was_stopped() && !request.multiplexed;
        for request in facts.model.requests().filter(counts) {
            requests.entry(request.tgid).or_default().push(request);
        }
        let model = facts.model;
        // Where requests queue for jobs, no more calls are under way than jobs are: the queue is
        // theirs.
        // But where fewer jobs than threads that do them are under way, and as few connections are
        // there, the jobs queue for these.
        let of_jobs = |calls: &[&Exchange]| {
            let mut jobs = facts.jobs().iter().filter(|jobs| jobs.makes(calls));
            jobs.next().map(|jobs| jobs.at_a_time < jobs.workers.len())
        };
        let traffic = facts.traffic().iter();
        let queues = traffic
            .map(|traffic| (traffic, of_jobs(&traffic.calls)))
            .filter(|(_, narrow)| *narrow != Some(false))
            .filter_map(|(traffic, narrow)| {
                let others = with_others(facts.traffic(), traffic);
                let requests = requests.get(&traffic.tgid)?;
                let until = [CallsEnd::UntilAnswered, CallsEnd::UntilNextPeer];
                let mut found = until.into_iter();
                let found = found
                    .find_map(|until| Self::in_traffic(model, requests, traffic, (&others, until)));
                // Who makes no call waits in the queue of the jobs.
                found.filter(|queue| {
                    let for_these = !queue.had_free_connections() && queue.calls_none == 0;
                    narrow.is_none() || for_these
                })
            });
        outermost(queues.collect())
    }

    fn in_traffic(
        model: &Model,
        all: &[RequestRef<'m>],
        traffic: &Traffic<'m>,
        (others, until): (&[&Exchange], CallsEnd),
    ) -> Option<Queue<'m>> {
        let started_ns = model.meta.started_ns;
        let served = |request: &RequestRef<'m>| until.within(request, others);
        let windows: Vec<Interval> = all.iter().filter_map(served).collect();
        let windows = merged(windows);
        // What it asks on its own account is no request's.
        let mut traffic = traffic.clone();
        traffic.calls.retain(|call| lies_in(&windows, whole(call)));
        let known = pairs(all, served, &traffic, started_ns).or_else(|| {
            // Where many ask for something quick and make no call, the mean is nobody's.
            let took_long = |request: &RequestRef<'_>| request.took_ns() >= Some(*SLOW_NS);
            let slow: Vec<RequestRef<'m>> = all.iter().copied().filter(took_long).collect();
            pairs(&slow, served, &traffic, started_ns)
        });
        let (mut pairs, all_known) = known?;
        let in_calls_ns = in_calls(&traffic.calls, &pairs);
        let (uses, calls) = uses(&traffic.calls, &mut pairs);
        let flow = Flow::of(model, &pairs.served, &calls, &uses);
        let spacing_ns = flow.between_calls_ns(&calls);
        let kept = uses.len() < traffic.calls.len();
        // On the only connection others' calls, without a row, may be between two of a request's.
        if kept && flow.most == 1 && !traffic.counted {
            return None;
        }
        let doubtful = kept || flow.most == 1 || !all_known;
        let is_queue = flow.is_queue(spacing_ns)
            || !doubtful && flow.is_capped() && a_loop_sleeps_in(model, &traffic, &flow.full);
        let follows =
            || goes_on(&pairs, &calls, others, flow.most) || answers_follow(all, &calls, flow.most);
        if !is_queue || doubtful && !follows() {
            return None;
        }
        let shown_ns = flow.shown_since(&calls, started_ns);
        let bystanders =
            bystanders::of(all, &pairs, &calls, &flow, shown_ns, at_once_ns(spacing_ns));
        let calls_none = bystanders.len();
        let (mut victims, shorter) = waited(&pairs, &calls, &flow, shown_ns, calls_none > 0);
        victims.extend(bystanders.into_iter().filter(|one| one.request.counts()));
        let slow_ns = all.iter().filter_map(|request| request.took_ns());
        let slow_ns = sum(slow_ns.filter(|ns| *ns >= *SLOW_NS));
        let waited_ns = sum(victims.iter().map(|victim| victim.waited_ns));
        if victims.len() < *MIN_REQUESTS || Share::new(waited_ns, slow_ns).is_below(*QUEUE_WORTH) {
            return None;
        }
        let call_ns = median_ns(calls.iter().map(|call| length(*call)).collect());
        let capacity = match capacity(&uses, &flow) {
            // What takes longer is not what connections are kept for.
            Capacity::Saturated { .. } if Share::new(in_calls_ns, call_ns).is_below(*MOST) => {
                Capacity::Unknown
            }
            capacity => capacity,
        };
        Some(Queue {
            capacity,
            kept,
            // Who makes no call has no part in that of the calls.
            replay: replayed(&pairs, &calls, flow.most).filter(|_| calls_none == 0),
            calls_none,
            most: flow.most,
            full_ns: flow.full_ns,
            waited_ns: flow.waited_ns,
            open: flow.open_ns as f64 / flow.waited_ns.max(1) as f64,
            handover_ns: median_ns(flow.handovers),
            call_ns,
            in_calls_ns,
            meanwhile: Vec::new(),
            uses: pairs.uses(&calls),
            traffic,
            victims,
            shorter_ns: shorter.iter().map(QueuedRequest::spared_ns).collect(),
        })
    }

    /// What a fix saves at most that lets no request of these processes wait.
    pub(crate) fn saving(of: &OfProgram<'_, 'm, &Self>) -> Saving {
        let queues = std::iter::once(&of.what).chain(&of.others);
        let shorter = queues.flat_map(|queue| &queue.shorter_ns).copied();
        let victims = Self::requests(of).map(|(_, ns)| ns);
        Saving::latency(victims.chain(shorter).collect())
    }

    /// The requests of these processes that waited, and for how long at most.
    pub(crate) fn requests(
        of: &OfProgram<'_, 'm, &Self>,
    ) -> impl Iterator<Item = (RequestRef<'m>, u64)> {
        let queues = std::iter::once(&of.what).chain(&of.others);
        let victims = queues.flat_map(|queue| &queue.victims);
        victims.map(|victim| (victim.request, victim.spared_ns()))
    }

    /// How much of that was before the recording showed what was under way, in words.
    pub(crate) fn before(of: &OfProgram<'_, 'm, &Self>) -> Option<Evidence> {
        let queues = std::iter::once(&of.what).chain(&of.others);
        let victims = queues.flat_map(|queue| &queue.victims);
        let before = victims.filter(|victim| victim.before_ns > 0);
        let before: Vec<u64> = before.map(|victim| victim.before_ns).collect();
        let ns = sum(before.iter().copied());
        let all_ns = sum(Self::requests(of).map(|(_, ns)| ns));
        if !Share::new(ns, all_ns).is_at_least(*NOTABLE) {
            return None;
        }
        let text = format!(
            "{} when the recording began: the bound has what passed until it showed who waits, {}, \
             as if they had waited since they were read",
            counted_as(before.len(), "of them was there", "of them were there"),
            duration(ns)
        );
        Some(Evidence::of_ns(ns, text))
    }

    /// Whether connections to the peer were free while requests waited: more than calls were ever
    /// open, or each call had one of its own.
    pub(crate) fn had_free_connections(&self) -> bool {
        if self.traffic.share_connections() {
            return true;
        }
        let connections = self.traffic.connections();
        let a_new_one_each =
            Share::counted(connections, self.traffic.calls.len()).is_at_least(*CONNECTION_EACH);
        a_new_one_each || self.connections() > self.most
    }

    /// The connections of the process that were open at a time, at most.
    pub(crate) fn connections(&self) -> usize {
        let used = self.traffic.connections();
        match self.traffic.peer.sums().most_open {
            // Those of all processes.
            Some(open) if self.traffic.others_call => used.min(open as usize),
            Some(open) => open as usize,
            None => used,
        }
    }

    /// What the wait takes of the requests.
    pub(crate) fn waits(&self) -> OfProcess<'_, 'm, &Self> {
        self.takes(|victim| victim.waited_ns)
    }

    /// What the wait and the call itself take of them.
    pub(crate) fn waits_and_calls(&self) -> OfProcess<'_, 'm, &Self> {
        self.takes(|victim| victim.waited_ns.saturating_add(victim.called_ns))
    }

    fn takes(&self, ns: impl Fn(&QueuedRequest<'m>) -> u64) -> OfProcess<'_, 'm, &Self> {
        let shares = Shares::new(self.victims.iter().map(|victim| {
            let latency_ns = victim.request.age_ns();
            (ns(victim).min(latency_ns), latency_ns)
        }));
        OfProcess {
            traffic: &self.traffic,
            shares,
            what: self,
        }
    }

    /// How the queue was seen, in words.
    pub(crate) fn handover(&self) -> String {
        let (ended, took) = match self.kept {
            true => (
                "a request's last call ended another one's first",
                "each kept its connection for",
            ),
            false => ("a call ended the next one", "a call took"),
        };
        let in_calls = match self.kept {
            true => format!(", of which {} in its calls", duration(self.in_calls_ns)),
            false => String::new(),
        };
        let meanwhile: Vec<String> = self
            .meanwhile
            .iter()
            .map(|(peer, ns)| format!("; meanwhile it calls {peer}, {}", duration(*ns)))
            .collect();
        format!(
            "when {ended} began {} later (median): somebody had waited for it; {took} \
             {}{in_calls} (median){}",
            duration(self.handover_ns),
            duration(self.call_ns),
            meanwhile.concat()
        )
    }

    /// What the replay says, in words: with more at a time.
    pub(crate) fn replay_text(&self, one: &str, many: &str) -> Option<String> {
        let replay = self.replay.as_ref()?;
        let more: Vec<String> = replay
            .more
            .iter()
            .map(|(at_a_time, ns)| format!("{} with {at_a_time}", duration(*ns)))
            .collect();
        let (typically, on_average) = match replay.average {
            Average::Median => ("typically ", ""),
            Average::Mean => ("", " on average"),
        };
        Some(format!(
            "by replay a request would {typically}take {}{on_average}, instead of {} with {}",
            list(&more),
            duration(replay.real_ns),
            counted_as(self.most, one, many),
        ))
    }

    /// The same for programs: the latency by how many of these there are.
    pub(crate) fn replay_rows(&self, many: &str) -> Option<Value> {
        let replay = self.replay.as_ref()?;
        let latency = match replay.average {
            Average::Median => "p50_ns",
            Average::Mean => "mean_ns",
        };
        let row = |(most, ns): &(usize, u64)| json!({ many: most, latency: ns });
        Some(replay.more.iter().map(row).collect())
    }
}

/// Those that are within no other's: what a request does with a connection in its hands happens no
/// oftener at a time than there are such connections. The others are what goes on meanwhile.
fn outermost(queues: Vec<Queue<'_>>) -> Vec<Queue<'_>> {
    let within = |inner: &Queue<'_>, outer: &Queue<'_>| {
        if inner.traffic.tgid != outer.traffic.tgid || !outer.kept {
            return false;
        }
        let held = inner.uses.iter().filter(|(request, uses)| {
            let outer = outer.uses.get(request);
            outer.is_some_and(|outer| {
                let lies = |one: &Interval| outer.iter().any(|by| by.0 <= one.0 && one.1 <= by.1);
                uses.iter().all(lies)
            })
        });
        Share::counted(held.count(), inner.uses.len()).is_at_least(*QUEUE_PAIRED)
    };
    let outer: Vec<Option<usize>> = queues
        .iter()
        .map(|one| {
            let mut others = (0..queues.len()).filter(|at| !std::ptr::eq(&queues[*at], one));
            others.find(|at| within(one, &queues[*at]))
        })
        .collect();
    let meanwhile: Vec<_> = queues
        .iter()
        .map(|one| (one.traffic.peer, one.call_ns))
        .collect();
    let mut found = Vec::new();
    for (at, mut queue) in queues.into_iter().enumerate() {
        if outer[at].is_none() {
            let inner = (0..outer.len()).filter(|inner| outer[*inner] == Some(at));
            queue.meanwhile = inner.map(|inner| meanwhile[inner]).collect();
            found.push(queue);
        }
    }
    found
}

/// Whether an interval begins and ends in one of these, which are in order and apart.
fn lies_in(windows: &[Interval], (from_ns, to_ns): Interval) -> bool {
    let after = windows.partition_point(|window| window.0 <= from_ns);
    windows[..after]
        .last()
        .is_some_and(|window| to_ns <= window.1)
}

/// The requests that have a call to the peer within them, and whether nearly all calls are such a
/// request's; `None` where it does not come out even.
///
/// Where requests queue for longer than a moment, many of the calls that are seen are those of
/// requests that were read before the recording began, and had no row. So calls are excused that
/// began before any of those can have been answered, as far as as many requests as that were under
/// way at a time.
fn pairs<'m>(
    all: &[RequestRef<'m>],
    served: impl Fn(&RequestRef<'m>) -> Option<Interval>,
    traffic: &Traffic<'m>,
    started_ns: Ns,
) -> Option<(Pairs<'m>, bool)> {
    let requests: Vec<RequestRef<'_>> = all
        .iter()
        .copied()
        .filter(|request| served(request).is_some())
        .collect();
    // Of what was before the recording no call is known.
    let windows = requests.iter().filter_map(&served);
    let windows: Vec<Interval> = windows
        .map(|(from_ns, to_ns)| (from_ns.max(started_ns), to_ns.max(started_ns)))
        .collect();
    let settled_ns = windows.iter().map(|window| length(*window)).max()?;
    let settled_ns = started_ns.saturating_add(settled_ns);
    let all_calls = traffic.calls.len();
    let early = traffic
        .calls
        .partition_point(|call| call.first_send_ns < settled_ns);
    let answered = windows.iter().filter(|window| window.1 >= settled_ns);
    // Calls of others make it seem more, never less.
    let each = calls_each(all_calls, requests.len());
    let each = match answered.count() {
        0 => each,
        answered => each.min(calls_each(all_calls - early, answered)),
    };
    let calls = paired(&windows, &traffic.calls, each);
    let known: HashSet<usize> = calls.iter().flatten().copied().collect();
    let is_enough = |of: usize| !Share::counted(known.len(), of).is_below(*QUEUE_PAIRED);
    if is_enough(all_calls) {
        return Some((of_pairs(requests, windows, calls), true));
    }
    let unknown = (0..early).filter(|call| !known.contains(call)).count();
    let under_way = all.iter().map(|one| (one.ready_ns, one.end_ns()));
    let excused = unknown.min(most_at_a_time(under_way));
    is_enough(all_calls - excused).then(|| (of_pairs(requests, windows, calls), false))
}

fn of_pairs<'m>(
    requests: Vec<RequestRef<'m>>,
    windows: Vec<Interval>,
    calls: Vec<Vec<usize>>,
) -> Pairs<'m> {
    let mut pairs = Pairs {
        requests: Vec::new(),
        served: Vec::new(),
        calls: Vec::new(),
    };
    for ((request, window), calls) in requests.into_iter().zip(windows).zip(calls) {
        if !calls.is_empty() {
            pairs.requests.push(request);
            pairs.served.push(window);
            pairs.calls.push(calls);
        }
    }
    pairs
}

/// Whether one thread makes all calls, and sleeps for most of these intervals: it had the time to
/// begin another. Where many calls end together, or each needs a connection and a name first, they
/// do not follow each other at once.
fn a_loop_sleeps_in(model: &Model, traffic: &Traffic<'_>, intervals: &[Interval]) -> bool {
    let mut threads = traffic.threads().into_iter();
    let (Some(tid), None) = (threads.next(), threads.next()) else {
        return false;
    };
    let Some(thread) = model.threads.get(&tid) else {
        return false;
    };
    let asleep = intervals.iter().map(|interval| {
        let waits = thread.timeline.overlapping(interval.0, interval.1);
        sum(waits.iter().map(|wait| {
            let to_ns = wait.wake_ns.or(wait.in_ns).unwrap_or(model.end_ns);
            overlap_ns((wait.out_ns, to_ns), *interval)
        }))
    });
    let all_ns = sum(intervals.iter().map(|one| length(*one)));
    Share::new(sum(asleep), all_ns).is_at_least(*MOST)
}

/// How connections were used: by a call, or by several of a request that go over the same one with
/// nobody's else in between, as those of a transaction: the longest of them, and from the first to
/// the last. In order; the pairs then have their positions.
fn uses<'m>(calls: &[&'m Exchange], pairs: &mut Pairs<'m>) -> (Vec<&'m Exchange>, Vec<Interval>) {
    let mut owners: Vec<Option<usize>> = vec![None; calls.len()];
    for (request, own) in pairs.calls.iter().enumerate() {
        for call in own {
            owners[*call] = Some(request);
        }
    }
    let mut uses: Vec<(&Exchange, Interval)> = Vec::new();
    let mut last: HashMap<u64, (Option<usize>, usize)> = HashMap::new();
    for own in &mut pairs.calls {
        own.clear();
    }
    for (call, owner) in calls.iter().zip(owners) {
        let (from_ns, to_ns) = whole(call);
        let before = last.get(&call.socket).copied();
        if let Some((_, at)) = before.filter(|(other, _)| owner.is_some() && *other == owner) {
            let (longest, window) = &mut uses[at];
            window.1 = window.1.max(to_ns);
            if length(whole(longest)) < length((from_ns, to_ns)) {
                *longest = call;
            }
            continue;
        }
        last.insert(call.socket, (owner, uses.len()));
        if let Some(owner) = owner {
            pairs.calls[owner].push(uses.len());
        }
        uses.push((call, (from_ns, to_ns)));
    }
    uses.into_iter().unzip()
}

/// How calls and requests went on.
#[derive(Default)]
struct Flow {
    most: usize,
    full_ns: u64,
    waited_ns: u64,
    open_ns: u64,
    /// When as many calls as ever were under way, and a request waited: in order.
    full: Vec<Interval>,
    /// When one of them had just ended, and the next one had not begun.
    handed: Vec<Interval>,
    /// From a call's end to the next one's beginning, while a request waited.
    handovers: Vec<u64>,
    /// Of each call: how many others were under way when it began.
    ahead: Vec<usize>,
    /// The calls that ended first after none had been under way.
    firsts: Vec<usize>,
}

impl Flow {
    fn of(model: &Model, requests: &[Interval], calls: &[Interval], uses: &[&Exchange]) -> Self {
        let steps = steps(requests, calls);
        let mut flow = Self {
            ahead: vec![0; calls.len()],
            ..Self::default()
        };
        let (mut under_way, mut is_first) = (0, false);
        for (_, step, at) in &steps {
            match step {
                TrafficEvent::CallBegins => {
                    is_first |= under_way == 0;
                    flow.ahead[*at] = under_way;
                    under_way += 1;
                    flow.most = flow.most.max(under_way);
                }
                TrafficEvent::CallEnds => {
                    under_way = under_way.saturating_sub(1);
                    if std::mem::take(&mut is_first) {
                        flow.firsts.push(*at);
                    }
                }
                TrafficEvent::RequestBegins | TrafficEvent::RequestEnds => {}
            }
        }
        flow.follow(model, &steps, uses);
        flow
    }

    /// Goes through it again, knowing how many calls there are at most.
    fn follow(&mut self, model: &Model, steps: &[(Ns, TrafficEvent, usize)], uses: &[&Exchange]) {
        let (mut open, mut under_way, mut since_ns) = (0_usize, 0_usize, 0);
        let mut ended: VecDeque<(Ns, usize)> = VecDeque::new();
        for (at_ns, step, call) in steps {
            let ns = at_ns.saturating_sub(since_ns);
            if open > under_way && ns > 0 {
                self.waited_ns = self.waited_ns.saturating_add(ns);
                self.open_ns = self.open_ns.saturating_add(ns.saturating_mul(open as u64));
                if under_way == self.most {
                    self.full_ns = self.full_ns.saturating_add(ns);
                    self.full.push((since_ns, *at_ns));
                } else if !ended.is_empty() {
                    self.handed.push((since_ns, *at_ns));
                }
            }
            since_ns = *at_ns;
            match step {
                TrafficEvent::CallBegins => {
                    under_way += 1;
                    if let Some((ended_ns, before)) = ended.pop_front() {
                        // Who connects first has been let in by then.
                        let connects_ns = uses[*call].connect_ns.filter(|ns| *ns >= ended_ns);
                        let begun_ns = connects_ns.unwrap_or(*at_ns).min(*at_ns);
                        let by = (uses[before].read_tid, uses[*call].send_tid);
                        let queued_ns = without_cpu_ns(model, by, (ended_ns, begun_ns));
                        self.handovers
                            .push((begun_ns - ended_ns).saturating_sub(queued_ns));
                    }
                }
                TrafficEvent::CallEnds => {
                    if under_way == self.most && open > under_way {
                        ended.push_back((*at_ns, *call));
                    }
                    under_way = under_way.saturating_sub(1);
                }
                TrafficEvent::RequestBegins => open += 1,
                TrafficEvent::RequestEnds => open = open.saturating_sub(1),
            }
        }
    }

    /// Since when it shows what was under way, if requests queued already as the recording began:
    /// the calls that were under way then are not known. Else 0.
    fn shown_since(&self, calls: &[Interval], started_ns: Ns) -> Ns {
        let longest_ns = calls.iter().map(|call| length(*call)).max().unwrap_or(0);
        let full_ns = self.full.first().map_or(0, |full| full.0);
        match full_ns.saturating_sub(started_ns) <= longest_ns {
            true => full_ns,
            false => 0,
        }
    }

    /// The mean time from one call's beginning to the next one's, while a request waited.
    fn between_calls_ns(&self, calls: &[Interval]) -> u64 {
        self.waited_ns / (calls.len() as u64).max(1)
    }

    fn is_queue(&self, spacing_ns: u64) -> bool {
        let at_once_ns = at_once_ns(spacing_ns);
        let prompt = self.handovers.iter().filter(|ns| **ns <= at_once_ns);
        let prompt = prompt.count() as u64;
        self.is_capped()
            && Share::new(prompt, self.handovers.len() as u64).is_at_least(*QUEUE_PROMPT)
    }

    /// Whether as many calls as ever were under way nearly all the time, again and again. Something
    /// lets no more begin: a limit, or who begins them has no time.
    fn is_capped(&self) -> bool {
        self.handovers.len() >= *QUEUE_MIN_HANDOVERS
            && Share::new(self.full_ns, self.waited_ns).is_at_least(*QUEUE_FULL)
    }
}

/// For how long of a handover those had no CPU who hand over and take on: who had a call, until it
/// woke the one who begins the next, and that one from then on. Where that one did not sleep when
/// the call ended, it had no need to be woken, and its wait for a CPU is no part of a handover.
fn without_cpu_ns(model: &Model, (by, to): (u32, u32), (ended_ns, begun_ns): Interval) -> u64 {
    let (Some(by), Some(to)) = (model.threads.get(&by), model.threads.get(&to)) else {
        return 0;
    };
    let Activity::Sleeping(sleep) = to.timeline.at(ended_ns) else {
        return 0;
    };
    let woken_ns = sleep.woken_ns().clamp(ended_ns, begun_ns);
    by.without_cpu_ns(ended_ns, woken_ns) + to.without_cpu_ns(woken_ns, begun_ns)
}

/// What comes so soon after another thing has to do with it, where one comes every so often.
fn at_once_ns(spacing_ns: u64) -> u64 {
    QUEUE_AT_ONCE_NS.min(BY_CHANCE.of(spacing_ns))
}

/// Until when requests may have calls to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallsEnd {
    /// As long as they are served.
    UntilAnswered,
    /// Until they call another peer: a transaction is over by then.
    UntilNextPeer,
}

impl CallsEnd {
    /// From when until when that is. `None`: it does not show, or the request was not served.
    fn within(self, request: &RequestRef<'_>, others: &[&Exchange]) -> Option<Interval> {
        let (from_ns, until_ns) = served(request)?;
        match self {
            Self::UntilAnswered => Some((from_ns, until_ns)),
            Self::UntilNextPeer => {
                let first = others.partition_point(|call| call.first_send_ns < from_ns);
                let own = others[first..].iter();
                let mut own = own.take_while(|call| call.first_send_ns < until_ns);
                let next = own.find(|call| request.made(call))?;
                Some((from_ns, next.first_send_ns))
            }
        }
    }
}

/// The calls to other peers, in the order in which they begin.
fn with_others<'m>(all: &[Traffic<'m>], one: &Traffic<'_>) -> Vec<&'m Exchange> {
    let others = all.iter().filter(|other| other.tgid == one.tgid);
    let others = others.filter(|other| other.peer.number() != one.peer.number());
    let mut calls: Vec<&Exchange> = others
        .flat_map(|other| other.calls.iter().copied())
        .collect();
    calls.sort_unstable_by_key(|call| call.first_send_ns);
    calls
}

/// Whether requests go on when their calls end, as they do where they wait for those: they are
/// answered, or call another peer. A program that makes one call after another on its own account
/// looks the same in all else, where there is one at a time, or several are taken as one use; there
/// an answer comes at any time after the last call's end. With so many at a time that is within
/// this by chance as often as one part in [`BY_CHANCE`].
fn goes_on(pairs: &Pairs<'_>, calls: &[Interval], others: &[&Exchange], most: usize) -> bool {
    let use_ns = median_ns(calls.iter().map(|call| length(*call)).collect());
    let at_once_ns = BY_CHANCE.of(use_ns / most as u64);
    let follows = |((_, answered_ns), own): (&Interval, &Vec<usize>)| {
        let Some(ended_ns) = own.iter().map(|at| calls[*at].1).max() else {
            return false;
        };
        let next = others.get(others.partition_point(|call| call.first_send_ns < ended_ns));
        let next_ns = next.map_or(*answered_ns, |call| call.first_send_ns.min(*answered_ns));
        next_ns.saturating_sub(ended_ns) <= at_once_ns
    };
    let all = pairs.served.iter().zip(&pairs.calls);
    Share::counted(all.filter(|one| follows(*one)).count(), pairs.served.len()).is_at_least(*MOST)
}

/// Whether some request is answered when a call ends, nearly each time. Where many find what others
/// have fetched, which call is whose does not come out even, and those who go on need not be those
/// whose the calls are taken for. An answer comes by chance within this as often as one part in
/// [`BY_CHANCE`], also where far more requests are answered than calls are made.
fn answers_follow(all: &[RequestRef<'_>], calls: &[Interval], most: usize) -> bool {
    let mut answered: Vec<Ns> = all.iter().filter_map(|one| one.answered_ns()).collect();
    answered.sort_unstable();
    let use_ns = median_ns(calls.iter().map(|call| length(*call)).collect());
    let (calls_made, answers) = (calls.len() as u64, answered.len() as u64);
    let apart_ns = in_proportion(use_ns / most as u64, calls_made, answers.max(calls_made));
    let at_once_ns = BY_CHANCE.of(apart_ns);
    let follows = |(_, ended_ns): &&Interval| {
        let next = answered.get(answered.partition_point(|ns| ns < ended_ns));
        next.is_some_and(|ns| ns - ended_ns <= at_once_ns)
    };
    Share::counted(calls.iter().filter(follows).count(), calls.len()).is_at_least(*NEARLY_ALL)
}

/// The requests that waited for their turn: none of their calls was under way, and as many others
/// as ever were. Those that did for [`SLOW_NS`], and the others. Until `shown_ns` it does not show
/// what was under way. `until_answered`: some may be one that makes no call, and wait for longer
/// than until the end of that which is taken for its own.
fn waited<'m>(
    pairs: &Pairs<'m>,
    calls: &[Interval],
    flow: &Flow,
    shown_ns: Ns,
    until_answered: bool,
) -> (Vec<QueuedRequest<'m>>, Vec<QueuedRequest<'m>>) {
    let full = flow.full.iter().chain(&flow.handed).copied();
    let full = Covered::new(merged(full.collect()));
    let all = pairs.requests.iter().zip(&pairs.served).zip(&pairs.calls);
    all.filter_map(|((request, (from_ns, answered_ns)), own)| {
        let own = || own.iter().map(|at| calls[*at]);
        // What comes after the last reply is its own work.
        let ended_ns = own().map(|call| call.1).max()?;
        let until_ns = if until_answered {
            *answered_ns
        } else {
            ended_ns
        };
        let called_ns = own().map(|call| call.0).min()?;
        let (read_ns, _) = served(request)?;
        let in_calls_ns = sum(own().map(|call| full.within(call)));
        let waited_ns = full.within((*from_ns, until_ns));
        Some(QueuedRequest {
            request: *request,
            waited_ns: waited_ns.saturating_sub(in_calls_ns),
            before_ns: length((read_ns, called_ns.min(shown_ns))),
            called_ns: sum(own().map(length)),
        })
    })
    .filter(|waited| waited.spared_ns() > 0 && waited.request.counts())
    .partition(|waited| waited.waited_ns >= *SLOW_NS)
}

/// What the peer does with more calls at a time: what those took that began while few others were
/// under way, against those like them that made it as many as ever.
fn capacity(calls: &[&Exchange], flow: &Flow) -> Capacity {
    if flow.most < 2 {
        return Capacity::Unknown;
    }
    let alike = UsualSizes::of(calls, flow);
    let of = |is: &dyn Fn(usize) -> bool| -> Vec<u64> {
        let all = calls.iter().zip(&flow.ahead);
        let those = all.filter(|(call, ahead)| is(**ahead) && alike.has(call));
        let mut those: Vec<u64> = those.map(|(call, _)| length(with_peer(call))).collect();
        those.sort_unstable();
        those
    };
    let mut few = of(&|ahead| ahead <= (flow.most - 1) / 2);
    let full = of(&|ahead| ahead + 1 == flow.most);
    let tenth_ns = full.get(full.len() / 10).copied().unwrap_or(0);
    let is_shorter = |ns: u64, than_ns: u64| !Share::new(ns, than_ns).exceeds(*QUEUE_SHORTER);
    // Fewer than one in ten are shorter by chance.
    let alike_ns = full.get(full.len() / 2);
    if few.len() < *QUEUE_FEW && alike_ns.is_some_and(|ns| !is_shorter(tenth_ns, *ns)) {
        // Of several that begin at once it is the peer that says which is the first.
        let firsts = flow.firsts.iter().map(|at| calls[*at]);
        let firsts = firsts.filter(|call| alike.has(call));
        few = firsts.map(|call| length(with_peer(call))).collect();
        few.sort_unstable();
    }
    let (Some(few_ns), Some(full_ns)) = (few.get(few.len() / 2), full.get(full.len() / 2)) else {
        return Capacity::Unknown;
    };
    let (few_ns, full_ns) = (*few_ns, *full_ns);
    // A single one may have been quick by chance. One that is too quick for the others to be what
    // makes those at full load so long asked for something else.
    let as_turns_ns = few_ns.saturating_mul(2 * flow.most as u64);
    let by_chance = few.len() < *QUEUE_FEW && (few_ns >= tenth_ns || as_turns_ns < full_ns);
    let as_long = Share::new(few_ns, full_ns).is_at_least(*QUEUE_SERVES);
    let apart_ns = in_turn_ns(calls);
    if is_shorter(few_ns, full_ns) && !by_chance || !as_long && apart_ns.is_some() {
        Capacity::Saturated {
            few_ns,
            full_ns,
            apart_ns,
        }
    } else if few.len() >= *QUEUE_FEW && as_long {
        Capacity::Serves { few_ns, full_ns }
    } else {
        Capacity::Unknown
    }
}

/// The time from one answer to the next, if the peer answers calls that are under way at a time one
/// after another. Where it works on several at a time their answers come together as often as
/// apart: by chance four of ten come in less than half of the mean time.
fn in_turn_ns(calls: &[&Exchange]) -> Option<u64> {
    let mut calls: Vec<Interval> = calls.iter().map(|call| with_peer(call)).collect();
    calls.sort_unstable_by_key(|call| call.1);
    let under_way = calls.windows(2).filter(|two| two[1].0 < two[0].1);
    let mut apart_ns: Vec<u64> = under_way.map(|two| two[1].1 - two[0].1).collect();
    apart_ns.sort_unstable();
    let mean_ns = sum(apart_ns.iter().copied()) / (apart_ns.len() as u64).max(1);
    let tenth_ns = *apart_ns.get(apart_ns.len() / 10)?;
    let in_turn = Share::new(tenth_ns, mean_ns).is_at_least(*MOST);
    in_turn.then(|| apart_ns[apart_ns.len() / 2])
}

/// The sizes, in the middle, of the calls that were made while as many as ever were under way.
/// Those like them can be compared with them. A login, or a handshake, takes another time than a
/// query, whatever else is under way.
struct UsualSizes {
    bytes_out: u64,
    bytes_in: u64,
}

impl UsualSizes {
    fn of(calls: &[&Exchange], flow: &Flow) -> Self {
        let all = calls.iter().zip(&flow.ahead);
        let full = || {
            let full = all.clone().filter(|(_, ahead)| **ahead + 1 == flow.most);
            full.map(|(call, _)| call)
        };
        Self {
            bytes_out: median_ns(full().map(|call| call.bytes_out).collect()),
            bytes_in: median_ns(full().map(|call| call.bytes_in).collect()),
        }
    }

    fn has(&self, call: &Exchange) -> bool {
        let similar =
            |one: u64, other: u64| one <= other.saturating_mul(2) && other <= one.saturating_mul(2);
        // A reply's size may be anything, but a login's is not that of a query.
        let opens = call.connect_ns.is_some();
        similar(call.bytes_out, self.bytes_out) && (!opens || similar(call.bytes_in, self.bytes_in))
    }
}

/// How long requests took, and by replay with more calls at a time; `None` where they make several,
/// or the replay does not bring about what was.
fn replayed(pairs: &Pairs<'_>, calls: &[Interval], most: usize) -> Option<QueueReplay> {
    if pairs.calls.iter().any(|calls| calls.len() != 1) {
        return None;
    }
    let all = pairs.requests.iter().zip(&pairs.served).zip(&pairs.calls);
    let rests = pairs.served.iter().zip(&pairs.calls);
    let rests = rests.map(|(served, own)| served.1.saturating_sub(calls[own[0]].1));
    let rest_ns = median_ns(rests.collect());
    let jobs: Vec<Worked> = all
        .map(|((request, served), own)| {
            let call = calls[own[0]];
            // Where the call is another one's, the answer does not follow on it.
            let rest_ns = served
                .1
                .saturating_sub(call.1)
                .min(rest_ns.saturating_mul(2));
            let free_ns = served.1.saturating_sub(rest_ns);
            Worked {
                socket: request.socket,
                ready_ns: request.ready_ns.min(served.0),
                taken_ns: free_ns.saturating_sub(length(call)),
                answered_ns: served.1,
                free_ns,
            }
        })
        .collect();
    let by = |average| Some((average, ServersAsTheyWere::of(&jobs, most, average)?));
    let in_recorded_order = || {
        let servers = ServersAsTheyWere::in_recorded_order(&jobs, most)?;
        Some((Average::Mean, servers))
    };
    let (average, servers) = by(Average::Median)
        .or_else(|| by(Average::Mean))
        .or_else(in_recorded_order)?;
    let real = jobs
        .iter()
        .map(|job| job.answered_ns.saturating_sub(job.ready_ns));
    let real_ns = average.of(&real.collect::<Vec<_>>());
    let mut more = vec![most + 1, most + 2, most * 2];
    more.sort_unstable();
    more.dedup();
    // A call may be taken for another request's. By as much as that makes the replay of what was
    // too long, the others are too long as well.
    let with = |all: usize| average.of(&servers.latencies(all - most));
    let was_ns = with(most).max(1);
    let as_real = |ns: u64| in_proportion(ns, real_ns, was_ns);
    let more = more.into_iter();
    Some(QueueReplay {
        average,
        real_ns,
        more: more.map(|more| (more, as_real(with(more)))).collect(),
    })
}

#[cfg(test)]
pub(crate) mod script;

#[cfg(test)]
mod tests {
    use super::script::call;
    use super::*;

    /// What the peer does by ten calls of 50 ms at full load, and one that takes so long alone.
    fn alone(took_ms: u64) -> Capacity {
        let of_slot = |slot: u64, n: u64| {
            let at = 20 + 10 * slot + 50 * n;
            call(slot, n as u32, at, at + 50)
        };
        let calls: Vec<Exchange> = (0..5)
            .flat_map(|n| [of_slot(0, n), of_slot(1, n)])
            .chain([call(2, 0, 10, 10 + took_ms)])
            .collect();
        let flow = Flow {
            most: 2,
            ahead: [vec![1; 10], vec![0]].concat(),
            firsts: vec![10],
            ..Flow::default()
        };
        capacity(&calls.iter().collect::<Vec<_>>(), &flow)
    }

    #[test]
    fn a_call_that_the_others_cannot_have_made_longer_was_another_kind_of_call() {
        // One call before it makes a call twice as long, and some chance comes on top.
        assert!(matches!(alone(25), Capacity::Saturated { .. }));
        assert_eq!(alone(1), Capacity::Unknown);
    }
}
