//! Two servers on a tokio runtime of one thread, whose handler computes for 60 ms.
//!
//! `--tokio` speaks HTTP itself, a task for each connection; `--axum` has axum do it. In a release
//! build neither handler has a frame: the compiler inlines it into the runtime's generic code.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use axum::Router;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

const RENDER: Duration = Duration::from_millis(60);

fn main() -> Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    match std::env::args().nth(1).as_deref() {
        Some("--tokio") => runtime.block_on(serve_alone()),
        Some("--axum") => runtime.block_on(serve_with_axum()),
        _ => bail!("usage: blame --tokio|--axum"),
    }
}

async fn listen() -> Result<TcpListener> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let ready = std::env::var_os("READY_FILE").context("READY_FILE is not set")?;
    let address = listener.local_addr()?;
    std::fs::write(ready, format!("{} {address}\n", std::process::id()))?;
    Ok(listener)
}

async fn serve_alone() -> Result<()> {
    let listener = listen().await?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(serve_connection(stream));
    }
}

/// Keep-alive, GET only: what the labs' clients speak. A request comes whole.
async fn serve_connection(mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = [0; 4096];
    while stream.read(&mut buffer).await? > 0 {
        let body = render_thumbnail();
        let length = body.len();
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
        stream.write_all(answer.as_bytes()).await?;
    }
    Ok(())
}

async fn serve_with_axum() -> Result<()> {
    let app = Router::new().route("/thumbnail", get(thumbnail));
    axum::serve(listen().await?, app).await?;
    Ok(())
}

async fn thumbnail() -> String {
    render_thumbnail()
}

/// The work, for a fixed time: the promise shall not depend on the machine's speed. Inlined, as the
/// compiler does it with small functions: only line tables can name it.
#[inline(always)]
fn render_thumbnail() -> String {
    let end = Instant::now() + RENDER;
    let mut pixels = 0_u64;
    while Instant::now() < end {
        for pixel in 0..10_000_u64 {
            pixels = black_box(pixels.wrapping_mul(31).wrapping_add(pixel));
        }
    }
    format!("thumbnail {}", pixels & 1)
}
