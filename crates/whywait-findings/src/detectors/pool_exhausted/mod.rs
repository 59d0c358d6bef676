//! `pool-exhausted`: requests queued for a connection while its peer would have served more.
//!
//! **Invariant.** No request queues for a connection while its peer would serve more.
//!
//! **Evidence.** See [`queues`]: calls to the peer lie within requests, and never more than so many
//! are under way at a time, though more requests are. When one ends, the next begins at once: it
//! was handed over to somebody who waited. It needs no thread and no task: which call is whose does
//! not matter, for all of them go to the same peer. Requests that make no such call, and yet go on
//! when one ends, wait for what others keep across it. What else lies in pools, and what a
//! semaphore guards, looks at tasks show: see [`task_places`].
//!
//! **Cost.** For each request the time in which none of its calls was under way, but as many others
//! as ever were. Of what queued when the recording began also the time before: a bound. A replay of
//! the same requests onto more connections says what some more save.
//!
//! **Guards.** A limit that is a chance of the load: calls would not follow each other at once, and
//! requests would not wait for most of the time that all connections are in use. A peer whose calls
//! take longer the more there are: more connections would only queue there, which is
//! `slow-upstream`. One call at a time, though there are several connections, is `one-at-a-time`.
//!
//! [`task_places`]: crate::shared::task_places

mod nearest;

use whywait_model::Model;
use whywait_model::calls::PeerRow;
use whywait_words::{count, counted, duration, figure, list, percent};

use crate::declaration::{Declaration, Has, Waits};
use crate::facts::Facts;
use crate::finding::{Confidence, Evidence, Finding, Severity};
use crate::numbers::{ERROR_NS, SHOWN};
use crate::ranking::Explained;
use crate::shared::intervals::sum;
use crate::shared::queues::{Capacity, Queue};
use crate::shared::runtime::{self, Proxy, Runtime};
use crate::shared::task_places::TaskPlaces;
use crate::shared::task_waits::TasksWaitIn;
use crate::shared::workers::{OfProgram, of_programs};

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "pool-exhausted",
    meaning: "requests queued for a connection while its peer would have served more, or inside \
              for one of a few places",
    severities: &[
        (
            Severity::Error,
            "when a request typically waited 100 ms or longer and the peer served more",
        ),
        (Severity::Warning, "from 30 ms on"),
        (Severity::Note, "otherwise"),
    ],
    invariant: "no request queues for a connection while its peer would serve more, nor for what \
                the program has few of",
    explain: include_str!("explain.md"),
    waits: Some(Waits {
        who: "requests",
        what: "to call: at most {connections} at a time",
        has: Has::Said("others' calls to {peer} {peer_process}"),
    }),
    detect,
};

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    let queues = facts.queues().iter();
    let queues: Vec<&Queue<'_>> = queues
        .filter(|queue| !matches!(queue.capacity, Capacity::Saturated { .. }))
        .filter(|queue| !passes_one(model, queue))
        .collect();
    let slow_ns = facts.slow().total_ns;
    let pools = of_programs(model, queues.iter().map(|queue| queue.waits()), |queue| {
        queue.most
    });
    let pools = pools.iter();
    let places = TaskPlaces::of(facts);
    let places = places.iter().filter(|places| places.count() != Some(1));
    pools
        .filter_map(|pool| finding(facts, pool, slow_ns))
        // Whether more at a time would be served as quickly is not known of these.
        .chain(places.filter_map(|places| places.finding(facts, &DECLARATION, false)))
        .collect()
}

/// Whether one call at a time is made, though it is not the connection that there is but one of:
/// others are free, or requests wait that make no such call, and nothing else is known of which
/// there is one.
pub(crate) fn passes_one(model: &Model, queue: &Queue<'_>) -> bool {
    let unknown = || queue.calls_none > 0 && KeptAcross::rivals(model, queue).is_empty();
    queue.most == 1 && (queue.had_free_connections() || unknown())
}

fn finding(
    facts: &Facts<'_>,
    pool: &OfProgram<'_, '_, &Queue<'_>>,
    slow_ns: u64,
) -> Option<Finding> {
    let model = facts.model;
    let (queue, shares) = (pool.what, &pool.shares);
    let serves = matches!(queue.capacity, Capacity::Serves { .. });
    let severity = match shares.severity(slow_ns)? {
        Severity::Warning if shares.median_ns() >= *ERROR_NS && serves => Severity::Error,
        severity => severity,
    };
    let peer = queue.traffic.peer;
    let kept = KeptAcross::of(model, queue);
    let which = match (&kept, queue.most) {
        (Some(kept), most) => kept.which(most),
        (None, 1) => {
            format!("for others' calls to {peer}, one at a time over the only connection")
        }
        (None, most) if is_limit(queue) => {
            format!("at a limit of {most} calls at a time to {peer}")
        }
        (None, most) => format!("for one of {most} connections to {peer}"),
    };
    let victims = queue.victims.iter().map(|victim| victim.request);
    let tasks = TasksWaitIn::of(facts, victims);
    let title = format!(
        "{} waited {} of their time {which}{}",
        shares.requests(),
        shares.percent(),
        tasks
            .as_ref()
            .map_or_else(String::new, TasksWaitIn::in_title),
    );
    // To whom the connections are that are kept is known by their number.
    let confidence = if serves && kept.is_none() {
        Confidence::High
    } else {
        Confidence::Medium
    };
    let tgid = queue.traffic.tgid;
    let fix = match runtime::proxy(model, tgid) {
        Some(proxy) => fix_of_proxy(proxy),
        None if kept.is_some() => FIX_OF_KEPT,
        None if queue.traffic.share_connections() => FIX_OF_STREAMS,
        None if is_limit(queue) => FIX_OF_LIMIT,
        None => fix(runtime::of_process(model, tgid)),
    };
    let (what, one, more) = match queue.traffic.share_connections() {
        true => ("at_a_time", "call at a time", "calls at a time"),
        false => ("connections", "connection", "connections"),
    };
    let finding = Finding::new(&DECLARATION, severity, title)
        .confidence(confidence)
        .about_peer(peer)
        .about(what, queue.most)
        .about_known("replay", queue.replay_rows(what))
        .saving(Queue::saving(pool))
        .concerns(Queue::requests(pool))
        .explains(Explained::Locks)
        .explains(Explained::Inside)
        .explains(Explained::Places)
        .evidence([Evidence::of_ns(shares.ns, shares.spread(slow_ns))])
        .evidence(Queue::before(pool))
        .evidence(pool.evidence())
        .evidence(kept.as_ref().map(|kept| kept.evidence(queue)))
        .evidence([
            Evidence::of_ns(queue.full_ns, limit(queue)),
            Evidence::new(queue.handover()),
            Evidence::new(of_peer(queue)),
        ])
        .evidence(tasks.as_ref().map(TasksWaitIn::evidence))
        .evidence(
            queue
                .replay_text(one, more)
                .map(|text| Evidence::new(text).of_fix()),
        )
        .evidence(as_many_open(model, queue).map(Evidence::new))
        .fix(match queue.most {
            1 if kept.is_none() => {
                format!(
                    "if no more than one is allowed, {fix}; else look for a lock that is held \
                     across the call"
                )
            }
            _ => fix.to_owned(),
        });
    let finding = match &tasks {
        Some(tasks) => tasks.about(finding),
        None => finding,
    };
    Some(pool.about_processes(model, finding))
}

const FIX_OF_STREAMS: &str = "look for what lets no more calls through at a time: a semaphore, a \
                              limit of the client library's, or the peer's \
                              (SETTINGS_MAX_CONCURRENT_STREAMS), in which case more connections \
                              help";

const FIX_OF_LIMIT: &str = "look for what lets no more calls through at a time, though connections \
                            are free: a semaphore, a limit of the client library's, connections to \
                            another peer that are kept across the call";

const FIX_OF_KEPT: &str = "give the connection, or whatever it is, back before the call, and take \
                           one again after it; or keep it for a shorter time, or have more of them \
                           (the pool's size)";

/// What requests wait for that is none of the connections over which these calls go: others keep it
/// across them.
pub(crate) struct KeptAcross {
    /// The peer that is called.
    called: String,
    /// Where as many connections are open as there are such calls at most, and each request may
    /// have a call.
    to: Vec<String>,
    shown: ShownBy,
}

/// What shows it.
enum ShownBy {
    /// Requests wait that make no such call.
    MakeNoCall,
    /// Requests sleep in this function, on the way to which calls to that other peer are made.
    Place(String),
}

impl KeptAcross {
    pub(crate) fn of(model: &Model, queue: &Queue<'_>) -> Option<Self> {
        let called = queue.traffic.peer.to_string();
        let rivals = Self::rivals(model, queue);
        let name = |row: &PeerRow| row.name();
        if queue.calls_none > 0 {
            return Some(Self {
                called,
                to: rivals.iter().map(name).take(*SHOWN).collect(),
                shown: ShownBy::MakeNoCall,
            });
        }
        let near = nearest::of(model, queue, &rivals)?;
        Some(Self {
            called,
            to: vec![name(near.row)],
            shown: ShownBy::Place(near.function),
        })
    }

    fn rivals(model: &Model, queue: &Queue<'_>) -> Vec<PeerRow> {
        as_many(model, queue, queue.victims.len() as u64)
    }

    fn which(&self, most: usize) -> String {
        let what = match (&self.to[..], most) {
            ([to], 1) => format!("for the only connection to {to}"),
            ([to], most) => format!("for one of {most} connections to {to}"),
            (_, 1) => "for something".to_owned(),
            (_, most) => format!("for one of {most} things"),
        };
        format!("{what}, which others keep across calls to {}", self.called)
    }

    pub(crate) fn evidence(&self, queue: &Queue<'_>) -> Evidence {
        let open = match &self.to[..] {
            [] => "what it is does not show".to_owned(),
            to => format!("just as many connections are open to {}", list(to)),
        };
        let text = match &self.shown {
            ShownBy::MakeNoCall => format!(
                "about {} of them make no call to {}, and yet they are answered right after one \
                 has ended: what they wait for is kept by who makes it; {open}",
                count(queue.calls_none as u64),
                self.called,
            ),
            ShownBy::Place(function) => format!(
                "they wait in {function}, which is called where calls to {} are made, and not \
                 where those to {} are; {open}",
                list(&self.to),
                self.called,
            ),
        };
        Evidence::new(text)
    }
}

/// Whether more connections were open than calls were ever under way, or one carries many at a
/// time: no connection was waited for, and what lets no more calls through is not known.
fn is_limit(queue: &Queue<'_>) -> bool {
    queue.traffic.share_connections() || queue.connections() > queue.most
}

/// Of a limit: the peers to which just as many connections are open, if there are such. Of short
/// calls without rows it is not known when they are made.
fn as_many_open(model: &Model, queue: &Queue<'_>) -> Option<String> {
    if !is_limit(queue) || queue.calls_none > 0 {
        return None;
    }
    let peers = as_many(model, queue, 1);
    let peers: Vec<String> = peers.iter().map(PeerRow::name).take(*SHOWN).collect();
    (!peers.is_empty()).then(|| {
        format!(
            "just as many connections are open to {}: if a request keeps one of them across its \
             call, it is they that are few",
            list(&peers)
        )
    })
}

/// The peers to which just as many connections are open as calls are under way at most, and to
/// which so many calls were made.
fn as_many(model: &Model, queue: &Queue<'_>, least_calls: u64) -> Vec<PeerRow> {
    let mut rows = model.calls();
    let own = queue.traffic.peer.address();
    rows.retain(|row| {
        let open = row.most_open.and_then(|open| usize::try_from(open).ok());
        row.peer != own && row.calls >= least_calls && open == Some(queue.most)
    });
    rows
}

/// How many connections there were, and how long all were in use.
fn limit(queue: &Queue<'_>) -> String {
    let open = match queue.connections() {
        _ if queue.traffic.share_connections() => ", over HTTP/2".to_owned(),
        open if open > queue.most => format!(", though {open} connections are open"),
        _ => String::new(),
    };
    let calls_ns = sum(queue.victims.iter().map(|victim| victim.called_ns));
    let each_ns = calls_ns / (queue.victims.len() as u64).max(1);
    let all = match queue.traffic.share_connections() {
        true => "so many were",
        false => "all were in use",
    };
    // What is kept across more than calls is not what the peer takes.
    let each = match queue.kept {
        true => "each keeping a connection for",
        false => "each with calls of",
    };
    if queue.calls_none > 0 {
        return format!(
            "never more than {} to {} under way at a time; while requests waited so many were for \
             {} of {}: {}",
            counted(queue.most, "call"),
            queue.traffic.peer,
            duration(queue.full_ns),
            duration(queue.waited_ns),
            percent(queue.full_ns, queue.waited_ns),
        );
    }
    format!(
        "never more than {} to it under way at a time{open}; while requests waited {all} for {} of \
         {}: {}; then {} requests were under way on average, {each} {}",
        counted(queue.most, "call"),
        duration(queue.full_ns),
        duration(queue.waited_ns),
        percent(queue.full_ns, queue.waited_ns),
        figure(queue.open),
        duration(each_ns),
    )
}

/// Whether the peer would have served more.
fn of_peer(queue: &Queue<'_>) -> String {
    match queue.capacity {
        Capacity::Serves { few_ns, full_ns } => format!(
            "the peer served more at a time: a call took {} with few others under way, and {} with \
             {}",
            duration(few_ns),
            duration(full_ns),
            queue.most - 1
        ),
        _ => "whether the peer would serve more at a time does not show: there were as many calls \
              under way as ever, or none"
            .to_owned(),
    }
}

fn fix_of_proxy(proxy: Proxy) -> &'static str {
    match proxy {
        Proxy::Haproxy => {
            "raise maxconn on the server's line (show stat has the queue: qcur, qtime), add \
             servers, or make the peer quicker"
        }
        Proxy::Pgbouncer => {
            "raise default_pool_size, or the pool_size of this database (SHOW POOLS has the queue: \
             cl_waiting, maxwait), as far as max_connections of the peer allows, or keep \
             transactions short"
        }
        Proxy::Nginx => {
            "raise max_conns on the upstream's server line, add servers, or make the peer quicker"
        }
        Proxy::Envoy => {
            "raise max_connections or max_requests of the cluster's circuit breakers (its pending \
             requests are upstream_rq_pending_active), or make the peer quicker"
        }
    }
}

fn fix(runtime: Runtime) -> &'static str {
    match runtime {
        Runtime::Go => {
            "allow more connections (database/sql: SetMaxOpenConns; net/http: MaxConnsPerHost), or \
             keep each for a shorter time"
        }
        Runtime::Python => {
            "allow more connections (the pool's max_size or pool_size, aiohttp's \
             TCPConnector(limit=…), httpx.Limits, Tornado's max_clients), or keep each for a \
             shorter time"
        }
        Runtime::Node => {
            "allow more connections (the pool's max, http.Agent's maxSockets), or keep each for a \
             shorter time"
        }
        Runtime::Tokio => {
            "allow more connections (the pool's max_connections or max_size), or keep each for a \
             shorter time"
        }
        Runtime::Java => {
            "allow more connections (HikariCP: maximumPoolSize; Apache's HttpClient: \
             setMaxConnPerRoute), or keep each for a shorter time"
        }
        _ => "allow more connections, or keep each for a shorter time",
    }
}

#[cfg(test)]
mod tests;
