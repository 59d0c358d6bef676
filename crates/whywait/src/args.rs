//! The command line as it is typed. What the flags mean together is checked in `config.rs`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::engine::ArgValueCompleter;
use whywait_findings::{Code, Severity};
use whywait_view::stacks::Of;

use crate::commands::explain::{COVERAGE, PARTS};
use crate::output::Destination;
use crate::{offers, values};

const EXAMPLES: &str = "\
Examples:
  whywait -- ./server --port 8080        run a server, watch it, report when it ends
  sudo whywait -p 1234 -d 10s            watch a running process for ten seconds
  sudo whywait :8080 -d 10s              watch whoever listens on a port
  sudo whywait --unit nginx -d 10s       a service, with what it starts later
  sudo whywait -a -d 10s                 all that listen, a verdict for each
  sudo whywait -p 1234 --fail-on error   the same until Ctrl-C; exit 3 when something is wrong
  sudo whywait record -p 1234 -o slow    keep the recording, for later and for other machines
  whywait report slow                    read it there; needs no privileges
  whywait explain stranded-readiness     what a finding means and how to fix it
  whywait diff before/ after/            what got worse, what got better, and why
  whywait gate budget.toml runs/         fail a CI run that breaks a budget
  whywait publish slow /srv/fleet        tables, for questions about many machines

Watching needs root, or CAP_BPF and CAP_PERFMON: `whywait check` says what this machine allows.
Under sudo a launched command runs as the user who called sudo, not as root.

Exit codes: 0 fine; 1 whywait failed; 2 wrong usage; 3 a finding at or above --fail-on;
otherwise, with -- CMD, CMD's own (128 + N when signal N ended it), also where whywait failed, as on
a full disk.";

const RECORD_HELP: &str = "\
Examples:
  sudo whywait record --name redis-server -d 30s
  sudo whywait record -o run1.whywait -- ./server
  sudo whywait record -p 1234 -o /var/lib/whywait --rotate 1h --keep-for 7d --max-size 20G
  sudo whywait record -o /var/lib/whywait --rotate 1h --keep-for 7d -- ./server

The recording is a folder of Parquet files, new or empty and one's own, and no link. `whywait
report` reads it, and so do DuckDB, Polars and Spark. It holds names of functions and threads, but
no memory of the process. It belongs to the user who called sudo, and nobody else can read it.

Exit codes: 0 fine; 1 whywait failed; 2 wrong usage; otherwise, with -- CMD, CMD's own.";

const REPORT_HELP: &str = "\
Examples:
  whywait report run1.whywait
  whywait report run1.whywait --format json | jq '.findings[].title'
  whywait report run1.whywait --open                a page to look at and to share
  whywait report run1.whywait --format pprof --of waits -o w.pb.gz  for go tool pprof
  whywait report run1.whywait --fail-on warning     for CI: exit 3 when something is wrong
  whywait report run1.whywait --waits               who waited for what, longest first
  whywait report run1.whywait --cpu                 CPU time by listener, connection and thread
  whywait report run1.whywait --request 12:0        where one slow request was, step by step

An incomplete recording never makes --fail-on fail: that is about the machine that recorded, not
about the server.

Exit codes: 0 fine; 1 whywait failed; 2 wrong usage; 3 a finding at or above --fail-on.";

const DIFF_HELP: &str = "\
Examples:
  whywait diff before.whywait after.whywait     figures only: one run on each side proves nothing
  whywait diff before/ after/                   folders with one recording per run, five per side
  whywait diff baseline.json after/             against what `whywait gate --save-baseline` wrote
  whywait diff before/ after/ --format json | jq '.changes[] | select(.verdict == \"worse\")'

Alternate the sides when you record (before, after, before, after, ...), so that a machine that
warms up does not look like a regression. A difference counts when it is significant and at least
--min-effect. Significant: between two equal sides, chance makes such a difference in any of the
measures in at most the share --alpha of comparisons. That takes at least four runs per side.

Exit codes: 0 compared, whatever the result; 1 whywait failed; 2 wrong usage. To fail a CI run, use
whywait gate.";

const GATE_HELP: &str = "\
Examples:
  whywait gate --init budget.toml runs/                   write a first budget from recordings
  whywait gate budget.toml runs/                          check recordings against it
  sudo whywait gate budget.toml --runs 5 -- ./bench.sh    record a benchmark that ends by itself
  sudo whywait gate budget.toml --runs 5 --load ./load.sh -- ./server     record a server under load
  whywait gate budget.toml runs/ --junit gate.xml --github                for CI
  whywait gate budget.toml main/ --save-baseline baseline.json            for later comparisons

An incomplete recording never fails a gate by itself. What it does not show is undecided, and fails
the gate only when the budget says `fail-when-undecided = true`.

Exit codes: 0 within the budget; 1 whywait, CMD or the load failed; 2 wrong usage, or an error in
the budget; 3 the budget is broken.";

const PACK_HELP: &str = "\
Examples:
  whywait pack run1.whywait                     writes run1.whywait.tar.zst
  whywait report run1.whywait.tar.zst           reads it, as report, diff, gate and publish all do
  tar xf run1.whywait.tar.zst                   makes a folder of it again

It holds all that the recording holds, but for what looks like a secret in the command line: names
of functions, threads, files and peers, no memory of the process. docs/sharing.md says what to look
at before it is sent.

Exit codes: 0 packed; 1 it cannot be read, or not written; 2 wrong usage.";

const PUBLISH_HELP: &str = "\
Examples:
  whywait publish run1.whywait /srv/fleet             tables as Parquet files, in a folder
  whywait publish --new /var/lib/whywait /srv/fleet   all recordings in a folder that are not there
  whywait publish --new /var/lib/whywait s3://fleet/w  the same, to S3
  whywait publish run1.whywait --format jsonl -       JSON Lines, to standard output

The files are TABLE/date=YYYY-MM-DD/host=HOST/HH-RECORDING.parquet: DuckDB, ClickHouse, Spark and
others read them where they are; docs/fleet.md has queries. A file appears whole or not at all, and
publishing again changes nothing. Of the command line only the program's name is published.

Exit codes: 0 published; 1 a recording could not be read, or DEST not written; 2 wrong usage.";

const CHECK_HELP: &str = "\
Exit codes: 0 whywait can watch here; 1 it cannot, and the lines marked `no` say why.";

const FORMATS: &str = "\
What the report looks like:

  text      about one screen, for people
  json      everything, for programs (schema 1)
  html      one page with pictures and tables, offline: to attach to a ticket
  markdown  verdict and tables, for a pull request
  folded    stacks with their time, for flame graphs (--of)
  pprof     the same as a profile, for go tool pprof (--of)
  perfetto  threads and slow requests as a trace, for ui.perfetto.dev
  otlp      slow requests as traces, for OpenTelemetry's collectors (JSON)

  json-schema  the schema of the format json; needs no recording
";

/// Over the flags for what runs already.
const TARGET: &str = "Target";

/// Over the flags for a folder of recordings.
const ROTATION: &str = "A folder of recordings";

/// Over the flags for views that have no findings in them.
const INSTEAD: &str = "Instead of the report (without --fail-on)";

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "whywait",
    version,
    about = "Shows where every request's time went in a running server, and why it waits",
    override_usage = "whywait [OPTIONS] -- <CMD>...\n       \
                      whywait [OPTIONS] -p <PID>\n       \
                      whywait [OPTIONS] :<PORT>\n       \
                      whywait <COMMAND>",
    args_conflicts_with_subcommands = true,
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
    /// Report what a recording shows
    #[command(after_help = REPORT_HELP)]
    Report(ReportArgs),
    /// Compare two sides: what got worse, what got better, what is new, and why
    #[command(after_help = DIFF_HELP)]
    Diff(DiffArgs),
    /// Check recordings against a budget, and fail when it is broken
    #[command(after_help = GATE_HELP)]
    Gate(GateArgs),
    /// Make one file of a recording, to send it
    #[command(after_help = PACK_HELP)]
    Pack(PackArgs),
    /// Publish recordings as tables, for questions about many machines
    #[command(after_help = PUBLISH_HELP)]
    Publish(PublishArgs),
    /// Explain a finding, the parts of time, or what a report rests on: what it means, how it is
    /// measured, what to do
    Explain(ExplainArgs),
    /// Check what this machine allows: kernel, type information, privileges, lockdown
    #[command(after_help = CHECK_HELP)]
    Check,
    /// Print completions for a shell
    #[command(after_help = "Example: whywait completions bash > /etc/bash_completion.d/whywait")]
    Completions(CompletionsArgs),
    /// Print the manual page, or write it and those of the commands to a folder
    #[command(after_help = "Example: whywait man | man -l -")]
    Man(ManArgs),
    /// Wait until the watcher is ready, then become the command
    #[command(name = "__exec", hide = true)]
    Exec(ExecArgs),
    /// Read names from the files that come over standard input
    #[command(name = "__names", hide = true)]
    Names,
}

/// What to watch, and for how long.
#[derive(Debug, Args)]
pub(crate) struct TargetArgs {
    #[command(flatten)]
    pub(crate) named: NamedArgs,
    /// Stop recording after this time (10s, 500ms, 2m; 10 is 10s) [default: when the target ends,
    /// or at Ctrl-C]
    ///
    /// This does not end CMD: whywait reports, then waits for it.
    #[arg(short, long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) duration: Option<Duration>,
    /// Say nothing but errors and the report: not how far it is either
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Run this command and watch it
    #[arg(last = true, value_name = "CMD", conflicts_with = "named")]
    pub(crate) command: Vec<OsString>,
}

/// What runs already. Several are watched together.
#[derive(Debug, Default, Args)]
#[group(id = "named", multiple = true)]
pub(crate) struct NamedArgs {
    /// Watch whoever listens on this TCP port
    ///
    /// All that share it: a server's workers, and servers with SO_REUSEPORT. If nobody does here,
    /// it is looked for in the networks of containers.
    #[arg(value_name = ":PORT", help_heading = TARGET)]
    pub(crate) what: Vec<OsString>,
    /// Watch this running process, with its threads and the children it makes
    ///
    /// Of a worker of a server that forks (the same program as its parent, with the same listening
    /// socket) the whole server is watched.
    #[arg(
        short,
        long,
        value_name = "PID,...",
        value_delimiter = ',',
        help_heading = TARGET,
        add = ArgValueCompleter::new(offers::pids)
    )]
    pub(crate) pid: Vec<String>,
    /// The same as :PORT
    #[arg(
        long,
        value_name = "PORT,...",
        value_delimiter = ',',
        help_heading = TARGET,
        add = ArgValueCompleter::new(offers::ports)
    )]
    pub(crate) port: Vec<String>,
    /// Watch the server of this name: that of the process, or of the file that it runs
    #[arg(long, value_name = "NAME", help_heading = TARGET)]
    pub(crate) name: Vec<OsString>,
    /// Watch this unit of systemd (`nginx`, `nginx.service`), with what starts in it later
    #[arg(
        long,
        value_name = "UNIT",
        help_heading = TARGET,
        add = ArgValueCompleter::new(offers::units)
    )]
    pub(crate) unit: Vec<OsString>,
    /// Watch this container of Docker, Podman, containerd or Kubernetes: its id, the beginning of
    /// that, or its name
    #[arg(
        long,
        value_name = "ID|NAME",
        help_heading = TARGET,
        add = ArgValueCompleter::new(offers::containers)
    )]
    pub(crate) container: Vec<String>,
    /// Watch all that is in this cgroup, now and later: a path as in /proc/PID/cgroup, or a folder
    #[arg(
        long,
        value_name = "PATH",
        value_hint = ValueHint::DirPath,
        help_heading = TARGET
    )]
    pub(crate) cgroup: Vec<PathBuf>,
    /// Watch all that listen on a TCP port, and report a verdict for each
    #[arg(
        short,
        long,
        help_heading = TARGET,
        conflicts_with_all = ["what", "pid", "port", "name", "unit", "container", "cgroup"]
    )]
    pub(crate) all: bool,
}

/// What to record.
#[derive(Debug, Args)]
#[command(next_help_heading = "Recording")]
pub(crate) struct CaptureArgs {
    /// How much to record: `waits` costs a saturated server a few per cent of its throughput
    ///
    /// Where a thread seems to spin, `waits` also traces system calls for a moment.
    #[arg(long, value_name = "WHAT", default_value = "waits", value_enum)]
    pub(crate) detail: Detail,
    /// Bytes to copy of a thread's stack, 1K to 32K: more bytes unwind deeper and cost more
    #[arg(long, value_name = "SIZE", default_value = "8K", value_parser = values::stack_bytes)]
    pub(crate) stack_bytes: u32,
    /// Record waits and requests of this length one by one, shorter ones as sums (10us to 10s)
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = values::threshold)]
    pub(crate) threshold: Duration,
    /// Look for separate debug files below this folder, too, before /usr/lib/debug
    ///
    /// They are at DIR/.build-id/ab/cdef….debug, by the program's build-id.
    #[arg(long, value_name = "DIR")]
    pub(crate) debug_files: Option<PathBuf>,
    /// Name requests and calls by what they ask for: `routes` (method and path of HTTP),
    /// `statements` (SQL, Redis, DNS)
    ///
    /// Names are made of the first 256 bytes of each, which whywait reads from the program's memory
    /// for that. They have no values: numbers, ids and texts are replaced. Headers and bodies are
    /// not looked at. At most 200 of each kind are kept apart.
    #[arg(long, value_name = "WHAT,...", value_delimiter = ',', value_enum)]
    pub(crate) names: Vec<NamesOf>,
    /// Follow HTTP/2 in TLS, too (OpenSSL, BoringSSL, Go): each of its streams is a request
    ///
    /// For that probes are set in the target's processes, at the functions by which its TLS library
    /// takes and gives clear text. Each call of one stops for some microseconds. Of the text the
    /// heads of frames are looked at, and what --names asks for.
    #[arg(long)]
    pub(crate) tls: bool,
}

/// How to report.
#[derive(Debug, Args)]
#[command(next_help_heading = "Report")]
pub(crate) struct OutputArgs {
    /// Text for people, JSON for programs, a page to share, or what other tools read
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        value_enum,
        hide_possible_values = true,
        long_help = FORMATS
    )]
    pub(crate) format: ReportFormat,
    /// Make --format json less than 4 kB: verdict, first findings, and what to ask next
    #[arg(long)]
    pub(crate) brief: bool,
    /// Show all that text has room for: all evidence, calls, notes, what it rests on
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Which time folded stacks and profiles show: critical, waits or cpu [default: critical]
    #[arg(long, value_name = "TIME", value_enum, hide_possible_values = true)]
    pub(crate) of: Option<StackTime>,
    /// Write the report to this file instead of standard output
    #[arg(
        short,
        long,
        value_name = "FILE",
        value_parser = values::destination(),
        value_hint = ValueHint::FilePath
    )]
    pub(crate) output: Option<Destination>,
    /// Exit with code 3 when there is a finding of this severity or a worse one
    #[arg(long, value_name = "SEVERITY", value_enum)]
    pub(crate) fail_on: Option<FailOn>,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) capture: CaptureArgs,
    /// Keep the recording in this new folder [default: delete it after the report]
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
    /// Record on and on: DIR gets a recording for each such time (1h: one for each hour)
    #[arg(long, value_name = "TIME", value_parser = values::rotation, help_heading = ROTATION)]
    pub(crate) rotate: Option<Duration>,
    /// Delete recordings that ended so long ago (36h, 7d)
    #[arg(
        long,
        value_name = "TIME",
        value_parser = values::age,
        requires = "rotate",
        help_heading = ROTATION
    )]
    pub(crate) keep_for: Option<Duration>,
    /// Delete the oldest recordings while all take more space than this (500M, 20G)
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = values::space,
        requires = "rotate",
        help_heading = ROTATION
    )]
    pub(crate) max_size: Option<u64>,
    /// Another whywait rotates
    #[arg(long, hide = true, conflicts_with = "rotate")]
    pub(crate) in_rotation: bool,
    /// Load everything, and attach at this time, in nanoseconds since 1970
    #[arg(long, hide = true, requires = "in_rotation")]
    pub(crate) begin_at: Option<u64>,
    /// The words of the command that PID becomes: it waits at a gate until whywait has written a
    /// line to standard output
    #[arg(
        long,
        hide = true,
        requires = "in_rotation",
        allow_hyphen_values = true
    )]
    pub(crate) launched: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The folder that `whywait record` wrote, or what `whywait pack` made of it
    #[arg(value_name = "DIR", required_unless_present = "format")]
    pub(crate) recording: Option<PathBuf>,
    /// Report one server of a recording of all (record -a): its pid, :PORT or name
    #[arg(long, value_name = "SERVER", help_heading = "Report")]
    pub(crate) server: Option<String>,
    /// Show what threads waited for (lock, file, socket) and how much of it delayed slow requests
    #[arg(long, conflicts_with_all = ["request", "fail_on", "brief"], help_heading = INSTEAD)]
    pub(crate) waits: bool,
    /// Show io_uring rings: where the operations' time went, and how many slots they used
    #[arg(
        long,
        conflicts_with_all = ["waits", "request", "fail_on", "brief"],
        help_heading = INSTEAD
    )]
    pub(crate) uring: bool,
    /// Show what CPU time was for: per request, byte, listener and thread, user and system apart
    #[arg(
        long,
        conflicts_with_all = ["waits", "request", "fail_on", "brief"],
        help_heading = INSTEAD
    )]
    pub(crate) cpu: bool,
    /// Show calls: what was asked of other services, by peer, and how long the replies took
    #[arg(
        long,
        conflicts_with_all = ["waits", "uring", "cpu", "request", "fail_on", "brief"],
        help_heading = INSTEAD
    )]
    pub(crate) calls: bool,
    /// Show the slow requests, and how their time splits by calls of other services
    #[arg(
        long,
        conflicts_with_all = ["waits", "uring", "cpu", "calls", "request", "fail_on", "brief"],
        help_heading = INSTEAD
    )]
    pub(crate) requests: bool,
    /// Show where the time of one route's requests went, by the name that reports print
    ///
    /// The recording has names if it was made with --names.
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with_all = ["waits", "uring", "cpu", "calls", "request", "fail_on", "brief"],
        help_heading = INSTEAD
    )]
    pub(crate) route: Option<String>,
    /// Show one slow request's critical path; the report's line `slowest:` has the ID in brackets
    #[arg(
        long,
        value_name = "ID",
        conflicts_with_all = ["fail_on", "brief"],
        help_heading = INSTEAD
    )]
    pub(crate) request: Option<String>,
    /// Write the report as a page, to DIR.html or -o FILE, and say how to open it
    #[arg(
        long,
        conflicts_with_all = [
            "brief", "waits", "uring", "cpu", "calls", "requests", "request", "route",
        ],
        requires = "recording",
        help_heading = "Report"
    )]
    pub(crate) open: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PackArgs {
    /// The folder that `whywait record` wrote
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) recording: PathBuf,
    /// Write it to this file [default: DIR.tar.zst, in the place of what has that name]
    #[arg(
        short,
        long,
        value_name = "FILE",
        value_parser = values::destination(),
        value_hint = ValueHint::FilePath
    )]
    pub(crate) output: Option<Destination>,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The side before the change: a recording, a folder of recordings, or a baseline file
    #[arg(value_name = "BASE")]
    pub(crate) base: PathBuf,
    /// The side after the change: the same
    #[arg(value_name = "HEAD")]
    pub(crate) head: PathBuf,
    /// The chance that two equal sides have any significant difference
    #[arg(long, value_name = "SHARE", default_value = "0.05", value_parser = values::alpha)]
    pub(crate) alpha: f64,
    /// Changes below this share do not count
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = values::percent)]
    pub(crate) min_effect: f64,
    /// Text for people, JSON for programs, or one page with pictures
    #[arg(long, value_name = "FORMAT", default_value = "text", value_enum)]
    pub(crate) format: DiffFormat,
    /// Write it to this file instead of standard output
    #[arg(
        short,
        long,
        value_name = "FILE",
        value_parser = values::destination(),
        value_hint = ValueHint::FilePath
    )]
    pub(crate) output: Option<Destination>,
}

#[derive(Debug, Args)]
#[command(override_usage = "whywait gate [OPTIONS] <BUDGET> <DIR>...\n       \
                      whywait gate [OPTIONS] <BUDGET> -- <CMD>...")]
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
    /// How many times to run CMD
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        value_parser = clap::value_parser!(u32).range(1..=100),
        help_heading = "Recording"
    )]
    pub(crate) runs: u32,
    /// A shell command that puts load on CMD; when it ends, whywait ends CMD
    ///
    /// It starts at the same time as CMD, must itself wait until CMD listens, and is not watched.
    #[arg(
        long,
        value_name = "COMMAND",
        requires = "command",
        help_heading = "Recording"
    )]
    pub(crate) load: Option<OsString>,
    /// Keep the recordings in this new folder [default: delete them]
    #[arg(
        long,
        value_name = "DIR",
        requires = "command",
        help_heading = "Recording"
    )]
    pub(crate) keep: Option<PathBuf>,
    /// Record waits and requests of this length one by one, shorter ones as sums (10us to 10s)
    #[arg(
        long,
        value_name = "TIME",
        default_value = "1ms",
        value_parser = values::threshold,
        help_heading = "Recording"
    )]
    pub(crate) threshold: Duration,
    /// Text for people, or JSON for programs
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        value_enum,
        help_heading = "Report"
    )]
    pub(crate) format: Format,
    /// Write the report to this file instead of standard output
    #[arg(
        short,
        long,
        value_name = "FILE",
        value_parser = values::destination(),
        value_hint = ValueHint::FilePath,
        help_heading = "Report"
    )]
    pub(crate) output: Option<Destination>,
    /// Also write the result of each line as JUnit XML to this file
    #[arg(
        long,
        value_name = "FILE",
        value_parser = values::destination(),
        value_hint = ValueHint::FilePath,
        help_heading = "Report"
    )]
    pub(crate) junit: Option<Destination>,
    /// Also print GitHub annotations at the budget's lines, and add a table to the job's summary
    #[arg(long, conflicts_with = "output", help_heading = "Report")]
    pub(crate) github: bool,
    /// Also write the recordings' measures to this file, for [regressions] in a budget
    #[arg(
        long,
        value_name = "FILE",
        value_parser = values::destination(),
        value_hint = ValueHint::FilePath,
        help_heading = "Report"
    )]
    pub(crate) save_baseline: Option<Destination>,
}

#[derive(Debug, Args)]
#[command(override_usage = "whywait publish [OPTIONS] <REC>... <DEST>")]
pub(crate) struct PublishArgs {
    /// Recordings, or folders of recordings; at last where the tables go: a folder,
    /// s3://BUCKET/PREFIX, or - for standard output
    #[arg(value_name = "REC", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Parquet files, or JSON Lines for DEST - [default: parquet, for DEST - jsonl]
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub(crate) format: Option<PublishFormat>,
    /// The machine's name [default: the recording's host name]
    #[arg(long, value_name = "NAME", value_parser = values::label)]
    pub(crate) host: Option<String>,
    /// What was watched [default: the program's name]
    #[arg(long, value_name = "NAME", value_parser = values::label)]
    pub(crate) service: Option<String>,
    /// Its version [default: the program's build-id]
    #[arg(long, value_name = "NAME", value_parser = values::label)]
    pub(crate) release: Option<String>,
    /// Only these tables, and `recordings`
    #[arg(long, value_name = "TABLE,...", value_delimiter = ',')]
    pub(crate) tables: Vec<String>,
    /// Leave out recordings that DEST has, and those that are still being recorded
    #[arg(long)]
    pub(crate) new: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The finding's code, as reports print it in brackets, `parts` or `coverage` [default: list
    /// all, with their meaning]
    #[arg(value_name = "CODE", value_parser = codes(), hide_possible_values = true)]
    pub(crate) code: Option<String>,
    /// List the codes alone, one a line
    #[arg(long, conflicts_with = "code")]
    pub(crate) list: bool,
}

fn codes() -> PossibleValuesParser {
    let topic = PossibleValue::new(COVERAGE).alias(Code::RECORDING_INCOMPLETE);
    let codes = Code::all().map(|code| PossibleValue::new(code.name()));
    PossibleValuesParser::new(codes.chain([topic, PossibleValue::new(PARTS)]))
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// A folder, such as /usr/local/share/man/man1
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) folder: Option<PathBuf>,
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
    /// Also every system call, in short bursts: at most a twentieth of the time
    Full,
}

/// What is to have names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NamesOf {
    /// Method and path of HTTP/1, as a template
    Routes,
    /// SQL of PostgreSQL and MySQL, commands of Redis, kinds of DNS questions
    Statements,
}

impl NamesOf {
    /// As it is typed.
    pub(crate) fn name(self) -> &'static str {
        match self {
            NamesOf::Routes => "routes",
            NamesOf::Statements => "statements",
        }
    }
}

/// What a comparison of two sides looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiffFormat {
    /// About one screen, for people
    Text,
    /// Everything, for programs (schema 1)
    Json,
    /// One page with pictures, offline
    Html,
}

/// What a gate's result looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// About one screen, for people
    Text,
    /// Everything, for programs (schema 1)
    Json,
}

/// What a report looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// About one screen, for people
    Text,
    /// Everything, for programs (schema 1)
    Json,
    /// One page with pictures, offline
    Html,
    /// For a pull request or a ticket
    Markdown,
    /// Folded stacks, nanoseconds
    Folded,
    /// A profile for `go tool pprof`
    Pprof,
    /// A trace for ui.perfetto.dev
    Perfetto,
    /// Slow requests as OTLP/JSON traces
    Otlp,
    /// The schema of the JSON report
    JsonSchema,
}

impl ReportFormat {
    /// Whether it is nothing to read on a terminal.
    pub(crate) const fn is_for_files(self) -> bool {
        matches!(
            self,
            ReportFormat::Html | ReportFormat::Pprof | ReportFormat::Perfetto
        )
    }
}

/// Which time stacks are shown with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StackTime {
    /// Slow requests' critical paths
    Critical,
    /// All waits of all threads
    Waits,
    /// CPU time
    Cpu,
}

impl From<StackTime> for Of {
    fn from(time: StackTime) -> Self {
        match time {
            StackTime::Critical => Of::Critical,
            StackTime::Waits => Of::Waits,
            StackTime::Cpu => Of::Cpu,
        }
    }
}

/// What published tables look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PublishFormat {
    /// Files for query engines
    Parquet,
    /// An object a line, for those who ship logs
    Jsonl,
}

/// The severity from which findings fail a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    /// Any remark
    Note,
    /// Something is probably wrong
    Warning,
    /// Something is wrong
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
