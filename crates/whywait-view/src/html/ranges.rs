//! Times between two bounds, a bar for each: where requests were by their calls, and why their
//! responses went out late.

use maud::{Markup, html};
use whywait_model::calls::links::Range;
use whywait_report::Report;
use whywait_report::text::sentences;
use whywait_words::{duration, duration_range, percent_range};

use super::svg::{fitting, label, name, picture, px, wide};
use crate::palette::{self, Paint};

/// Room for names and for figures, in a wide picture: beside the bars. In a narrow one they are
/// above them.
const LEFT: f64 = 330.0;
const RIGHT: f64 = 220.0;
const ROW: f64 = 24.0;
const NARROW_ROW: f64 = 42.0;

/// A row: what, between which bounds, its figures in words.
struct RangeRow {
    what: String,
    ns: Range,
    said: String,
    paint: Paint,
}

/// Where requests were by their calls, if the text says that.
pub(crate) fn by_calls(report: &Report) -> Markup {
    let total_ns = report.requests.tasks.as_ref().map_or(0, |t| t.total_ns);
    let rows: Vec<RangeRow> = sentences::by_calls(report)
        .into_iter()
        .map(|(what, ns)| RangeRow {
            said: said(ns, total_ns),
            paint: palette::of_part(sentences::part_like(&what)),
            what: name(&what, 100),
            ns,
        })
        .collect();
    html! {
        @if !rows.is_empty() {
            h3 { "By calls to others" }
            (draw("by-calls", "Where requests were, by their calls", &rows, total_ns))
            @if let Some(text) = sentences::not_known(report) { p class="hint" { (text) "." } }
            @if rows.iter().any(|row| row.ns.at_least < row.ns.at_most) {
                p class="hint" {
                    "Strong: for certain. Pale: at most, as calls that are not certainly of one \
                     request leave it open."
                }
            }
        }
    }
}

/// Why responses went out late after they were written, if any did.
pub(crate) fn late(report: &Report) -> Markup {
    let late = sentences::late(report);
    let total_ns = late
        .iter()
        .fold(0u64, |sum, (_, ns)| sum.saturating_add(*ns));
    let rows: Vec<RangeRow> = late
        .into_iter()
        .map(|(what, ns)| RangeRow {
            what: what.to_owned(),
            ns: Range {
                at_least: ns,
                at_most: ns,
            },
            said: duration(ns),
            paint: palette::of_part("network"),
        })
        .collect();
    html! {
        @if !rows.is_empty() {
            h3 { "After responses were written" }
            (draw("late", "Why responses went out late", &rows, total_ns))
            p class="hint" {
                "How much later their ends went out than they were written, together. Clients \
                 waited for it; it is in no latency of the server."
            }
        }
    }
}

/// `88.1 to 89.4 %, 68.10 s`.
fn said(ns: Range, total_ns: u64) -> String {
    format!(
        "{}, {}",
        percent_range(ns.at_least, ns.at_most, total_ns),
        duration_range(ns.at_least, ns.at_most)
    )
}

fn draw(id: &str, title: &str, rows: &[RangeRow], total_ns: u64) -> Markup {
    picture(id, title, |canvas| {
        let left = canvas.pick(LEFT, 0.0);
        let room = canvas.width - left - canvas.pick(RIGHT, 0.0);
        let width = |ns: u64| {
            let share = ns as f64 / total_ns.max(1) as f64;
            share.clamp(0.0, 1.0) * room
        };
        let height = canvas.pick(ROW, NARROW_ROW);
        let drawn = html! {
            @for (index, row) in rows.iter().enumerate() {
                @let top = height * index as f64 + 2.0;
                @let y = top + canvas.pick(0.0, 18.0);
                @let (least, most) = (width(row.ns.at_least), width(row.ns.at_most));
                g {
                    title { (row.what) ": " (row.said) }
                    @if canvas.narrow {
                        @let room = canvas.width - wide(&row.said) - 8.0;
                        (label(0.0, top + 13.0, "start", &fitting(&row.what, room)))
                        (label(canvas.width, top + 13.0, "end", &row.said))
                    } @else {
                        (label(left - 10.0, y + 14.0, "end", &fitting(&row.what, left - 12.0)))
                        (label(left + most + 8.0, y + 14.0, "start", &row.said))
                    }
                    @if most > least {
                        rect x=(px(left + least)) y=(px(y)) width=(px(most - least)) height="18"
                            fill=(row.paint.fill) fill-opacity="0.35" {}
                    }
                    rect x=(px(left)) y=(px(y)) width=(px(least.max(0.8))) height="18"
                        fill=(row.paint.fill) {}
                }
            }
        };
        (height * rows.len() as f64 + 4.0, drawn)
    })
}
