//! `whywait record`: watches, and keeps the recording.

use std::time::SystemTime;

use whywait_report::text::{Charset, escape};

use crate::args::RecordArgs;
use crate::capture::capture;
use crate::config;
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
        Vec::new(),
        Invoker::from_env(),
    )?;
    let outcome = capture(&config)?;
    if !outcome.cut_short {
        eprintln_quietly(&format!(
            "whywait: recorded; to read it: whywait report {}",
            escape(
                &outcome.recording.to_string_lossy(),
                Charset::Unicode,
                4_096
            )
        ));
    }
    outcome.exit_code(false)
}
