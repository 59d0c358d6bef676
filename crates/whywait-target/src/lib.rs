//! Which processes are meant, when somebody names a number, a port, a name, a unit, a container or
//! a cgroup. All of it is read from `/proc`, from cgroups and from files of container engines: no
//! D-Bus, no daemon, no BPF.
//!
//! What is read is hostile: a process chooses its name, and whoever may make a cgroup chooses its
//! path. Names are compared as bytes, and escaped wherever they are said.

mod cgroups;
mod containers;
mod error;
mod found;
mod listeners;
mod offers;
mod processes;
mod resolve;
mod server;

pub use cgroups::{Hierarchy, hierarchies, processes_in};
pub use error::{OwnPidNamespace, Unresolved};
pub use found::{FoundServers, Server};
pub use listeners::{ListeningSocket, listeners, who_has};
pub use offers::{Offer, containers, pids, ports, units};
pub use processes::{
    alive, all as all_processes, command_begins, command_line, in_own_pid_namespace, inner_number,
    namespace, with_descendants,
};
pub use resolve::{Named, resolve};
