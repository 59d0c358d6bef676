//! The command line of `labs/run`.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

pub(crate) const USAGE: &str = "\
usage: labs/run [--keep DIR] NAME VARIANT [report flags]    watch a lab and print the report
       labs/run --check [--keep DIR] NAME VARIANT           hold the report against its labels
       labs/run --bare NAME VARIANT                         without whywait: print the ground truth
       labs/run --build NAME VARIANT                        only make the lab's program
       labs/run --list [--format json]                      all labs, variants and labels

--keep DIR         leave the recording in DIR
--busy             another program wants one of the CPUs meanwhile
--server-arg ARG   one more argument for the lab's server; may be repeated
WHYWAIT=FILE in the environment names the whywait to use; otherwise it is built from this checkout.
With LABS_BUILT=1 in it the lab's program is there, made by --build: labs at the same time.
With LABS_SLOWER=10 in it whatever is waited for may take ten times as long: emulated machines.
Exit codes: those of whywait; 10 when the lab itself failed or --check found a wrong label.";

/// What the user asked for.
#[derive(Debug, PartialEq)]
pub(crate) enum Action {
    Help,
    List {
        json: bool,
    },
    Bare {
        name: String,
        variant: String,
        server_args: Vec<String>,
    },
    Build {
        name: String,
        variant: String,
    },
    Report(Job),
}

/// A lab to run under whywait.
#[derive(Debug, PartialEq)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) variant: String,
    pub(crate) keep: Option<PathBuf>,
    pub(crate) check: bool,
    /// Another program wants one of the CPUs.
    pub(crate) busy: bool,
    /// Added to the command that `lab.toml` has for the server.
    pub(crate) server_args: Vec<String>,
    /// Passed on to `whywait report` as they are.
    pub(crate) report_args: Vec<OsString>,
}

pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Action> {
    use lexopt::prelude::*;
    let mut parser = lexopt::Parser::from_args(args);
    let (mut list, mut json, mut bare, mut check) = (false, false, false, false);
    let (mut build, mut busy) = (false, false);
    let mut keep = None;
    let mut server_args = Vec::new();
    // Our own options end at NAME: what follows VARIANT is whywait's.
    let name = loop {
        match parser.next()? {
            None => break None,
            Some(Value(name)) => break Some(name.string()?),
            Some(Short('h') | Long("help")) => return Ok(Action::Help),
            Some(Long("list")) => list = true,
            Some(Long("format")) if list => match parser.value()?.string()?.as_str() {
                "json" => json = true,
                "text" => json = false,
                other => bail!("--format is text or json, not {other}"),
            },
            Some(Long("bare")) => bare = true,
            Some(Long("check")) => check = true,
            Some(Long("build")) => build = true,
            Some(Long("busy")) => busy = true,
            Some(Long("server-arg")) => server_args.push(parser.value()?.string()?),
            Some(Long("keep")) => keep = Some(PathBuf::from(parser.value()?)),
            Some(arg) => return Err(arg.unexpected().into()),
        }
    };
    if list {
        ensure!(
            name.is_none()
                && !(bare || check || build || busy)
                && keep.is_none()
                && server_args.is_empty(),
            "--list takes nothing but --format"
        );
        return Ok(Action::List { json });
    }
    let name = name.context("no lab named")?;
    let rest: Vec<OsString> = parser.raw_args()?.collect();
    let mut rest = rest.into_iter();
    let variant = rest
        .next()
        .and_then(|variant| variant.into_string().ok())
        .context("no variant named")?;
    let report_args: Vec<OsString> = rest.collect();
    if build {
        ensure!(
            keep.is_none()
                && !(check || bare || busy)
                && server_args.is_empty()
                && report_args.is_empty(),
            "--build only builds"
        );
        return Ok(Action::Build { name, variant });
    }
    if bare {
        ensure!(
            keep.is_none() && !check && !busy && report_args.is_empty(),
            "--bare has neither recording nor report"
        );
        return Ok(Action::Bare {
            name,
            variant,
            server_args,
        });
    }
    ensure!(
        !check || report_args.is_empty(),
        "--check takes no report flags"
    );
    Ok(Action::Report(Job {
        name,
        variant,
        keep,
        check,
        busy,
        server_args,
        report_args,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Action> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn flags_after_the_variant_are_for_the_report() {
        let Action::Report(job) =
            parsed("--keep here redis default --format json --fail-on note").unwrap()
        else {
            panic!("not a report");
        };
        assert_eq!(
            (job.name.as_str(), job.variant.as_str()),
            ("redis", "default")
        );
        assert_eq!(job.keep, Some(PathBuf::from("here")));
        assert_eq!(job.report_args, ["--format", "json", "--fail-on", "note"]);
    }

    #[test]
    fn the_server_takes_more_arguments() {
        let Action::Bare { server_args, .. } =
            parsed("--server-arg --episodes-ms --server-arg 1,2 --bare snapshot mutex").unwrap()
        else {
            panic!("not a bare run");
        };
        assert_eq!(server_args, ["--episodes-ms", "1,2"]);
    }

    #[test]
    fn the_modes_do_not_mix() {
        assert_eq!(
            parsed("--list --format json").unwrap(),
            Action::List { json: true }
        );
        for wrong in [
            "",
            "redis",
            "--list redis",
            "--bare redis default --format json",
            "--format json",
            "--check --bare a b",
            "--list --server-arg a",
            "--build --check a b",
            "--bare --busy a b",
            "--build a b --format json",
        ] {
            assert!(parsed(wrong).is_err(), "{wrong:?} was taken");
        }
    }
}
