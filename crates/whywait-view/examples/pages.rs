//! Writes pages that no kept recording makes, for `tests/view`, which opens them: one of ten
//! minutes with 20,000 slow requests, and ones full of names that would like to be markup.
//!
//! ```text
//! cargo run --release -p whywait-view --example pages FOLDER
//! ```
//!
//! `large.html`; beside it `large.txt`: how large it is, how long writing took, and the report as
//! text. `hostile.html` and `hostile-diff.html`; `hostile.txt`: a part of each name that must be
//! seen.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use whywait_compare::{ChangeOptions, Diff, Run, Side};
use whywait_findings::Facts;
use whywait_model::Model;
use whywait_model::script::Script;
use whywait_report::Report;
use whywait_report::text::{self, TextOptions};

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

/// A loop that sleeps while requests wait. Its thread, functions, file and command have that name.
fn hostile(name: &str) -> Model {
    let mut script = Script::new();
    let sleep = script.stack(&["main", name, "nanosleep"]);
    let work = script.stack_in(&format!("/srv/{name}"), &["main", "serve", name]);
    script.thread(100, name);
    for n in 0..20 {
        let at = n * 300;
        script.polls(100, 7, at, at + 10);
        script.sleeps(100, sleep, at + 12, at + 212);
        script.burns(100, work, at + 212, at + 218);
        for (id, arrived, answered) in [(n, at + 10, at + 220), (n + 100, at + 20, at + 225)] {
            script
                .request(id + 1)
                .epoll(7)
                .ready(arrived)
                .read(answered - 4, 100)
                .answered(answered, 100);
        }
        script.polls(100, 7, at + 226, at + 300);
    }
    script.ends(6_100).recorded(|recorded| {
        recorded.meta.command = vec![name.to_owned(), name.to_owned()];
        recorded.meta.host.hostname = name.to_owned();
    });
    script.model()
}

/// What would run, hide or break out, each in a name of its own.
const HOSTILE: [&str; 7] = [
    "<script>window.ran = 1</script>",
    "</script><img src=x onerror=\"window.ran = 1\">",
    "\" onmouseover=\"window.ran = 1\" autofocus onfocus=\"window.ran = 1\" x=\"",
    "</title></style></svg><iframe src=//x.invalid></iframe>",
    "'><svg/onload=window.ran=1>",
    "a\u{202e}b\u{2066}c\u{0}d\u{1b}[2Je",
    "<style>* { display: none }</style><meta http-equiv=refresh content=0;url=//x.invalid>",
];
/// So long a name, besides: characters.
const LONG: usize = 10_000;

fn report_of(model: &Model) -> Report {
    let facts = Facts::of(model);
    let findings = whywait_findings::find(&facts);
    let mut report = Report::new(
        model.target(),
        model.requests_summary(),
        findings,
        model.coverage(),
    );
    report.verdict = whywait_findings::verdict(&facts, &report.findings);
    report
}

fn write_large(folder: &Path) -> std::io::Result<()> {
    let model = large().model();
    let report = report_of(&model);
    assert_eq!(report.requests.slow, REQUESTS);
    let begun = Instant::now();
    let page = whywait_view::html(&model, &report);
    let milliseconds = begun.elapsed().as_millis();
    std::fs::write(folder.join("large.html"), &page)?;
    let options = TextOptions {
        width: 1 << 16,
        ..TextOptions::default()
    };
    let text = text::render(&report, options);
    std::fs::write(
        folder.join("large.txt"),
        format!("{} bytes in {milliseconds} ms\n{text}", page.len()),
    )
}

fn write_hostile(folder: &Path) -> std::io::Result<()> {
    let name = format!("{}{}", HOSTILE.concat(), "<x>".repeat(LONG / 3));
    let model = hostile(&name);
    let page = whywait_view::html(&model, &report_of(&model));
    std::fs::write(folder.join("hostile.html"), page)?;
    let samples: BTreeMap<_, _> = model
        .sampled
        .places()
        .map(|(place, periods)| ((place.user_stack, place.tid), periods))
        .collect();
    let side = || Side {
        name: name.clone(),
        runs: (0..4)
            .map(|n| Run::of(&model, &samples, format!("{name} {n}")))
            .collect(),
    };
    let page = whywait_view::diff(&Diff::new(&side(), &side(), ChangeOptions::default()));
    std::fs::write(folder.join("hostile-diff.html"), page)?;
    // Names are cut in their middle: their beginning is seen.
    std::fs::write(folder.join("hostile.txt"), &HOSTILE[0][..8])
}

fn main() -> std::io::Result<()> {
    let folder = std::env::args_os().nth(1).expect("the name of a folder");
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder)?;
    write_large(folder)?;
    write_hostile(folder)
}
