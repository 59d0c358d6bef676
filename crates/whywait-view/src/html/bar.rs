//! Where the time of requests went: a bar that sums to the whole.

use maud::{Markup, html};
use whywait_model::Model;
use whywait_model::requests::{Account, Time};
use whywait_report::Report;
use whywait_report::text::{sentences, words};
use whywait_words::{capitalised, count, counted, duration, percent};

use super::ranges;
use super::svg::{Canvas, figures, fits, inside, picture, px, swatch};
use crate::palette;

/// A bar: how the time of some requests splits.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bar {
    /// Whose time it is.
    of: String,
    total_ns: u64,
    /// In the order of the parts, without those that are nothing.
    segments: Vec<BarSegment>,
}

#[derive(Debug, Clone, PartialEq)]
struct BarSegment {
    part: &'static str,
    ns: u64,
    /// From 0 to 1.
    from: f64,
    to: f64,
}

impl Bar {
    fn new(of: String, time: &Time) -> Self {
        let total_ns = sentences::total_ns(time);
        let mut before_ns = 0u64;
        let at = |ns: u64| ns as f64 / total_ns.max(1) as f64;
        let segments = sentences::parts(time)
            .into_iter()
            .filter_map(|(part, ns)| Some((part, ns.filter(|ns| *ns > 0)?)))
            .map(|(part, ns)| {
                let from = at(before_ns);
                before_ns = before_ns.saturating_add(ns);
                BarSegment {
                    part,
                    ns,
                    from,
                    to: at(before_ns).min(1.0),
                }
            })
            .collect();
        Self {
            of,
            total_ns,
            segments,
        }
    }

    /// How much of the time is a part's.
    fn ns_of(&self, part: &str) -> u64 {
        let segment = self.segments.iter().find(|segment| segment.part == part);
        segment.map_or(0, |segment| segment.ns)
    }

    /// Whether it looks like another one: no share differs by a percent, which is all that is
    /// seen and said of it.
    fn looks_like(&self, other: &Self) -> bool {
        let parts = self.segments.iter().chain(&other.segments);
        let share = |bar: &Self, part| bar.ns_of(part) as f64 / bar.total_ns.max(1) as f64;
        parts
            .map(|segment| share(self, segment.part) - share(other, segment.part))
            .all(|off| off.abs() < 0.01)
    }

    fn draw(&self, y: f64, canvas: Canvas) -> Markup {
        const HEIGHT: f64 = 34.0;
        html! {
            @for segment in &self.segments {
                @let x = segment.from * canvas.width;
                @let width = (segment.to - segment.from) * canvas.width;
                @let paint = palette::of_part(segment.part);
                @let share = percent(segment.ns, self.total_ns);
                g {
                    title {
                        (segment.part) ": " (share) ", " (duration(segment.ns))
                    }
                    rect x=(px(x)) y=(px(y)) width=(px((width - 1.0).max(0.3)))
                        height=(px(HEIGHT)) fill=(paint.fill) {}
                    (inside(x, y + 21.0, width, paint, said(segment.part, &share, width)))
                }
            }
        }
    }
}

/// As much of a part's name and share as there is room for.
fn said(part: &str, share: &str, width: f64) -> String {
    let both = format!("{part} {share}");
    let mut texts = [both, share.to_owned()].into_iter();
    texts.find(|text| fits(text, width)).unwrap_or_default()
}

/// The bars: of slow requests, and of all of them where these are not the same.
pub(crate) fn bars(model: &Model, report: &Report) -> Vec<Bar> {
    let requests = &report.requests;
    let mut account = Account::default();
    let mut slow = 0u64;
    for request in model.requests().filter(|request| request.counts()) {
        account += *request.account();
        slow += 1;
    }
    let late = requests.open.as_ref().map_or(0, |open| open.late);
    let all = requests.count.saturating_add(late);
    // Findings call fewer requests slow.
    let long = format!("{} or longer", duration(requests.slow_threshold_ns));
    let mut bars = Vec::new();
    if slow > 0 && slow < all {
        let of = format!("{} of {long}", counted(slow, "request"));
        bars.push(Bar::new(of, &account.time()));
    }
    if all > 0 {
        let of = format!("all {}", counted(all, "request"));
        let mut bar = Bar::new(of, &requests.time);
        if slow == all {
            bar.of = format!("{}, all of {long}", counted(all, "request"));
        } else if bars.pop_if(|slow| slow.looks_like(&bar)).is_some() {
            bar.of = format!("{}, {} of {long}", counted(all, "request"), count(slow));
        }
        bars.push(bar);
    }
    bars
}

/// The section.
pub(crate) fn section(bars: &[Bar], report: &Report) -> Markup {
    const ROW: f64 = 62.0;
    // As in the text.
    let by_calls_first = sentences::better_by_calls(report);
    let called = sentences::time_is_called(&report.requests);
    html! {
        @if let Some(first) = bars.first() {
            section id="time" {
                h2 { (capitalised(if by_calls_first { "where the time went" } else { called })) }
                @if by_calls_first {
                    (ranges::by_calls(report))
                    h3 { "By what threads did" }
                }
                (picture("bars", "How the time of requests splits", |canvas| {
                    (ROW * bars.len() as f64, html! {
                        @for (index, bar) in bars.iter().enumerate() {
                            @let y = ROW * index as f64;
                            text class="t strong" x="0" y=(px(y + 14.0)) fill="#1f2430" {
                                (bar.of) ": " (duration(bar.total_ns)) " in all"
                            }
                            (bar.draw(y + 22.0, canvas))
                        }
                    })
                }))
                (legend(first, bars))
                (words(bars, by_calls_first))
                @if !by_calls_first { (ranges::by_calls(report)) }
                (ranges::late(report))
                dl class="facts" {
                    @for (name, text) in sentences::facts(report) {
                        div { dt { (name) } dd { (figures(&text)) } }
                    }
                }
            }
        }
    }
}

/// What the words of the pictures mean, where they stand first.
fn words(bars: &[Bar], by_calls: bool) -> Markup {
    let parts = bars.iter().flat_map(|bar| &bar.segments);
    let parts: Vec<&str> = parts.map(|segment| segment.part).collect();
    let others = words::OTHERS.iter().filter(|_| by_calls);
    let shown = words::PARTS
        .iter()
        .filter(|word| parts.contains(&word.name));
    html! {
        details class="words" {
            summary { "What these words mean" }
            dl {
                @for word in others.chain(shown) {
                    div { dt { (word.name) } dd { (word.meaning) "." } }
                }
            }
        }
    }
}

fn legend(first: &Bar, bars: &[Bar]) -> Markup {
    let mut parts: Vec<&str> = Vec::new();
    for segment in bars.iter().flat_map(|bar| &bar.segments) {
        if !parts.contains(&segment.part) {
            parts.push(segment.part);
        }
    }
    parts.sort_by_key(|part| std::cmp::Reverse(first.ns_of(part)));
    html! {
        div class="scroll" {
            table class="figures" {
                thead {
                    tr {
                        th scope="col" { "part" }
                        @for bar in bars {
                            th scope="col" class="n" colspan="2" { (bar.of) }
                        }
                    }
                }
                tbody {
                    @for part in parts {
                        tr {
                            th scope="row" { (swatch(palette::of_part(part))) " " (part) }
                            @for bar in bars {
                                @let ns = bar.ns_of(part);
                                td class="n" { (percent(ns, bar.total_ns)) }
                                td class="n" { @if ns > 0 { (duration(ns)) } @else { "0" } }
                            }
                        }
                    }
                }
            }
        }
    }
}
