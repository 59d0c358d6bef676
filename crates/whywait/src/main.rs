//! whywait: says where every request's time went in a running server, and why it waits.

mod analyse;
mod args;
mod capture;
mod closed;
mod commands;
mod config;
mod errors;
mod kept;
mod launch;
mod naming;
mod offers;
mod output;
mod privileges;
mod progress;
mod session;
mod signals;
mod user;
mod values;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Verb};

fn main() -> ExitCode {
    errors::install_panic_hook();
    commands::completions::answer();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return errors::report_clap(&error),
    };
    let code = match cli.verb {
        None => commands::watch::run(cli.watch),
        Some(Verb::Record(args)) => commands::record::run(args),
        Some(Verb::Report(args)) => commands::report::run(args),
        Some(Verb::Diff(args)) => commands::diff::run(&args),
        Some(Verb::Gate(args)) => commands::gate::run(args),
        Some(Verb::Pack(args)) => commands::pack::run(&args),
        Some(Verb::Publish(args)) => commands::publish::run(args),
        Some(Verb::Explain(args)) => commands::explain::run(&args),
        Some(Verb::Check) => commands::check::run(),
        Some(Verb::Completions(args)) => commands::completions::run(&args),
        Some(Verb::Man(args)) => commands::man::run(&args),
        Some(Verb::Exec(args)) => commands::exec::run(&args),
        Some(Verb::Names) => commands::names::run(),
    };
    ExitCode::from(code.unwrap_or_else(|error| errors::report(&error)))
}
