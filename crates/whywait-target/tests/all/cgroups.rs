//! By a cgroup, with cgroups as service managers and container engines name them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use whywait_target::{Named, hierarchies, processes_in};

use crate::common::{Running, fails, found, python, run};

const WAITS: &str = "
import sys
print(1, flush=True)
sys.stdin.read()
";

/// Cgroups below one of this test's own, with a program in the last of them.
struct MadeUp {
    program: Option<Running>,
    made: Vec<PathBuf>,
}

impl MadeUp {
    fn new(path: impl AsRef<Path>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mounts = fs::read("/proc/self/mountinfo").expect("/proc is there");
        let hierarchy = hierarchies(&mounts).into_iter().next().expect("cgroups");
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let own = format!("whywait-test-{}-{count}", std::process::id());
        let mut dir = hierarchy.point.join(own);
        let mut made = vec![dir.clone()];
        for folder in path.as_ref() {
            dir.push(folder);
            made.push(dir.clone());
        }
        made.iter()
            .for_each(|dir| fs::create_dir(dir).expect("writable"));
        let this = Self {
            program: Some(python(WAITS)),
            made,
        };
        this.takes(this.pid());
        this
    }

    fn takes(&self, pid: u32) {
        fs::write(self.dir().join("cgroup.procs"), pid.to_string()).expect("writable");
    }

    fn dir(&self) -> &Path {
        self.made.last().expect("one")
    }

    fn pid(&self) -> u32 {
        self.program.as_ref().expect("it runs").pid()
    }
}

impl Drop for MadeUp {
    fn drop(&mut self) {
        self.program = None;
        for dir in self.made.iter().rev() {
            // A process is taken out of it when it was waited for, or a moment later.
            while fs::remove_dir(dir).is_err_and(|error| error.raw_os_error() == Some(16)) {
                std::thread::yield_now();
            }
        }
    }
}

fn id(first: char) -> String {
    let digits = format!("{:08x}", std::process::id());
    format!("{first}{}", digits.repeat(8).split_at(63).0)
}

#[test]
fn a_unit_is_found_by_its_name() {
    let unit = format!("whywait-{}", std::process::id());
    let made = MadeUp::new(format!("system.slice/{unit}.service"));
    for name in [unit.clone(), format!("{unit}.service")] {
        let found = found(Named::Unit(name.into()));
        assert_eq!(found.pids(), [made.pid()]);
        assert_eq!(found.cgroups(), [made.dir()]);
        let said = found.said.concat();
        assert!(said.starts_with(&format!("{unit}.service is ")), "{said}");
    }
    let error = fails(Named::Unit(unit[..unit.len() - 1].into()));
    assert!(
        error.hint.contains(&format!("--unit {unit}.service")),
        "{error:?}"
    );
    let twin = MadeUp::new(format!("user.slice/{unit}.service"));
    let error = fails(Named::Unit(unit.into()));
    for dir in [made.dir(), twin.dir()] {
        assert!(
            error.hint.contains(&format!("--cgroup {}", dir.display())),
            "{error:?}"
        );
    }
}

#[test]
fn containers_of_all_engines_are_found_by_their_ids() {
    let folders = [
        ('a', "system.slice/docker-ID.scope"),
        ('b', "machine.slice/libpod-ID.scope/container"),
        (
            'c',
            "kubepods.slice/kubepods-pod12.slice/cri-containerd-ID.scope",
        ),
        ('d', "kubepods/besteffort/pod12/ID"),
        ('e', "docker/ID"),
    ];
    for (first, folder) in folders {
        let id = id(first);
        let made = MadeUp::new(folder.replace("ID", &id));
        for name in [&id[..], &id[..12]] {
            let found = found(Named::Container(name.to_owned()));
            assert_eq!(found.pids(), [made.pid()], "{folder}");
            assert!(found.said.concat().contains(&id[..12]), "{folder}");
        }
    }
}

#[test]
fn a_beginning_of_two_ids_gets_both() {
    let (one, other) = (format!("0{}", id('1')), format!("0{}", id('2')));
    let _made = [&one, &other].map(|id| MadeUp::new(format!("docker/{}", &id[..64])));
    let error = fails(Named::Container("0".to_owned()));
    for id in [one, other] {
        assert!(
            error.hint.contains(&format!("--container {}", &id[..12])),
            "{error:?}"
        );
    }
    let error = fails(Named::Container("no such container".to_owned()));
    assert!(error.hint.contains("id"), "{error:?}");
}

#[test]
fn a_container_is_found_by_the_name_that_its_monitor_has() {
    let id = id('f');
    let made = MadeUp::new(format!("machine.slice/libpod-{id}.scope"));
    // What is there of a monitor: its name and its command line.
    let program = "
import ctypes, sys
ctypes.CDLL(None).prctl(15, b'conmon', 0, 0, 0)
print(1, flush=True)
sys.stdin.read()
";
    let dir = tempfile::tempdir().expect("a temporary folder");
    let file = dir.path().join("monitor.py");
    fs::write(&file, program).expect("writable");
    let name = format!("web-{}", std::process::id());
    let mut monitor = Command::new("/usr/bin/python3");
    let _monitor = run(monitor.arg(file).args(["-c", &id, "-n", &name]));
    assert_eq!(found(Named::Container(name)).pids(), [made.pid()]);
}

#[test]
fn a_path_may_have_odd_bytes_and_is_shown_escaped() {
    let odd = OsStr::from_bytes(b"a b\x1b[31m\xff\\040");
    let made = MadeUp::new(odd);
    let found = found(Named::Cgroup(made.dir().to_owned()));
    assert_eq!(found.pids(), [made.pid()]);
    let said = found.said.concat();
    assert!(!said.contains(|c: char| c.is_control()), "{said:?}");
}

#[test]
fn a_path_is_taken_as_the_process_has_it() {
    let made = MadeUp::new("web/api");
    let cgroup = fs::read_to_string(format!("/proc/{}/cgroup", made.pid())).expect("it runs");
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::"));
    let path = path.expect("version 2 is there");
    assert_eq!(found(Named::Cgroup(path.into())).pids(), [made.pid()]);
    let above = Path::new(path).parent().expect("a folder").to_owned();
    assert_eq!(found(Named::Cgroup(above.clone())).pids(), [made.pid()]);
    let error = fails(Named::Cgroup(above.join("wbe")));
    assert!(error.hint.contains("has api"), "{error:?}");
}

#[test]
fn what_is_put_into_a_cgroup_later_is_in_it() {
    let made = MadeUp::new("late");
    let late = python(WAITS);
    assert!(!processes_in(made.dir()).contains(&late.pid()));
    made.takes(late.pid());
    assert!(processes_in(made.dir()).contains(&late.pid()));
    drop(late);
}

#[test]
fn an_empty_cgroup_has_nothing_to_watch() {
    let mut made = MadeUp::new("empty");
    made.program = None;
    while !processes_in(made.dir()).is_empty() {
        std::thread::yield_now();
    }
    assert!(
        fails(Named::Cgroup(made.dir().to_owned()))
            .message
            .contains("no process")
    );
}
