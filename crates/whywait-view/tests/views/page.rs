//! A page says what the text says.

use whywait_report::text::{self, Charset, TextOptions, words};

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
    for (name, fact) in words::facts(&report) {
        assert!(page.contains(&fact), "{name}: {fact}");
    }
    assert!(page.contains(&words::coverage(&report)));
    let total_ns = words::total_ns(&report.requests.time);
    let mut shares = 0;
    for (part, ns) in words::parts(&report.requests.time) {
        if let Some(ns) = ns.filter(|ns| *ns > 0) {
            assert!(page.contains(part), "{part}");
            assert!(page.contains(&words::percent(ns, total_ns)), "{part}");
            assert!(page.contains(&words::duration(ns)), "{part}");
            shares += 1;
        }
    }
    assert!(shares >= 2);
}

/// Every line of the text's verdict is one that the words have, too.
#[test]
fn the_first_line_is_the_texts_first_line() {
    let quiet = {
        let mut script = whywait_model::script::Script::new();
        script.thread(100, "quiet").polls(100, 7, 0, 10);
        script.request(1).ready(10).read(10, 100).answered(10, 100);
        script.ends(1_000);
        script.model()
    };
    for model in [blocked("handler").model(), quiet] {
        let report = report(&model);
        let headline = words::headline(&report);
        let text = text::render(
            &report,
            TextOptions {
                width: 10_000,
                colour: false,
                charset: Charset::Unicode,
            },
        );
        let first = text.lines().next().expect("a line");
        assert!(first.ends_with(&headline.title), "{first}\n{headline:?}");
        let page = shown(&whywait_view::html(&model, &report));
        assert!(page.contains(&headline.title));
    }
}

#[test]
fn the_same_page_from_one_run_to_the_next() {
    let model = blocked("handler").model();
    let pages = [(), ()].map(|()| whywait_view::html(&model, &report(&model)));
    assert!(pages[0] == pages[1]);
}
