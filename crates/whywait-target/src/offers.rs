//! What there is to name, for completions.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use crate::cgroups;
use crate::containers as engines;
use crate::listeners::{self, listeners};
use crate::processes;

/// Something that can be named, and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The name.
    pub name: OsString,
    /// What it is, safe to print.
    pub what: String,
}

/// The processes that run a program.
pub fn pids() -> Vec<Offer> {
    let mut pids = processes::all();
    pids.retain(|pid| !processes::is_kernel_thread(*pid) && *pid != std::process::id());
    pids.sort_unstable();
    let offer = |pid: u32| Offer {
        name: pid.to_string().into(),
        what: processes::shown(pid),
    };
    pids.into_iter().map(offer).collect()
}

/// The TCP ports on which somebody listens here.
pub fn ports() -> Vec<Offer> {
    let sockets = listeners("self");
    let inodes: Vec<u64> = sockets.iter().map(|it| it.inode).collect();
    let holders = listeners::who_has(&inodes, &processes::all());
    let mut found = BTreeMap::new();
    for socket in sockets {
        let who = holders.get(&socket.inode).and_then(|pids| pids.first());
        let who = who.map_or_else(String::new, |pid| processes::shown(*pid));
        found.entry(socket.port).or_insert(who);
    }
    let offer = |(port, what): (u16, String)| Offer {
        name: port.to_string().into(),
        what,
    };
    found.into_iter().map(offer).collect()
}

/// The units of systemd that have processes.
pub fn units() -> Vec<Offer> {
    let mut found = BTreeMap::new();
    for hierarchy in cgroups::mounted() {
        cgroups::find(&hierarchy.point, &mut |dir| {
            let name = dir.file_name().unwrap_or_default();
            let bytes = name.as_encoded_bytes();
            let is_unit = bytes.ends_with(b".service") || bytes.ends_with(b".scope");
            if is_unit && let Some(first) = cgroups::processes_in(dir).first() {
                found.insert(name.to_owned(), processes::shown(*first));
            }
            false
        });
    }
    let offer = |(name, what)| Offer { name, what };
    found.into_iter().map(offer).collect()
}

/// The containers, by name where it is known, else by id.
pub fn containers() -> Vec<Offer> {
    let all = engines::all(&cgroups::mounted(), Path::new("/"));
    let offers = all.into_iter().map(|container| {
        let short = container.short().to_owned();
        let name = container.names.first().cloned();
        Offer {
            name: name.unwrap_or_else(|| short.clone()).into(),
            what: short,
        }
    });
    offers.collect()
}
