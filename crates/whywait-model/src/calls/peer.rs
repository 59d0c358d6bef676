//! Whom the target asked: its name.

use std::fmt;

use whywait_events::PeerSums;
use whywait_words::process_name;

use super::service::service;

/// One whom the target asked. Displays as `127.0.0.1:5432 (postgres)`: its address, and the process
/// behind it where that is known, or else what is usual at its port.
#[derive(Debug, Clone, Copy)]
pub struct Peer<'m>(pub(super) &'m PeerSums);

impl<'m> Peer<'m> {
    /// Its number in the recording.
    pub fn number(self) -> u32 {
        self.0.id
    }

    /// `127.0.0.1:5432`, `[::1]:5432`, `/run/db.sock`. Hostile.
    pub fn address(self) -> String {
        let PeerSums { address, port, .. } = self.0;
        match (self.0.id, *port) {
            (0, _) => "other peers".to_owned(),
            (_, 0) => address.clone(),
            (_, port) if address.contains(':') => format!("[{address}]:{port}"),
            (_, port) => format!("{address}:{port}"),
        }
    }

    /// The name of the process behind it, hostile; `None` when it is not known.
    pub fn process(self) -> Option<&'m str> {
        Some(process_name(&self.0.process)).filter(|name| !name.is_empty())
    }

    /// The process behind it.
    pub fn tgid(self) -> Option<u32> {
        (self.0.tgid != 0).then_some(self.0.tgid)
    }

    /// What the exchanges with it came to.
    pub fn sums(self) -> &'m PeerSums {
        self.0
    }

    /// What usually listens at its port.
    pub fn service(self) -> Option<&'static str> {
        service(self.0.port)
    }
}

impl fmt::Display for Peer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address())?;
        match self.process().or(self.service()) {
            Some(name) => write!(f, " ({name})"),
            None => Ok(()),
        }
    }
}
