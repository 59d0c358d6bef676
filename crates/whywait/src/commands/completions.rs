//! `whywait completions`: a script for the shell, on standard output. The script asks whywait
//! itself what there is to complete, by an environment variable, so that it offers what runs.

use clap::CommandFactory;
use clap_complete::env::{CompleteEnv, EnvCompleter, Shells};

use crate::args::{Cli, CompletionsArgs, Shell};
use crate::output;

/// The variable by which the script asks.
const ASKS: &str = "WHYWAIT_COMPLETE";

pub(crate) fn run(args: &CompletionsArgs) -> anyhow::Result<u8> {
    let shell: &dyn EnvCompleter = match args.shell {
        Shell::Bash => &clap_complete::env::Bash,
        Shell::Zsh => &clap_complete::env::Zsh,
        Shell::Fish => &clap_complete::env::Fish,
    };
    let mut script = Vec::new();
    // Into memory first: a pipe may close.
    shell.write_registration(ASKS, "whywait", "whywait", "whywait", &mut script)?;
    output::write(&String::from_utf8_lossy(&script), None)?;
    Ok(0)
}

/// Answers the script, and ends, if it is the one who asks.
pub(crate) fn answer() {
    CompleteEnv::with_factory(Cli::command)
        .var(ASKS)
        .shells(Shells(&[
            &clap_complete::env::Bash,
            &clap_complete::env::Zsh,
            &clap_complete::env::Fish,
        ]))
        .complete();
}
