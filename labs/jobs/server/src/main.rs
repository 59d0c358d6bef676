//! A server on tokio's runtime of several threads, which hands each request's job to the runtime's
//! pool for blocking work.
//!
//! `jobs THREADS`: so many threads that pool has. Of four clients three ask for a report, which
//! sleeps for 60 ms. The fourth one asks for a thumbnail, which takes a moment.

use std::time::Duration;

use anyhow::{Context, Result};
use lab_kit::{announce, monotonic_ms};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::task::spawn_blocking;

fn main() -> Result<()> {
    let threads = std::env::args().nth(1).context("how many threads?")?;
    let runtime = Builder::new_multi_thread()
        .enable_all()
        .worker_threads(4)
        .max_blocking_threads(threads.parse()?)
        .build()?;
    runtime.block_on(serve())
}

async fn serve() -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    announce(&listener.local_addr()?.to_string())?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            if let Err(error) = converse(stream).await {
                eprintln!("jobs: {error:#}");
                std::process::exit(1);
            }
        });
    }
}

async fn converse(mut client: TcpStream) -> Result<()> {
    client.set_nodelay(true)?;
    while let Some(number) = receive_number(&mut client).await? {
        let read = monotonic_ms();
        let (begun, ended) = spawn_blocking(move || do_job(number)).await?;
        let body = json!({ "read": read, "begun": begun, "ended": ended }).to_string();
        let length = body.len();
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
        client.write_all(answer.as_bytes()).await?;
    }
    Ok(())
}

/// The number in the path that is asked for; `None` when the connection ends.
async fn receive_number(client: &mut TcpStream) -> Result<Option<u64>> {
    let mut received = Vec::new();
    while !received.ends_with(b"\r\n\r\n") {
        if client.read_buf(&mut received).await? == 0 {
            return Ok(None);
        }
    }
    let head = String::from_utf8(received)?;
    let path = head.split(' ').nth(1).context("a request without a path")?;
    Ok(Some(path.trim_start_matches('/').parse()?))
}

/// The number is 1000 * C + R, for round R of client C.
fn do_job(number: u64) -> (f64, f64) {
    let begun = monotonic_ms();
    if number / 1000 % 4 == 3 {
        make_thumbnail();
    } else {
        render_report();
    }
    (begun, monotonic_ms())
}

#[inline(never)]
fn render_report() {
    std::thread::sleep(Duration::from_millis(60));
}

#[inline(never)]
fn make_thumbnail() {
    std::hint::black_box((0..1000_u64).sum::<u64>());
}
