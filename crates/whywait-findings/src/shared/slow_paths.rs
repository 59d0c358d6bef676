//! What the detectors that look at slow requests' critical paths have in common: which requests are
//! slow enough, what it is to dominate them, and how a path reads.

use std::collections::{BTreeSet, HashMap};

use whywait_events::{ModuleKind, Ns, Part, Request, StackId, Wait};
use whywait_model::{
    Label, Model, PathStep, RequestRef, StackText, SystemCall, app_frame, system_call,
};
use whywait_words::{counted, duration, duration_range, percent};

use crate::finding::{Evidence, Finding, Saving, Severity, Usual};
use crate::numbers::{
    ALL_OF_IT, FEW_OUTLIERS, MIN_REQUESTS, MOST, NEARLY_ALL, OUTLIER_NS, OUTLIER_TIMES, QUICKEST,
    RARE_OF_SLOW, SLOW_NS, Share, TYPICAL_OF_ALL, WARNING_NS,
};
use crate::shared::intervals::sum;
use crate::shared::runtime;
use crate::shared::threads::named;

/// Stands for functions that a just-in-time compiler made and that nothing names.
pub(crate) const COMPILED: &str = "code compiled at run time";
/// Stands for functions of Python that were not read in time.
pub(crate) const IN_PYTHON: &str = "Python code";

/// A request that took long enough to be looked at: one that was answered, or is late and has
/// taken this long by now.
#[derive(Debug)]
pub(crate) struct SlowRequest<'a> {
    pub(crate) request: RequestRef<'a>,
    pub(crate) latency_ns: u64,
}

/// The requests that are slow.
#[derive(Debug)]
pub(crate) struct SlowRequests<'a> {
    /// In order of arrival, but for those that pauses made slow.
    pub(crate) requests: Vec<SlowRequest<'a>>,
    /// What all slow requests took, also those that were not slow enough to be looked at.
    pub(crate) total_ns: u64,
}

impl<'a> SlowRequests<'a> {
    pub(crate) fn of(model: &'a Model, paused: impl Fn(RequestRef<'a>) -> bool) -> Self {
        let threshold_ns = model.threshold_ns();
        let mut slow = Self {
            requests: Vec::new(),
            total_ns: 0,
        };
        for request in model.requests().filter(|request| !request.was_stopped()) {
            let Some(latency_ns) = request.took_ns().filter(|ns| *ns >= threshold_ns) else {
                continue;
            };
            slow.total_ns = slow.total_ns.saturating_add(latency_ns);
            if latency_ns >= *SLOW_NS && !paused(request) {
                slow.requests.push(SlowRequest {
                    request,
                    latency_ns,
                });
            }
        }
        slow
    }
}

/// The requests that are recorded one by one and are not slow.
pub(crate) fn quicker(model: &Model) -> impl Iterator<Item = SlowRequest<'_>> {
    let counted = model.requests().filter(|request| !request.was_stopped());
    counted.filter_map(|request| {
        let latency_ns = request.took_ns().filter(|ns| *ns < *SLOW_NS)?;
        Some(SlowRequest {
            request,
            latency_ns,
        })
    })
}

/// Whether something that takes `ns` of a request is what makes it slow.
pub(crate) fn dominates(ns: u64, latency_ns: u64) -> bool {
    ns >= *SLOW_NS && Share::new(ns, latency_ns).is_at_least(*MOST)
}

/// Whether something that dominates `members` is what makes requests of their kind slow: of all
/// requests of which it takes [`SLOW_NS`], `all`, it takes two fifths of the time; or those that it
/// dominates are outliers among them. Pairs of what it takes of a request and what the request
/// took. Where two things take turns at being half of it, neither is the one.
pub(crate) fn is_typical(all: &[(u64, u64)], members: &[u64]) -> bool {
    let ns = sum(all.iter().map(|pair| pair.0));
    let latency_ns = sum(all.iter().map(|pair| pair.1));
    let mut latencies: Vec<u64> = all.iter().map(|pair| pair.1).collect();
    latencies.sort_unstable();
    let median = latencies.get(latencies.len() / 2).copied().unwrap_or(0);
    let outlier = members
        .iter()
        .any(|latency_ns| *latency_ns >= median.saturating_mul(*OUTLIER_TIMES));
    Share::new(ns, latency_ns).is_at_least(*TYPICAL_OF_ALL) || outlier
}

/// The time that something takes of the requests that it makes slow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shares {
    /// For each request; the largest first.
    pub(crate) each_ns: Vec<u64>,
    /// All of it.
    pub(crate) ns: u64,
    /// What those requests took.
    pub(crate) latency_ns: u64,
}

impl Shares {
    /// From what it takes of each request and what that took.
    pub(crate) fn new(pairs: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut shares = Self {
            each_ns: Vec::new(),
            ns: 0,
            latency_ns: 0,
        };
        for (ns, latency_ns) in pairs {
            shares.each_ns.push(ns);
            shares.ns = shares.ns.saturating_add(ns);
            shares.latency_ns = shares.latency_ns.saturating_add(latency_ns);
        }
        shares.each_ns.sort_unstable_by(|a, b| b.cmp(a));
        shares
    }

    /// Those of several, taken together.
    pub(crate) fn together(all: impl IntoIterator<Item = Self>) -> Self {
        let mut sum = Self::new([]);
        for one in all {
            sum.each_ns.extend(one.each_ns);
            sum.ns = sum.ns.saturating_add(one.ns);
            sum.latency_ns = sum.latency_ns.saturating_add(one.latency_ns);
        }
        sum.each_ns.sort_unstable_by(|a, b| b.cmp(a));
        sum
    }

    pub(crate) fn median_ns(&self) -> u64 {
        self.each_ns
            .get(self.each_ns.len() / 2)
            .copied()
            .unwrap_or(0)
    }

    /// In percent of those requests' time.
    pub(crate) fn percent(&self) -> String {
        percent(self.ns, self.latency_ns)
    }

    /// How bad it is; `None` when it is not worth a word: what is rare has to take so long itself
    /// that a request is an outlier for it. What only some requests had, and most of the slow time
    /// is not, may have happened that once: a class that is loaded, code that is compiled.
    /// `slow_ns`: what all slow requests took.
    pub(crate) fn severity(&self, slow_ns: u64) -> Option<Severity> {
        let of_slow = Share::new(self.ns, slow_ns);
        let once = self.each_ns.len() < *MIN_REQUESTS && of_slow.is_below(*TYPICAL_OF_ALL);
        if self.each_ns.is_empty() {
            None
        } else if of_slow.is_below(*RARE_OF_SLOW) {
            let made_one_slow = |worst_ns: &u64| *worst_ns >= *OUTLIER_NS;
            self.each_ns
                .first()
                .is_some_and(made_one_slow)
                .then_some(Severity::Note)
        } else if self.median_ns() >= *WARNING_NS && !once {
            Some(Severity::Warning)
        } else {
            Some(Severity::Note)
        }
    }

    /// Why what takes this is not what makes anything slower than it has to be, where that is so:
    /// had each request been as quick in it as the quickest tenth are, most of the time would be
    /// left, none is an outlier, and next to nobody waits behind them, or another finding says that
    /// they do.
    pub(crate) fn as_ever(&self, saving: &Saving) -> Option<Usual> {
        let nth = |share: Share| share.of(self.each_ns.len() as u64) as usize;
        let quick_ns = *self.each_ns.iter().nth_back(nth(*QUICKEST))?;
        let late_ns = *self.each_ns.get(nth(*FEW_OUTLIERS))?;
        let left_ns = sum(self.each_ns.iter().map(|ns| *ns.min(&quick_ns)));
        let text = match self.each_ns.len() < *MIN_REQUESTS {
            true => format!(
                "a note: {} cannot show that it could be otherwise",
                self.requests()
            ),
            false => format!(
                "a note, as nothing shows that it could be otherwise: it takes about as long each \
                 time, {} in the quickest tenth of these requests, and {} in the slowest",
                duration(quick_ns),
                duration(late_ns)
            ),
        };
        let others_ns = saving.at_most_ns.saturating_sub(self.ns);
        let few_wait = Share::new(others_ns, saving.at_most_ns).is_below(*TYPICAL_OF_ALL);
        (Share::new(left_ns, self.ns).is_at_least(*MOST)
            && late_ns < quick_ns.saturating_mul(*OUTLIER_TIMES))
        .then(|| Usual {
            why: Evidence::of_ns(quick_ns, text),
            others_ns: if few_wait { 0 } else { others_ns },
        })
    }

    /// `10 slow requests`.
    pub(crate) fn requests(&self) -> String {
        counted(self.each_ns.len(), "slow request")
    }

    /// How the time spreads: `92 % of these requests' time: 3.1 s of 3.4 s; from 210 to 388 ms
    /// each, median 300 ms`.
    pub(crate) fn spread(&self, slow_ns: u64) -> String {
        // Nothing new where these are all the slow requests that there are.
        let all = if Share::new(self.latency_ns, slow_ns).is_at_least(*ALL_OF_IT) {
            String::new()
        } else {
            format!(
                ", and {} of all slow requests' time",
                percent(self.ns, slow_ns)
            )
        };
        let least = self.each_ns.last().copied().unwrap_or(0);
        let most = self.each_ns.first().copied().unwrap_or(0);
        let range = duration_range(least, most);
        let each = match self.each_ns.len() {
            0 | 1 => String::new(),
            // Alike as they are written: the median is that, too.
            _ if range == duration(most) => format!("; each {range}"),
            _ => format!("; each {range}, median {}", duration(self.median_ns())),
        };
        format!(
            "{} of the {} that {} took: {}{all}{each}",
            duration(self.ns),
            duration(self.latency_ns),
            self.requests(),
            self.percent()
        )
    }
}

/// The ports at which these requests came.
pub(crate) fn ports<'a>(requests: impl Iterator<Item = &'a SlowRequest<'a>>) -> BTreeSet<u16> {
    requests.map(|request| request.request.local_port).collect()
}

/// The port, where all came at the same.
pub(crate) fn only_port(ports: &BTreeSet<u16>) -> Option<u16> {
    match (ports.first(), ports.len()) {
        (Some(port @ 1..), 1) => Some(*port),
        _ => None,
    }
}

/// Where something was, for titles: ` in write_snapshot`, when that is all of it, or ` most of it
/// in …`; empty when it is less.
pub(crate) fn place(function: Option<&str>, ns: u64, of_ns: u64) -> String {
    let share = Share::new(ns, of_ns);
    match function {
        Some(function) if share.is_at_least(*NEARLY_ALL) => format!(" in {function}"),
        Some(function) if share.is_at_least(*MOST) => format!(", most of it in {function}"),
        _ => String::new(),
    }
}

/// `thread worker`, `3 threads worker`, `8 threads conn*`, `16 processes httpd`, `8 threads conn*
/// in 4 processes`.
pub(crate) fn who(model: &Model, tids: &BTreeSet<u32>) -> String {
    let Some(tid) = tids.first() else {
        return "no thread".to_owned();
    };
    let processes = model.processes_of(tids.iter().copied());
    let name = common_name(model, tids);
    match (tids.len(), processes.len()) {
        (1, _) => format!("thread {}", model.thread_name(*tid)),
        (n, 0 | 1) => format!("{n} threads {name}"),
        (n, of) if n == of && *tids == processes => format!("{n} processes {name}"),
        (n, of) => format!("{n} threads {name} in {of} processes"),
    }
}

/// The name of all these threads, or what their names begin with.
fn common_name(model: &Model, tids: &BTreeSet<u32>) -> String {
    let names: BTreeSet<&str> = tids.iter().map(|tid| model.thread_name(*tid)).collect();
    let mut names = names.into_iter();
    let first = names.next().unwrap_or_default();
    let mut common = first;
    for name in names {
        let same = common.char_indices().zip(name.chars());
        let end = same.take_while(|((_, a), b)| a == b).last();
        common = &first[..end.map_or(0, |((at, c), _)| at + c.len_utf8())];
    }
    if common.len() == first.len() && tids.iter().all(|tid| model.thread_name(*tid) == first) {
        return first.to_owned();
    }
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '-' | '_' | '#' | ':');
    match common.trim_end_matches(is_number) {
        // `1_scheduler`, `2_scheduler`.
        "" => format!("{first} …"),
        common => format!("{common}*"),
    }
}

/// Names the processes in a finding's subject: the one of thread `tid`, if there is one to name,
/// and all of them.
pub(crate) fn about_processes(
    model: &Model,
    finding: Finding,
    tid: impl Into<Option<u32>>,
    tids: impl IntoIterator<Item = u32>,
) -> Finding {
    let pid = model.processes_of(tid.into()).pop_first();
    let pids: Vec<u32> = model.processes_of(tids).into_iter().collect();
    finding.about_known("pid", pid).about("pids", pids)
}

/// What a stack is in, for titles: what its runtime does on its own account, the innermost function
/// of the application, what that called of its runtime where it has no name, or else what stands
/// for it.
pub(crate) fn function(model: &Model, id: StackId) -> Option<String> {
    let stack = model.stacks.get(id)?;
    if let Some(what) = runtime::own_account(stack) {
        return Some(what.to_owned());
    }
    if let Some(label) = app_frame(stack) {
        return Some(label.name.to_string());
    }
    if let Some(what) = runtime::built_in(stack) {
        return Some(what.to_owned());
    }
    if in_compiled_code(stack) {
        return Some(COMPILED.to_owned());
    }
    if runtime::in_python_somewhere(stack) {
        return Some(IN_PYTHON.to_owned());
    }
    model.stacks.telling(id)
}

/// Whether some of a stack is code that a just-in-time compiler made. Its functions have names only
/// where the runtime writes them down for profilers.
pub(crate) fn in_compiled_code(stack: &StackText) -> bool {
    let compiled = |label: &Label| label.kind == ModuleKind::Jit;
    stack.labels.iter().any(compiled)
}

/// `the slowest of them, 388 ms: api (12) waits for worker (15)`, to be continued with what thread
/// `tid` does.
pub(crate) fn chain(model: &Model, slow: &SlowRequest<'_>, tid: u32) -> String {
    let mut tids: Vec<u32> = Vec::new();
    let path = slow.request.path();
    for step in path.steps.iter().filter(|step| step.part.is_some()) {
        if tids.contains(&step.tid) {
            continue;
        }
        tids.push(step.tid);
        if step.tid == tid {
            break;
        }
    }
    let mut text = format!("the slowest of them, {}: ", duration(slow.latency_ns));
    for (at, tid) in tids.iter().enumerate() {
        match at {
            0 => {}
            1 => text.push_str(" waits for "),
            _ => text.push_str(", which waits for "),
        }
        text.push_str(&named(model, *tid));
    }
    if tids.len() > 1 {
        text.push_str(", which");
    }
    text
}

/// Steps of a request's path that are time of a thread of the target or of what it waited for, with
/// the part that they are.
pub(crate) fn steps<'a>(slow: &SlowRequest<'a>) -> impl Iterator<Item = (Part, &'a PathStep)> {
    let steps = slow.request.path().steps.into_iter();
    steps
        .filter_map(|step| Some((step.part?, step)))
        .filter(|(_, step)| step.ns() > 0)
}

/// The wait that a step is.
pub(crate) fn wait_of<'a>(model: &'a Model, step: &PathStep) -> Option<&'a Wait> {
    let thread = model.threads.get(&step.tid)?;
    thread
        .timeline
        .overlapping(step.from_ns, step.to_ns)
        .first()
}

/// Whether a wait that a timer ended is a sleep: several runtimes do it by a futex that nobody
/// wakes (Ruby, a JVM).
pub(crate) fn is_sleep(wait: &Wait) -> bool {
    matches!(system_call(wait), SystemCall::Sleep | SystemCall::Futex)
}

/// When each thread answered which requests.
#[derive(Debug)]
pub(crate) struct Answers<'a>(HashMap<u32, Vec<(Ns, RequestRef<'a>)>>);

impl<'a> Answers<'a> {
    pub(crate) fn of(model: &'a Model) -> Self {
        let mut answers: HashMap<u32, Vec<(Ns, RequestRef<'_>)>> = HashMap::new();
        for request in model.requests() {
            if let Some(ns) = request.answered_ns() {
                answers
                    .entry(request.send_tid)
                    .or_default()
                    .push((ns, request));
            }
        }
        for times in answers.values_mut() {
            times.sort_by_key(|(ns, request)| (*ns, request.socket, request.seq));
        }
        Self(answers)
    }

    /// From when on a step of a request's path was that request's own; `None`: never. What the
    /// thread that reads it, or answers it, did before it answered another was for that one, if it
    /// had been read by then. What any other thread did on the path the request waited for: several
    /// may wait for one (a group commit), which has a request of its own.
    pub(crate) fn own_from(&self, request: RequestRef<'_>, step: &PathStep) -> Option<Ns> {
        let serves = [request.recv_tid, request.send_tid].contains(&step.tid);
        if !serves {
            return Some(step.from_ns);
        }
        let Some(answers) = self.0.get(&step.tid) else {
            return Some(step.from_ns);
        };
        let after = answers.partition_point(|(ns, _)| *ns < step.to_ns);
        let from_ns = answers[..after]
            .last()
            .map_or(step.from_ns, |(ns, _)| step.from_ns.max(*ns));
        let others = answers.get(after).is_some_and(|(_, next)| {
            (next.socket, next.seq) != (request.socket, request.seq)
                && next.recv_ns.is_some_and(|recv_ns| recv_ns <= from_ns)
                && next.answered_ns() < request.answered_ns()
        });
        (!others).then_some(from_ns)
    }
}

/// How many requests were under way when, of those that a loop serves or that a thread read.
#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    begun: Vec<Ns>,
    ended: Vec<Ns>,
}

impl UnderWay {
    /// By epoll instance and process.
    pub(crate) fn by_epoll(model: &Model) -> HashMap<(u32, u32), UnderWay> {
        Self::by(model, |request| {
            (request.epoll != 0).then_some((request.tgid, request.epoll))
        })
    }

    /// By the thread that read them. What lay unread for [`SLOW_NS`] is under way from when it was
    /// read: a thread that polled for it would have read it, and one of a pool does not know yet
    /// that it will.
    pub(crate) fn by_reader(model: &Model) -> HashMap<u32, UnderWay> {
        let mut all: HashMap<u32, UnderWay> = HashMap::new();
        for request in model.requests() {
            let Some(recv_ns) = request.recv_ns.filter(|_| request.recv_tid != 0) else {
                continue;
            };
            let lay_ns = recv_ns.saturating_sub(request.ready_ns);
            let from_ns = if lay_ns < *SLOW_NS {
                request.ready_ns
            } else {
                recv_ns
            };
            all.entry(request.recv_tid)
                .or_default()
                .add(from_ns, request.until_ns());
        }
        Self::in_order(all)
    }

    /// By process.
    pub(crate) fn by_process(model: &Model) -> HashMap<u32, UnderWay> {
        Self::by(model, |request| Some(request.tgid))
    }

    fn by<K: std::hash::Hash + Eq>(
        model: &Model,
        key: impl Fn(&Request) -> Option<K>,
    ) -> HashMap<K, UnderWay> {
        let mut all: HashMap<K, UnderWay> = HashMap::new();
        for request in model.requests() {
            let Some(key) = key(request.row()) else {
                continue;
            };
            all.entry(key)
                .or_default()
                .add(request.ready_ns, request.until_ns());
        }
        Self::in_order(all)
    }

    fn add(&mut self, from_ns: Ns, until_ns: Ns) {
        self.begun.push(from_ns);
        self.ended.push(until_ns.max(from_ns));
    }

    fn in_order<K>(mut all: HashMap<K, UnderWay>) -> HashMap<K, UnderWay> {
        for one in all.values_mut() {
            one.begun.sort_unstable();
            one.ended.sort_unstable();
        }
        all
    }

    /// How many were between two moments, at the same time or one after another.
    pub(crate) fn within(&self, from_ns: Ns, to_ns: Ns) -> usize {
        let begun = self.begun.partition_point(|begun| *begun < to_ns);
        let ended = self.ended.partition_point(|ended| *ended <= from_ns);
        begun.saturating_sub(ended)
    }

    /// How many were at `at`.
    pub(crate) fn at(&self, at: Ns) -> usize {
        let begun = self.begun.partition_point(|begun| *begun <= at);
        let ended = self.ended.partition_point(|ended| *ended < at);
        begun.saturating_sub(ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::SavingKind;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_median_is_said_where_requests_are_not_alike() {
        let of = |each_ms: &[u64]| {
            let each = each_ms.iter().map(|ms| (ms * MS, ms * MS));
            Shares::new(each).spread(60 * MS)
        };
        assert!(of(&[10, 20, 30]).ends_with("; each 10 to 30 ms, median 20 ms"));
        assert!(of(&[20, 20, 20]).ends_with("; each 20 ms"));
    }

    #[test]
    fn what_a_few_requests_had_is_a_warning_only_where_it_is_much_of_all_that_was_slow() {
        let of = |each_ms: &[u64], slow_ms: u64| {
            let each = each_ms.iter().map(|ms| (ms * MS, ms * MS));
            Shares::new(each).severity(slow_ms * MS)
        };
        // A server's first request, which loads classes, beside others that were slow as well.
        assert_eq!(of(&[44], 340), Some(Severity::Note));
        assert_eq!(of(&[44; 4], 441), Some(Severity::Note));
        assert_eq!(of(&[44; 4], 440), Some(Severity::Warning), "two fifths");
        assert_eq!(
            of(&[44; 5], 500),
            Some(Severity::Warning),
            "five are no chance"
        );
    }

    #[test]
    fn what_takes_as_long_each_time_is_as_ever() {
        let of = |each_ms: &[(usize, u64)], saves_ms: u64| {
            let each = each_ms.iter().flat_map(|(n, ms)| vec![ms * MS; *n]);
            let saving = Saving::sum(SavingKind::Latency, saves_ms * MS, 100);
            Shares::new(each.map(|ns| (ns, ns))).as_ever(&saving)
        };
        // A tenth may be quicker, and one of a hundred slower.
        let alike = [(10, 10), (89, 50), (1, 200)];
        let as_ever = of(&alike, 5_000).expect("as ever");
        assert_eq!((as_ever.why.ns, as_ever.others_ns), (Some(50 * MS), 0));
        let behind = of(&alike, 8_000).map(|as_ever| as_ever.others_ns);
        assert_eq!(behind, Some(3_250 * MS), "others wait behind it");
        assert_eq!(of(&[(11, 10), (89, 50)], 5_000), None, "most is more");
        assert_eq!(of(&[(98, 50), (2, 150)], 5_200), None, "outliers");
        assert!(of(&[(98, 50), (2, 149)], 5_200).is_some());
        let few = of(&[(1, 50)], 50).expect("nothing shows otherwise");
        assert!(few.why.text.contains("1 slow request"), "{few:?}");
    }

    #[test]
    fn what_is_typical_takes_two_fifths_of_all_that_it_concerns_or_makes_outliers() {
        let all = |ns: u64| vec![(ns * MS, 100 * MS); 10];
        assert!(is_typical(&all(40), &[100 * MS]));
        assert!(!is_typical(&all(39), &[100 * MS]));
        assert!(!is_typical(&all(39), &[299 * MS]));
        assert!(is_typical(&all(39), &[300 * MS]));
    }
}
