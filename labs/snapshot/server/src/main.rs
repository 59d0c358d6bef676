//! A VMM in miniature: an API thread, two vCPU threads, and a worker that makes the snapshots.
//!
//! `BRANCH n` on the API's unix socket pauses the vCPUs, has the worker do its work, resumes them
//! and answers with what each thread waited. What the work is, and whether the others wait for its
//! result or for a lock, is what the lab's variants differ in; `lab.toml` says which is which.

mod disk;
mod handed;
mod memory;
mod vmm;

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use lab_kit::announce;
use lab_kit::disk::{require_disk, require_memory};

use crate::disk::{Disk, Way};

/// What a snapshot consists of.
pub(crate) enum Work {
    /// A file is written and synced, while a sibling copies another on the same disk.
    File(Disk),
    /// CPU time that grows with the episode's number.
    GrowingCpu,
    /// The memory is rebuilt under the lock that everybody else wants.
    UnderLock(Vec<Duration>),
    /// The same outside of the lock.
    OutsideLock(Vec<Duration>),
}

/// What the mutex variants take, unless they are to take as long as another variant took.
const EPISODES_MS: &str = "120,180,140,200,150,160,220,130,170,190";

fn main() -> Result<()> {
    let options = parse_args()?;
    if options.work == "handed" {
        let api = handed::start(vmm::listen(&options.socket)?)?;
        return serve(&options.socket, api);
    }
    let work = match options.work.as_str() {
        "cpu-growing" => Work::GrowingCpu,
        "under-lock" => Work::UnderLock(options.episodes),
        "outside-lock" => Work::OutsideLock(options.episodes),
        file => {
            let dir = options.dir.context("no --dir for the file")?;
            if file == "tmpfs" {
                require_memory(&dir)?;
            } else {
                require_disk(&dir)?;
            }
            let way = match file {
                "writeback" | "tmpfs" => Way::Anew,
                "allocate" => Way::Allocated,
                "in-place" => Way::InPlace,
                _ => bail!("--work {file} is unknown"),
            };
            Work::File(Disk::start(&dir, way, options.mb)?)
        }
    };
    let listener = vmm::listen(&options.socket)?;
    serve(&options.socket, vmm::start(listener, work)?)
}

/// Until the end.
fn serve(socket: &Path, api: JoinHandle<Result<()>>) -> Result<()> {
    announce(&socket.display().to_string())?;
    match api.join() {
        Ok(ended) => ended,
        Err(_) => bail!("the API thread panicked"),
    }
}

struct Options {
    socket: PathBuf,
    work: String,
    dir: Option<PathBuf>,
    mb: Option<u64>,
    episodes: Vec<Duration>,
}

fn parse_args() -> Result<Options> {
    use lexopt::prelude::*;
    let (mut socket, mut work, mut dir, mut mb) = (None, None, None, None);
    let mut episodes = EPISODES_MS.to_owned();
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("socket") => socket = Some(PathBuf::from(parser.value()?)),
            Long("work") => work = Some(parser.value()?.string()?),
            Long("dir") => dir = Some(PathBuf::from(parser.value()?)),
            Long("mb") => mb = Some(parser.value()?.parse()?),
            Long("episodes-ms") => episodes = parser.value()?.string()?,
            _ => return Err(arg.unexpected().into()),
        }
    }
    Ok(Options {
        socket: socket.context("no --socket given")?,
        work: work.context("no --work given")?,
        dir,
        mb,
        episodes: milliseconds(&episodes)?,
    })
}

fn milliseconds(list: &str) -> Result<Vec<Duration>> {
    let one = |ms: &str| -> Result<Duration> {
        let ms: f64 = ms
            .parse()
            .with_context(|| format!("not a list of milliseconds: {list}"))?;
        ensure!(ms > 0.0 && ms < 10_000.0, "{ms} ms is no episode");
        Ok(Duration::from_secs_f64(ms / 1e3))
    };
    list.split(',').map(one).collect()
}
