//! The command line as it is typed. What the flags mean together is checked in `config.rs`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use whywait_findings::{Code, Severity};

use crate::values;

const EXAMPLES: &str = "\
Examples:
  whywait -- ./server --port 8080        run a server, watch it, report when it ends
  sudo whywait -p 1234 -d 10s            watch a running process for ten seconds
  sudo whywait -p 1234 --fail-on error   the same until Ctrl-C; exit 3 when something is wrong
  sudo whywait record -p 1234 -o slow    keep the recording, for later and for other machines
  whywait report slow                    read it there; needs no privileges
  whywait explain stranded-readiness     what a finding means and how to fix it
  whywait diff before/ after/            what got worse, what got better, and why
  whywait gate budget.toml runs/         fail a CI run that breaks a budget

Watching needs root, or CAP_BPF and CAP_PERFMON: `whywait check` says what this machine allows.
Under sudo a launched command runs as the user who called sudo, not as root.

Exit codes: 0 fine; 1 whywait failed; 2 wrong usage; 3 a finding at or above --fail-on;
otherwise, with -- CMD, CMD's own (128 + N when signal N ended it).";

const RECORD_HELP: &str = "\
Examples:
  sudo whywait record -p $(pidof redis-server) -d 30s
  sudo whywait record -o run1.whywait -- ./server

The recording is a folder of Parquet files: `whywait report` reads it, and so do DuckDB, Polars and
Spark. It holds function names and thread names, no memory of the process. It belongs to the user who
called sudo and is readable by nobody else.

Exit codes: 0 fine; 1 whywait failed; 2 wrong usage; otherwise, with -- CMD, CMD's own.";

const REPORT_HELP: &str = "\
Examples:
  whywait report run1.whywait
  whywait report run1.whywait --format json | jq '.findings[].title'
  whywait report run1.whywait --fail-on warning     for CI: exit 3 when something is wrong
  whywait report run1.whywait --waits               who waited for what, longest first
  whywait report run1.whywait --cpu                 what CPU time was for: listeners, connections, threads
  whywait report run1.whywait --request 12:0        where one slow request was, step by step

A recording that is incomplete never makes --fail-on fail: that says something about the machine that
recorded, not about the server.

Exit codes: 0 fine; 1 whywait failed; 2 wrong usage; 3 a finding at or above --fail-on.";

const DIFF_HELP: &str = "\
Examples:
  whywait diff before.whywait after.whywait     shows differences, calls none: one run proves nothing
  whywait diff before/ after/                   folders with a recording for each run, five or more a side
  whywait diff baseline.json after/             against what `whywait gate --save-baseline` wrote
  whywait diff before/ after/ --format json | jq '.verdict, .changes[] | select(.verdict == \"worse\")'

Record the sides in turns (before, after, before, after, ...): a machine that warms up is no regression.
A difference is called when chance would make one like it in fewer than --alpha of all comparisons, over all
measures together, and when it is at least --min-effect. It takes four runs a side at least.

Exit codes: 0 compared, whatever came of it; 1 whywait failed; 2 wrong usage. To fail a CI run: whywait gate.";

const GATE_HELP: &str = "\
Examples:
  whywait gate --init budget.toml runs/                   write a first budget from recordings
  whywait gate budget.toml runs/                          hold recordings against it
  sudo whywait gate budget.toml --runs 5 --load ./load.sh -- ./server    start, load and record it five times
  sudo whywait gate budget.toml --runs 5 -- ./bench.sh    watch a benchmark that ends by itself
  whywait gate budget.toml runs/ --junit gate.xml --github               for CI
  whywait gate budget.toml main/ --save-baseline baseline.json           what later runs are compared with

A recording that is incomplete never fails a gate by itself: what it cannot tell is undecided, and fails only
when the budget says `fail-when-undecided = true`.

Exit codes: 0 the budget is kept to; 1 whywait failed, or CMD or the load did; 2 wrong usage, or the budget is wrong;
3 the budget is broken.";

/// Over the flags for views that have no findings in them.
const INSTEAD: &str = "Instead of the report (without --fail-on)";

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "whywait",
    version,
    about = "Says where every request's time went in a running server, and why it waits",
    override_usage = "whywait [OPTIONS] -- <CMD>...\n       whywait [OPTIONS] -p <PID>\n       whywait <COMMAND>",
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    after_help = EXAMPLES
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Option<Verb>,
    #[command(flatten)]
    pub(crate) watch: WatchArgs,
}

/// What to do, when it is not to record and report in one go.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Watch a command or process and keep the recording
    #[command(after_help = RECORD_HELP)]
    Record(RecordArgs),
    /// Say what a recording shows
    #[command(after_help = REPORT_HELP)]
    Report(ReportArgs),
    /// Compare two sides: what got worse, what got better, what is new, and why
    #[command(after_help = DIFF_HELP)]
    Diff(DiffArgs),
    /// Hold recordings against a budget, and fail when it is broken
    #[command(after_help = GATE_HELP)]
    Gate(GateArgs),
    /// Explain a finding: what it means, how it is measured, how to fix it
    Explain(ExplainArgs),
    /// Say what this machine allows: kernel, type information, privileges, lockdown
    #[command(
        after_help = "Exit codes: 0 whywait can watch here; 1 it cannot, and the lines marked `no` say why."
    )]
    Check,
    /// Print completions for a shell
    #[command(after_help = "Example: whywait completions bash > /etc/bash_completion.d/whywait")]
    Completions(CompletionsArgs),
    /// Wait until the watcher is ready, then become the command
    #[command(name = "__exec", hide = true)]
    Exec(ExecArgs),
}

/// Whom to watch, and for how long.
#[derive(Debug, Args)]
pub(crate) struct TargetArgs {
    /// Watch this running process, with its threads and the children it makes
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    pub(crate) pid: Option<u32>,
    /// End the recording after this long (10s, 500ms, 2m) [default: until CMD ends, or Ctrl-C]
    ///
    /// A launched command is not ended with it: whywait reports, then waits for the command.
    #[arg(short, long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) duration: Option<Duration>,
    /// Run this command and watch it
    #[arg(last = true, value_name = "CMD", conflicts_with = "pid")]
    pub(crate) command: Vec<OsString>,
}

/// What to record.
#[derive(Debug, Args)]
#[command(next_help_heading = "Recording")]
pub(crate) struct CaptureArgs {
    /// How much to record: `waits` costs a saturated server some per cent of its throughput
    ///
    /// Where a thread seems to spin, `waits` traces system calls for a moment too.
    #[arg(long, value_name = "WHAT", default_value = "waits", value_enum)]
    pub(crate) detail: Detail,
    /// Bytes of a thread's stack to look at, 1K to 32K: more unwinds deeper, each stack costs more
    #[arg(long, value_name = "SIZE", default_value = "8K", value_parser = values::stack_bytes)]
    pub(crate) stack_bytes: u32,
    /// Waits and requests of this length are recorded one by one, shorter ones as sums (10us to
    /// 10s)
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = values::threshold)]
    pub(crate) threshold: Duration,
}

/// How to report.
#[derive(Debug, Args)]
#[command(next_help_heading = "Report")]
pub(crate) struct OutputArgs {
    /// For people or for programs
    #[arg(long, value_name = "FORMAT", default_value = "text", value_enum)]
    pub(crate) format: Format,
    /// Write the report to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Exit with 3 when there is a finding of this severity or a worse one
    #[arg(long, value_name = "SEVERITY", value_enum)]
    pub(crate) fail_on: Option<FailOn>,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) capture: CaptureArgs,
    /// Keep the recording in this new folder [default: it is removed after the report]
    #[arg(long, value_name = "DIR", help_heading = "Recording")]
    pub(crate) keep: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) capture: CaptureArgs,
    /// The new folder for the recording [default: ./CMD-DATE-TIME.whywait, in UTC]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The folder that `whywait record` wrote
    #[arg(value_name = "DIR")]
    pub(crate) recording: PathBuf,
    /// Show what threads waited for, on which lock, file or socket, and what of it slow requests
    /// waited for
    #[arg(long, conflicts_with_all = ["request", "fail_on"], help_heading = INSTEAD)]
    pub(crate) waits: bool,
    /// Show the rings of io_uring: where the operations' time went, and how many slots they took
    #[arg(long, conflicts_with_all = ["waits", "request", "fail_on"], help_heading = INSTEAD)]
    pub(crate) uring: bool,
    /// Show what CPU time was for: a request, a byte, each listener, each thread, user and system
    /// apart
    #[arg(long, conflicts_with_all = ["waits", "request", "fail_on"], help_heading = INSTEAD)]
    pub(crate) cpu: bool,
    /// Show one slow request's critical path step by step; a report has the ID in brackets in its
    /// line `slowest:`
    #[arg(long, value_name = "ID", conflicts_with = "fail_on", help_heading = INSTEAD)]
    pub(crate) request: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// What came before: a recording, a folder of recordings, or a baseline file
    #[arg(value_name = "BASE")]
    pub(crate) base: PathBuf,
    /// What is held against it: the same
    #[arg(value_name = "HEAD")]
    pub(crate) head: PathBuf,
    /// The chance that anything is called a difference between two sides that are the same
    #[arg(long, value_name = "SHARE", default_value = "0.05", value_parser = values::alpha)]
    pub(crate) alpha: f64,
    /// Changes below this are not called
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = values::percent)]
    pub(crate) min_effect: f64,
    /// For people or for programs
    #[arg(long, value_name = "FORMAT", default_value = "text", value_enum)]
    pub(crate) format: Format,
    /// Write it to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    override_usage = "whywait gate [OPTIONS] <BUDGET> <DIR>...\n       whywait gate [OPTIONS] <BUDGET> -- <CMD>..."
)]
pub(crate) struct GateArgs {
    /// The budget, a TOML file
    #[arg(value_name = "BUDGET")]
    pub(crate) budget: PathBuf,
    /// Recordings, or folders of recordings
    #[arg(value_name = "DIR", conflicts_with = "command")]
    pub(crate) recordings: Vec<PathBuf>,
    /// Run this command and record it, --runs times
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
    /// Write a first budget from the recordings instead
    #[arg(long, conflicts_with_all = ["junit", "github", "save_baseline", "format"])]
    pub(crate) init: bool,
    /// How often to run CMD
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=100), help_heading = "Recording")]
    pub(crate) runs: u32,
    /// A shell command that puts load on CMD, which is ended when that ends
    ///
    /// It starts beside CMD, waits for CMD to listen by itself, and is not watched.
    #[arg(
        long,
        value_name = "COMMAND",
        requires = "command",
        help_heading = "Recording"
    )]
    pub(crate) load: Option<OsString>,
    /// Keep the recordings in this new folder [default: they are removed]
    #[arg(
        long,
        value_name = "DIR",
        requires = "command",
        help_heading = "Recording"
    )]
    pub(crate) keep: Option<PathBuf>,
    /// Waits and requests of this length are recorded one by one, shorter ones as sums (10us to
    /// 10s)
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = values::threshold, help_heading = "Recording")]
    pub(crate) threshold: Duration,
    /// For people or for programs
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        value_enum,
        help_heading = "Report"
    )]
    pub(crate) format: Format,
    /// Write the report to this file instead of standard output
    #[arg(short, long, value_name = "FILE", help_heading = "Report")]
    pub(crate) output: Option<PathBuf>,
    /// Also write the lines as JUnit XML to this file
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub(crate) junit: Option<PathBuf>,
    /// Also print GitHub annotations at the budget's lines
    #[arg(long, conflicts_with = "output", help_heading = "Report")]
    pub(crate) github: bool,
    /// Write the recordings' measures to this file, for [regressions] of a budget
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub(crate) save_baseline: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The finding's code, as reports print it in brackets [default: list all, with their meaning]
    #[arg(value_name = "CODE", value_parser = codes(), hide_possible_values = true)]
    pub(crate) code: Option<String>,
    /// List the codes alone, one a line
    #[arg(long, conflicts_with = "code")]
    pub(crate) list: bool,
}

fn codes() -> PossibleValuesParser {
    PossibleValuesParser::new(Code::all().map(Code::name))
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    /// Descriptor from which one byte is read before the command starts
    #[arg(long, value_name = "FD", value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) gate_fd: i32,
    /// User to become
    #[arg(long, requires = "gid")]
    pub(crate) uid: Option<u32>,
    /// Group to become
    #[arg(long, requires = "uid")]
    pub(crate) gid: Option<u32>,
    /// The command
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// How much to record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Detail {
    /// Waits, requests and samples.
    Waits,
    /// Every system call too, in bursts: for a moment, and at most a twentieth of the time
    Full,
}

/// What a report looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// At most about a screen, for people
    Text,
    /// Everything, for programs (schema 1)
    Json,
}

/// The severity from which findings fail a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    /// Anything worth saying
    Note,
    /// What is probably wrong
    Warning,
    /// What is wrong
    Error,
}

impl From<FailOn> for Severity {
    fn from(fail_on: FailOn) -> Self {
        match fail_on {
            FailOn::Note => Severity::Note,
            FailOn::Warning => Severity::Warning,
            FailOn::Error => Severity::Error,
        }
    }
}

/// The shells that completions exist for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}
