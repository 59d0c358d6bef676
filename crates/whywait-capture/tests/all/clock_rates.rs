//! The sampling clock ticks less often while nothing is slow, and what its samples say stays the
//! same.
//!
//! Needs the privileges to record. With `WHYWAIT_NO_BPF=1` nothing is tested.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use whywait_capture::{Options, Session};
use whywait_events::recording::Recording;
use whywait_events::{Cpu, Sample};

use crate::common::{self, Running};

/// Works for 0.6 ms of CPU time and sleeps for 1.4 ms, again and again, until it is recorded to
/// compute: then for a second without a pause.
const PROGRAM: &str = "
import select, sys, time
def work(ns):
    until = time.process_time_ns() + ns
    while time.process_time_ns() < until:
        pass
told = []
while not told:
    work(600_000)
    time.sleep(0.0014)
    told = select.select([sys.stdin], [], [], 0)[0]
work(1_000_000_000)
sys.stdin.readline()
sys.stdin.readline()
";

/// How long the host of this machine has kept CPUs from it so far, milliseconds: `steal` of the
/// first line of /proc/stat, in hundredths of a second.
fn stolen_ms() -> u128 {
    let stat = std::fs::read_to_string("/proc/stat").expect("there is /proc/stat");
    let steal = stat.split_whitespace().nth(8);
    steal
        .and_then(|ticks| ticks.parse::<u128>().ok())
        .map_or(0, |ticks| ticks * 10)
}

#[test]
fn the_clock_ticks_less_often_while_nothing_is_slow() {
    let Some(_turn) = common::alone() else {
        return;
    };
    let child = Command::new("/usr/bin/python3")
        .args(["-c", PROGRAM])
        .stdin(Stdio::piped())
        .spawn();
    let mut target = Running(child.expect("python3 is there"));
    let dir = tempfile::tempdir().expect("a temporary folder can be made");
    let dir = dir.path().join("recording");
    let mut session = Session::start(target.0.id(), vec![], &dir, &Options::default())
        .expect("the privileges to record");
    let mut input = target.0.stdin.take().expect("it is piped");
    assert!(
        !session.clock_is_sparse(),
        "at first, as nothing is known of the target, the clock is to tick often"
    );
    let (begun, stolen_before_ms) = (Instant::now(), stolen_ms());
    let mut since = None;
    let sparse = common::record_until(&mut session, |session| {
        if !session.clock_is_sparse() {
            since = None;
            // A host that takes 5 ms of the CPUs within each 5 seconds has it tick often all the
            // time, and is to.
            let long = begun.elapsed() >= Duration::from_secs(30);
            let stolen = (stolen_ms() - stolen_before_ms) * 1000 >= begun.elapsed().as_millis();
            return (long && stolen).then_some(false);
        }
        let since = *since.get_or_insert_with(Instant::now);
        (since.elapsed() >= Duration::from_secs(2)).then_some(true)
    });
    input.write_all(b"compute\n").expect("it reads");
    common::record_until(&mut session, |session| {
        (!session.clock_is_sparse()).then_some(())
    });
    let end = Instant::now() + Duration::from_millis(500);
    common::record_until(&mut session, |_| (Instant::now() >= end).then_some(()));
    session.finish(None).expect("the recording is finished");

    let recording = Recording::open(&dir).expect("a recording");
    let (mut samples, mut sampled, mut on_cpu_ns) = (Vec::<Sample>::new(), 0, 0);
    let mut keep = |sample: &Sample| samples.push(sample.clone());
    recording.read::<Sample>(None, &mut keep).expect("samples");
    let mut add = |row: &Cpu| {
        on_cpu_ns += row.on_cpu_ns;
        sampled += row.user_samples + row.system_samples;
    };
    recording.read::<Cpu>(None, &mut add).expect("CPU times");
    let of = |periods: u32| samples.iter().filter(|one| one.periods == periods).count();
    assert!(
        of(1) >= 50 && (of(4) >= 10 || !sparse) && of(1) + of(4) == samples.len(),
        "expected many samples of one period and some of four, got {} and {} of {}",
        of(1),
        of(4),
        samples.len()
    );
    let periods: u64 = samples.iter().map(Sample::weight).sum();
    assert_eq!(
        periods, sampled,
        "the rows of samples and the kernel's counts are to say the same"
    );
    let sampled_ms = periods * 1000 / 199;
    let used_ms = on_cpu_ns / 1_000_000;
    assert!(
        sampled_ms * 4 > used_ms * 3 && sampled_ms * 3 < used_ms * 4,
        "expected samples of about the CPU time that was counted, {used_ms} ms, got \
         those of {sampled_ms} ms"
    );
}
