//! What would have been: the recorded schedule, replayed without what was wrong.
//!
//! A part of a request's own time is not all that a fix of it saves. Who queues behind the request,
//! in a loop or for a worker, waits for less, too; so does who waits for a lock that it has, and
//! whoever waits for the same event. So what was recorded is written down as a schedule (arrivals,
//! who serves, in which pieces, locks, events) and replayed in order of arrival with a change: a
//! part takes no time, a lock does not exclude, there are more servers.
//!
//! Bounds rest on three things. Arrivals stay where they were, unless a client is known to have
//! waited for an answer. Nothing is later than it was. And nobody is saved more than it took. What
//! the recording does not have, such as requests that were over too soon to have a row, keeps no
//! server in the replay, so that it makes a bound larger and never smaller.

mod behind;
mod crew;
mod crews;
mod engine;
mod events;
mod locks;
mod pool;
mod schedule;
mod turns;
mod workers;

pub(crate) use behind::{Behind, Gone, Spared};
pub(crate) use crews::{InHand, workers_of};
pub(crate) use locks::lock_of;
pub(crate) use pool::{episodes, replayed};
pub(crate) use turns::{Name, Piece, Served, Turns, name};
pub(crate) use workers::{Worked, latencies, median_ns};

#[cfg(test)]
mod tests;
