//! The catalogue: every kind of finding, a line each, in the order in which `whywait explain` and
//! the documentation list them. Of findings that are equally severe and save as much, the one of
//! the earlier kind is reported first.
//!
//! A line names a room: a folder in `detectors/` with the kind's [`Declaration`], its tests and its
//! text for `whywait explain`. All else is derived from the declarations.

use crate::declaration::Declaration;
use crate::detectors::*;

/// The kinds of findings.
pub(crate) static CATALOGUE: &[&Declaration] = &[
    &stranded_readiness::DECLARATION,
    &workers_exhausted::DECLARATION,
    &queued_behind::DECLARATION,
    &accept_stalled::DECLARATION,
    &accept_overflow::DECLARATION,
    &blocked_loop::DECLARATION,
    &saturated::DECLARATION,
    &paused::DECLARATION,
    &lock_contention::DECLARATION,
    &slow_path_wait::DECLARATION,
    &slow_upstream::DECLARATION,
    &pool_exhausted::DECLARATION,
    &one_at_a_time::DECLARATION,
    &serial_calls::DECLARATION,
    &serial_work::DECLARATION,
    &nagle_delay::DECLARATION,
    &small_send_buffer::DECLARATION,
    &retransmits::DECLARATION,
    &slow_reader::DECLARATION,
    &push_held_up::DECLARATION,
    &abandoned_work::DECLARATION,
    &dns_timeout::DECLARATION,
    &connect_retried::DECLARATION,
    &cpu_limit::DECLARATION,
    &no_cpu::DECLARATION,
    &idle_waiters::DECLARATION,
    &deadlock::DECLARATION,
    &unfinished_wait::DECLARATION,
    &futile_wakeups::DECLARATION,
    &thundering_herd::DECLARATION,
    &uring_failed::DECLARATION,
    &uring_leaked::DECLARATION,
    &uring_unreaped::DECLARATION,
    &uring_unsubmitted::DECLARATION,
    &uring_slots_exhausted::DECLARATION,
    &uring_overflow::DECLARATION,
    &uring_punted::DECLARATION,
    &uring_worker_storm::DECLARATION,
    &uring_idle_sqpoll::DECLARATION,
    &uring_unbatched::DECLARATION,
];
