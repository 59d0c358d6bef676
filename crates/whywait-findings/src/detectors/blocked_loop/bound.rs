//! What requests are spared when the loop is not away.

use whywait_words::duration;

use std::collections::HashMap;

use super::{Asked, Away, DelayedRequest};
use crate::finding::Evidence;
use crate::numbers::{AWAY_SAVED_NS, NOTABLE, Share};
use crate::shared::replay::{Piece, RequestName, Served, Turns, name};

/// What a fix saves each request at most: those that waited meanwhile, and those that waited while
/// the loop caught up. One that was given up has no latency that could be less.
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
        stays_with: away.owner,
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
        .filter(|ns| *ns >= *AWAY_SAVED_NS)
        .collect()
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
