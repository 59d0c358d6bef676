//! A small image server on a tokio pool of four workers.
//!
//! A request for `/image` takes two seconds of synchronous work. Where that work is done, and on
//! which kind of runtime, is what the lab's variants differ in; `lab.toml` says which is which.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use axum::Router;
use axum::extract::State;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

const WORKERS: usize = 4;
const RENDER: Duration = Duration::from_secs(2);

/// What a request's two seconds consist of.
#[derive(Clone, Copy)]
enum Work {
    Sleep,
    Cpu,
}

/// Where the two seconds are spent.
#[derive(Clone)]
enum Place {
    /// In the handler, on a worker.
    Handler,
    /// In the handler, once as many requests are there as the pool has workers.
    Batch(Arc<Batch>),
    /// On tokio's pool for blocking work.
    BlockingPool,
}

#[derive(Clone)]
struct Server {
    work: Work,
    place: Place,
}

struct Options {
    work: Work,
    place: fn() -> Place,
    eager_handoff: bool,
}

fn main() -> Result<()> {
    let options = parse_args()?;
    let runtime = runtime(options.eager_handoff)?;
    let server = Server {
        work: options.work,
        place: (options.place)(),
    };
    runtime.block_on(serve(server))
}

fn parse_args() -> Result<Options> {
    use lexopt::prelude::*;
    let mut options = Options {
        work: Work::Sleep,
        place: || Place::Handler,
        eager_handoff: false,
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("cpu") => options.work = Work::Cpu,
            Long("batch") => options.place = || Place::Batch(Batch::start()),
            Long("spawn-blocking") => options.place = || Place::BlockingPool,
            Long("eager-handoff") => options.eager_handoff = true,
            _ => return Err(arg.unexpected().into()),
        }
    }
    Ok(options)
}

fn runtime(eager_handoff: bool) -> Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(WORKERS).enable_io().enable_time();
    if eager_handoff {
        // Refuse rather than measure an ordinary runtime under the fixed one's name.
        #[cfg(not(tokio_unstable))]
        bail!("--eager-handoff needs a build with --cfg tokio_unstable");
        #[cfg(tokio_unstable)]
        builder.enable_eager_driver_handoff();
    }
    builder.build().context("cannot start the runtime")
}

async fn serve(server: Server) -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    announce(&listener.local_addr()?.to_string())?;
    // The quick route is a function of its own, so that no frame of the slow one can come from it.
    let app = Router::new()
        .route("/quick", get(quick))
        .route("/image", get(image))
        .with_state(server);
    axum::serve(listener, app).await?;
    Ok(())
}

/// Tells the lab's driver, which waits for this file, that connections are accepted, and where.
fn announce(address: &str) -> Result<()> {
    let Some(ready) = std::env::var_os("READY_FILE").map(PathBuf::from) else {
        bail!("READY_FILE must name the file to write when ready");
    };
    std::fs::write(&ready, format!("{} {address}\n", std::process::id()))
        .with_context(|| format!("cannot write {}", ready.display()))
}

async fn quick() -> &'static str {
    "quick"
}

/// Answers with the name of the thread that did the work, so that the load can tell how many took
/// part.
async fn image(State(server): State<Server>) -> String {
    let work = server.work;
    match server.place {
        Place::Handler => render_image(work),
        Place::Batch(batch) => {
            batch.join().await;
            render_image(work)
        }
        Place::BlockingPool => tokio::task::spawn_blocking(move || render_image(work))
            .await
            .unwrap_or_default(),
    }
}

/// The synchronous work. Not inlined, so that its frame is in the stack of a release build.
#[inline(never)]
fn render_image(work: Work) -> String {
    match work {
        Work::Sleep => std::thread::sleep(RENDER),
        Work::Cpu => encode_pixels(),
    }
    format!("{:?}", std::thread::current().id())
}

/// Burns CPU until two seconds of wall time are over: a fixed amount of *work* would take longer on
/// a machine with fewer cores than workers, and the schedule under test would no longer show.
#[inline(never)]
fn encode_pixels() {
    let end = Instant::now() + RENDER;
    let mut pixel = 1u64;
    while Instant::now() < end {
        for _ in 0..10_000 {
            pixel = std::hint::black_box(pixel.wrapping_mul(6_364_136_223_846_793_005) ^ 0x2545);
        }
    }
}

/// Holds requests back until there is one for every worker, then lets all of them go.
///
/// This is how the ordinary runtime is brought, by construction, to where all workers are busy.
/// They are let go by a thread outside the pool: a worker that did it would put one of them into
/// its own LIFO slot, which no other worker can steal from, and then be busy for two seconds.
struct Batch {
    joined: AtomicUsize,
    full: Notify,
    release: mpsc::Sender<()>,
}

impl Batch {
    fn start() -> Arc<Self> {
        let (release, released) = mpsc::channel();
        let batch = Arc::new(Self {
            joined: AtomicUsize::new(0),
            full: Notify::new(),
            release,
        });
        let shared = Arc::clone(&batch);
        std::thread::spawn(move || {
            while released.recv().is_ok() {
                shared.full.notify_waiters();
            }
        });
        batch
    }

    async fn join(&self) {
        let notified = self.full.notified();
        tokio::pin!(notified);
        // Enlist before counting: the last to join may have everyone released at once.
        notified.as_mut().enable();
        if (self.joined.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(WORKERS) {
            // The receiver lives as long as the process.
            let _ = self.release.send(());
        }
        notified.await;
    }
}
