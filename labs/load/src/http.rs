//! As much of an HTTP/1.1 client as the labs' servers need: GET, keep-alive, Content-Length.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// No request of any lab takes longer; a server that hangs becomes an error instead of a hung lab.
const DEADLINE: Duration = Duration::from_secs(20);

/// One keep-alive connection.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, DEADLINE)
            .with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// Sends a request and reads its whole response; returns the body.
    pub(crate) fn get(&mut self, path: &str) -> Result<String> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: lab\r\n\r\n");
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.response().with_context(|| format!("GET {path}"))
    }

    fn response(&mut self) -> Result<String> {
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

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(
            self.stream.read_line(&mut line)? > 0,
            "the server closed the connection"
        );
        Ok(line.trim_end().to_owned())
    }
}
