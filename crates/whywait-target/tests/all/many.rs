//! On a machine with thousands of processes.

use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use whywait_target::{Named, resolve};

use crate::common::{prefork, python};

/// On an idle machine. Other tests run now, and do not change the CPU time, of which each CPU has a
/// part.
const AT_MOST: Duration = Duration::from_millis(100);
/// On a slower one: as often as a file of each process might be read meanwhile.
const READS: u32 = 4;
const NAMED: &str = "WHYWAIT_TEST_NAMED";

#[test]
fn five_thousand_processes_are_looked_through_quickly() {
    let many = python(
        "
import os, sys
read, write = os.pipe()
children = []
for _ in range(5000):
    child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    children.append(child)
print(len(children), flush=True)
sys.stdin.read()
os.close(write)
for child in children:
    os.waitpid(child, 0)
",
    );
    assert_eq!(many.said, [5000]);
    let server = prefork("127.0.0.1");
    let port = format!("port {}", server.said[0]);
    for named in [&*port, "name"] {
        let took = (0..5).map(|_| cpu_times(named));
        let (best, read) = took.min().expect("five");
        let cpus = thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
        println!("{named}: {best:?} of CPU time; reading a file of each takes {read:?}");
        let at_most = (AT_MOST * cpus.min(2)).max(read * READS);
        assert!(
            best < at_most,
            "{named} takes {best:?}, at most {at_most:?}"
        );
    }
}

/// Of another process, which does nothing else: to resolve, and to read a file of each process.
fn cpu_times(named: &str) -> (Duration, Duration) {
    let own = std::env::current_exe().expect("a path");
    let output = Command::new(own)
        .args(["--exact", "many::resolves_once", "--nocapture"])
        .env(NAMED, named)
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let times = text.split("CPU time ").nth(1).expect("times");
    let mut times = times.split(' ').map(|ns| ns.parse().expect("a number"));
    let mut next = || Duration::from_nanos(times.next().expect("two times"));
    (next(), next())
}

/// Says what one look takes; of use in another process only.
#[test]
fn resolves_once() {
    let Ok(named) = std::env::var(NAMED) else {
        return;
    };
    let named = match named.strip_prefix("port ").map(str::parse) {
        Some(port) => Named::Port(port.expect("a number")),
        None => Named::Name("no such program, of all these".into()),
    };
    let now = || clock_gettime(ClockId::ProcessCPUTime);
    let begun = now();
    let _ = resolve(&[named]);
    let resolved = now();
    for process in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let _ = std::fs::read(process.path().join("stat"));
    }
    let ns = |since, until| {
        let took: rustix::time::Timespec = until - since;
        took.tv_sec * 1_000_000_000 + took.tv_nsec
    };
    let (took, read) = (ns(begun, resolved), ns(resolved, now()));
    println!("CPU time {took} {read} ns");
}
