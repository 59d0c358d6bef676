//! A server on tokio with two workers. A request computes for 24 ms, a millisecond at a time, and
//! lets others run in between; with `--cheap` it computes for one.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::task::yield_now;

const WORKERS: usize = 2;
const TURN: Duration = Duration::from_millis(1);
const TURNS: u32 = 24;

fn main() -> Result<()> {
    let turns = match std::env::args().nth(1).as_deref() {
        None => TURNS,
        Some("--cheap") => 1,
        Some(other) => bail!("unknown option {other}"),
    };
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(WORKERS).enable_io().build();
    runtime.context("no runtime")?.block_on(serve(turns))
}

async fn serve(turns: u32) -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let ready = std::env::var_os("READY_FILE").context("READY_FILE names no file")?;
    let address = listener.local_addr()?;
    std::fs::write(&ready, format!("{} {address}\n", std::process::id()))?;
    let page = get(move || render_page(turns));
    axum::serve(listener, Router::new().route("/page", page)).await?;
    Ok(())
}

async fn render_page(turns: u32) -> &'static str {
    for _ in 0..turns {
        render_row();
        yield_now().await;
    }
    "page"
}

#[inline(never)]
fn render_row() {
    let begun = Instant::now();
    let mut sum = 0_u64;
    while begun.elapsed() < TURN {
        for n in 0..1_000_u64 {
            sum = black_box(sum.wrapping_mul(31).wrapping_add(n));
        }
    }
}
