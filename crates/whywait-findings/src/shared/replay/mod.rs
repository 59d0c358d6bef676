//! What would have been: the recorded schedule, replayed without what was wrong.
//!
//! A part of a request's own time is not all that a fix of it saves. Who queues behind the request,
//! in a loop or for a worker, waits for less, too; so does who waits for a lock that it has, and
//! whoever waits for the same event. So what was recorded is written down as a schedule (arrivals,
//! who serves, in which pieces, locks, events) and replayed with a relaxation: a part takes no
//! time, a lock does not exclude, there are more servers. The engine, and what its bounds rest on,
//! is `whywait-replay`'s. So is the guard: a replay that changes nothing is off by [`REPLAY_OFF`]
//! at most, or else the bound is what it is without a replay, which is looser. Two kinds of replay
//! have none, for what was recorded is what they begin with: a loop's own time, in order, and a
//! pool whose threads idled while requests waited.
//!
//! [`REPLAY_OFF`]: crate::numbers::REPLAY_OFF

mod behind;
mod crew;
mod crews;
mod events;
mod locks;
mod pool;
mod turns;
mod workers;

pub(crate) use behind::{Behind, Bound, Gone, Spared};
pub(crate) use crews::{ReadByThread, workers_of};
pub(crate) use locks::lock_of;
pub(crate) use pool::{episodes, replayed};
pub(crate) use turns::{Piece, Served, Turns, name};
pub(crate) use workers::{ServersAsTheyWere, Worked, median_ns};
