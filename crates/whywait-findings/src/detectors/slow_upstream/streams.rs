//! Requests whose calls go over HTTP/2, as gRPC's do: which reply is whose does not show, and most
//! of what is recorded as calls are PINGs. But who asks as soon as it has been read, is not replied
//! to at once, and answers as soon as there was a reply, waited for the peer meanwhile.

use whywait_model::calls::links::Http2Talk;
use whywait_model::{Model, Peer};
use whywait_words::{counted_as, duration, percent};

use super::together::{Together, last, next, spacing_ns};
use crate::facts::Facts;
use crate::finding::Finding;
use crate::numbers::{BY_CHANCE, HTTP2_PAIRED, MOST, Share};
use crate::shared::intervals::Interval;
use crate::shared::slow_paths::{SlowRequest, dominates};
use crate::shared::traffic::served;

/// Of how many slow requests it is known whether they ask and are answered so.
#[derive(Default)]
struct Counts {
    all: u64,
    /// Of these: it is known when what was read before their answer was.
    known: u64,
    /// … asked as soon as they had been read, and answered as soon as there was a reply.
    asked: u64,
    /// … and there was one as soon as they had asked, too.
    replied_at_once: u64,
}

/// How soon after another thing one comes that has to do with it.
struct AtOnce {
    sent_ns: u64,
    replied_ns: u64,
}

impl AtOnce {
    fn of(talk: &Http2Talk) -> Self {
        Self {
            sent_ns: BY_CHANCE.of(spacing_ns(&talk.sent)),
            replied_ns: BY_CHANCE.of(spacing_ns(&talk.replied)),
        }
    }
}

/// One for each process and peer.
pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let (model, slow_ns) = (facts.model, facts.slow().total_ns);
    let talks = model.http2_talks();
    if talks.is_empty() {
        return Vec::new();
    }
    let by_themselves = facts.slow_by_themselves();
    let of_each = talks.iter().filter_map(|talk| {
        let own = by_themselves.iter().copied();
        let own = own.filter(|slow| slow.request.tgid == talk.tgid);
        finding(model, talk, model.peer(talk.peer)?, own, slow_ns)
    });
    of_each.collect()
}

fn finding<'a>(
    model: &Model,
    talk: &Http2Talk,
    peer: Peer<'_>,
    requests: impl Iterator<Item = &'a SlowRequest<'a>>,
    slow_ns: u64,
) -> Option<Finding> {
    let at_once = AtOnce::of(talk);
    let mut counts = Counts::default();
    let mut waits: Vec<(u64, u64)> = Vec::new();
    for slow in requests {
        let request = slow.request;
        let (Some((from_ns, _)), Some(answer_ns)) = (served(&request), request.first_send_ns)
        else {
            continue;
        };
        counts.add(talk, &at_once, (from_ns, answer_ns), |wait_ns| {
            if dominates(wait_ns, slow.latency_ns) {
                waits.push((wait_ns, slow.latency_ns));
            }
        });
    }
    if !counts.show_it() {
        return None;
    }
    let asked = format!(
        "{} of {} asked within {} after they had been read, and answered within {} after something \
         else than a PING was read there, which is every {}",
        percent(counts.asked, counts.known),
        counted_as(counts.known, "slow request", "slow requests"),
        duration(at_once.sent_ns),
        duration(at_once.replied_ns),
        duration(spacing_ns(&talk.replied)),
    );
    let several = "what is sent there does not wait for the reply to what was sent before: which \
                   reply is whose does not show, nor how many calls each request made"
        .to_owned();
    let tids: Vec<u32> = talk.tids.iter().copied().collect();
    let waited = Together {
        peer,
        waits,
        over: "HTTP/2",
        tids: &tids,
    };
    waited.finding(model, slow_ns, [asked, several])
}

impl Counts {
    /// Counts a request, from its reading to its answer, and says for how long it waited.
    fn add(
        &mut self,
        talk: &Http2Talk,
        at_once: &AtOnce,
        (from_ns, answer_ns): Interval,
        mut waited: impl FnMut(u64),
    ) {
        self.all += 1;
        let sent_ns = next(&talk.sent, from_ns, at_once.sent_ns);
        let replied_ns = last(&talk.replied, answer_ns, at_once.replied_ns);
        let replied_ns = replied_ns.filter(|ns| *ns >= from_ns);
        // Of several things that were read in one row only the first and the last are known.
        let before = talk
            .between
            .partition_point(|(first, _)| *first < answer_ns);
        let within = before.checked_sub(1).map(|at| talk.between[at]);
        let may_have = within.is_some_and(|(_, last_ns)| answer_ns <= last_ns);
        if replied_ns.is_none() && may_have {
            return;
        }
        self.known += 1;
        let Some((sent_ns, replied_ns)) = sent_ns.zip(replied_ns).filter(|(sent, ns)| sent <= ns)
        else {
            return;
        };
        self.asked += 1;
        let at_once = next(&talk.replied, sent_ns, at_once.replied_ns);
        self.replied_at_once += u64::from(at_once.is_some());
        waited(replied_ns - sent_ns);
    }

    /// Whether they show that requests waited for replies.
    fn show_it(&self) -> bool {
        Share::new(self.known, self.all).is_at_least(*MOST)
            && Share::new(self.asked, self.known).is_at_least(*HTTP2_PAIRED)
            && Share::new(self.replied_at_once, self.asked).is_below(*MOST)
    }
}
