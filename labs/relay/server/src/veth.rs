//! Two network namespaces with a veth pair between them: the relay's and the load's.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Both of a run's namespaces begin so; then comes the relay's pid. The load finds its own by the
/// second's full name.
const PREFIX: &str = "whywait-relay-";
/// Where `ip netns` keeps them.
const NAMESPACES: &str = "/run/netns";
const RELAY: Ipv4Addr = Ipv4Addr::new(10, 213, 77, 1);
const LOAD: Ipv4Addr = Ipv4Addr::new(10, 213, 77, 2);

/// Where the relay's sockets are.
pub(crate) struct Host {
    pub(crate) address: Ipv4Addr,
    load: Option<(String, Ipv4Addr)>,
}

impl Host {
    pub(crate) fn loopback() -> Self {
        Self {
            address: Ipv4Addr::LOCALHOST,
            load: None,
        }
    }

    /// What the load has to know besides the relay's addresses: its own, and the namespace to go
    /// into.
    pub(crate) fn namespace(&self) -> String {
        self.load
            .as_ref()
            .map_or_else(String::new, |(name, address)| {
                format!(",{address},{NAMESPACES}/{name}")
            })
    }
}

/// Makes the namespaces and goes into the first. They go away with SIGTERM or SIGINT; after a
/// harder end, with the next run.
pub(crate) fn enter() -> Result<Host> {
    remove_stale();
    let pid = std::process::id();
    let (own, load) = (
        format!("{PREFIX}{pid}-relay"),
        format!("{PREFIX}{pid}-load"),
    );
    // Before there is anything to remove, so that there is no moment without it; all other threads
    // inherit nothing that would keep a signal from it.
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let mine = [own.clone(), load.clone()];
    lab_kit::named("signals", move || {
        signals.forever().next();
        remove(&mine);
        std::process::exit(0);
    })?;
    for name in [&own, &load] {
        ip(&format!("netns add {name}"))?;
    }
    ip(&format!(
        "link add veth0 netns {own} type veth peer name veth0 netns {load}"
    ))?;
    for (name, address) in [(&own, RELAY), (&load, LOAD)] {
        ip(&format!("-n {name} address add {address}/30 dev veth0"))?;
        ip(&format!("-n {name} link set veth0 up"))?;
    }
    // The threads that are started from now on are in it too.
    let file = File::open(Path::new(NAMESPACES).join(&own))?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
        .context("cannot go into the namespace")?;
    Ok(Host {
        address: RELAY,
        load: Some((load, LOAD)),
    })
}

fn ip(words: &str) -> Result<()> {
    // Debian keeps it where only root's PATH looks.
    let path = format!(
        "{}:/usr/sbin:/sbin",
        std::env::var("PATH").unwrap_or_default()
    );
    let status = Command::new("ip")
        .args(words.split_whitespace())
        .env("PATH", path)
        .status()
        .context("cannot run ip, which is in iproute2")?;
    ensure!(status.success(), "ip {words}: {status}");
    Ok(())
}

fn remove(names: &[String]) {
    for name in names {
        ip(&format!("netns delete {name}")).ok();
    }
}

/// Removes what runs have left that could not remove it themselves.
fn remove_stale() {
    let Ok(entries) = std::fs::read_dir(NAMESPACES) else {
        return;
    };
    let names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let stale = names.filter(|name| {
        let pid = name
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split('-').next());
        pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists())
    });
    remove(&stale.collect::<Vec<_>>());
}
