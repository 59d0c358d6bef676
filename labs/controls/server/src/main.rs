//! A healthy blocking HTTP server: thread-per-connection, each request a wait of 5 ms.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

const WORK: Duration = Duration::from_millis(5);

fn main() -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let ready = std::env::var_os("READY_FILE")
        .context("READY_FILE must name the file to write when ready")?;
    std::fs::write(
        ready,
        format!("{} {}\n", std::process::id(), listener.local_addr()?),
    )?;
    for stream in listener.incoming() {
        let stream = stream?;
        // A client that goes away ends its thread, and nothing else.
        thread::spawn(move || serve(&stream));
    }
    Ok(())
}

fn serve(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut lines = BufReader::new(stream).lines();
    while let Some(line) = lines.next() {
        let mut header = line?;
        while !header.is_empty() {
            header = lines.next().unwrap_or(Ok(String::new()))?;
        }
        look_up();
        let mut stream = stream;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
    }
    Ok(())
}

/// Stands for a query to somewhere else. Not inlined, so that its frame is in the stack of a
/// release build.
#[inline(never)]
fn look_up() {
    thread::sleep(WORK);
}
