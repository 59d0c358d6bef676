//! Names come from strangers: they are shown, and nothing of them runs, hides or breaks a format.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use flate2::read::GzDecoder;
use proptest::prelude::*;
use serde_json::Value;
use whywait_compare::{ChangeOptions, Diff, Run, Side};
use whywait_model::Model;
use whywait_report::Report;
use whywait_view::stacks::Of;

use super::protobuf::texts;
use super::{blocked, report};

const NAMES: [&str; 8] = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "\" onmouseover=\"alert(1)\" x=\"",
    "'><svg/onload=alert(1)>",
    "</title></style></svg><iframe src=//x>",
    "a\u{202e}b\u{2066}c\u{0}d\u{1b}[2Je\nf",
    "]]><!--",
    "&lt;b&gt; {{x}} ${x} `x` | [a](javascript:x)",
];

/// Every element that a page of ours has.
const ELEMENTS: &[&str] = &[
    "a", "body", "button", "canvas", "circle", "code", "dd", "details", "div", "dl", "dt",
    "footer", "g", "h1", "h2", "h3", "h4", "head", "header", "html", "input", "label", "li",
    "line", "main", "meta", "ol", "output", "p", "path", "pre", "rect", "script", "section",
    "span", "strong", "style", "summary", "svg", "table", "tbody", "td", "text", "th", "thead",
    "title", "tr", "ul", "wbr",
];

/// The elements of a page, and the names of their attributes. Fails where a page is not what we
/// write: every `<` begins an element of ours, every attribute is in quotes.
fn elements(page: &str) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("a page");
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let closing = rest.starts_with('/');
        rest = rest.trim_start_matches('/');
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric())
            .expect("an element's name ends");
        let name = rest[..end].to_owned();
        rest = &rest[end..];
        let mut attributes = Vec::new();
        loop {
            if let Some(after) = rest.strip_prefix('>') {
                rest = after;
                break;
            }
            rest = rest.strip_prefix(' ').expect("an attribute");
            let end = rest.find(['=', ' ', '>']).expect("its name ends");
            attributes.push(rest[..end].to_owned());
            rest = &rest[end..];
            if let Some(value) = rest.strip_prefix("=\"") {
                let end = value.find('"').expect("its value ends");
                assert!(!value[..end].contains('<'), "{}", &value[..end]);
                rest = &value[end + 1..];
            }
        }
        if closing {
            assert!(attributes.is_empty());
            continue;
        }
        // What is in these is not of the page's text.
        if name == "script" || name == "style" {
            let end = rest.find(&format!("</{name}>")).expect("it ends");
            rest = &rest[end..];
        }
        found.push((name, attributes));
    }
    found
}

/// What no page may have, whatever is in it.
fn harmless(page: &str) {
    let elements = elements(page);
    let names: BTreeSet<&str> = elements.iter().map(|(name, _)| name.as_str()).collect();
    for name in names {
        assert!(ELEMENTS.contains(&name), "an element {name}");
    }
    for (only, times) in [("script", 2), ("style", 1), ("body", 1), ("html", 1)] {
        let count = elements.iter().filter(|(name, _)| name == only).count();
        assert_eq!(count, times, "{only}");
    }
    for (name, attributes) in &elements {
        for attribute in attributes {
            let forbidden = attribute.starts_with("on")
                || matches!(attribute.as_str(), "style" | "src" | "href" | "srcdoc");
            assert!(!forbidden, "{name} has {attribute}");
        }
    }
    all_seen(&page.replace('\n', ""));
}

/// Nothing in a text hides, turns others around, or speaks to a terminal.
fn all_seen(text: &str) {
    for c in text.chars() {
        let hides = c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        assert!(!hides, "{c:?} in {text}");
    }
}

/// No name is longer than its format's writer has it: so many characters, and some for the cut.
fn short(texts: &[String], most: usize) {
    for text in texts {
        assert!(text.chars().count() <= most, "{text}");
    }
}

/// Names of tracks, threads and slices, and notes on them.
fn perfetto(model: &Model) {
    let trace = whywait_view::perfetto(model);
    let paths: [&[u64]; 5] = [
        &[1, 60, 2],
        &[1, 60, 4, 5],
        &[1, 11, 22],
        &[1, 11, 23],
        &[1, 11, 4, 6],
    ];
    for path in paths {
        let texts = texts(&trace, path);
        assert!(!texts.is_empty(), "{path:?}");
        texts.iter().for_each(|text| all_seen(text));
        short(&texts, 210);
    }
}

/// Functions, files, roles: all texts of a profile.
fn pprof(model: &Model, of: Of) {
    let packed = whywait_view::pprof(model, of).expect("a profile");
    let mut profile = Vec::new();
    GzDecoder::new(&packed[..])
        .read_to_end(&mut profile)
        .expect("it is packed by gzip");
    let texts = texts(&profile, &[6]);
    assert_eq!(texts.first().map(String::as_str), Some(""));
    texts.iter().for_each(|text| all_seen(text));
}

/// All texts of a document.
fn otlp(model: &Model) {
    fn texts(value: &Value) {
        match value {
            Value::String(text) => all_seen(&text.replace('\n', "")),
            Value::Array(values) => values.iter().for_each(texts),
            Value::Object(values) => values.values().for_each(texts),
            _ => {}
        }
    }
    let text = whywait_view::otlp(model).expect("it is JSON");
    texts(&serde_json::from_str(&text).expect("it is JSON"));
}

/// Verdict and tables: no element but its own, nobody is mentioned, nothing links.
fn markdown(model: &Model, report: &Report) {
    let text = whywait_view::markdown(model, report);
    all_seen(&text.replace('\n', ""));
    let mut without_own = text.replace("<details open>", "");
    for element in ["details", "summary", "code"] {
        without_own = without_own
            .replace(&format!("<{element}>"), "")
            .replace(&format!("</{element}>"), "");
    }
    for markup in ["<", "@", "](", "://"] {
        assert!(!without_own.contains(markup), "{without_own}");
    }
}

/// A comparison of two sides of that name, with some runs each.
fn compared(model: &Model, name: &str) -> String {
    let samples: BTreeMap<_, _> = model
        .sampled
        .places()
        .map(|(place, periods)| ((place.user_stack, place.tid), periods))
        .collect();
    let run = |n| Run::of(model, &samples, format!("{name} {n}"));
    let side = || Side {
        name: name.to_owned(),
        runs: (0..4).map(run).collect(),
    };
    whywait_view::diff(&Diff::new(&side(), &side(), ChangeOptions::default()))
}

/// All views of names.
fn all(name: &str) {
    let model = blocked(name).model();
    let report = report(&model);
    harmless(&whywait_view::html(&model, &report));
    markdown(&model, &report);
    for of in [Of::Critical, Of::Waits, Of::Cpu] {
        for line in whywait_view::folded(&model, of).lines() {
            let (stack, ns) = line.rsplit_once(' ').expect("a stack and its time");
            assert!(ns.parse::<u64>().is_ok(), "{line}");
            assert!(stack.split(';').all(|frame| !frame.is_empty()), "{line}");
            all_seen(line);
        }
        pprof(&model, of);
    }
    perfetto(&model);
    harmless(&compared(&model, name));
    otlp(&model);
}

#[test]
fn hostile_names_are_only_names() {
    for name in NAMES {
        all(name);
    }
    all(&"<x>".repeat(4_000));
    all("");
}

#[test]
fn a_hostile_name_is_shown_as_it_is() {
    let model = blocked("<b>&\"").model();
    let page = whywait_view::html(&model, &report(&model));
    assert!(page.contains("&lt;b&gt;&amp;&quot;"));
    let model = blocked("a\u{202e}b").model();
    let page = whywait_view::html(&model, &report(&model));
    assert!(page.contains("a\\u{202e}b"));
}

/// Strings of any characters, with more of the dangerous ones than chance would give.
fn name() -> impl Strategy<Value = String> {
    let dangerous = prop::sample::select(vec![
        '<', '>', '"', '\'', '&', '/', ';', '|', '`', '\\', ' ', '\n', '\0', '\u{202e}', '=', '@',
    ]);
    let c = prop_oneof![any::<char>(), dangerous, prop::char::range(' ', '~')];
    prop::collection::vec(c, 0..40).prop_map(|chars| chars.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_name_is_only_a_name(name in name()) {
        all(&name);
    }
}
