//! The catalogue: every kind of finding, a line each, in the order in which `whywait explain` and
//! the documentation list them. Of findings that are equally severe and save as much, the one of
//! the earlier kind is reported first.
//!
//! A line names a room: a folder in `detectors/` with the kind's [`Declaration`], its tests and its
//! text for `whywait explain`. All else is derived from the declarations.

use crate::declaration::Declaration;

macro_rules! catalogue {
    ($($room:ident,)+) => {
        /// The rooms.
        #[path = "detectors"]
        pub(crate) mod detectors {
            $(pub(crate) mod $room;)+
        }

        /// The kinds of findings.
        pub(crate) static CATALOGUE: &[&Declaration] = &[$(&detectors::$room::DECLARATION,)+];
    };
}

catalogue! {
    stranded_readiness,
    workers_exhausted,
    accept_stalled,
    accept_overflow,
    blocked_loop,
    lock_contention,
    slow_path_wait,
    slow_upstream,
    pool_exhausted,
    one_at_a_time,
    serial_calls,
    serial_work,
    nagle_delay,
    small_send_buffer,
    retransmits,
    slow_reader,
    abandoned_work,
    dns_timeout,
    connect_retried,
    cpu_limit,
    idle_waiters,
    deadlock,
    unfinished_wait,
    futile_wakeups,
    thundering_herd,
    uring_failed,
    uring_leaked,
    uring_unreaped,
    uring_unsubmitted,
    uring_slots_exhausted,
    uring_overflow,
    uring_punted,
    uring_worker_storm,
    uring_idle_sqpoll,
    uring_unbatched,
    recording_incomplete,
}
