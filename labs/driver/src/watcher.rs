//! whywait, attached to a server that runs already.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail, ensure};

use crate::process::{Group, wait_for};
use crate::session::{END_DEADLINE, READY_DEADLINE, Watch, is_shown};

/// Names the file by which the load asks for whywait: it makes the file, and goes on when the file
/// is gone.
pub(crate) const ATTACH_FILE: &str = "ATTACH_FILE";
/// What whywait says when it watches. What it is about to watch it may say before.
const WATCHING: &str = "; Ctrl-C ends the recording";

pub(crate) struct Watcher {
    group: Group,
}

impl Watcher {
    /// Returns when whywait watches.
    pub(crate) fn attach(watch: &Watch, pid: i32) -> Result<Self> {
        let mut command = watch.record();
        command.args(["-p", &pid.to_string()]);
        command.stdin(Stdio::null()).stdout(std::io::stderr());
        command.stderr(Stdio::piped());
        let mut group = Group::spawn("whywait", &mut command)?;
        let stderr = group.child().stderr.take();
        let lines = BufReader::new(stderr.context("whywait has no stderr")?).lines();
        let watching = Arc::new(AtomicBool::new(false));
        let (said, kept) = (Arc::clone(&watching), watch.kept);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if is_shown(&line, kept) {
                    eprintln!("{line}");
                }
                said.fetch_or(line.ends_with(WATCHING), Ordering::Relaxed);
            }
        });
        wait_for("whywait to attach", READY_DEADLINE, || {
            if let Some(status) = group.exited()? {
                bail!("whywait ended before it watched: {status}");
            }
            Ok(watching.load(Ordering::Relaxed).then_some(()))
        })?;
        Ok(Self { group })
    }

    /// Ends the recording as ^C does, while the server goes on.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.group.interrupt()?;
        let status = self.group.wait(END_DEADLINE)?;
        ensure!(status.success(), "whywait ended badly: {status}");
        Ok(())
    }
}
