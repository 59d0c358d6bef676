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
        let took = (0..5).map(|_| cpu_time(named));
        let best = took.min().expect("five");
        let cpus = thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
        println!("{named}: {best:?} of CPU time");
        assert!(best < AT_MOST * cpus.min(2), "{named} takes {best:?}");
    }
}

/// Of another process, which does nothing else.
fn cpu_time(named: &str) -> Duration {
    let own = std::env::current_exe().expect("a path");
    let output = Command::new(own)
        .args(["--exact", "many::resolves_once", "--nocapture"])
        .env(NAMED, named)
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let ns = text
        .split("CPU time ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    Duration::from_nanos(ns.and_then(|ns| ns.parse().ok()).expect("a number"))
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
    let took = now() - begun;
    let ns = took.tv_sec * 1_000_000_000 + took.tv_nsec;
    println!("CPU time {ns} ns");
}
