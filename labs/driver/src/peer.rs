//! A program that a lab's server talks to, such as a database or another service. It is not
//! watched.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::process::{Group, wait_for};
use crate::session::{READY_DEADLINE, Run, expand_all, read_ready_file};

/// Runs from before the server's start to after its end.
pub(crate) struct Peer {
    _group: Group,
    address: String,
}

impl Peer {
    /// Starts the variant's peer, if it has one, and waits until it serves.
    pub(crate) fn start(run: &Run, tmp: &Path) -> Result<Option<Self>> {
        let Some(words) = &run.variant.peer else {
            return Ok(None);
        };
        let words = expand_all(run, tmp, words, &[])?;
        let ready_file = tmp.join("peer-ready");
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env("READY_FILE", &ready_file);
        command.stdin(Stdio::null()).stdout(std::io::stderr());
        let mut group = Group::spawn("the peer", &mut command)?;
        let (_, address) = wait_for("the peer to be ready", READY_DEADLINE, || {
            let found = read_ready_file(&ready_file)?;
            if found.is_none()
                && let Some(status) = group.exited()?
            {
                bail!("the peer ended before it was ready: {status}");
            }
            Ok(found)
        })?;
        Ok(Some(Self {
            _group: group,
            address,
        }))
    }

    /// Where it serves: `{peer}` for the server and the load.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }
}
