//! The connections on which threads may have slept when somebody looked.

use std::collections::BTreeMap;

use whywait_events::{Connection, Ns, Wait};

use crate::rows::Rows;
use crate::waits::system_call::{descriptor, is_accept};

/// The looks at the connections that the target had accepted.
#[derive(Debug, Clone, Default)]
pub struct OpenConnections {
    rows: Rows<Connection, 100_000>,
    /// Where in `rows`, in order of time, by process and descriptor.
    by_descriptor: BTreeMap<(u32, u32), Vec<usize>>,
}

impl OpenConnections {
    /// Takes a row of the recording.
    pub fn add(&mut self, row: &Connection) {
        let at = self.rows.len();
        if self.rows.push(row.clone()) {
            let of_descriptor = self.by_descriptor.entry((row.tgid, row.fd)).or_default();
            of_descriptor.push(at);
        }
    }

    pub(crate) fn left_out(&self) -> u64 {
        self.rows.left_out()
    }

    /// When it was looked at those of a port, and which processes had some.
    pub fn looks_at(&self, port: u16) -> BTreeMap<Ns, Vec<u32>> {
        let mut looks: BTreeMap<Ns, Vec<u32>> = BTreeMap::new();
        for row in self.rows.iter().filter(|row| row.local_port == port) {
            let tgids = looks.entry(row.at_ns).or_default();
            if tgids.last() != Some(&row.tgid) {
                tgids.push(row.tgid);
            }
        }
        looks
    }

    /// A connection when it was looked at.
    pub fn of_socket(&self, socket: u64, at_ns: Ns) -> Option<&Connection> {
        let mut rows = self.rows.iter();
        rows.find(|row| row.socket == socket && row.at_ns == at_ns)
    }

    /// The connection on which a thread slept when it was looked at. It may have slept for the
    /// client to send something, or to take something.
    pub fn slept_on(&self, wait: &Wait, at_ns: Ns) -> Option<&Connection> {
        let fd = u32::try_from(descriptor(wait)?).ok()?;
        if is_accept(wait) || at_ns < wait.out_ns || at_ns > wait.woken_ns() {
            return None;
        }
        let of_descriptor = self.by_descriptor.get(&(wait.tgid, fd))?;
        let mut rows = of_descriptor.iter().map(|at| &self.rows[*at]);
        rows.find(|row| row.at_ns == at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const RECV: u32 = 45;
    const ACCEPT: u32 = 43;

    #[test]
    fn whose_connection_a_thread_slept_on_shows_at_a_look() {
        let mut connections = OpenConnections::default();
        connections.add(&Connection {
            at_ns: 2 * S,
            tgid: 1,
            fd: 7,
            socket: 5,
            local_port: 80,
            ..Connection::default()
        });
        let sleep = |call: u32, fd: u64, from_s: u64, to_s: Option<u64>| Wait {
            tgid: 1,
            syscall: Some(call),
            args: [fd, 0, 0],
            out_ns: from_s * S,
            wake_ns: to_s.map(|s| s * S),
            in_ns: to_s.map(|s| s * S),
            ..Wait::default()
        };
        let on = |wait: &Wait| connections.slept_on(wait, 2 * S).is_some();
        assert!(on(&sleep(RECV, 7, 1, None)) && on(&sleep(RECV, 7, 1, Some(3))));
        assert!(!on(&sleep(RECV, 8, 1, None)), "another descriptor");
        assert!(!on(&sleep(RECV, 7, 0, Some(1))), "before");
        assert!(!on(&sleep(RECV, 7, 3, None)), "after");
        assert!(!on(&sleep(ACCEPT, 7, 1, None)), "a listener");
        assert_eq!(connections.looks_at(80), [(2 * S, vec![1])].into());
        assert_eq!(connections.looks_at(81), BTreeMap::new());
    }
}
