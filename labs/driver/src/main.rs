//! Runs the labs: a lab's server under whywait, its load from outside of it, and the report.
//!
//! Everything that depends on another process is waited for, with a deadline; nothing sleeps and
//! hopes. Progress goes to stderr, so that stdout carries the report alone.

mod artifacts;
mod claim;
mod cli;
mod list;
mod peer;
mod process;
mod session;
mod spec;
mod verdict;
mod watcher;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::cli::{Action, Job};
use crate::session::{Outcome, Run, Watch};
use crate::spec::{Lab, Variant};

/// Says "the lab failed", apart from whywait's own exit codes, which are passed on as they are.
const LAB_FAILED: u8 = 10;
const USAGE_ERROR: u8 = 2;

/// A lab depends on a schedule that a busy machine can upset. Anything else that fails, fails at
/// once.
const TRIES: usize = 3;

fn main() -> ExitCode {
    let action = match cli::parse(std::env::args_os().skip(1)) {
        Ok(action) => action,
        Err(error) => {
            eprintln!("labs: {error:#}\n{}", cli::USAGE);
            return ExitCode::from(USAGE_ERROR);
        }
    };
    match run(action) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("labs: {error:#}");
            ExitCode::from(LAB_FAILED)
        }
    }
}

fn run(action: Action) -> Result<u8> {
    let labs = labs_dir()?;
    match action {
        Action::Help => println!("{}", cli::USAGE),
        Action::List { json } => list::print(&spec::load_all(&labs)?, json)?,
        Action::Bare {
            name,
            variant,
            server_args,
        } => {
            let lab = Lab::load(&labs, &name)?;
            println!(
                "{}",
                bare(&labs, &lab, lab.variant(&variant)?, &server_args)?
            );
        }
        Action::Build { name, variant } => {
            let lab = Lab::load(&labs, &name)?;
            artifacts::build(&labs, &lab, lab.variant(&variant)?)?;
        }
        Action::Report(job) => return watched(&labs, &job),
    }
    Ok(0)
}

fn labs_dir() -> Result<PathBuf> {
    std::env::var_os("LABS_DIR")
        .map(PathBuf::from)
        .context("LABS_DIR is not set: start the driver by labs/run")
}

/// Server and load alone: what the lab does when nobody watches.
fn bare(labs: &Path, lab: &Lab, variant: &Variant, server_args: &[String]) -> Result<String> {
    let out = artifacts::build(labs, lab, variant)?;
    let tmp = session::temp_dir()?;
    let run = Run {
        labs,
        lab,
        variant,
        out: &out,
        server_args,
        busy: false,
        watch: None,
    };
    tries(|number| session::run(&run, &tmp.path().join(number.to_string())))
}

/// Server and load, the server under whywait, and then the report.
fn watched(labs: &Path, job: &Job) -> Result<u8> {
    let lab = Lab::load(labs, &job.name)?;
    let variant = lab.variant(&job.variant)?;
    let whywait = artifacts::whywait(labs)?;
    let out = artifacts::build(labs, &lab, variant)?;
    let tmp = session::temp_dir()?;
    let recording = match &job.keep {
        Some(keep) if keep.exists() => bail!("{} exists already", keep.display()),
        Some(keep) => keep.clone(),
        None => tmp.path().join("rec"),
    };
    let watch = Watch {
        whywait: &whywait,
        recording: &recording,
        options: &variant.record,
        kept: job.keep.is_some(),
    };
    let run = Run {
        labs,
        lab: &lab,
        variant,
        out: &out,
        server_args: &job.server_args,
        busy: job.busy,
        watch: Some(watch),
    };
    tries(|number| {
        if recording.exists() {
            std::fs::remove_dir_all(&recording)?;
        }
        session::run(&run, &tmp.path().join(number.to_string()))
    })?;
    if job.check {
        verdict::check(&whywait, &recording, &lab, variant)
    } else {
        session::report(&whywait, &recording, &job.report_args)
    }
}

/// Tries until the lab showed what it promises; returns the ground truth that the load met.
fn tries(mut attempt: impl FnMut(usize) -> Result<Outcome>) -> Result<String> {
    for number in 1..=TRIES {
        match attempt(number)? {
            Outcome::Kept(truth) => return Ok(truth),
            Outcome::NotReproduced => {
                eprintln!("labs: try {number} of {TRIES} did not reproduce the lab's schedule")
            }
        }
    }
    bail!("the lab did not show what it promises in {TRIES} tries")
}
