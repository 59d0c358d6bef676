//! How long clients wait whose packets a full accept queue dropped, by how they try again.
//!
//! Whose a dropped packet was is not known. Linux sends a SYN again after 1 s, and then after twice
//! as long each time (RFC 6298, `tcp_syn_retries`); what a client sent behind a handshake that the
//! server did not complete it sends again after 200 ms, and then after twice as long. A chain of
//! SYNs is the longer one of these for as many packets: several of them are one client, which waits
//! from the first of its packets until it is accepted, or the recording ends.

use whywait_events::Ns;

/// The first pause between SYNs.
const SYN_AGAIN_NS: u64 = 1_000_000_000;
/// Linux gives up after so many SYNs.
const MOST_SYNS: u32 = 7;
/// The first pause behind a handshake is 200 ms, and there the handshake's last packet and the
/// first data are dropped both.
const LEAST_NS: u64 = 100_000_000;

/// Packets that a full accept queue dropped between two looks at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    /// The look before.
    pub from_ns: Ns,
    /// The look after.
    pub to_ns: Ns,
    /// How many.
    pub packets: u32,
}

/// What clients waited together for the packets that were dropped, in order of time, until the
/// recording ended: at least, at most.
pub(crate) fn waited_ns(dropped: &[Dropped], end_ns: Ns) -> (u64, u64) {
    let Some(first) = dropped.first() else {
        return (0, 0);
    };
    let packets: u64 = dropped.iter().map(|one| u64::from(one.packets)).sum();
    let longest_ns = end_ns.max(first.to_ns).saturating_sub(first.from_ns);
    let client_ns = |tries: u64| (SYN_AGAIN_NS * ((1 << tries) - 1)).min(longest_ns);
    // Few clients that try often wait for longer each, but not beyond the end.
    let together_ns = |tries: u64| {
        (packets / tries)
            .saturating_mul(client_ns(tries))
            .saturating_add(client_ns(packets % tries))
    };
    let tries = 1..=u64::from(most_tries(dropped));
    let at_most_ns = tries.map(together_ns).max().unwrap_or(0);
    let at_least_ns = packets.saturating_mul(LEAST_NS).min(at_most_ns);
    (at_least_ns, at_most_ns)
}

/// How many SYNs of one client may be among them.
fn most_tries(dropped: &[Dropped]) -> u32 {
    // Of each, the tries that it may have been: bit 0 is the first.
    let mut may_be: Vec<u8> = Vec::with_capacity(dropped.len());
    for (at, one) in dropped.iter().enumerate() {
        let mut tries = 1;
        for n in 1..MOST_SYNS {
            let pause_ns = SYN_AGAIN_NS << (n - 1);
            let since_first_ns = pause_ns * 2 - SYN_AGAIN_NS;
            let earlier = dropped[..at].iter().zip(&may_be).rev();
            let mut earlier =
                earlier.take_while(|(before, _)| one.from_ns <= before.to_ns + pause_ns);
            let follows = earlier.any(|(before, tries)| {
                tries & 1 << (n - 1) != 0 && one.to_ns.saturating_sub(before.from_ns) >= pause_ns
            });
            let within = tries & 1 << (n - 1) != 0 && one.to_ns - one.from_ns >= since_first_ns;
            // Of each pause alone it does not show that all of them together are too long.
            let long_enough = one.to_ns - dropped[0].from_ns >= since_first_ns;
            if long_enough && (follows || within) {
                tries |= 1 << n;
            }
        }
        may_be.push(tries);
    }
    let most = may_be.iter().map(|tries| u8::BITS - tries.leading_zeros());
    let packets = dropped.iter().map(|one| one.packets);
    most.max()
        .unwrap_or(0)
        .min(packets.fold(0, u32::saturating_add))
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn waited_s(dropped: &[(u64, u64, u32)]) -> (f64, f64) {
        waited_until_s(dropped, 1000)
    }

    fn waited_until_s(dropped: &[(u64, u64, u32)], end_s: u64) -> (f64, f64) {
        let dropped: Vec<Dropped> = dropped
            .iter()
            .map(|(from, to, packets)| Dropped {
                from_ns: from * S,
                to_ns: to * S,
                packets: *packets,
            })
            .collect();
        let (least, most) = waited_ns(&dropped, end_s * S);
        (least as f64 / S as f64, most as f64 / S as f64)
    }

    #[test]
    fn nothing_dropped_is_no_wait() {
        assert_eq!(waited_s(&[]), (0.0, 0.0));
    }

    #[test]
    fn what_is_dropped_within_two_seconds_may_be_tried_twice() {
        assert_eq!(waited_s(&[(0, 2, 4)]), (0.4, 6.0));
        assert_eq!(waited_s(&[(0, 2, 1)]), (0.1, 1.0));
        assert_eq!(waited_s(&[(0, 2, 5)]), (0.5, 7.0));
    }

    /// Twelve clients, of which each dropped packet was taken for another one's, that waited for
    /// 15 s each.
    #[test]
    fn nobody_waits_for_longer_than_the_recording_lasts() {
        let dropped = [(0, 2, 24), (2, 4, 15), (4, 6, 12)];
        let (least, most) = waited_until_s(&dropped, 6);
        assert_eq!((least, most), (5.1, 17.0 * 6.0));
        assert_eq!(waited_until_s(&[(0, 1, 12)], 1).1, 12.0);
    }

    #[test]
    fn moments_far_apart_are_different_clients() {
        assert_eq!(waited_s(&[(0, 1, 4), (90, 91, 4)]).1, 12.0);
        // After 1 s, and then after 2 s.
        assert_eq!(waited_s(&[(0, 2, 1), (2, 4, 1), (4, 6, 1)]).1, 7.0);
    }
}
