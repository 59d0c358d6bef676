//! As much of an HTTP/1.1 client as the labs' servers need: GET, keep-alive, Content-Length.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::stamps::Stamped;

/// No request of any lab takes longer; a server that hangs becomes an error instead of a hung lab.
const DEADLINE: Duration = Duration::from_secs(20);

/// One keep-alive connection.
pub(crate) struct Connection {
    stream: BufReader<Stamped>,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, DEADLINE)
            .with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        Ok(Self {
            stream: BufReader::new(Stamped::new(stream)),
        })
    }

    /// From now on it is known how long the kernel waited for a response.
    pub(crate) fn stamp(&mut self) -> Result<()> {
        Ok(self.stream.get_mut().stamp()?)
    }

    /// From when the kernel sent the last request until it had all of the response.
    pub(crate) fn on_the_wire(&mut self) -> Result<Duration> {
        let stream = self.stream.get_mut();
        let times = stream.sent().zip(stream.received());
        let (sent, received) = times.context("the kernel has not stamped a request")?;
        Ok(received.saturating_sub(sent))
    }

    /// Sends a request and reads its whole response; returns the body.
    pub(crate) fn get(&mut self, path: &str) -> Result<String> {
        self.send(path)?;
        self.response().with_context(|| format!("GET {path}"))
    }

    pub(crate) fn send(&mut self, path: &str) -> Result<()> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: lab\r\n\r\n");
        Ok(self.stream.get_mut().write_all(request.as_bytes())?)
    }

    /// Waits until the server has read all that was sent: on loopback it is in the receive queue of
    /// the server's socket once `send` returns, and the system's table of sockets says when it is
    /// gone from there.
    pub(crate) fn wait_until_read(&self) -> Result<()> {
        let stream = self.stream.get_ref().stream();
        let (server, client) = (stream.peer_addr()?.port(), stream.local_addr()?.port());
        let end = Instant::now() + DEADLINE;
        while received_unread(&std::fs::read_to_string("/proc/net/tcp")?, server, client)? > 0 {
            ensure!(Instant::now() < end, "the server did not read a request");
        }
        Ok(())
    }

    pub(crate) fn response(&mut self) -> Result<String> {
        let status = self.line()?;
        ensure!(
            status.split(' ').nth(1) == Some("200"),
            "the server answered {status:?}"
        );
        let mut length = None;
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = Some(value.trim().parse().context("not a length")?);
            }
        }
        let Some(length) = length else {
            bail!("a response without Content-Length");
        };
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// As `response`, or None when no byte of it has come until then.
    pub(crate) fn response_until(&mut self, end: Instant) -> Result<Option<String>> {
        let patience = end.saturating_duration_since(Instant::now());
        // A timeout of nothing would mean none at all.
        let patience = patience.max(Duration::from_millis(1));
        self.stream
            .get_ref()
            .stream()
            .set_read_timeout(Some(patience))?;
        let begun = self.stream.fill_buf().map(|bytes| bytes.len());
        self.stream
            .get_ref()
            .stream()
            .set_read_timeout(Some(DEADLINE))?;
        match begun {
            Ok(_) => self.response().map(Some),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(
            self.stream.read_line(&mut line)? > 0,
            "the server closed the connection"
        );
        Ok(line.trim_end().to_owned())
    }
}

/// The bytes in the receive queue of the socket with these ports, from the text of `/proc/net/tcp`.
fn received_unread(table: &str, local: u16, remote: u16) -> Result<u64> {
    let (local, remote) = (format!(":{local:04X}"), format!(":{remote:04X}"));
    let rows = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    for row in rows {
        if let [_, ours, theirs, _, queues, ..] = row[..]
            && ours.ends_with(&local)
            && theirs.ends_with(&remote)
        {
            let (_, received) = queues
                .split_once(':')
                .context("not a line of /proc/net/tcp")?;
            return Ok(u64::from_str_radix(received, 16)?);
        }
    }
    bail!("the server's socket is not in /proc/net/tcp")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_response_that_does_not_come_is_none() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut connection = Connection::open(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let now = Instant::now;
        assert_eq!(connection.response_until(now()).unwrap(), None);
        server
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            .unwrap();
        let soon = now() + Duration::from_secs(5);
        assert_eq!(connection.response_until(soon).unwrap().unwrap(), "ok");
        drop(server);
        assert!(connection.response_until(soon).is_err());
    }

    #[test]
    fn what_the_server_has_not_read_is_seen() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut connection = Connection::open(listener.local_addr().unwrap()).unwrap();
        let (mut server, client) = listener.accept().unwrap();
        connection.send("/").unwrap();
        let unread = || {
            let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
            received_unread(&table, server.local_addr().unwrap().port(), client.port()).unwrap()
        };
        assert!(unread() > 0);
        let mut request = vec![0; usize::try_from(unread()).unwrap()];
        server.read_exact(&mut request).unwrap();
        connection.wait_until_read().unwrap();
        assert!(received_unread("", 1, 2).is_err());
    }
}
