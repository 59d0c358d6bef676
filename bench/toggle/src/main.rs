//! What watching costs a server that is under load: `bench-toggle PID ROUNDS WINDOW_MS DIR WHAT`
//! takes whywait's hooks off and puts them on again, and prints for each window how many packets of
//! TCP the machine moved in it and what CPU time the server took, a line of JSON each.
//!
//! WHAT is `whywait`; or `empty`, hooks that do nothing, with which the kernel's part is measured;
//! or `control`: the hooks stay off all the time, and what is found then is chance.
//!
//! Machines change their speed, virtual ones by half within seconds. Windows of a fraction of a
//! second, in the order off-on-on-off and on-off-off-on, see the same machine on average, which
//! whole runs with and without whywait do not.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use whywait_capture::{Options, Session};

/// After the hooks were changed: caches, and waits that seem long because their beginning was not
/// seen.
const SETTLE: Duration = Duration::from_millis(40);

const ORDERS: [[bool; 4]; 2] = [[false, true, true, false], [true, false, false, true]];

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, pid, rounds, window_ms, dir, what] = args.as_slice() else {
        return Err("usage: bench-toggle PID ROUNDS WINDOW_MS DIR WHAT".into());
    };
    let window = Duration::from_millis(window_ms.parse()?);
    let mut options = Options::default();
    let control = match what.as_str() {
        "whywait" => false,
        "empty" => {
            options.hooks_do_nothing = true;
            options.sample_hz = 0;
            false
        }
        "control" => true,
        _ => return Err("WHAT is whywait, empty or control".into()),
    };
    let pid = pid.parse()?;
    let mut session = Session::start(pid, Vec::new(), Path::new(dir), &options)?;
    let mut hooked = true;
    for round in 0..rounds.parse::<usize>()? {
        for on in ORDERS[round % 2] {
            let hook = on && !control;
            if hook != hooked {
                session.set_hooks(hook)?;
                hooked = hook;
            }
            watch(&mut session, hooked, SETTLE)?;
            let (begun, packets, cpu_ns) = (Instant::now(), packets()?, own_cpu_ns()?);
            let server_ns = cpu_ns_of(pid)?;
            watch(&mut session, hooked, window)?;
            println!(
                "{{\"round\": {round}, \"on\": {on}, \"seconds\": {:.6}, \"packets\": {}, \
                 \"server_cpu_s\": {:.6}, \"tool_cpu_s\": {:.6}}}",
                begun.elapsed().as_secs_f64(),
                self::packets()? - packets,
                cpu_ns_of(pid)?.saturating_sub(server_ns) as f64 / 1e9,
                (own_cpu_ns()? - cpu_ns) as f64 / 1e9,
            );
        }
    }
    session.set_hooks(true)?;
    session.finish(None)?;
    Ok(())
}

/// Does what whywait does for so long, or nothing.
fn watch(session: &mut Session, hooked: bool, time: Duration) -> Result<(), Box<dyn Error>> {
    let end = Instant::now() + time;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        if hooked {
            session.turn()?;
            session.sleep_at_most(left);
        } else {
            std::thread::sleep(left);
        }
    }
    Ok(())
}

/// Packets that TCP has received since the machine started.
fn packets() -> Result<u64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/net/snmp")?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next(), lines.next());
    let at = names.and_then(|names| names.split(' ').position(|name| name == "InSegs"));
    let value = at
        .zip(values)
        .and_then(|(at, values)| values.split(' ').nth(at));
    Ok(value.ok_or("/proc/net/snmp has no InSegs")?.parse()?)
}

/// CPU time of this thread, the one that whywait does its work on.
fn own_cpu_ns() -> Result<u64, Box<dyn Error>> {
    schedstat(Path::new("/proc/thread-self"))
}

/// CPU time of all threads that a process has.
fn cpu_ns_of(pid: u32) -> Result<u64, Box<dyn Error>> {
    let mut sum = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // One that has ended meanwhile counts no more.
        sum += schedstat(&thread?.path()).unwrap_or(0);
    }
    Ok(sum)
}

fn schedstat(thread: &Path) -> Result<u64, Box<dyn Error>> {
    let text = std::fs::read_to_string(thread.join("schedstat"))?;
    Ok(text.split(' ').next().ok_or("empty schedstat")?.parse()?)
}
