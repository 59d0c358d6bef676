//! Requests: which are looked at one by one, how far each got, and where its time went.

pub mod abandoned;
pub mod accept_queues;
pub(crate) mod account;
pub(crate) mod datagrams;
pub(crate) mod effect;
pub(crate) mod histogram;
pub(crate) mod jobs;
pub(crate) mod kept;
pub(crate) mod life;
pub(crate) mod lives;
pub(crate) mod multiplexed;
pub(crate) mod open;
pub mod open_connections;
pub mod pushes;
pub(crate) mod request;
pub(crate) mod rests;
pub mod retries;
pub(crate) mod routes;
pub(crate) mod rows;
pub(crate) mod slowest;
pub(crate) mod streams;
mod stuck_tasks;
pub(crate) mod summary;
pub mod tails;
mod task_rounds;
pub(crate) mod task_waits;
pub mod under_way;
pub(crate) mod wire;

pub use abandoned::AbandonedRequests;
pub use accept_queues::{AcceptQueue, AcceptQueues};
pub use account::{Account, ReadyUnserved, Time};
pub use datagrams::Datagrams;
pub use effect::{AtBest, SavingEffect};
pub use histogram::{Latency, LatencyBucket, Percentile};
pub use jobs::{Jobs, KeptJobs};
pub use kept::{KeptRequests, OwnRequests};
pub use lives::{Life, Lives};
pub use multiplexed::Multiplexed;
pub use open::{OpenReader, OpenRequests};
pub use open_connections::OpenConnections;
pub use request::RequestRef;
pub use rests::OpenState;
pub use routes::{RouteRow, Routes};
pub use rows::RequestRow;
pub use slowest::RequestSums;
pub use streams::Http2Streams;
pub use stuck_tasks::StuckTask;
pub use summary::{Requests, Slow, SummedUp};
pub use tails::{Held, Tails};
pub use task_waits::{TaskHolder, TaskWaitKind, TaskWaitRow, TaskWaits, TasksPast};
pub use under_way::{OngoingResponses, ResponseLooks};
pub use wire::{Connecting, Sending, Sent, Wire};

#[cfg(test)]
mod tests;
