//! What requests are spared when the loop is not away.

use whywait_words::duration;

use std::collections::HashMap;

use super::{Asked, Away, DelayedRequest};
use crate::finding::{Evidence, RequestName};
use crate::numbers::{NOTABLE, Share};
use crate::shared::intervals::sum;
use crate::shared::replay::{Piece, Served, Turns, name};

/// What a fix saves each request at most: those that waited meanwhile, those that waited while the
/// loop caught up, and those whose work it was, for it may not be done at all. One that was given
/// up has no latency that could be less.
pub(super) fn saved(
    turns: &Turns,
    aways: &[Away],
    requests: &[Asked<'_>],
    victims: &[DelayedRequest<'_>],
) -> Vec<u64> {
    let piece = |away: &Away| Piece {
        from_ns: away.from_ns,
        to_ns: away.to_ns,
        // Work that is not there does not have to wait for a CPU either.
        ns: away.to_ns.saturating_sub(away.from_ns),
    };
    let pieces: Vec<Piece> = aways.iter().map(piece).collect();
    let served: Vec<Served> = requests
        .iter()
        .map(|asked| Served::of(asked.request).with_calls(&asked.calls))
        .collect();
    let waited: HashMap<RequestName, u64> = victims
        .iter()
        .map(|victim| (name(victim.request), victim.waited_ns))
        .collect();
    let replayed = served.iter().zip(turns.savings(&pieces, &served));
    replayed
        .zip(requests)
        .filter(|(_, asked)| asked.request.counts())
        .map(|((served, ns), _)| waited.get(&served.name).copied().unwrap_or(0).max(ns))
        .filter(|ns| *ns > 0)
        .collect()
}

/// How much of that is the work itself, of the requests that it was for.
pub(super) fn own_ns(aways: &[Away], requests: &[Asked<'_>]) -> u64 {
    let mut owners: HashMap<RequestName, u64> = HashMap::new();
    for away in aways {
        if let Some(owner) = away.owner {
            let ns = owners.entry(owner).or_default();
            *ns = ns.saturating_add(away.to_ns.saturating_sub(away.from_ns));
        }
    }
    let own = requests
        .iter()
        .map(|asked| asked.request)
        .filter(|request| request.counts())
        .filter_map(|request| {
            Some(
                owners
                    .get(&name(request))?
                    .min(&request.age_ns())
                    .to_owned(),
            )
        });
    sum(own)
}

/// That the bound has that, too.
pub(super) fn own(own_ns: u64, saved_ns: u64) -> Option<Evidence> {
    let text = format!(
        "of the bound {} is the work itself, of the requests that it was for: they keep it where \
         it moves off the loop, and are spared it where it is not done at all",
        duration(own_ns)
    );
    (own_ns > 0 && Share::new(own_ns, saved_ns).is_at_least(*NOTABLE))
        .then(|| Evidence::of_ns(own_ns, text))
}

/// That requests waited while the loop caught up, where that is a notable part of the bound.
pub(super) fn caught_up(meanwhile_ns: u64, saved_ns: u64) -> Option<Evidence> {
    let more_ns = saved_ns.saturating_sub(meanwhile_ns);
    let text = format!(
        "requests waited another {} at most while the loop caught up with what had come meanwhile: \
         the bound has that, too",
        duration(more_ns)
    );
    (more_ns > 0 && Share::new(more_ns, saved_ns).is_at_least(*NOTABLE))
        .then(|| Evidence::of_ns(more_ns, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn catching_up_is_worth_a_word_from_a_fiftieth_of_the_bound_on() {
        assert!(caught_up(980, 1_000).is_some());
        assert_eq!(caught_up(981, 1_000), None);
    }
}
