//! From flags to a configuration that makes sense.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::Uid;
use whywait_capture::{NamesWanted, Target, TargetServer};
use whywait_compare::gate::Date;
use whywait_findings::Severity;
use whywait_target::{FoundServers, Named, Server};
use whywait_view::stacks::Of;

use crate::args::{
    CaptureArgs, Detail, NamedArgs, NamesOf, OutputArgs, ReportArgs, ReportFormat, TargetArgs,
};
use crate::errors::{Usage, eprintln_quietly, line};
use crate::output::{self, Destination};
use crate::user::Invoker;

/// What to watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WatchTarget {
    /// Processes that run already.
    Running(Target),
    /// A command to launch: the program and its arguments, at least the program.
    Command(Vec<OsString>),
}

/// What to record, and where to.
#[derive(Debug, Clone)]
pub(crate) struct CaptureConfig {
    /// What to watch.
    pub(crate) target: WatchTarget,
    /// When to stop; `None`: when the target ends or a signal says so.
    pub(crate) duration: Option<std::time::Duration>,
    /// The folder for the recording. It does not exist, or is empty.
    pub(crate) recording: PathBuf,
    /// What else is written to once the recording is done: whywait keeps the privilege to do so.
    pub(crate) later: Vec<PathBuf>,
    /// The length from which waits and requests are recorded one by one, 10 us to 10 s.
    pub(crate) threshold_ns: u64,
    /// How many bytes of a stack to copy, 1 KiB to 32 KiB.
    pub(crate) stack_bytes: u32,
    /// A folder of debug files.
    pub(crate) debug_files: Option<PathBuf>,
    /// Whether system calls are traced now and then, also where nothing suggests a look.
    pub(crate) full: bool,
    /// What requests and calls are called is wanted.
    pub(crate) names: NamesWanted,
    pub(crate) tls: bool,
    /// Nothing is said but errors.
    pub(crate) quiet: bool,
    /// Another whywait has asked for it, and asks for the next one before it ends.
    pub(crate) in_rotation: bool,
    /// When to attach, if not at once.
    pub(crate) begin_at: Option<std::time::SystemTime>,
    /// The command that the process becomes once this whywait has said that it watches: the other
    /// whywait has launched it.
    pub(crate) launched: Vec<OsString>,
    /// The owner of the recording, as who the command runs too; `None`: the user who runs whywait.
    pub(crate) owner: Option<Invoker>,
}

/// What to show of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum View {
    /// The report.
    Report,
    /// The table of waits.
    Waits,
    /// The table of io_uring rings.
    Rings,
    /// What CPU time was for.
    Cpu,
    /// The table of calls.
    Calls,
    /// The list of slow requests, or those of one route.
    Requests(Option<String>),
    /// The requests of this route.
    Route(String),
    /// The critical path of the request with this name.
    Request(String),
}

impl View {
    pub(crate) fn of(args: &ReportArgs) -> Self {
        match &args.request {
            _ if args.waits => View::Waits,
            _ if args.uring => View::Rings,
            _ if args.cpu => View::Cpu,
            _ if args.calls => View::Calls,
            _ if args.requests => View::Requests(args.route.clone()),
            // As reports print it, too: in brackets.
            Some(id) => View::Request(id.trim().trim_matches(['[', ']']).to_owned()),
            None => args.route.clone().map_or(View::Report, View::Route),
        }
    }
}

/// How to report.
#[derive(Debug, Clone)]
pub(crate) struct ReportConfig {
    /// What it looks like.
    pub(crate) format: ReportFormat,
    /// Whether JSON is to be short.
    pub(crate) brief: bool,
    /// Whether text is to have all.
    pub(crate) verbose: bool,
    /// Which time stacks are shown with.
    pub(crate) of: Of,
    /// Where it goes; `None`: standard output.
    pub(crate) output: Option<Destination>,
    /// From which severity on findings fail the run.
    pub(crate) fail_on: Option<Severity>,
}

impl ReportConfig {
    /// `has_place`: whywait knows itself where the report goes.
    ///
    /// # Errors
    /// When the flags do not go together.
    pub(crate) fn new(args: OutputArgs, has_place: bool) -> Result<Self, Usage> {
        let of_stacks = matches!(args.format, ReportFormat::Folded | ReportFormat::Pprof);
        if args.of.is_some() && !of_stacks {
            return Err(Usage::new(
                "--of is for stacks",
                "use it with --format folded or --format pprof",
            ));
        }
        let of_json = matches!(args.format, ReportFormat::Json | ReportFormat::JsonSchema);
        if args.brief && !of_json {
            return Err(Usage::new(
                "--brief is for JSON",
                "use it with --format json or --format json-schema",
            ));
        }
        if args.format.is_for_files() && !has_place {
            output::refuse_terminal(args.output.as_ref())?;
        }
        Ok(ReportConfig {
            format: args.format,
            brief: args.brief,
            verbose: args.verbose,
            of: args.of.map_or(Of::Critical, Of::from),
            output: args.output,
            fail_on: args.fail_on.map(Severity::from),
        })
    }
}

/// What to watch. Says what the names came to, unless nothing but errors is to be said.
pub(crate) fn target(args: &TargetArgs) -> Result<WatchTarget, Usage> {
    let named = named(&args.named)?;
    match (named.as_slice(), args.command.as_slice()) {
        ([], []) => Err(Usage::new(
            "nothing to watch",
            "name a command after --, or what runs: whywait -- ./server; whywait -p 1234; \
             whywait :8080",
        )),
        ([], [program, ..]) if program.is_empty() => Err(Usage::new(
            "the command's name is empty",
            "name a command after --: whywait -- ./server",
        )),
        ([], command) => Ok(WatchTarget::Command(command.to_vec())),
        (named, []) => running(named, args.quiet),
        (_, _) => Err(Usage::new(
            "both something that runs and a command were named",
            "use either -p PID, :PORT and the like, or -- CMD",
        )),
    }
}

fn running(named: &[Named], quiet: bool) -> Result<WatchTarget, Usage> {
    let found = whywait_target::resolve(named)?;
    if !quiet {
        for said in &found.said {
            eprintln_quietly(&line(&format!("whywait: {said}")));
        }
    }
    let heads = found.pids();
    let alone = found.servers.iter().filter(|it| it.cgroups.is_empty());
    Ok(WatchTarget::Running(Target {
        head: heads.first().copied().unwrap_or_default(),
        pids: alone.flat_map(|server| server.pids.clone()).collect(),
        cgroups: found.cgroups(),
        servers: match named {
            [Named::All] => servers(&found),
            _ => Vec::new(),
        },
        named: found.said.join("; "),
    }))
}

/// Those that are reported each for itself.
fn servers(found: &FoundServers) -> Vec<TargetServer> {
    let server = |server: &Server| TargetServer {
        pids: server.pids.clone(),
        ports: server.ports.clone(),
    };
    found.servers.iter().map(server).collect()
}

/// What the flags name, in the order of the help text.
fn named(args: &NamedArgs) -> Result<Vec<Named>, Usage> {
    let mut named = Vec::new();
    for what in &args.what {
        named.extend(ports_of(what)?);
    }
    for pid in &args.pid {
        named.push(Named::Pid(pid_of(pid)?));
    }
    for port in &args.port {
        named.push(Named::Port(port_of(port)?));
    }
    if args.all {
        named.push(Named::All);
    }
    named.extend(args.name.iter().cloned().map(Named::Name));
    named.extend(args.unit.iter().cloned().map(Named::Unit));
    named.extend(args.container.iter().cloned().map(Named::Container));
    named.extend(args.cgroup.iter().cloned().map(Named::Cgroup));
    Ok(named)
}

/// `:80,443`. What else stands there was meant in some other way.
fn ports_of(what: &OsStr) -> Result<Vec<Named>, Usage> {
    let text = what.to_string_lossy();
    if let Some(ports) = text.strip_prefix(':') {
        let ports = ports
            .split(',')
            .map(|port| port_of(port.trim_start_matches(':')));
        return ports.map(|port| port.map(Named::Port)).collect();
    }
    let hint = if text.parse::<u32>().is_ok() {
        format!("-p {text} for the process, :{text} for the port")
    } else {
        format!(
            "to watch a command put -- before it: whywait -- {text}; to watch what runs: \
             --name {text}; whywait --help lists whywait's own commands"
        )
    };
    Err(Usage::new(
        format!("'{text}' is neither a port, such as :8080, nor a command of whywait"),
        hint,
    ))
}

fn pid_of(text: &str) -> Result<u32, Usage> {
    const HIGHEST: u32 = 4_194_304;
    if text.parse::<u64>().is_err() {
        let hint = match text.strip_prefix(':') {
            Some(port) => format!("for a port: whywait :{port}"),
            None => format!("for a name: --name {text}"),
        };
        return Err(Usage::new(
            format!("'{text}' is not the number of a process"),
            hint,
        ));
    }
    match text.parse() {
        Ok(pid @ 1..=HIGHEST) => Ok(pid),
        _ => Err(Usage::new(
            format!("{text} is not the number of a process"),
            format!("numbers are from 1 to {HIGHEST}: pidof NAME finds one"),
        )),
    }
}

fn port_of(text: &str) -> Result<u16, Usage> {
    match text.parse() {
        Ok(port @ 1..) => Ok(port),
        _ => Err(Usage::new(
            format!("'{text}' is not a TCP port"),
            "ports are from 1 to 65535: whywait :8080",
        )),
    }
}

/// Everything that the capture needs to know.
pub(crate) fn capture(
    target: WatchTarget,
    duration: Option<std::time::Duration>,
    args: &CaptureArgs,
    recording: PathBuf,
    later: Vec<PathBuf>,
    owner: Option<Invoker>,
) -> Result<CaptureConfig, Usage> {
    if let Some(folder) = &args.debug_files
        && !folder.is_dir()
    {
        return Err(Usage::new(
            format!("{} is no folder", folder.display()),
            "name the folder that has .build-id/ in it with --debug-files",
        ));
    }
    let threshold_ns =
        u64::try_from(args.threshold.as_nanos()).expect("a threshold is at most 10 s");
    Ok(CaptureConfig {
        target,
        duration,
        recording,
        later,
        threshold_ns,
        stack_bytes: args.stack_bytes,
        debug_files: args.debug_files.clone(),
        full: args.detail == Detail::Full,
        tls: args.tls,
        names: NamesWanted {
            routes: args.names.contains(&NamesOf::Routes),
            statements: args.names.contains(&NamesOf::Statements),
        },
        quiet: false,
        in_rotation: false,
        begin_at: None,
        launched: Vec::new(),
        owner,
    })
}

/// Checks that a recording can go to `dir`: it must not exist, or be an empty folder of the user's
/// own, and no link. Recordings are never overwritten, and nobody else's folder is given away.
pub(crate) fn new_folder(dir: &Path) -> Result<(), Usage> {
    let user = Invoker::from_env().map_or(Uid::effective().as_raw(), |invoker| invoker.uid);
    new_folder_of(dir, user)
}

fn new_folder_of(dir: &Path, user: u32) -> Result<(), Usage> {
    let hint = "name a folder that does not exist yet: whywait makes it";
    let shown = dir.display();
    let refused = |what: &str| Err(Usage::new(format!("{shown} {what}"), hint));
    // "link/" is the folder that the link leads to; without what follows it is the link.
    let named: PathBuf = dir.components().collect();
    let found = match std::fs::symlink_metadata(named) {
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
            return refused("is not a folder");
        }
        Err(error) => return Err(Usage::new(format!("cannot use {shown}: {error}"), hint)),
    };
    if found.is_symlink() {
        return refused("is a symbolic link");
    }
    if !found.is_dir() {
        return refused("is not a folder");
    }
    match std::fs::read_dir(dir).map(|mut entries| entries.next().is_none()) {
        Ok(true) if found.uid() == user => Ok(()),
        Ok(true) => refused("belongs to another user"),
        Ok(false) => refused("is not empty"),
        Err(error) => Err(Usage::new(format!("cannot use {shown}: {error}"), hint)),
    }
}

/// A name for a recording in the current folder: `redis-server-20260131-235959.whywait`, in UTC.
pub(crate) fn default_folder(target: &WatchTarget, now: std::time::SystemTime) -> PathBuf {
    let name = match target {
        WatchTarget::Running(target) => {
            let name = std::fs::read(format!("/proc/{}/comm", target.head)).unwrap_or_default();
            String::from_utf8_lossy(&name).into_owned()
        }
        WatchTarget::Command(command) => Path::new(&command[0])
            .file_name()
            .map(OsStr::to_string_lossy)
            .unwrap_or_default()
            .into_owned(),
    };
    let since_epoch = now
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    let stem = format!("{}-{}", file_name(&name), timestamp(since_epoch.as_secs()));
    let names = (1..).map(|n| {
        PathBuf::from(if n == 1 {
            format!("{stem}.whywait")
        } else {
            format!("{stem}-{n}.whywait")
        })
    });
    names
        .into_iter()
        .find(|name| !name.exists())
        .expect("some number is free")
}

/// The part of a hostile name that is harmless in a file name.
fn file_name(name: &str) -> String {
    let kept = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '+');
    let text: String = name.chars().filter(kept).take(40).collect();
    let text = text.trim_start_matches(['.', '-']);
    if text.is_empty() {
        "recording".to_owned()
    } else {
        text.to_owned()
    }
}

/// Seconds since 1970 as `20260131-235959`, UTC.
pub(crate) fn timestamp(seconds: u64) -> String {
    let Date { year, month, day } = Date::of_unix(seconds);
    let second = seconds % 86_400;
    format!(
        "{year:04}{month:02}{day:02}-{:02}{:02}{:02}",
        second / 3_600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps() {
        for (seconds, text) in [
            (0, "19700101-000000"),
            (951_782_399, "20000228-235959"),
            (951_782_400, "20000229-000000"),
            (1_709_251_199, "20240229-235959"),
            (4_107_542_400, "21000301-000000"),
            (1_767_225_599, "20251231-235959"),
        ] {
            assert_eq!(timestamp(seconds), text);
        }
    }

    #[test]
    fn hostile_commands_make_harmless_names() {
        for (name, file) in [
            ("redis-server\n", "redis-server"),
            ("../../etc", "etc"),
            ("-rf", "rf"),
            ("\x1b[2J", "2J"),
            ("日本", "recording"),
            ("", "recording"),
        ] {
            assert_eq!(file_name(name), file);
        }
    }

    fn args(pids: &[&str], command: &[&str]) -> TargetArgs {
        TargetArgs {
            named: NamedArgs {
                pid: pids.iter().map(|pid| (*pid).to_owned()).collect(),
                ..NamedArgs::default()
            },
            duration: None,
            quiet: true,
            command: command.iter().map(OsString::from).collect(),
        }
    }

    #[test]
    fn a_target_is_what_runs_or_a_command() {
        assert_eq!(
            target(&args(&[], &["a", "b"])),
            Ok(WatchTarget::Command(vec!["a".into(), "b".into()]))
        );
        assert_eq!(
            target(&args(&["1"], &[])),
            Ok(WatchTarget::Running(Target::from(1)))
        );
        let own = std::process::id().to_string();
        for wrong in [
            args(&[], &[]),
            args(&[], &[""]),
            args(&["1"], &["a"]),
            args(&["0"], &[]),
            args(&["99999999999999999999"], &[]),
            args(&[&own], &[]),
        ] {
            assert!(target(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_is_no_number_gets_the_flag_that_was_meant() {
        let hint = |args: NamedArgs| named(&args).expect_err("it is none").hint;
        let what = |what: &str| NamedArgs {
            what: vec![what.into()],
            ..NamedArgs::default()
        };
        let pid = |pid: &str| NamedArgs {
            pid: vec![pid.to_owned()],
            ..NamedArgs::default()
        };
        assert!(hint(pid("nginx")).contains("--name nginx"));
        assert!(hint(pid(":80")).contains("whywait :80"));
        assert!(hint(what("1234")).contains("-p 1234"));
        assert!(hint(what("redis-server")).contains("whywait -- redis-server"));
        assert_eq!(
            named(&what(":80,443")),
            Ok(vec![Named::Port(80), Named::Port(443)])
        );
        for wrong in [":", ":0", ":65536", ":80,", ":http", ":-1"] {
            assert!(named(&what(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn recordings_are_not_overwritten() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        assert_eq!(new_folder(dir.path()), Ok(()));
        assert_eq!(new_folder(&dir.path().join("new")), Ok(()));
        let file = dir.path().join("file");
        std::fs::write(&file, "").expect("a file");
        assert!(new_folder(dir.path()).is_err());
        assert!(new_folder(&file).is_err());
    }

    #[test]
    fn nobody_elses_folder_is_taken_nor_what_a_link_leads_to() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let message = |path: &Path, user| {
            new_folder_of(path, user)
                .expect_err("it is not to be used")
                .message
        };
        let own = Uid::effective().as_raw();
        assert_eq!(new_folder_of(dir.path(), own), Ok(()));
        assert!(message(dir.path(), own + 1).ends_with("belongs to another user"));
        let link = dir.path().join("link");
        for target in [Path::new("/no/such/folder"), dir.path()] {
            std::os::unix::fs::symlink(target, &link).expect("a link");
            for named in [link.clone(), link.join(""), link.join(".")] {
                assert!(message(&named, own).ends_with("is a symbolic link"));
            }
            std::fs::remove_file(&link).expect("a link");
        }
    }
}
