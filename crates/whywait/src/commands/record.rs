//! `whywait record`: watches, and keeps the recording.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Signal, set_parent_process_death_signal};

use whywait_words::{Charset, escape};

use crate::args::RecordArgs;
use crate::capture::capture;
use crate::commands::rotate;
use crate::config;
use crate::errors::eprintln_quietly;
use crate::user::Invoker;

pub(crate) fn run(args: RecordArgs) -> anyhow::Result<u8> {
    if let Some(every) = args.rotate {
        return rotate::run(&args, every);
    }
    if args.in_rotation {
        // Whoever rotates and is killed leaves no recording that nobody ends.
        let _ = set_parent_process_death_signal(Some(Signal::TERM));
    }
    let target = config::target(&args.target)?;
    let folder = args
        .output
        .unwrap_or_else(|| config::default_folder(&target, SystemTime::now()));
    config::new_folder(&folder)?;
    let mut config = config::capture(
        target,
        args.target.duration,
        &args.capture,
        folder,
        Vec::new(),
        Invoker::from_env(),
    )?;
    config.quiet = args.target.quiet;
    config.in_rotation = args.in_rotation;
    config.begin_at = args
        .begin_at
        .map(|at| UNIX_EPOCH + Duration::from_nanos(at));
    config.launched = args.launched;
    let outcome = capture(&config)?;
    if !outcome.cut_short && !args.in_rotation && !config.quiet {
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
