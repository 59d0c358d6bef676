//! Replays a recorded schedule with something relaxed, and measures what that saves.
//!
//! A part of a work's own time is not all that a fix of it saves. Whoever queues behind that work,
//! in a loop, for a worker, for a lock or for a connection, waits for less, too. So what was
//! recorded is written down as a [`Schedule`]: when each work came, which resources it took and
//! gave back, how long it had each, which events it waited for. The replay goes through it again
//! with a [`Relaxation`]: a resource has more slots, or what something took takes less.
//!
//! This crate measures and says nothing: what a resource is, and how a fix is called, is for those
//! who use it.
//!
//! A replay that changes nothing has to be what was recorded ([`Schedule::reproduced`]): otherwise
//! it says nothing of a change, and a bound has to do without ([`Schedule::at_most`]). Bounds rest
//! on four things besides. Arrivals stay where they were, unless a client is known to have waited
//! for an answer. Queues are served in order of arrival; where the recorded order was another one,
//! in that one, and nothing becomes later than it was. Nobody is saved more than it took. And what
//! the recording does not have keeps no slot in the replay, so that it makes a bound larger and
//! never smaller.

mod engine;
mod relaxation;
mod reproduced;
mod schedule;

pub use engine::Replayed;
pub use relaxation::{Left, Relaxation};
pub use reproduced::{Average, Off, Reproduced};
pub use schedule::{Resource, Schedule, Step, What, Work};

#[cfg(test)]
mod tests;
