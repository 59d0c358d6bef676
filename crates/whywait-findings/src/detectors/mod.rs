//! One room per finding: the detector, its tests and what `whywait explain` says.

pub(crate) mod blocked_loop;
pub(crate) mod cpu_limit;
pub(crate) mod deadlock;
pub(crate) mod futile_wakeups;
pub(crate) mod idle_waiters;
pub(crate) mod lock_contention;
pub(crate) mod recording_incomplete;
pub(crate) mod serial_work;
pub(crate) mod slow_path_wait;
pub(crate) mod stranded_readiness;
pub(crate) mod thundering_herd;
pub(crate) mod unfinished_wait;
pub(crate) mod uring_idle_sqpoll;
pub(crate) mod uring_overflow;
pub(crate) mod uring_punted;
pub(crate) mod uring_slots_exhausted;
pub(crate) mod uring_unreaped;
pub(crate) mod uring_unsubmitted;
