//! `whywait completions`: a script for the shell, on standard output.

use clap::CommandFactory;
use clap_complete::{generate, shells};

use crate::args::{Cli, CompletionsArgs, Shell};
use crate::output;

pub(crate) fn run(args: &CompletionsArgs) -> anyhow::Result<u8> {
    let mut cli = Cli::command();
    let mut script = Vec::new();
    // Into memory first: the generators panic when a pipe closes.
    match args.shell {
        Shell::Bash => generate(shells::Bash, &mut cli, "whywait", &mut script),
        Shell::Zsh => generate(shells::Zsh, &mut cli, "whywait", &mut script),
        Shell::Fish => generate(shells::Fish, &mut cli, "whywait", &mut script),
    }
    output::write(&String::from_utf8_lossy(&script), None)?;
    Ok(0)
}
