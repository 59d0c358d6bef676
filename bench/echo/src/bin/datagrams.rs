//! Datagrams of which each is answered before the next one is sent, as a program asks that looks up
//! names or counts something elsewhere.
//!
//! `datagrams answer ADDRESS` sends back what it gets.
//! `datagrams ask connected|unconnected ADDRESS` asks there for good, through a socket that is
//! connected or with the address in each call.

use std::io::{Error, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

/// About as long as a query for a name. All zeros: a message that asks nothing (RFC 1035).
const QUERY: [u8; 48] = [0; 48];
const PATIENCE: Duration = Duration::from_millis(100);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["answer", address] => answer(address.parse()?)?,
        ["ask", "connected", address] => ask(address.parse()?, true)?,
        ["ask", "unconnected", address] => ask(address.parse()?, false)?,
        _ => {
            return Err("usage: datagrams answer ADDRESS, or \
                        datagrams ask connected|unconnected ADDRESS"
                .into());
        }
    }
    Ok(())
}

fn answer(address: SocketAddr) -> std::io::Result<()> {
    let socket = UdpSocket::bind(address)?;
    let mut message = [0; 512];
    loop {
        let (length, from) = socket.recv_from(&mut message)?;
        // Who asked may have ended.
        let _ = socket.send_to(&message[..length], from);
    }
}

fn ask(address: SocketAddr, connected: bool) -> std::io::Result<()> {
    let socket = UdpSocket::bind((address.ip(), 0))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    if connected {
        socket.connect(address)?;
    }
    let mut message = [0; 512];
    loop {
        let sent = if connected {
            socket.send(&QUERY)
        } else {
            socket.send_to(&QUERY, address)
        };
        match sent.and_then(|_| socket.recv(&mut message)) {
            Ok(_) => {}
            Err(error) if nobody_answers(&error) => std::thread::sleep(PATIENCE),
            Err(error) => return Err(error),
        }
    }
}

/// Whoever answers begins later, as a rule.
fn nobody_answers(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused | ErrorKind::WouldBlock | ErrorKind::TimedOut
    )
}
