//! One file that shows a recording: verdict, pictures, tables.
//!
//! It needs nothing else and asks for nothing: no library, no font, no server. It can be read with
//! scripts blocked and with styles blocked; pictures are SVG with presentation attributes. Names
//! from the recording come from strangers: every text goes through maud, which escapes markup, and
//! the whole document through [`visible`], which leaves no character that hides.

mod bar;
mod diff;
mod findings;
mod flame;
mod latency;
mod marks;
mod path;
mod prose;
mod ranges;
mod saving;
mod scale;
mod svg;
mod tables;
mod timeline;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest, Sha256};
use whywait_model::Model;
use whywait_report::Report;
use whywait_report::text::sentences;
use whywait_words::{Charset, count, counted, duration, escape};

pub use diff::diff;

use crate::clock;
use crate::palette;
use crate::stacks::{self, Of};
use flame::Flame;
use latency::Latencies;
use svg::{figures, name, whole};

const STYLE: &str = include_str!("../assets/page.css");
const SCRIPT: &str = include_str!("../assets/page.js");
const TIMELINE: &str = include_str!("../assets/timeline.js");

/// The report as a page: one file.
pub fn html(model: &Model, report: &Report) -> String {
    let headline = sentences::headline(report);
    let title = format!("{}: {}", sentences::target(report), headline.title);
    visible(document(&name(&title, 200), body(model, report, &headline)).into_string())
}

/// A document around that body, with the page's own style and script, and a policy that allows
/// those and nothing else.
fn document(title: &str, body: Markup) -> Markup {
    let policy = format!(
        "default-src 'none'; style-src '{}'; script-src '{}' '{}'; base-uri 'none'; form-action \
         'none'",
        source_of(STYLE),
        source_of(SCRIPT),
        source_of(TIMELINE)
    );
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="generator" content={ "whywait " (env!("CARGO_PKG_VERSION")) };
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (body)
                script { (PreEscaped(SCRIPT)) }
                script { (PreEscaped(TIMELINE)) }
            }
        }
    }
}

fn body(model: &Model, report: &Report, headline: &sentences::Headline) -> Markup {
    let several = report.requests.multiplexed.as_ref();
    let what = match several.is_some_and(|several| several.prevail) {
        true => "exchange",
        false => "request",
    };
    let unread = palette::unread(&report.requests.time.ready_unserved);
    let flames = [Of::Critical, Of::Cpu, Of::Waits]
        .map(|of| Flame::new(of, &stacks::tree(model, of), unread));
    html! {
        header {
            p class="brand" { strong { "whywait" } " report" }
            @if let Some(when) = clock::utc(model.meta.started_wall_unix_ns) {
                p { (when) }
            }
            p class={ "target" @if headline.impact.is_some() { " impact" } } {
                @match &headline.impact {
                    Some(impact) => (figures(&whole(impact))),
                    None => {
                        (figures(&format!(
                            "{}, watched for {}",
                            whole(&sentences::target_on_host(report)),
                            duration(report.target.duration_ns)
                        )))
                    }
                }
            }
        }
        main {
            (findings::section(report, headline))
            @if let Some(run) = &report.run { (tables::run(run)) }
            (bar::section(&bar::bars(model, report), report))
            (saving::section(report))
            (latency::section(&Latencies::new(model, report), what))
            (path::section(&report.requests.slowest, what))
            (timeline::section(model, report, what))
            (flame::section(&flames))
            section id="tables" {
                h2 { "Tables" }
                @if let Some(routes) = &report.requests.routes { (tables::routes(routes)) }
                (tables::statements(&report.statements))
                (tables::waits(&model.waits()))
                (tables::calls(&report.calls))
                @if let Some(cpu) = &report.cpu { (tables::cpu(cpu)) }
                (tables::rings(&report.uring))
            }
            (coverage(model, report))
        }
        (footer())
    }
}

fn footer() -> Markup {
    html! {
        footer {
            p {
                "Made by whywait " (env!("CARGO_PKG_VERSION"))
                ". This file is all there is: it loads nothing and sends nothing."
            }
        }
    }
}

/// What the report rests on, and how it was recorded.
fn coverage(model: &Model, report: &Report) -> Markup {
    let (host, options) = (&model.meta.host, &model.meta.options);
    let rows = [
        ("command", name(&report.target.command, 400)),
        ("threads", count(report.target.threads)),
        ("threshold", duration(options.threshold_ns)),
        ("samples", format!("{} a second and CPU", options.sample_hz)),
        (
            "machine",
            format!(
                "{}, {}, Linux {}, {}",
                name(&host.hostname, 60),
                counted(host.cpus, "CPU"),
                name(&host.kernel, 60),
                name(&host.arch, 20)
            ),
        ),
        (
            "recorded by",
            format!("whywait {}", name(&model.meta.whywait, 20)),
        ),
    ];
    html! {
        section id="coverage" {
            h2 { "What this rests on" }
            p { (figures(&sentences::coverage(report))) "." }
            @let lacks = sentences::lacks(report);
            @if !lacks.is_empty() {
                ul { @for lack in &lacks { li { (figures(&name(lack, 800))) } } }
            }
            @if !report.looked_at.is_empty() {
                p { "Looked at " (name(&report.looked_at.join(", "), 2_000)) "." }
            }
            @for note in &report.notes {
                p class="note" { "Note: " (figures(&name(note, 800))) }
            }
            dl class="facts" {
                @for (what, text) in rows {
                    div { dt { (what) } dd { (text) } }
                }
            }
        }
    }
}

/// How a policy names a text that it allows: by its hash.
fn source_of(text: &str) -> String {
    format!("sha256-{}", base64(&Sha256::digest(text.as_bytes())))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            text.push(match digit <= chunk.len() {
                true => char::from(DIGITS[(bits >> (18 - 6 * digit) & 63) as usize]),
                false => '=',
            });
        }
    }
    text
}

/// Makes every character visible that hides, turns the direction of writing, or controls.
fn visible(page: String) -> String {
    let harmless = |c: char| c == '\n' || c == ' ' || c.is_ascii_graphic();
    if page.chars().all(harmless) {
        return page;
    }
    let mut text = String::with_capacity(page.len());
    let mut buffer = [0; 4];
    for c in page.chars() {
        match harmless(c) {
            true => text.push(c),
            // What is shown as it stands comes back as it is.
            false => text.push_str(&escape(c.encode_utf8(&mut buffer), Charset::Unicode, 16)),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_as_everybody_writes_it() {
        for (text, encoded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v")] {
            assert_eq!(base64(text.as_bytes()), encoded);
        }
        assert_eq!(
            source_of(""),
            "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
        );
    }

    #[test]
    fn nothing_hides() {
        let shown = visible("a\u{202e}b\u{0}c é … ─\n<p>".to_owned());
        assert_eq!(shown, "a\\u{202e}b\\x00c é … ─\n<p>");
    }

    #[test]
    fn the_pages_own_parts_end_nothing_and_are_short() {
        assert!(!STYLE.contains("</"));
        for script in [SCRIPT, TIMELINE] {
            assert!(!script.contains("</"));
            assert!(script.lines().count() <= 200, "a page of script");
            assert_eq!(visible(script.to_owned()), script);
        }
        assert_eq!(
            visible(STYLE.to_owned()),
            STYLE,
            "the hash is of what is there"
        );
    }
}
