//! Writes the page of a large recording: ten minutes, 20,000 slow requests. For `tests/view`, which
//! opens it. Says on standard output how large it is and how long writing took.
//!
//! ```text
//! cargo run --release -p whywait-view --example large_report FILE
//! ```

use std::time::Instant;

use whywait_model::script::Script;
use whywait_report::Report;

const REQUESTS: u64 = 20_000;

/// Ten minutes, 40 threads, 20,000 slow requests in many different stacks.
fn large() -> Script {
    let mut script = Script::new();
    let mut stacks = Vec::new();
    for n in 0..400 {
        let outer = format!("module_{}::handle", n % 20);
        let middle = format!("module_{}::step_{}", n % 20, n % 100);
        let inner = format!("library::function_{n}");
        let leaf = ["nanosleep", "read", "fsync", "poll"][n % 4];
        stacks.push(script.stack(&["main", "run", &outer, &middle, &inner, leaf]));
    }
    for tid in 100..140 {
        script.thread(tid, &format!("worker-{tid}"));
    }
    for n in 0..REQUESTS {
        let tid = 100 + (n % 40) as u32;
        let stack = stacks[(n as usize * 7) % stacks.len()];
        let at = n / 40 * 1_200 + n % 40 * 3;
        let takes = 20 + (n * 37) % 900;
        script.sleeps(tid, stack, at + 5, at + takes - 5);
        script.sampled(tid, stack, at, at + 5);
        script
            .request(n + 1)
            .ready(at)
            .read(at + 1, tid)
            .answered(at + takes, tid);
    }
    script.ends(600_000);
    script
}

fn main() -> std::io::Result<()> {
    let file = std::env::args_os().nth(1).expect("the name of a file");
    let model = large().model();
    let findings = whywait_findings::find(&model);
    let mut report = Report::new(
        model.target(),
        model.requests_summary(),
        findings,
        model.coverage(),
    );
    report.verdict = whywait_findings::verdict(&model, &report.findings);
    assert_eq!(report.requests.slow, REQUESTS);
    let begun = Instant::now();
    let page = whywait_view::html(&model, &report);
    let milliseconds = begun.elapsed().as_millis();
    std::fs::write(file, &page)?;
    println!("{} bytes in {milliseconds} ms", page.len());
    Ok(())
}
