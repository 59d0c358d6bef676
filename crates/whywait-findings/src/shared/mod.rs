//! What several detectors need.

pub(crate) mod crowding;
pub(crate) mod events;
pub(crate) mod functions;
pub(crate) mod given_up;
pub(crate) mod in_kernel;
pub(crate) mod intervals;
pub(crate) mod jobs;
pub(crate) mod lanes;
pub(crate) mod naming;
pub(crate) mod pauses;
pub(crate) mod pollers;
pub(crate) mod queues;
pub(crate) mod reasons;
pub(crate) mod replay;
pub(crate) mod rings;
pub(crate) mod runtime;
pub(crate) mod slow_paths;
pub(crate) mod spinning;
pub(crate) mod tails;
pub(crate) mod task_places;
pub(crate) mod task_waits;
pub(crate) mod threads;
pub(crate) mod traffic;
pub(crate) mod unfinished;
pub(crate) mod without_cpu;
pub(crate) mod workers;
