//! io_uring: slots that a socket holds, not the loop.
//!
//! A send for which the socket's buffer has no room waits, with the kernel, until the peer (or the
//! network) has taken some of what is in it. The kernel reports which operations waited for
//! readiness, and how long those took, so that part of an operation's life is known. Memory for
//! sockets may be short, too: that is counted where it meets a send.

use whywait_events::uring::Sum;

use crate::rings::RingState;

/// Whether operations send: by their opcode, or as writes to nothing but sockets.
fn sends(sum: &Sum) -> bool {
    // WRITEV, WRITE_FIXED, WRITE, WRITEV_FIXED.
    const WRITES: [u32; 4] = [2, 5, 23, 61];
    const SOCKET: u32 = 1 << 12;
    // SENDMSG, SEND, SEND_ZC, SENDMSG_ZC.
    matches!(sum.opcode, 9 | 26 | 47 | 48) || (WRITES.contains(&sum.opcode) && sum.kinds == SOCKET)
}

/// Sends that waited for room in their socket's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockedSends {
    /// How many sends there were.
    pub sends: u64,
    /// How many of them waited.
    pub waited: u64,
    /// For how long those were with the kernel, nanoseconds.
    pub ns: u64,
}

impl RingState {
    /// For how long entries may have been held back before they were published, at most, times
    /// entries, nanoseconds. 0 where a good part of it was seen in the queue: there the library
    /// publishes each entry as it is made, and it shows how long it lay there. (Those that publish
    /// as they submit are seen doing it now and then, too, but not for long.)
    pub fn held_back_ns(&self) -> u64 {
        if self.ring.queued_low_ns > self.ring.held_back_ns / 10 {
            return 0;
        }
        self.ring.held_back_ns
    }

    /// Its sends that waited for room.
    pub fn blocked_sends(&self) -> BlockedSends {
        let mut all = BlockedSends::default();
        for sum in self.sums.iter().filter(|sum| sends(sum)) {
            all.sends = all.sends.saturating_add(sum.completed);
            all.waited = all.waited.saturating_add(sum.polled_timed);
            all.ns = all.ns.saturating_add(sum.polled_ns);
        }
        all
    }

    /// Whether sockets held the ring's slots for longer than completions did that nobody took, at
    /// most, and for most of the time that operations were with the kernel: then taking completions
    /// sooner frees few of them.
    pub fn held_by_sockets(&self) -> bool {
        let kernel_ns = self
            .sums
            .iter()
            .filter(|sum| !crate::rings::is_standing_order(sum))
            .map(|sum| sum.kernel_ns)
            .fold(0, u64::saturating_add);
        let held_ns = self.blocked_sends().ns;
        held_ns > self.ring.unreaped_high_ns && held_ns > kernel_ns / 2
    }
}
