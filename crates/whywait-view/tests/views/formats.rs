//! What other tools read.

use whywait_model::Model;
use whywait_view::stacks::{Of, tree};

use super::{blocked, report};

/// The latencies of the slow requests, together.
fn latencies_ns(model: &Model) -> u64 {
    model
        .requests()
        .filter_map(|request| request.took_ns())
        .sum()
}

#[test]
fn critical_paths_sum_to_latencies() {
    let model = blocked("handler").model();
    assert_eq!(tree(&model, Of::Critical).total_ns(), latencies_ns(&model));
    let folded = whywait_view::folded(&model, Of::Critical);
    let sum: u64 = folded
        .lines()
        .map(|line| line.rsplit(' ').next().expect("a number"))
        .map(|ns| ns.parse::<u64>().expect("a number"))
        .sum();
    assert_eq!(sum, latencies_ns(&model));
    assert!(
        folded.contains(";handler;nanosleep;[timer (sleep)]"),
        "{folded}"
    );
}

#[test]
fn cpu_is_that_of_the_samples() {
    let model = blocked("handler").model();
    let samples: u64 = model.sampled.places().map(|(_, periods)| periods).sum();
    // The clock ticks 200 times a second.
    assert_eq!(tree(&model, Of::Cpu).total_ns(), samples * 5_000_000);
    assert!(whywait_view::folded(&model, Of::Cpu).contains("main;serve;handler "));
}

#[test]
fn waits_are_all_of_them() {
    let model = blocked("handler").model();
    let all: u64 = model.waits().iter().map(|row| row.total_ns).sum();
    assert_eq!(tree(&model, Of::Waits).total_ns(), all);
}

#[test]
fn markdown_is_what_github_takes() {
    let model = blocked("handler").model();
    let text = whywait_view::markdown(&model, &report(&model));
    assert!(text.chars().count() <= whywait_view::MAX_CHARACTERS);
    assert!(text.contains("| where the time went | share | time |\n| --- | ---: | ---: |\n"));
    assert_eq!(
        text.matches("<details").count(),
        text.matches("</details>").count()
    );
}

#[test]
fn a_trace_of_a_request_has_its_steps() {
    let model = blocked("handler").model();
    let text = whywait_view::otlp(&model).expect("it is JSON");
    let document: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
        .as_array()
        .expect("spans");
    let time = |span: &serde_json::Value, key: &str| -> u64 {
        span[key]
            .as_str()
            .expect("a text")
            .parse()
            .expect("a number")
    };
    let took = |span| time(span, "endTimeUnixNano") - time(span, "startTimeUnixNano");
    let roots: Vec<_> = spans.iter().filter(|span| span["kind"] == 2).collect();
    let sum: u64 = roots.iter().map(|span| took(span)).sum();
    assert_eq!(sum, latencies_ns(&model));
    for root in roots {
        let children = spans
            .iter()
            .filter(|span| span["parentSpanId"] == root["spanId"]);
        assert_eq!(children.map(took).sum::<u64>(), took(root));
    }
}
