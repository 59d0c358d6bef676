//! Sides whose runs are scripts of events.

use std::collections::BTreeMap;

use whywait_compare::{Run, Side};
use whywait_events::Part;
use whywait_model::script::Script;

/// What a run of the made-up server is like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Server {
    /// What the handler computes, milliseconds.
    pub(crate) compute_ms: u64,
    /// How long it sleeps, milliseconds.
    pub(crate) sleep_ms: u64,
    /// Whether a loop is blocked for so long, milliseconds.
    pub(crate) blocked_ms: u64,
}

pub(crate) const HEALTHY: Server = Server {
    compute_ms: 100,
    sleep_ms: 50,
    blocked_ms: 0,
};

/// So quick that nothing is found.
pub(crate) const QUICK: Server = Server {
    compute_ms: 20,
    sleep_ms: 8,
    blocked_ms: 0,
};

/// A run; `noise` milliseconds more or less of computing.
pub(crate) fn run(server: Server, number: u64, noise: u64) -> Run {
    run_of(server, number, noise, |_| {})
}

/// The same, with something more in the script.
pub(crate) fn run_of(server: Server, number: u64, noise: u64, more: impl Fn(&mut Script)) -> Run {
    let mut script = Script::new();
    // Numbers that no two runs share: what is compared must not hang on them.
    let tid = 10 + number as u32;
    script.thread(tid, &format!("worker-{number}"));
    let compute = script.stack(&["main", "serve", "app::handle::render"]);
    let sleep = script.stack(&["main", "serve", "app::handle::look_up"]);
    let mut at = 100;
    let mut samples = BTreeMap::new();
    for socket in 1..=20 {
        let computed = server.compute_ms + noise;
        script.burns(tid, compute, at, at + computed);
        script.sleeps(tid, sleep, at + computed, at + computed + server.sleep_ms);
        script
            .request(socket)
            .ready(at)
            .read(at, tid)
            .spent(Part::OnCpu, computed)
            .spent(Part::Timer, server.sleep_ms)
            .answered(at + computed + server.sleep_ms, tid);
        at += computed + server.sleep_ms + 20;
        *samples.entry((compute, tid)).or_default() += computed / 5;
    }
    if server.blocked_ms > 0 {
        blocked(&mut script, tid + 1000, at, server.blocked_ms);
    }
    more(&mut script);
    script.ends(10_000);
    Run::of(&script.model(), &samples, format!("run {number}"))
}

/// A loop that serves an epoll instance alone, and is away from it while a request waits.
fn blocked(script: &mut Script, tid: u32, at: u64, ms: u64) {
    script.thread(tid, &format!("loop-{tid}"));
    let poll = script.stack(&["main", "aeMain", "epoll_wait"]);
    let away = script.stack(&["main", "aeMain", "app::save"]);
    script.polls_in(tid, 7, poll, at - 50, at);
    script.burns(tid, away, at, at + ms);
    for socket in 500..510 {
        script
            .request(socket)
            .epoll(7)
            .ready(at + 1)
            .read(at + ms, tid)
            .spent(Part::OnCpu, 1)
            .answered(at + ms + 1, tid);
    }
    script.polls_in(tid, 7, poll, at + ms + 2, at + ms + 60);
}

/// A side of runs that scatter by some milliseconds.
pub(crate) fn side(name: &str, server: Server, runs: u64) -> Side {
    let first = name.len() as u64 * 100;
    Side {
        name: name.to_owned(),
        runs: (0..runs).map(|n| run(server, first + n, n % 3)).collect(),
    }
}
