//! The views of small recordings, as far as programs can hold them: what is said, that it is what
//! the text says, and that names from strangers are only names. What pages look like is held by
//! `tests/view`, in a browser.

mod formats;
mod hostile;
mod page;
mod protobuf;

use whywait_findings::Facts;
use whywait_model::Model;
use whywait_model::script::Script;
use whywait_report::Report;

/// What a report of the model says.
fn report(model: &Model) -> Report {
    let facts = Facts::of(model);
    let mut report = Report::new(
        model.target(),
        model.requests_summary(),
        whywait_findings::find(&facts),
        model.coverage(),
    );
    report.verdict = whywait_findings::verdict(&facts, &report.findings);
    report.calls = model.calls();
    report.uring = model.rings();
    report.cpu = model.cpu_summary();
    report.looked_at = whywait_findings::looked_at(model);
    report
}

/// A loop that sleeps while requests wait: every thread, function and file has the given name.
fn blocked(name: &str) -> Script {
    let mut script = Script::new();
    let sleep = script.stack(&["main", name, "nanosleep"]);
    let work = script.stack_in(&format!("/srv/{name}"), &["main", "serve", name]);
    script.thread(100, name).thread(101, &format!("{name} 2"));
    for n in 0..20 {
        let at = n * 300;
        script.polls(100, 7, at, at + 10);
        script.sleeps(100, sleep, at + 12, at + 212);
        script.burns(100, work, at + 212, at + 218);
        script
            .request(n + 1)
            .epoll(7)
            .ready(at + 10)
            .read(at + 11, 100)
            .answered(at + 220, 100);
        script
            .request(n + 100)
            .epoll(7)
            .ready(at + 20)
            .read(at + 221, 100)
            .answered(at + 225, 100);
        script.polls(100, 7, at + 226, at + 300);
    }
    script.ends(6_100);
    script
}
