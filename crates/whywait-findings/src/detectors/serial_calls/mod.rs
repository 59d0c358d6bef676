//! `serial-calls`: a request made many calls to the same peer, one after another.
//!
//! **Invariant.** A request does not make its peer's round trip n times for what one could do.
//!
//! **Evidence.** Of some requests all calls are known ([`Certain`]): those of the thread that read
//! and answered it, and served nothing else meanwhile; those that were made while it was alone
//! under way; or its own where each call meanwhile is certainly somebody's. Where there are too few
//! of these it is the mean ([`Mean`]): calls are made only while requests are under way, so many
//! for each of them, and never more at a time than there are requests, so that each makes one after
//! another. What quick requests may have had of the calls is taken off.
//!
//! **Cost.** Of the time of a request's calls all but one of them; of short ones also what passes
//! between them, which is mostly what it takes to make them. A bound: a call that does all of it
//! takes longer than one of these. Where threads make them, one request at a time, also what others
//! wait for such a thread, by replay.
//!
//! **Guards.** Fewer than [`SERIAL_MIN_CALLS`] a request are how a transaction looks. The calls are
//! half of the requests' time from when they were read. Calls that go on while no request is under
//! way are the program's own.

mod others;
mod short;

use std::collections::BTreeMap;

use whywait_events::{Exchange, Ns};
use whywait_model::{Model, Peer};
use whywait_words::{count, counted, duration, figure};

use crate::declaration::{Declaration, Has, Waits};
use crate::facts::{ByWhom, Facts};
use crate::finding::{Confidence, Evidence, Finding, Severity};
use crate::numbers::{
    FINDINGS_OF_A_KIND, MEANWHILE_LOOKED_AT, MIN_REQUESTS, SERIAL_KNOWN, SERIAL_MIN_CALLS, Share,
};
use crate::ranking::Explained;
use crate::shared::intervals::{Interval, sum};
use crate::shared::replay::{Behind, Gone, Spared, median_ns};
use crate::shared::slow_paths::{Shares, SlowRequest, dominates};
use crate::shared::task_waits::in_function;
use crate::shared::traffic::{Mean, Traffic, length, served, whole};
use crate::shared::workers::{OfProcess, OfProgram, of_programs};
use others::Others;

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "serial-calls",
    meaning: "requests made many calls to the same peer, one after another",
    severities: &[
        (Severity::Warning, "from 30 ms of the median request on"),
        (Severity::Note, "otherwise"),
    ],
    invariant: "a request does not make its peer's round trip n times in a row for what one could \
        do",
    explain: include_str!("explain.md"),
    waits: Some(Waits {
        who: "requests",
        what: "for {calls_per_request} replies, one after another",
        has: Has::Said("{peer} {peer_process}"),
    }),
    detect,
};

/// A request of which all calls are known.
struct Certain<'a> {
    slow: &'a SlowRequest<'a>,
    calls: usize,
    called_ns: u64,
    /// From the first call to the last.
    from_to: Interval,
}

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    let long = facts.traffic().iter().filter(|traffic| traffic.counted);
    let long = long.filter(|traffic| traffic.calls.len() >= *MIN_REQUESTS * *SERIAL_MIN_CALLS);
    let long: Vec<&Traffic<'_>> = long.collect();
    let short = Traffic::sampled(model, facts.traffic());
    if long.is_empty() && short.is_empty() {
        return Vec::new();
    }
    let slow = facts.slow();
    let mut by_process: BTreeMap<u32, Vec<&SlowRequest<'_>>> = BTreeMap::new();
    let answered = slow
        .requests
        .iter()
        .filter(|slow| served(&slow.request).is_some() && !slow.request.multiplexed);
    for one in answered {
        by_process.entry(one.request.tgid).or_default().push(one);
    }
    let long = long.into_iter().filter_map(|traffic| {
        let requests = by_process.get(&traffic.tgid)?;
        of_traffic(facts, traffic, requests)
    });
    let mut rows: BTreeMap<u32, usize> = BTreeMap::new();
    for traffic in &short {
        *rows.entry(traffic.peer.number()).or_default() += traffic.calls.len();
    }
    let short = short.iter().filter_map(|traffic| {
        let requests = by_process.get(&traffic.tgid)?;
        short::of_traffic(facts, traffic, rows[&traffic.peer.number()], requests)
    });
    let found: Vec<OfProcess<'_, '_, Say<'_>>> = long.chain(short).collect();
    if found.is_empty() {
        return Vec::new();
    }
    let behind = facts.behind();
    let mut findings: Vec<Finding> = of_programs(model, found, |_| ())
        .iter()
        .filter_map(|program| finding(model, program, behind, slow.total_ns))
        .collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.saving.at_most_ns));
    findings.truncate(*FINDINGS_OF_A_KIND);
    findings
}

fn of_traffic<'t, 'm, 'a>(
    facts: &Facts<'_>,
    traffic: &'t Traffic<'m>,
    requests: &[&'a SlowRequest<'a>],
) -> Option<OfProcess<'t, 'm, Say<'a>>> {
    if requests.len() < *MIN_REQUESTS {
        return None;
    }
    let known = known(facts, traffic, requests);
    let enough = known.len() >= *MIN_REQUESTS
        && Share::counted(known.len(), requests.len()).is_at_least(*SERIAL_KNOWN);
    let (shares, what) = if enough {
        certainly(&known)?
    } else {
        on_average(facts, traffic, requests)?
    };
    Some(OfProcess {
        traffic,
        shares,
        what: Say {
            all: traffic.calls.len() as u64,
            ..what
        },
    })
}

/// The requests of which all calls are known, with those.
fn known<'a>(
    facts: &Facts<'_>,
    traffic: &Traffic<'_>,
    requests: &[&'a SlowRequest<'a>],
) -> Vec<(&'a SlowRequest<'a>, Vec<Interval>)> {
    let model = facts.model;
    let ByWhom {
        by_reader,
        by_process,
        ..
    } = facts.under_way();
    let under_way = by_process.get(&traffic.tgid);
    let threads_wait = threads_wait_for_calls(traffic);
    let mut found = Vec::new();
    for slow in requests {
        let request = slow.request;
        let Some((from_ns, to_ns)) = served(&request) else {
            continue;
        };
        let alone = under_way.is_some_and(|process| process.within(from_ns, to_ns) == 1);
        let of_thread = threads_wait
            && request.recv_tid == request.send_tid
            && by_reader
                .get(&request.recv_tid)
                .is_some_and(|reader| reader.within(from_ns, to_ns) == 1);
        let first = traffic
            .calls
            .partition_point(|call| call.first_send_ns < from_ns);
        let meanwhile = || {
            let after = traffic.calls[first..].iter();
            after.take_while(|call| call.first_send_ns <= to_ns)
        };
        let linked = || {
            let lies_within = |call: &&&Exchange| whole(call).1 <= to_ns;
            let mut all = meanwhile().filter(lies_within);
            request.has_certain_calls()
                && meanwhile().nth(*MEANWHILE_LOOKED_AT).is_none()
                && all.all(|call| model.is_linked(call))
        };
        if !alone && !of_thread && !linked() {
            continue;
        }
        let own = |call: &&&Exchange| {
            alone
                || request.made(call)
                || (of_thread && call.send_tid == request.recv_tid && !model.is_linked(call))
        };
        let calls: Vec<Interval> = meanwhile()
            .filter(own)
            .map(|call| whole(call))
            .filter(|call| call.1 <= to_ns)
            .collect();
        // A thread that makes none itself may have others make them.
        if alone || !calls.is_empty() {
            found.push((*slow, calls));
        }
    }
    found
}

/// Whether no thread began a call while another one of its own was under way. One that does carries
/// tasks, as of virtual threads, and its calls are not those of the request that it read.
fn threads_wait_for_calls(traffic: &Traffic<'_>) -> bool {
    // Whoever writes to a shared connection writes what others have for it as well.
    if traffic.share_connections() {
        return false;
    }
    let mut until: BTreeMap<u32, Ns> = BTreeMap::new();
    traffic.calls.iter().all(|call| {
        let (begun_ns, ended_ns) = whole(call);
        let before = until.insert(call.send_tid, ended_ns);
        before.is_none_or(|before_ns| before_ns <= begun_ns)
    })
}

/// What a fix takes of requests all of whose calls are known, and what is said of them.
fn certainly<'a>(known: &[(&'a SlowRequest<'a>, Vec<Interval>)]) -> Option<(Shares, Say<'a>)> {
    let in_a_row = |calls: &[Interval]| calls.windows(2).all(|two| two[0].1 <= two[1].0);
    let serial: Vec<Certain<'_>> = known
        .iter()
        .filter(|(_, calls)| calls.len() >= *SERIAL_MIN_CALLS && in_a_row(calls))
        .filter_map(|(slow, calls)| {
            let one = Certain {
                slow,
                calls: calls.len(),
                called_ns: sum(calls.iter().map(|call| length(*call))),
                from_to: (calls.first()?.0, calls.last()?.1),
            };
            // Where it waited for a thread before that, it waited for others' calls.
            let served_ns = length(served(&slow.request)?);
            dominates(one.called_ns, served_ns).then_some(one)
        })
        .collect();
    if serial.len() < *MIN_REQUESTS {
        return None;
    }
    let pairs = serial
        .iter()
        .map(|one| (one.saved_ns(), one.slow.latency_ns));
    let shares = Shares::new(pairs);
    let calls = median_ns(serial.iter().map(|one| one.calls as u64).collect());
    // The mean, as that of their latency is said with it: the part is no more than the whole.
    let called_ns = sum(serial.iter().map(|one| one.called_ns)) / serial.len() as u64;
    let say = Say {
        calls: calls.to_string(),
        all: 0,
        each_ns: called_ns / calls.max(1),
        called_ns,
        how: "all calls of these requests are known: each request had a thread to itself, was \
              alone under way, or its calls are certainly its own"
            .to_owned(),
        between_ns: 0,
        confidence: Confidence::High,
        within: None,
        spared: serial.iter().map(Certain::spared).collect(),
    };
    Some((shares, say))
}

impl<'a> Certain<'a> {
    /// All of its calls but one.
    fn saved_ns(&self) -> u64 {
        self.called_ns - self.called_ns / self.calls as u64
    }

    /// The same, and for how much of it a thread had nothing else to do.
    fn spared(&self) -> Spared<'a> {
        let request = self.slow.request;
        let polls = request
            .pool()
            .and_then(|pool| pool.only_member())
            .is_some_and(|member| member.tid == request.recv_tid);
        let (from_ns, to_ns) = self.from_to;
        let gone = Gone {
            tid: request.recv_tid,
            from_ns,
            to_ns,
            ns: self.saved_ns(),
        };
        let keeps = request.recv_tid == request.send_tid && !polls;
        Spared {
            request,
            ns: self.saved_ns(),
            gone: keeps.then_some(gone).into_iter().collect(),
        }
    }
}

/// The same where it is known only how many they make on average; `None` where that does not show.
fn on_average<'a>(
    facts: &Facts<'_>,
    traffic: &Traffic<'_>,
    requests: &[&'a SlowRequest<'a>],
) -> Option<(Shares, Say<'a>)> {
    let calls = traffic.intervals();
    let windows = |requests: &[&SlowRequest<'_>]| -> Vec<Interval> {
        let windows = requests.iter().filter_map(|slow| served(&slow.request));
        windows.collect()
    };
    let many = |mean: &Mean| mean.calls >= *SERIAL_MIN_CALLS as f64;
    let theirs = Mean::of(&calls, &windows(requests)).filter(many);
    let only_they = theirs.is_some();
    let (requests, mean) = match theirs {
        Some(mean) => (requests.to_vec(), mean),
        None => {
            let long = long_enough(&calls, requests);
            let others = Others::of(facts.model, traffic.tgid, &long);
            let mean = Mean::beside(&calls, &windows(&long), &others.windows, others.ns);
            let enough = long.len() >= *MIN_REQUESTS;
            (long, mean.filter(many).filter(|_| enough)?)
        }
    };
    let latency_ns = sum(requests.iter().map(|slow| slow.latency_ns));
    let saved = 1.0 - 1.0 / mean.calls;
    let own_ns =
        |slow: &SlowRequest<'_>| (mean.part_of(slow.latency_ns, latency_ns) as f64 * saved) as u64;
    let pairs = requests.iter().map(|slow| (own_ns(slow), slow.latency_ns));
    let shares = Shares::new(pairs);
    let spared = requests.iter().map(|slow| Spared {
        request: slow.request,
        ns: own_ns(slow),
        // Whose thread had when nothing else to do does not show.
        gone: Vec::new(),
    });
    let called_ns = mean.called_ns / requests.len() as u64;
    let say = Say {
        calls: figure(mean.calls),
        all: 0,
        each_ns: mean.each_ns,
        called_ns,
        how: how(only_they),
        between_ns: 0,
        confidence: Confidence::Medium,
        within: None,
        spared: spared.collect(),
    };
    Some((shares, say))
}

/// Those that take as long as so many calls do in a row. Whatever others do, they have fewer.
fn long_enough<'a>(
    calls: &[Interval],
    requests: &[&'a SlowRequest<'a>],
) -> Vec<&'a SlowRequest<'a>> {
    let call_ns = median_ns(calls.iter().map(|call| length(*call)).collect());
    let least_ns = call_ns.saturating_mul(*SERIAL_MIN_CALLS as u64);
    let served_ns = |slow: &SlowRequest<'_>| served(&slow.request).map_or(0, length);
    let long = requests.iter().filter(|slow| served_ns(slow) >= least_ns);
    long.copied().collect()
}

/// Why calls are taken to be those of the slow requests.
fn how(only_they: bool) -> String {
    let so_many = if only_they {
        "so many for each"
    } else {
        "so many for each, at least, if all that others were under way for is taken off"
    };
    format!(
        "which call is which request's does not show: they are made while requests are under way, \
         {so_many}, and never more at a time than there are requests"
    )
}

/// What is said of them.
struct Say<'a> {
    calls: String,
    /// Those of all requests.
    all: u64,
    each_ns: u64,
    called_ns: u64,
    how: String,
    /// What passes between the calls of one of them, where these are short; it is no peer's.
    between_ns: u64,
    confidence: Confidence,
    /// The function that makes them, where that is known.
    within: Option<String>,
    spared: Vec<Spared<'a>>,
}

fn finding<'m>(
    model: &Model,
    program: &OfProgram<'_, '_, Say<'m>>,
    behind: &Behind<'m>,
    slow_ns: u64,
) -> Option<Finding> {
    let (traffic, shares, say) = (program.traffic, &program.shares, &program.what);
    let all = std::iter::once(say).chain(&program.others);
    let spared: Vec<Spared<'_>> = all.flat_map(|say| say.spared.iter().cloned()).collect();
    let bound = behind.bound(&spared, None);
    // What others wait for the threads that make the calls is theirs, too.
    let saved = bound.saving.each_at_most_ns.iter().map(|ns| (*ns, *ns));
    let severity = shares
        .severity(slow_ns)
        .max(Shares::new(saved).severity(slow_ns))?;
    let peer = traffic.peer;
    let title = format!(
        "{} made {} calls each to {peer}, one after another{}: {} of {} (typically)",
        shares.requests(),
        say.calls,
        in_function(say.within.as_deref()),
        duration(say.called_ns),
        duration(shares.latency_ns / (shares.each_ns.len() as u64).max(1)),
    );
    let finding = Finding::new(&DECLARATION, severity, title)
        .confidence(say.confidence)
        .about_peer(peer)
        .about("calls_per_request", say.calls.clone())
        .about_known("function", say.within.clone())
        .explains(Explained::RepliesOf(peer.address()))
        .evidence([Evidence::of_ns(
            shares.ns,
            format!("made at once, or as one: {}", shares.spread(slow_ns)),
        )])
        .bounded(bound)
        .evidence(between(shares, say))
        .evidence(program.evidence())
        .evidence([
            Evidence::of_ns(say.each_ns, each(traffic, peer, say)),
            Evidence::new(say.how.clone()),
        ])
        .fix(
            "ask once for all of it (a join, an IN list, a pipeline, a bulk endpoint), or make the \
             calls at the same time",
        );
    Some(program.about_processes(model, finding))
}

/// How much of what a fix spares is no peer's.
fn between(shares: &Shares, say: &Say<'_>) -> Option<Evidence> {
    let requests = shares.each_ns.len() as u64;
    let all_ns = say.between_ns.saturating_mul(requests);
    let text = format!(
        "the bound has what passes between the calls of a request, too, {}, {} in all, which is no \
         peer's: it goes with them as far as it is for them",
        duration(say.between_ns),
        duration(all_ns)
    );
    (all_ns > 0).then(|| Evidence::of_ns(all_ns, text).of_fix())
}

/// What each of them is like.
fn each(traffic: &Traffic<'_>, peer: Peer<'_>, say: &Say<'_>) -> String {
    let mut bytes: Vec<u64> = traffic.calls.iter().map(|call| call.bytes_out).collect();
    bytes.sort_unstable();
    let at = |tenth: usize| -> u64 { bytes.get(bytes.len() * tenth / 10).copied().unwrap_or(0) };
    let bytes = match (at(1), at(9)) {
        (least, most) if least == most => counted(most, "byte"),
        (least, most) => format!("{} to {} bytes", count(least), count(most)),
    };
    format!(
        "a call takes {}; a request's {} calls together {}; most send {}; {} to {} in all",
        duration(say.each_ns),
        say.calls,
        duration(say.called_ns),
        bytes,
        counted(say.all as usize, "call"),
        peer.address(),
    )
}

#[cfg(test)]
mod tests;
