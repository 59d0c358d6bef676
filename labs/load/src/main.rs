//! The clients of the labs.
//!
//! Each makes one kind of load, prints what it met as one line on stderr (`ground-truth: {…}`), and
//! holds that against what the lab promises. A client is single-purpose and blocking, one thread a
//! connection, so that its own scheduling adds as little as possible to what it measures.

mod branch;
mod closed;
mod gso;
mod hang;
mod http;
mod images;
mod program;
mod promise;
mod redis;
mod relay;
mod stamps;

use std::process::ExitCode;

use anyhow::{Result, bail};
use lexopt::prelude::*;

use crate::promise::Outcome;

const USAGE: &str = "\
usage: lab-load images ADDRESS --plan burst --expect MS,MS,MS,MS,MS
       lab-load images ADDRESS --plan saturated
       lab-load closed ADDRESS --path PATH [--connections N] [--rounds N] [--pause-ms N]
                [--together] [--probe PATH] [--about PATH] [--expect RULE]…
       lab-load branch SOCKET [--episodes N] [--waits-equal-work] [--expect RULE]…
       lab-load hang   ADDRESS --healthy PATH… --path PATH… [--about PATH] [--expect RULE]…
       lab-load program FOLDER [--device-ms N] [--expect RULE]…
       lab-load redis  ADDRESS [--requests N] [--pipeline N]
       lab-load relay  INGRESS,CONTROL[,OWN,NAMESPACE] --rate N [--seconds N] [--expect RULE]…
RULE is like load.p50_ms>=1000 or probe.max_ms<=100.";

fn main() -> ExitCode {
    match run() {
        Ok(Outcome::Kept) => ExitCode::SUCCESS,
        Ok(Outcome::NotReproduced(what)) => {
            eprintln!("lab-load: not reproduced: {what}");
            ExitCode::from(promise::NOT_REPRODUCED)
        }
        Err(error) => {
            eprintln!("lab-load: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<Outcome> {
    let mut parser = lexopt::Parser::from_env();
    let kind = match parser.next()? {
        Some(Value(kind)) => kind.string()?,
        _ => bail!("{USAGE}"),
    };
    match kind.as_str() {
        "branch" => branch::run(parser),
        "hang" => hang::run(parser),
        "images" => images::run(parser),
        "closed" => closed::run(parser),
        "program" => program::run(parser),
        "redis" => redis::run(parser),
        "relay" => relay::run(parser),
        _ => bail!("{USAGE}"),
    }
}
