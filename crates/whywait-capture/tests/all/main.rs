//! Recording with real BPF, and what the sources hold.

mod abandoned;
mod accept_queues;
mod arrivals;
mod clock_rates;
mod common;
mod connection_ends;
mod cpu_waits;
mod datagrams;
mod dns;
mod exchanges;
mod headers;
mod jobs;
mod kernel_functions;
mod many_sockets;
mod multiplexed;
mod names;
mod open_connections;
mod own_requests;
mod python_samples;
mod sleepers_stacks;
mod slots;
mod streams;
mod tails;
mod task_looks;
mod unseen_switches;
mod uring_pending;
