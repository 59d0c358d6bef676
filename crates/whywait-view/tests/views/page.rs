//! A page says what the text says.

use whywait_findings::{Severity, Verdict};
use whywait_model::Model;
use whywait_model::calls::links::{PeerTime, Range, TaskTime, TaskTotals};
use whywait_report::Report;
use whywait_report::text::{self, TextOptions, sentences};
use whywait_words::{Charset, duration, duration_range, percent, percent_range};

use super::{blocked, report};

/// The text of a page, as a reader has it.
fn shown(page: &str) -> String {
    let start = page.find("<body>").expect("a page has a body");
    let end = page.find("<script>").expect("its script comes last");
    let mut text = String::new();
    let mut rest = &page[start..end];
    while let Some((before, after)) = rest.split_once('<') {
        text.push_str(before);
        let (_, after) = after.split_once('>').expect("a tag ends");
        rest = after;
    }
    for (entity, c) in [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&amp;", "&"),
    ] {
        text = text.replace(entity, c);
    }
    text
}

#[test]
fn the_verdict_and_the_numbers_are_those_of_the_text() {
    let model = blocked("handler").model();
    let report = report(&model);
    let page = shown(&whywait_view::html(&model, &report));
    assert!(!report.findings.is_empty(), "the loop is blocked");
    for finding in &report.findings {
        assert!(page.contains(&finding.title), "{}", finding.title);
        assert!(page.contains(&finding.fix), "{}", finding.fix);
        for evidence in &finding.evidence {
            assert!(page.contains(&evidence.text), "{}", evidence.text);
        }
    }
    for (name, fact) in sentences::facts(&report) {
        assert!(page.contains(&fact), "{name}: {fact}");
    }
    assert!(page.contains(&sentences::coverage(&report)));
    let total_ns = sentences::total_ns(&report.requests.time);
    let mut shares = 0;
    for (part, ns) in sentences::parts(&report.requests.time) {
        if let Some(ns) = ns.filter(|ns| *ns > 0) {
            assert!(page.contains(part), "{part}");
            assert!(page.contains(&percent(ns, total_ns)), "{part}");
            assert!(page.contains(&duration(ns)), "{part}");
            shares += 1;
        }
    }
    assert!(shares >= 2);
}

/// Lines that do not wrap.
fn wide() -> TextOptions {
    TextOptions {
        width: 10_000,
        colour: false,
        charset: Charset::Unicode,
        verbose: true,
        ..TextOptions::default()
    }
}

/// A server of which there is nothing to find.
fn quiet() -> Model {
    let mut script = whywait_model::script::Script::new();
    script.thread(100, "quiet").polls(100, 7, 0, 10);
    script.request(1).ready(10).read(10, 100).answered(10, 100);
    script.ends(1_000);
    script.model()
}

/// Every line of the text's verdict is one that the words have, too.
#[test]
fn the_first_line_is_the_texts_first_line() {
    for model in [blocked("handler").model(), quiet()] {
        let report = report(&model);
        let headline = sentences::headline(&report);
        let text = text::render(&report, wide());
        let page = shown(&whywait_view::html(&model, &report));
        let mut lines = text.lines();
        if let Some(impact) = &headline.impact {
            assert_eq!(lines.next(), Some(impact.as_str()));
            assert!(page.contains(impact));
        }
        let answer = lines.next().expect("a line");
        assert!(answer.ends_with(&headline.title), "{answer}\n{headline:?}");
        assert!(page.contains(&headline.title));
    }
}

#[test]
fn a_verdict_without_a_finding_is_larger_than_what_was_seen() {
    let model = quiet();
    let report = report(&model);
    let page = whywait_view::html(&model, &report);
    let (_, rest) = page.split_once("<h1").expect("a headline");
    let (headline, _) = rest.split_once("</h1>").expect("it ends");
    let parts = headline.split_once("<span class=\"seen\">");
    let (answer, seen) = parts.expect("what was seen");
    let answer = shown(&format!("<body><h1{answer}<script>"));
    let title = sentences::headline(&report).title;
    assert!(title.starts_with(answer.trim_end()), "{answer}");
    assert!(answer.trim_end().ends_with(':'), "{answer}");
    assert!(seen.contains(" to the target"), "{seen}");
}

#[test]
fn a_note_that_is_why_requests_are_slow_has_its_title() {
    let model = blocked("handler").model();
    let mut report = report(&model);
    let first = &mut report.findings[0];
    first.severity = Severity::Note;
    let title = first.title.clone();
    report.verdict = Verdict::Notes { percent: 90 };
    let page = shown(&whywait_view::html(&model, &report));
    // The whole text, which is folded, comes after the findings.
    let (findings, _) = page.split_once("The same as text").expect("it is there");
    assert!(findings.contains(&title), "{findings}");
}

#[test]
fn the_map_marks_the_requests_of_a_finding() {
    let model = blocked("handler").model();
    let report = report(&model);
    let of_first = &report.findings[0].requests;
    assert!(!of_first.is_empty());
    let page = whywait_view::html(&model, &report);
    let said = format!("{} are of finding no. 1.", of_first.len());
    assert!(shown(&page).contains(&said), "{said}");
    assert!(
        page.contains(" of finding no. 1</title>"),
        "cells say it, too"
    );
    let marked = model.requests().filter(|it| report.findings[0].is_of(*it));
    assert_eq!(
        marked.count(),
        of_first.len(),
        "each is a request of the recording"
    );
}

#[test]
fn the_same_page_from_one_run_to_the_next() {
    let model = blocked("handler").model();
    let pages = [(), ()].map(|()| whywait_view::html(&model, &report(&model)));
    assert!(pages[0] == pages[1]);
}

/// A bar of it would say that a fix saves all of the requests' time.
#[test]
fn what_is_saved_outside_of_requests_is_no_share_of_their_time() {
    let model = blocked("handler").model();
    let mut report = report(&model);
    let bars = |report: &Report| {
        let page = whywait_view::html(&model, report);
        page.matches("<div class=\"saving\"").count()
    };
    let before = bars(&report);
    assert!(before > 0);
    for finding in &mut report.findings {
        finding.subject.insert("ring".to_owned(), 7.into());
    }
    assert_eq!(bars(&report), 0);
}

/// The same report of a loop that asks two services for nearly all of its requests' time.
fn asking() -> (Model, Report) {
    let model = blocked("handler").model();
    let mut report = report(&model);
    let total_ns = sentences::total_ns(&report.requests.time);
    let share = |at_least: u64, at_most: u64| Range {
        at_least: total_ns / 100 * at_least,
        at_most: total_ns / 100 * at_most,
    };
    let peer = |peer: &str, ns| PeerTime {
        number: 0,
        peer: peer.to_owned(),
        ns,
    };
    report.requests.tasks = Some(TaskTotals {
        requests: report.requests.count,
        total_ns,
        threads_wait: false,
        time: TaskTime {
            upstream_ns: share(40, 75),
            peers: vec![
                peer("10.0.0.7:5432 (postgres)", share(40, 40)),
                peer("10.0.0.8:6379 (<b>)", share(0, 35)),
            ],
            queued_ns: share(10, 45),
            own_ns: share(15, 15),
            ..TaskTime::default()
        },
    });
    (model, report)
}

#[test]
fn time_by_calls_is_first_where_the_text_has_it_first() {
    let (model, report) = asking();
    let plain = text::render(&report, wide());
    let page = shown(&whywait_view::html(&model, &report));
    let markdown = whywait_view::markdown(&model, &report).replace("&#40;", "(");
    let by_calls = sentences::by_calls(&report);
    assert_eq!(by_calls.len(), 4, "{by_calls:?}");
    for (what, ns) in by_calls {
        let total_ns = sentences::total_ns(&report.requests.time);
        for said in [
            what,
            percent_range(ns.at_least, ns.at_most, total_ns),
            duration_range(ns.at_least, ns.at_most),
        ] {
            assert!(plain.contains(&said), "the text has {said}:\n{plain}");
            assert!(page.contains(&said), "the page has {said}");
            let escaped = said.replace('<', "&lt;").replace('>', "&gt;");
            assert!(markdown.contains(&escaped), "{escaped} in:\n{markdown}");
        }
    }
    for (view, first, second) in [
        (&page, "By calls to others", "By what threads did"),
        (
            &markdown,
            "where the time went, by calls",
            "by what threads did",
        ),
    ] {
        let (first, second) = (view.find(first), view.find(second));
        assert!(first.is_some() && first < second, "by calls comes first");
    }
}
