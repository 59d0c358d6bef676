//! What whywait may do, and what it does without.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use crate::common::{
    self, binary, bpf, program, run, scratch, start, target, text, until, walk, whywait,
};
use nix::sys::signal::Signal;
use whywait_events::recording::Recording;

/// nobody, on every distribution.
const NOBODY: &str = "65534";

/// Bits of linux/capability.h.
const CHOWN: u64 = 1 << 0;
const DAC_OVERRIDE: u64 = 1 << 1;
const DAC_READ_SEARCH: u64 = 1 << 2;
const FOWNER: u64 = 1 << 3;
const KILL: u64 = 1 << 5;
const SYS_PTRACE: u64 = 1 << 19;
const SYSLOG: u64 = 1 << 34;
const BPF: u64 = 1 << 39;
const CHECKPOINT_RESTORE: u64 = 1 << 40;

/// What recording needs whoever the target is.
const WATCHING: u64 = BPF | SYS_PTRACE | DAC_READ_SEARCH | CHECKPOINT_RESTORE | SYSLOG;

/// The capability sets of each thread of a process: effective, permitted, bounding; and whether it
/// can get new ones.
fn privileges(pid: u32) -> Vec<(u64, u64, u64, bool)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    tasks
        .map(|task| {
            let path = task.expect("an entry").path().join("status");
            let status = fs::read_to_string(path).expect("it runs");
            let value = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name));
                line.expect("the kernel says").trim().to_owned()
            };
            let mask = |name: &str| u64::from_str_radix(&value(name), 16).expect("a mask");
            (
                mask("CapEff:"),
                mask("CapPrm:"),
                mask("CapBnd:"),
                value("NoNewPrivs:") == "0",
            )
        })
        .collect()
}

#[track_caller]
fn has_only(pid: u32, expected: u64) {
    for (effective, permitted, bounding, can_gain) in privileges(pid) {
        assert!(
            effective == expected && permitted == expected && bounding == expected && !can_gain,
            "expected {expected:#x} for good, got effective {effective:#x}, permitted \
             {permitted:#x}, bounding {bounding:#x}, can gain: {can_gain}"
        );
    }
}

#[test]
fn watching_a_process_takes_few_privileges() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let recording = dir.path().join("recording");
    let mut process = start(&mut program(
        "setpriv",
        &[
            "--reuid",
            NOBODY,
            "--regid",
            NOBODY,
            "--clear-groups",
            target(),
            "echo",
        ],
    ));
    process.ping("ready");
    let number = process.pid().to_string();
    let mut watcher = start(&mut whywait(&[
        "record",
        "-o",
        text(&recording),
        "-p",
        &number,
    ]));
    watcher.until_err("watching process");
    until("fewer privileges", || {
        privileges(watcher.pid())[0].1 <= WATCHING | DAC_OVERRIDE | FOWNER
    });
    has_only(watcher.pid(), WATCHING);
    process.ping("still here");
    // Who reads names from the target's files has none.
    let children = format!("/proc/{0}/task/{0}/children", watcher.pid());
    let children = fs::read_to_string(children).expect("it runs");
    let helper: u32 = children.trim().parse().expect("one child");
    until("no privileges", || privileges(helper) == [(0, 0, 0, false)]);
    let status = fs::read_to_string(format!("/proc/{helper}/status")).expect("it runs");
    let nobody = format!("Uid:\t{NOBODY}\t{NOBODY}\t{NOBODY}\t{NOBODY}\n");
    assert!(status.contains(&nobody), "{status}");
    std::thread::sleep(std::time::Duration::from_millis(100));
    watcher.signal(Signal::SIGINT);
    watcher.end().exits(0);
    // Another user's stacks were read, and its files.
    let read = Recording::open(&recording).expect("readable");
    let stacks = read.stacks().expect("readable");
    let mut named = false;
    let mut in_kernel = false;
    for frame in stacks.ids().flat_map(|id| stacks.named(id)) {
        let has = |wanted: &str| frame.names.iter().any(|name| &*name.name == wanted);
        named |= has("main") || has("echo");
        in_kernel |= frame
            .names
            .iter()
            .any(|name| name.name.contains("vfs_read"));
    }
    assert!(
        named,
        "expected functions of the target, got {:?}",
        stacks.modules().collect::<Vec<_>>()
    );
    let all: Vec<_> = stacks
        .ids()
        .map(|id| stacks.named(id).collect::<Vec<_>>())
        .collect();
    assert!(in_kernel, "expected functions of the kernel, got {all:?}");
}

#[test]
fn a_place_that_root_could_not_write_to_is_written_to_all_the_same() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let theirs = dir.path().join("theirs");
    fs::create_dir(&theirs).expect("a folder");
    fs::set_permissions(&theirs, fs::Permissions::from_mode(0o755)).expect("it is ours");
    std::os::unix::fs::chown(&theirs, Some(65534), Some(65534)).expect("root may");
    let report = theirs.join("report");
    let mut command = whywait(&["-o", text(&report), "--", "true"]);
    run(command.env("TMPDIR", &theirs)).exits(0);
    let written = fs::read_to_string(&report).expect("a report");
    assert!(
        written.contains("coverage: "),
        "expected a report, got {written}"
    );
    assert_eq!(walk(&theirs).len(), 2, "expected no temporary files");
    let new = theirs.join("new");
    run(&mut whywait(&["record", "-o", text(&new), "--", "true"])).exits(0);
    run(&mut whywait(&["report", text(&new)])).exits(0);
}

#[test]
fn nobody_elses_folder_is_taken_nor_what_a_link_leads_to() {
    let dir = scratch();
    let ran = dir.path().join("ran");
    let theirs = dir.path().join("theirs");
    fs::create_dir(&theirs).expect("a folder");
    std::os::unix::fs::chown(&theirs, Some(65534), Some(65534)).expect("root may");
    let own = dir.path().join("own");
    fs::create_dir(&own).expect("a folder");
    fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&own, &link).expect("a link");
    let slash = format!("{}/", text(&link));
    for (folder, complaint) in [
        (text(&theirs), "belongs to another user"),
        (text(&link), "is a symbolic link"),
        (&slash, "is a symbolic link"),
    ] {
        for keep in ["-o", "--keep"] {
            let verb: &[&str] = if keep == "-o" { &["record"] } else { &[] };
            let args = [verb, &[keep, folder, "--", "touch", text(&ran)]].concat();
            run(&mut whywait(&args)).exits(2).complains(complaint);
        }
    }
    assert!(!ran.exists(), "expected the command not to have run");
    let found = fs::metadata(&theirs).expect("it is there");
    assert_eq!(found.uid(), 65534, "it was given away");
    let mode = fs::metadata(&own).expect("it is there").mode() & 0o7777;
    assert_eq!(mode, 0o755, "what the link leads to was touched");
    assert_eq!(walk(&own).len(), 1);
    // Under sudo that of who called it is not another's, and root's is.
    let mut command = whywait(&["record", "-o", text(&own), "--", "true"]);
    run(command.env("SUDO_UID", NOBODY).env("SUDO_GID", NOBODY))
        .exits(2)
        .complains("belongs to another user");
    if bpf() {
        let mut command = whywait(&["record", "-o", text(&theirs), "--", "true"]);
        run(command.env("SUDO_UID", NOBODY).env("SUDO_GID", NOBODY)).exits(0);
    }
}

#[test]
fn under_sudo_all_belongs_to_who_called_it() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let recording = dir.path().join("recording");
    let script = "id -u; id -g; grep CapEff /proc/self/status; exec \"$0\" echo";
    let args = [
        "record",
        "-o",
        text(&recording),
        "--",
        "sh",
        "-c",
        script,
        &copy(dir.path(), target()),
    ];
    let mut command = whywait(&args);
    let mut watcher = start(command.env("SUDO_UID", NOBODY).env("SUDO_GID", NOBODY));
    assert_eq!(watcher.line(), NOBODY);
    assert_eq!(watcher.line(), NOBODY);
    assert_eq!(watcher.line(), "CapEff:\t0000000000000000");
    watcher.ping("ready");
    has_only(
        watcher.pid(),
        WATCHING | CHOWN | DAC_OVERRIDE | FOWNER | KILL,
    );
    // Several segments, so that files are made after privileges were given up too.
    let segment = recording.join("seg-000002");
    until("a second segment", || {
        watcher.ping("still here");
        std::thread::sleep(std::time::Duration::from_millis(15));
        segment.exists()
    });
    // Passing a signal on to another user's process is a privilege.
    watcher.signal(Signal::SIGTERM);
    until("the end", || !watcher.is_running());
    watcher.end().exits(143);
    for path in walk(&recording) {
        let found = fs::metadata(&path).expect("it is there");
        let owner = (found.uid(), found.gid());
        assert!(
            owner == (65534, 65534),
            "expected nobody's, got {owner:?}: {path:?}"
        );
        let mode = found.mode() & 0o7777;
        assert!(
            mode == 0o700 || mode == 0o600,
            "expected a private file, got {mode:o}: {path:?}"
        );
    }
    // So its owner can read it.
    let whywait = copy(dir.path(), binary());
    let args = [
        "--reuid",
        NOBODY,
        "--regid",
        NOBODY,
        "--clear-groups",
        &whywait,
        "report",
        text(&recording),
    ];
    run(&mut program("setpriv", &args))
        .exits(0)
        .says("coverage: ");
    // Nothing stays in the temporary folder either, though it is not root's any more.
    let temporary = dir.path().join("temporary");
    fs::create_dir(&temporary).expect("a folder");
    fs::set_permissions(&temporary, fs::Permissions::from_mode(0o1777)).expect("it is ours");
    let mut command = common::whywait(&["--", "true"]);
    run(command
        .env("SUDO_UID", NOBODY)
        .env("SUDO_GID", NOBODY)
        .env("TMPDIR", &temporary))
    .exits(0);
    assert_eq!(walk(&temporary).len(), 1, "expected no temporary files");
}

#[test]
fn what_cannot_be_read_without_ptrace_is_said() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let recording = dir.path().join("recording");
    let user = ["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"];
    let args = [&user[..], &[target(), "echo"]].concat();
    let mut process = start(&mut program("setpriv", &args));
    process.ping("ready");
    let number = process.pid().to_string();
    let without = ["--bounding-set", "-sys_ptrace", binary()];
    let record = [
        "record",
        "-d",
        "200ms",
        "-p",
        &number,
        "-o",
        text(&recording),
    ];
    run(&mut program("setpriv", &[&without[..], &record].concat()))
        .exits(0)
        .complains("CAP_SYS_PTRACE");
    run(&mut whywait(&["report", text(&recording)]))
        .exits(0)
        .says("CAP_SYS_PTRACE");
}

/// A copy that everybody can run: the folder of the original may be closed to others.
fn copy(dir: &Path, program: &str) -> String {
    let name = Path::new(program).file_name().expect("a file");
    let to = dir.join(name);
    fs::copy(program, &to).expect("copied");
    fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).expect("it is ours");
    text(&to).to_owned()
}

#[test]
fn without_privileges_there_is_one_line() {
    // Giving up privileges takes some.
    if !bpf() {
        return;
    }
    let dir = scratch();
    let whywait = copy(dir.path(), binary());
    let recording = dir.path().join("recording");
    let run_as_nobody = |args: &[&str]| {
        let user = [
            "--reuid",
            NOBODY,
            "--regid",
            NOBODY,
            "--clear-groups",
            "--inh-caps=-all",
            &whywait,
        ];
        run(&mut program("setpriv", &[&user[..], args].concat()))
    };
    run_as_nobody(&["record", "-o", text(&recording), "--", "true"])
        .exits(1)
        .in_one_line()
        .complains("not permitted")
        .complains("sudo");
    let own = std::process::id().to_string();
    run_as_nobody(&["-p", &own])
        .exits(1)
        .in_one_line()
        .complains("not permitted");
    assert!(!recording.exists(), "expected no recording");
}

/// Runs whywait as a program that a shell's script begins with `exec \"$@\"`.
fn limited(script: &str, args: &[&str]) -> common::Run {
    let shell = ["-c", script, "bash", binary()];
    run(&mut program("bash", &[&shell[..], args].concat()))
}

#[test]
fn limits_are_called_by_their_names() {
    if !bpf() {
        return;
    }
    let own = std::process::id().to_string();
    for args in [&["check"][..], &["-d", "1ms", "-p", &own], &["--", "true"]] {
        let said = limited("ulimit -n 100; exec \"$@\"", args).exits(1);
        let said = format!("{}{}", said.out, said.err);
        assert!(
            said.contains("too few file descriptors") && said.contains("ulimit -n"),
            "{args:?}: {said}"
        );
        assert!(!said.contains("the kernel refused"), "{args:?}: {said}");
    }
    // A limit that whywait may raise is none.
    limited("ulimit -S -n 100; exec \"$@\"", &["--", "true"])
        .exits(0)
        .reports();
}

#[test]
fn too_little_memory_is_called_that() {
    if !bpf() {
        return;
    }
    for args in [&["check"][..], &["--", "true"]] {
        // Enough for the program itself, unoptimised, and not for what it asks for.
        let said = limited("ulimit -v 150000; exec \"$@\"", args).exits(1);
        let said = format!("{}{}", said.out, said.err);
        assert!(said.contains("out of memory"), "{args:?}: {said}");
        assert!(!said.contains("the kernel refused"), "{args:?}: {said}");
    }
}

#[test]
fn root_of_a_user_namespace_is_told_to_leave_it() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let whywait = copy(dir.path(), binary());
    let within = |args: &[&str]| {
        run(&mut program(
            "unshare",
            &[&["-U", "-r", &whywait][..], args].concat(),
        ))
    };
    let run = within(&["--", "true"])
        .exits(1)
        .in_one_line()
        .complains("root of the host");
    assert!(!run.err.contains("sudo"), "{}", run.err);
    let check = within(&["check"]).exits(1).says("root of the host");
    assert!(!check.out.contains("sudo"), "{}", check.out);
}

/// Becomes the program that its arguments name, with a seccomp filter under which bpf(2) is not
/// permitted (EPERM), as in most containers.
const SECCOMP: &str = "
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
bpf = [(0x20, 0, 0, 0), (0x15, 0, 1, 321), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *line) for line in bpf))
filter = ctypes.create_string_buffer(struct.pack('HxxxxxxP', len(bpf), ctypes.addressof(code)))
libc.prctl(38, 1, 0, 0, 0)
assert libc.prctl(22, 2, filter, 0, 0) == 0, ctypes.get_errno()
os.execv(sys.argv[1], sys.argv[1:])
";

#[test]
fn a_seccomp_filter_is_called_that() {
    if !bpf() {
        return;
    }
    let within = |args: &[&str]| {
        let python = ["-c", SECCOMP, binary()];
        run(&mut program(
            "/usr/bin/python3",
            &[&python[..], args].concat(),
        ))
    };
    let run = within(&["--", "true"])
        .exits(1)
        .in_one_line()
        .complains("seccomp");
    assert!(!run.err.contains("sudo"), "{}", run.err);
    within(&["check"]).exits(1).says("seccomp");
}

#[test]
fn without_type_information_there_is_one_line() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let ran = dir.path().join("ran");
    // A mount namespace of its own, in which the kernel's type information is out of sight.
    let script = "mount -t tmpfs none /sys/kernel/btf && exec \"$@\"";
    let args = [
        "-m",
        "sh",
        "-c",
        script,
        "sh",
        binary(),
        "--",
        "touch",
        text(&ran),
    ];
    run(&mut program("unshare", &args))
        .exits(1)
        .in_one_line()
        .complains("CONFIG_DEBUG_INFO_BTF");
    assert!(!ran.exists(), "expected the command not to have run");
}

#[test]
fn the_target_must_be_there() {
    run(&mut whywait(&["-p", "4194304"]))
        .exits(2)
        .complains("there is no process 4194304");
}
