//! Who else is served earlier when a part of requests' time goes: those who queue behind them in a
//! loop or for a worker, and those who wait for a lock that they have.

use std::collections::BTreeMap;

use whywait_events::Ns;
use whywait_model::RequestRef;
use whywait_model::waits::WaitKey;
use whywait_replay::Off;
use whywait_words::{counted_as, duration};

use super::crew::Crew;
use super::crews::workers_of;
use super::turns::{Piece, Served, Turns, name};
use crate::facts::Facts;
use crate::finding::{Claim, Evidence, RequestName, Saving};
use crate::numbers::{NOTABLE, Share};
use crate::shared::intervals::{in_proportion, sum};

/// A piece of a thread's time that a fix takes away: so much of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone {
    pub(crate) tid: u32,
    pub(crate) from_ns: Ns,
    pub(crate) to_ns: Ns,
    pub(crate) ns: u64,
}

/// What a request is spared on its own path.
#[derive(Debug, Clone)]
pub(crate) struct Spared<'m> {
    pub(crate) request: RequestRef<'m>,
    /// At least so much, whoever else is spared something.
    pub(crate) ns: u64,
    /// When that was.
    pub(crate) gone: Vec<Gone>,
}

/// Those who serve requests, and what each is served with.
pub(crate) struct Behind<'m> {
    loops: Vec<ServingLoop<'m>>,
    crews: Vec<Crew<'m>>,
}

/// A thread that serves several requests at a time.
struct ServingLoop<'m> {
    tid: u32,
    turns: Turns,
    requests: Vec<RequestRef<'m>>,
}

impl<'m> Behind<'m> {
    pub(crate) fn of(facts: &Facts<'m>) -> Self {
        let places = facts.places().values();
        let crews = places.filter_map(|requests| workers_of(requests.iter().copied()));
        let crews = crews.map(|in_hand| Crew::new(facts.model, in_hand));
        Self {
            loops: loops(facts),
            crews: crews.collect(),
        }
    }

    /// What a fix saves at most that spares these requests that, and with them those that queue
    /// behind them; and what is to be said of those. `unlocked`: nobody waits for this lock either.
    pub(crate) fn bound(&self, spared: &[Spared<'m>], unlocked: Option<&WaitKey>) -> Bound {
        let own: BTreeMap<RequestName, u64> = spared
            .iter()
            .map(|one| (name(one.request), one.ns))
            .collect();
        let Savings { each, off } = self.without(spared, unlocked);
        let more = each.iter().map(|(name, claim)| {
            let own_ns = own.get(name).copied().unwrap_or(0);
            (own_ns == 0, claim.ns.saturating_sub(own_ns))
        });
        let more_ns = sum(more.clone().map(|(_, ns)| ns));
        let others = more.filter(|(other, _)| *other).count();
        let saving = Saving::latency(each.values().map(|claim| claim.ns).collect());
        let who = match others {
            0 => "they wait for each other".to_owned(),
            n => format!(
                "{} behind them",
                counted_as(n, "more request queues", "more requests queue")
            ),
        };
        let text = format!(
            "{who}, in a loop, for a worker or for a lock: by replay that is another {} at most, \
             which the bound has, too",
            duration(more_ns)
        );
        let notable = Share::new(more_ns, saving.at_most_ns).is_at_least(*NOTABLE) && more_ns > 0;
        Bound {
            saving,
            requests: each,
            queues: (notable && off.is_none()).then(|| Evidence::of_ns(more_ns, text)),
            off,
        }
    }

    /// What each request is spared at most, those that are spared something. Never less than what
    /// is said of its own path, and never more than it took.
    pub(crate) fn without(&self, spared: &[Spared<'m>], unlocked: Option<&WaitKey>) -> Savings {
        let mut savings: BTreeMap<RequestName, Claim> = BTreeMap::new();
        let mut add = |request: RequestRef<'_>, ns: u64| {
            // What is open and not late is no request yet whose time could be less.
            if !request.counts() {
                return;
            }
            let most = savings.entry(name(request));
            let most = most.or_insert_with(|| Claim::on(request, 0));
            most.ns = most.ns.max(ns.min(most.of_ns));
        };
        for one in spared {
            add(one.request, one.ns);
        }
        for one in &self.loops {
            for (request, ns) in one.without(spared) {
                add(request, ns);
            }
        }
        let mut off = None;
        for crew in &self.crews {
            let (each, crew_is_off) = crew.without(spared, unlocked);
            for (request, ns) in each {
                add(request, ns);
            }
            off = off.max(crew_is_off);
        }
        savings.retain(|_, claim| claim.ns > 0);
        Savings { each: savings, off }
    }
}

/// What requests are spared at most.
pub(crate) struct Savings {
    /// Those that are spared something, nanoseconds.
    pub(crate) each: BTreeMap<RequestName, Claim>,
    /// A replay is not what was recorded: they are spared no more than that even if they wait for
    /// nobody.
    pub(crate) off: Option<Off>,
}

/// What a fix saves at most.
pub(crate) struct Bound {
    pub(crate) saving: Saving,
    /// The requests that it spares something.
    pub(crate) requests: BTreeMap<RequestName, Claim>,
    /// What is to be said of those that queue behind.
    pub(crate) queues: Option<Evidence>,
    /// As with [`Savings`].
    pub(crate) off: Option<Off>,
}

impl Bound {
    /// What is known without a replay.
    pub(crate) fn of(saving: Saving) -> Self {
        Self {
            saving,
            requests: BTreeMap::new(),
            queues: None,
            off: None,
        }
    }
}

fn loops<'m>(facts: &Facts<'m>) -> Vec<ServingLoop<'m>> {
    let model = facts.model;
    let mut loops = Vec::new();
    for pool in &model.pools {
        let thread = pool
            .only_member()
            .and_then(|member| model.threads.get(&member.tid));
        let Some(thread) = thread else {
            continue;
        };
        let requests = facts.read_by(thread.tid).to_vec();
        if !requests.is_empty() {
            loops.push(ServingLoop {
                tid: thread.tid,
                turns: Turns::of(model, thread, &requests, |wait| pool.polls(wait)),
                requests,
            });
        }
    }
    loops
}

impl<'m> ServingLoop<'m> {
    fn without(&self, spared: &[Spared<'m>]) -> Vec<(RequestRef<'m>, u64)> {
        let gone = spared.iter().flat_map(|one| &one.gone);
        let own: Vec<Gone> = gone.filter(|gone| gone.tid == self.tid).copied().collect();
        let pieces = apart(own);
        if pieces.is_empty() {
            return Vec::new();
        }
        let piece = |gone: &Gone| Piece {
            from_ns: gone.from_ns,
            to_ns: gone.to_ns,
            ns: gone.ns,
        };
        let pieces: Vec<Piece> = pieces.iter().map(piece).collect();
        let served: Vec<Served> = self.requests.iter().map(|one| Served::of(*one)).collect();
        // The loop may have had to wait for the same with no request in hand: then more goes of its
        // time than these pieces, which clients come sooner for.
        let savings = self.turns.if_arrivals_stay(&pieces, &served);
        self.requests.iter().copied().zip(savings).collect()
    }
}

/// Pieces in order. Where two of them overlap the time is gone once.
pub(super) fn apart(mut gone: Vec<Gone>) -> Vec<Gone> {
    gone.sort_by_key(|one| (one.from_ns, std::cmp::Reverse(one.to_ns)));
    let mut apart: Vec<Gone> = Vec::new();
    for one in gone {
        let from_ns = apart.last().map_or(0, |last| last.to_ns).max(one.from_ns);
        if from_ns >= one.to_ns {
            continue;
        }
        let ns = in_proportion(one.to_ns - from_ns, one.ns, one.to_ns - one.from_ns);
        apart.push(Gone { from_ns, ns, ..one });
    }
    apart
}
