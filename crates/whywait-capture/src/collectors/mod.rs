//! What is watched: a folder for each collector.

use crate::core::collector::Collector;

pub(crate) mod abandoned;
pub(crate) mod accept_queues;
pub(crate) mod burst;
pub(crate) mod connections;
pub(crate) mod cpu;
pub(crate) mod cpu_limit;
pub(crate) mod dns;
pub(crate) mod exchanges;
pub(crate) mod file_locks;
pub(crate) mod futex;
pub(crate) mod herd;
pub(crate) mod names;
pub(crate) mod pushes;
pub(crate) mod responses;
pub(crate) mod samples;
pub(crate) mod sched;
pub(crate) mod sockets;
pub(crate) mod stacks;
pub(crate) mod sweep;
pub(crate) mod tails;
pub(crate) mod tasks;
pub(crate) mod threads;
pub(crate) mod tls;
pub(crate) mod uring;

/// All collectors, in the order in which they are attached, and look: switches before the threads
/// that are there already are looked for, so that none of theirs is missed.
pub(crate) const ALL: [&Collector; 24] = [
    &sched::COLLECTOR,
    &threads::COLLECTOR,
    &sockets::COLLECTOR,
    &tails::COLLECTOR,
    &abandoned::COLLECTOR,
    &dns::COLLECTOR,
    &pushes::COLLECTOR,
    &uring::COLLECTOR,
    &sweep::COLLECTOR,
    &burst::COLLECTOR,
    &herd::COLLECTOR,
    &samples::COLLECTOR,
    &stacks::COLLECTOR,
    &accept_queues::COLLECTOR,
    &connections::COLLECTOR,
    &responses::COLLECTOR,
    &exchanges::COLLECTOR,
    &names::COLLECTOR,
    &tls::COLLECTOR,
    &tasks::COLLECTOR,
    &cpu::COLLECTOR,
    &cpu_limit::COLLECTOR,
    &futex::COLLECTOR,
    &file_locks::COLLECTOR,
];
