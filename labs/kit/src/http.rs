//! As much of a blocking HTTP/1.1 server as the labs need: thread-per-connection.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use anyhow::Result;

use crate::{announce, named};

/// Listens on a port of the system's choice, says so, and answers each GET with what `answer` makes
/// of its path.
pub fn serve(answer: impl Fn(&str) -> Result<String> + Send + Sync + 'static) -> Result<()> {
    serve_by_number(
        |number| format!("conn-{number}"),
        move |_, path| answer(path),
    )
}

/// The same, where the answer depends on which connection it is, counted from 0, and so does the
/// name of its thread.
pub fn serve_by_number(
    name: impl Fn(usize) -> String,
    answer: impl Fn(usize, &str) -> Result<String> + Send + Sync + 'static,
) -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    announce(&listener.local_addr()?.to_string())?;
    let answer = Arc::new(answer);
    for (number, stream) in listener.incoming().enumerate() {
        let (stream, answer) = (stream?, Arc::clone(&answer));
        // A client that goes away ends its thread, and nothing else.
        named(&name(number), move || {
            converse(&stream, &|path| answer(number, path))
        })?;
    }
    Ok(())
}

fn converse(stream: &TcpStream, answer: &dyn Fn(&str) -> Result<String>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut lines = BufReader::new(stream).lines();
    while let Some(request) = lines.next() {
        let request = request?;
        while !lines.next().unwrap_or(Ok(String::new()))?.is_empty() {}
        let path = request.split(' ').nth(1).unwrap_or_default();
        let (status, body) = match answer(path) {
            Ok(body) => ("200 OK", body),
            Err(error) => ("500 Internal Server Error", format!("{error:#}")),
        };
        let length = body.len();
        let mut stream = stream;
        stream.write_all(
            format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}").as_bytes(),
        )?;
    }
    Ok(())
}
