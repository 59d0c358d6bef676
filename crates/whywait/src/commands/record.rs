//! `whywait record`: watches, and keeps the recording.

use std::time::SystemTime;

use crate::args::RecordArgs;
use crate::capture::{CaptureOutcome, capture};
use crate::config::{self, Target};
use crate::errors::eprintln_quietly;
use crate::user::Invoker;

pub(crate) fn run(args: RecordArgs) -> anyhow::Result<u8> {
    let target = config::target(&args.target)?;
    let folder = args
        .output
        .unwrap_or_else(|| config::default_folder(&target, SystemTime::now()));
    config::new_folder(&folder)?;
    let config = config::capture(
        target,
        args.target.duration,
        &args.capture,
        folder,
        Invoker::from_env(),
    )?;
    announce(&config.target, config.duration.is_some());
    let CaptureOutcome { recording, command } = capture(&config)?;
    eprintln_quietly(&format!(
        "whywait: recorded; to read it: whywait report {}",
        recording.display()
    ));
    command.map_or(Ok(0), |command| command.wait())
}

/// Says on a terminal what is going on, where nothing else would show for as long as it lasts.
pub(crate) fn announce(target: &Target, has_end: bool) {
    use std::io::IsTerminal;
    let Target::Process(pid) = target else {
        return;
    };
    if std::io::stderr().is_terminal() {
        let end = if has_end {
            "Ctrl-C ends it early"
        } else {
            "Ctrl-C ends it"
        };
        eprintln_quietly(&format!("whywait: watching process {pid}; {end}"));
    }
}
