//! Requests: which are looked at one by one, how far each got, and where its time went.

pub mod abandoned;
pub mod accept_queues;
pub(crate) mod account;
pub(crate) mod effect;
pub(crate) mod histogram;
pub(crate) mod kept;
pub(crate) mod life;
pub(crate) mod lives;
pub(crate) mod multiplexed;
pub(crate) mod open;
pub mod open_connections;
pub(crate) mod request;
pub(crate) mod rests;
pub mod retries;
pub(crate) mod rows;
pub(crate) mod slowest;
pub(crate) mod summary;
pub mod tails;
pub(crate) mod task_waits;
pub mod under_way;
pub(crate) mod wire;

pub use abandoned::AbandonedRequests;
pub use accept_queues::{AcceptQueue, AcceptQueues};
pub use account::{Account, ReadyUnserved, Time};
pub use effect::{AtBest, SavingEffect};
pub use histogram::{Latency, LatencyBucket, Percentile};
pub use kept::{KeptRequests, OwnRequests};
pub use lives::{Life, Lives};
pub use multiplexed::Multiplexed;
pub use open::{OpenReader, OpenRequests};
pub use open_connections::OpenConnections;
pub use request::RequestRef;
pub use rests::OpenState;
pub use rows::RequestRow;
pub use slowest::RequestSums;
pub use summary::{Requests, Slow, SummedUp};
pub use tails::{Held, Tails};
pub use task_waits::{TaskHolder, TaskWaitKind, TaskWaitRow, TaskWaits};
pub use under_way::{OngoingResponses, ResponseLooks};
pub use wire::{Connecting, Sending, Sent, Wire};

#[cfg(test)]
mod tests;
