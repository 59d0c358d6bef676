//! All slow requests of the recording, to zoom, to pan and to choose from. Scripts draw it: without
//! them it stays hidden, and the map above shows as much.

use maud::{Markup, html};
use whywait_model::{Model, RequestRef};
use whywait_report::Report;
use whywait_report::text::{sentences, words};
use whywait_words::count;

use super::marks::Concerned;
use super::svg::{Log, legend};
use crate::palette::{self, Paint};

/// So many requests are there: the slowest.
const MAX_REQUESTS: usize = 20_000;
/// So many parts of a request's time are said, and none of less than a hundredth.
const MAX_PARTS: usize = 4;
const SMALL_PERMILLE: u64 = 10;

/// The section.
pub(crate) fn section(model: &Model, report: &Report, what: &str) -> Markup {
    let slow = slow(model);
    let requests = requests(&slow, model, report);
    html! {
        @if !requests.is_empty() {
            section id="timeline" hidden data-requests=(requests) data-parts=(parts())
                data-ends=(report.target.duration_ns / 1_000) data-latencies=(latencies(&slow)) {
                h2 { "Every slow " (what) }
                p class="hint" {
                    "Drag to move, turn the wheel or press + and - to zoom, click a dot or press \
                     the arrow keys to choose one. Its colour is what most of its time was."
                }
                p class="tools" hidden {
                    button type="button" data-zoom="0.5" aria-label="Zoom in" { "+" } " "
                    button type="button" data-zoom="2" aria-label="Zoom out" { "\u{2212}" } " "
                    button type="button" data-zoom="0" { "Whole recording" }
                }
                canvas tabindex="0" aria-label={ "Slow " (what) "s by time and latency" } {}
                (legend(coloured(&slow).iter().map(|(paint, text)| (*paint, text.as_str()))))
                p class="chosen" aria-live="polite" {}
                div class="split" {}
            }
        }
    }
}

/// The slowest requests, in the order in which they came.
fn slow(model: &Model) -> Vec<RequestRef<'_>> {
    let mut slow: Vec<_> = model
        .requests()
        .filter(|request| request.counts())
        .collect();
    slow.sort_by_key(|request| (std::cmp::Reverse(request.age_ns()), request.ready_ns));
    slow.truncate(MAX_REQUESTS);
    slow.sort_by_key(|request| request.ready_ns);
    slow
}

/// The largest parts of a request's time: which, and how many thousandths.
fn parts_of(request: &RequestRef<'_>) -> Vec<(usize, u64)> {
    let time = request.account().time();
    let total_ns = sentences::total_ns(&time).max(1);
    let mut parts: Vec<(usize, u64)> = sentences::parts(&time)
        .into_iter()
        .enumerate()
        .filter_map(|(part, (_, ns))| Some((part, permille(ns?, total_ns))))
        .filter(|(_, permille)| *permille >= SMALL_PERMILLE)
        .collect();
    parts.sort_by_key(|(part, permille)| (std::cmp::Reverse(*permille), *part));
    parts.truncate(MAX_PARTS);
    parts
}

/// What the colours of the dots mean, and how many have each.
fn coloured(slow: &[RequestRef<'_>]) -> Vec<(Paint, String)> {
    let mut counts = [0u64; words::PARTS.len()];
    for request in slow {
        if let Some((part, _)) = parts_of(request).first() {
            counts[*part] += 1;
        }
    }
    let mut counts: Vec<(u64, &str)> = counts
        .into_iter()
        .zip(words::PARTS.iter().map(|word| word.name))
        .filter(|(many, _)| *many > 0)
        .collect();
    counts.sort_by_key(|(many, _)| std::cmp::Reverse(*many));
    let entries = counts.into_iter();
    entries
        .map(|(many, part)| (palette::of_part(part), format!("{part}: {}", count(many))))
        .collect()
}

/// When each came (microseconds), how long it took, its name, the largest parts of its time (which,
/// and how many thousandths), and of which finding it is, one request after another.
fn requests(slow: &[RequestRef<'_>], model: &Model, report: &Report) -> String {
    let concerned = Concerned::of(report);
    let started_ns = model.meta.started_ns;
    let one = |request: &RequestRef<'_>| {
        let parts = parts_of(request).into_iter();
        let parts: Vec<String> = parts.map(|(part, of)| format!("{part}:{of}")).collect();
        format!(
            "{} {} {} {} {}",
            request.ready_ns.saturating_sub(started_ns) / 1_000,
            request.age_ns() / 1_000,
            request.id(),
            parts.join(","),
            concerned
                .as_ref()
                .filter(|one| one.has(*request))
                .map_or_else(String::new, |one| one.number.to_string())
        )
    };
    slow.iter().map(one).collect::<Vec<_>>().join(";")
}

/// What the scale of latencies says (microseconds). The picture has a little more, above and below.
fn latencies(slow: &[RequestRef<'_>]) -> String {
    let ages = || slow.iter().map(|request| request.age_ns());
    let (least, most) = (ages().min().unwrap_or(0), ages().max().unwrap_or(0));
    let ticks = Log::new(least / 5 * 4, most / 4 * 5).ticks();
    let ticks = ticks.iter().map(|ns| (ns / 1_000).max(1).to_string());
    ticks.collect::<Vec<_>>().join(" ")
}

fn permille(ns: u64, of_ns: u64) -> u64 {
    (u128::from(ns) * 1_000 / u128::from(of_ns)) as u64
}

/// The names and colours of the parts, in their order.
fn parts() -> String {
    let parts = words::PARTS.iter().map(|word| {
        let fill = palette::of_part(word.name).fill;
        format!("{}|{fill}", word.name)
    });
    parts.collect::<Vec<_>>().join(";")
}
