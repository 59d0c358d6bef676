//! What is known of all requests and calls of a process together, where it is not known which call
//! is whose.

use std::collections::BTreeMap;

use whywait_events::{Exchange, Ns};

use super::spans::Spans;
use super::{Link, Links};
use crate::requests::lives::Lives;

/// A process that made calls.
#[derive(Debug, Clone, Default)]
pub(super) struct CallingProcess {
    /// No request had two calls at a time, as far as that shows: there were never more calls than
    /// requests under way, but for those of requests from before the recording, and of those that
    /// are certain no two of a request overlap.
    pub(super) one_at_a_time: bool,
    /// A connection carries several of its calls at a time: any that is under way may be for any
    /// request.
    pub(super) shared: bool,
    /// Its undecided calls, in order.
    pub(super) undecided: Vec<u32>,
    /// When one of them at least was with its peer, and was under way at all.
    pub(super) with_peers: Spans,
    pub(super) open: Spans,
    /// When a reply to one of them lay there.
    pub(super) replies: Spans,
    /// … with this peer.
    pub(super) with_peer: BTreeMap<u32, Spans>,
    /// When as many of them were under way as requests of which no call was: each had one, if it
    /// had one at a time. All of them were with their peers …
    pub(super) all_with_peers: Spans,
    /// … with this one …
    pub(super) all_with_peer: BTreeMap<u32, Spans>,
    /// … or anywhere.
    pub(super) all_open: Spans,
    /// When several requests were under way.
    pub(super) several: Spans,
    /// When all of its threads slept.
    pub(super) idle: Spans,
}

/// So few calls show nothing.
const LEAST_CALLS: usize = 20;

/// What a moment changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CountChange {
    /// So many requests more are under way.
    Request(i64),
    /// … certain calls.
    Certain(i64),
    /// … undecided calls.
    Open(i64),
    /// … of these with this peer.
    Peer(u32, i64),
}

/// When a call was with its peer: until the reply was in the kernel, and while more of it was
/// awaited.
pub(super) fn with_peer(call: &Exchange) -> [(Ns, Ns); 2] {
    let (from_ns, to_ns) = open(call);
    let Some(read_ns) = call.first_read_ns else {
        return [(from_ns, to_ns), (to_ns, to_ns)];
    };
    let read_ns = read_ns.max(from_ns);
    let came_ns = call.arrived_ns.unwrap_or(read_ns).clamp(from_ns, read_ns);
    [(from_ns, came_ns), (read_ns, to_ns)]
}

/// When a reply to it lay in the kernel.
pub(super) fn unserved(call: &Exchange) -> (Ns, Ns) {
    let [(_, came_ns), (read_ns, _)] = with_peer(call);
    (came_ns, read_ns)
}

/// From when to when it was under way.
pub(super) fn open(call: &Exchange) -> (Ns, Ns) {
    let read_ns = call.last_read_ns.max(call.first_read_ns);
    let to_ns = read_ns.or(call.gone_ns).unwrap_or(Ns::MAX);
    (call.first_send_ns, to_ns.max(call.first_send_ns))
}

/// … until it had a reply: the rest of that may be read when its request is answered.
pub(super) fn until_read(call: &Exchange) -> (Ns, Ns) {
    let (from_ns, to_ns) = open(call);
    (from_ns, call.first_read_ns.unwrap_or(to_ns).max(from_ns))
}

/// What there is of a process.
pub(super) struct Seen<'a> {
    /// Its requests, by their places among all.
    pub(super) requests: &'a [u32],
    /// Its calls, in order.
    pub(super) calls: &'a [u32],
    /// A request certainly had two calls at a time.
    pub(super) overlap: bool,
    /// See [`all_fit_since`].
    pub(super) fit_since_ns: Option<Ns>,
    /// When all of its threads slept.
    pub(super) idle: Spans,
}

impl CallingProcess {
    pub(super) fn new(model: &Lives, links: &Links, seen: Seen<'_>) -> Self {
        let calls = seen.calls;
        let exchanges = model.exchanges();
        let call = |at: &u32| &exchanges[*at as usize];
        let undecided: Vec<u32> = calls
            .iter()
            .copied()
            .filter(|at| links.of_call(*at as usize) == Link::Undecided)
            .collect();
        let mut of_peer: BTreeMap<u32, Vec<(Ns, Ns)>> = BTreeMap::new();
        for at in &undecided {
            of_peer
                .entry(call(at).peer)
                .or_default()
                .extend(with_peer(call(at)));
        }
        let tgid = calls.first().map(|at| call(at).tgid);
        let spoken = links.http2.values().filter(|one| Some(one.tgid) == tgid);
        for one in spoken.clone() {
            let span = (one.from_ns, one.to_ns);
            of_peer.entry(one.peer).or_default().push(span);
        }
        let any_time = spoken.map(|one| (one.from_ns, one.to_ns));
        let mut process = Self {
            with_peers: Spans::of(of_peer.values().flatten().copied()),
            open: Spans::of(undecided.iter().map(|at| open(call(at))).chain(any_time)),
            replies: Spans::of(undecided.iter().map(|at| unserved(call(at)))),
            with_peer: of_peer
                .into_iter()
                .map(|(peer, spans)| (peer, Spans::of(spans)))
                .collect(),
            idle: seen.idle,
            ..Self::default()
        };
        let changes = changes(model, links, seen.requests, calls);
        let of_nobody = |at: &u32| links.of_call(*at as usize) == Link::Nobody;
        let all_known = model.sums.slow == 0 && !model.lacks_calls();
        let at_most_one = calls.len() >= LEAST_CALLS
            && all_known
            && seen.fit_since_ns.is_some()
            && !calls.iter().any(of_nobody);
        // Before that a call may be one of a request that is not known.
        let since_ns = seen.fit_since_ns.unwrap_or(0);
        let (mut all_with_peers, mut all_open, mut several) = (vec![], vec![], vec![]);
        let mut all_with_peer: BTreeMap<u32, Vec<(Ns, Ns)>> = BTreeMap::new();
        each_moment(&changes, |span, counts| {
            if counts.requests > 1 {
                several.push(span);
            }
            if span.0 >= since_ns && counts.all_have_one() {
                all_open.push(span);
                if counts.all_with_peers() {
                    all_with_peers.push(span);
                    if let Some(peer) = counts.only_peer() {
                        all_with_peer.entry(peer).or_default().push(span);
                    }
                }
            }
        });
        process.shared = calls.iter().any(|at| links.is_shared(call(at).socket));
        process.one_at_a_time = at_most_one && !seen.overlap && !process.shared;
        process.all_with_peers = Spans::of(all_with_peers);
        process.all_open = Spans::of(all_open);
        process.several = Spans::of(several);
        process.all_with_peer = all_with_peer
            .into_iter()
            .map(|(peer, spans)| (peer, Spans::of(spans)))
            .collect();
        process.undecided = undecided;
        process
    }
}

/// What requests and calls of a process begin and end when, in order.
fn changes(
    model: &Lives,
    links: &Links,
    requests: &[u32],
    calls: &[u32],
) -> Vec<(Ns, CountChange)> {
    let mut changes = Vec::new();
    let mut add = |(from_ns, to_ns): (Ns, Ns), change: fn(u32, i64) -> CountChange, peer: u32| {
        if from_ns < to_ns {
            changes.push((from_ns, change(peer, 1)));
            changes.push((to_ns, change(peer, -1)));
        }
    };
    for request in requests.iter().map(|at| model.life_at(*at)) {
        if let Some(read_ns) = request.recv_ns {
            add(
                (read_ns, request.until_ns()),
                |_, more| CountChange::Request(more),
                0,
            );
        }
    }
    for at in calls {
        let call = &model.exchanges()[*at as usize];
        match links.of_call(*at as usize) {
            Link::Nobody => {}
            Link::Certain(..) => add(until_read(call), |_, more| CountChange::Certain(more), 0),
            Link::Undecided => {
                add(until_read(call), |_, more| CountChange::Open(more), 0);
                add(with_peer(call)[0], CountChange::Peer, call.peer);
            }
        }
    }
    changes.sort_unstable();
    changes
}

/// What is under way at a moment.
#[derive(Default)]
struct CountsUnderWay {
    requests: i64,
    certain: i64,
    open: i64,
    with_peers: i64,
    peers: BTreeMap<u32, i64>,
}

impl CountsUnderWay {
    fn add(&mut self, change: CountChange) {
        match change {
            CountChange::Request(more) => self.requests += more,
            CountChange::Certain(more) => self.certain += more,
            CountChange::Open(more) => self.open += more,
            CountChange::Peer(peer, more) => {
                self.with_peers += more;
                let of_peer = self.peers.entry(peer).or_default();
                *of_peer += more;
                if *of_peer == 0 {
                    self.peers.remove(&peer);
                }
            }
        }
    }

    /// There are no more calls than requests.
    fn fit(&self) -> bool {
        self.open + self.certain <= self.requests
    }

    fn all_have_one(&self) -> bool {
        self.open > 0 && self.open + self.certain >= self.requests
    }

    fn all_with_peers(&self) -> bool {
        self.with_peers == self.open
    }

    fn only_peer(&self) -> Option<u32> {
        let mut peers = self.peers.keys();
        peers.next().copied().filter(|_| peers.next().is_none())
    }
}

/// What is under way in each moment between two changes.
fn each_moment(changes: &[(Ns, CountChange)], mut with: impl FnMut((Ns, Ns), &CountsUnderWay)) {
    let mut counts = CountsUnderWay::default();
    let mut from_ns = 0;
    for (ns, change) in changes {
        if *ns > from_ns {
            with((from_ns, *ns), &counts);
            from_ns = *ns;
        }
        counts.add(*change);
    }
}

/// So many times as long as the longest request that is known one from before the recording may
/// last: its beginning is not seen, and whywait attached meanwhile.
const LONGER: u64 = 2;

/// Since when there were never more calls than requests. Requests that were under way before the
/// recording are not all known: what there is more until those are over may be theirs. `None`:
/// there were more later on.
pub(super) fn all_fit_since(
    model: &Lives,
    links: &Links,
    requests: &[u32],
    calls: &[u32],
) -> Option<Ns> {
    let changes = changes(model, links, requests, calls);
    let mut fit_since_ns = 0;
    each_moment(&changes, |(_, to_ns), counts| {
        if !counts.fit() {
            fit_since_ns = to_ns;
        }
    });
    let took_ns = |at: &u32| {
        let request = model.life_at(*at);
        let read_ns = request.recv_ns.filter(|_| request.is_answered())?;
        Some(request.until_ns().saturating_sub(read_ns))
    };
    let longest_ns = requests.iter().filter_map(took_ns).max().unwrap_or(0);
    let begun_ns = changes.first().map_or(0, |(ns, _)| *ns);
    let known_by_ns = begun_ns.saturating_add(longest_ns.saturating_mul(LONGER));
    (fit_since_ns <= known_by_ns).then_some(fit_since_ns)
}

/// When all threads of each process slept, as far as long sleeps show it.
pub(super) fn idle(model: &Lives) -> BTreeMap<u32, Spans> {
    let mut changes: BTreeMap<u32, Vec<(Ns, i64)>> = BTreeMap::new();
    for thread in model.threads.values() {
        let changes = changes.entry(thread.tgid).or_default();
        let begun_ns = thread.started.map_or(0, |(ns, _)| ns);
        changes.push((begun_ns, 1));
        changes.push((thread.ended_ns.unwrap_or(Ns::MAX).max(begun_ns), -1));
        for wait in thread.timeline.waits() {
            changes.push((wait.out_ns, -1));
            changes.push((wait.woken_ns(), 1));
        }
    }
    changes
        .into_iter()
        .map(|(tgid, changes)| (tgid, Spans::of(asleep(changes))))
        .collect()
}

/// When nobody is awake, by how many more or fewer are so from when on.
fn asleep(mut changes: Vec<(Ns, i64)>) -> Vec<(Ns, Ns)> {
    changes.sort_unstable();
    let (mut awake, mut from_ns) = (0, 0);
    let mut asleep = Vec::new();
    for (ns, more) in changes {
        if awake <= 0 && ns > from_ns {
            asleep.push((from_ns, ns));
        }
        awake += more;
        from_ns = ns;
    }
    asleep
}
