//! Latency: how many requests took how long, and when the slow ones came.

use maud::{Markup, html};
use whywait_model::Model;
use whywait_model::requests::{LatencyBucket, Percentile};
use whywait_report::Report;
use whywait_report::text::sentences;
use whywait_words::{count, duration, duration_range, percent};

use super::marks::{self, Marks};
use super::svg::{Log, WIDTH, grid, label, picture, px, time_axis};
use crate::palette::COUNT;

const LEFT: f64 = 64.0;
const RIGHT: f64 = 12.0;
const COLUMNS: usize = 96;
const ROWS: usize = 14;

/// What the two pictures show.
pub(crate) struct Latencies {
    buckets: Vec<LatencyBucket>,
    /// A name and a latency each.
    lines: Vec<(String, u64)>,
    heat: Option<Heat>,
}

/// Slow requests by when they came and how long they took.
struct Heat {
    scale: Log,
    duration_ns: u64,
    /// By column and row, from the bottom.
    counts: Vec<[u64; ROWS]>,
    most: u64,
    shown: u64,
    /// Slow requests that have no row of their own.
    left_out: u64,
    /// The slowest: when, and how long.
    slowest: Vec<(u64, u64)>,
    marks: Vec<Marks>,
}

impl Latencies {
    pub(crate) fn new(model: &Model, report: &Report) -> Self {
        let requests = &report.requests;
        let mut lines = Vec::new();
        if let Some(latency) = requests.latency_ns {
            for (name, which, ns) in [
                ("p50", Percentile::P50, latency.p50),
                ("p99", Percentile::P99, latency.p99),
                ("max", Percentile::Max, latency.max),
            ] {
                let figure = sentences::percentile(report, which).unwrap_or_default();
                lines.push((format!("{name} {figure}"), ns));
            }
        }
        Self {
            buckets: model.latency_buckets(),
            lines,
            heat: Heat::new(model, report),
        }
    }
}

impl Heat {
    fn new(model: &Model, report: &Report) -> Option<Self> {
        let started_ns = model.meta.started_ns;
        let slow: Vec<(u64, u64)> = model
            .requests()
            .filter_map(|request| {
                let at_ns = request.ready_ns.saturating_sub(started_ns);
                Some((at_ns, request.took_ns()?))
            })
            .collect();
        let least = slow.iter().map(|(_, ns)| *ns).min()?;
        let most = slow.iter().map(|(_, ns)| *ns).max()?;
        let scale = Log::new(least, most);
        let duration_ns = report.target.duration_ns.max(1);
        let mut counts = vec![[0u64; ROWS]; COLUMNS];
        for (at_ns, ns) in &slow {
            let at = *at_ns as f64 / duration_ns as f64;
            let column = ((at * COLUMNS as f64) as usize).min(COLUMNS - 1);
            let row = ((scale.at(*ns) * ROWS as f64) as usize).min(ROWS - 1);
            counts[column][row] += 1;
        }
        let shown = slow.len() as u64;
        Some(Self {
            scale,
            duration_ns,
            most: counts.iter().flatten().copied().max().unwrap_or(1),
            counts,
            shown,
            left_out: report.requests.slow.saturating_sub(shown),
            slowest: report
                .requests
                .slowest
                .iter()
                .map(|slow| (slow.at_ns, slow.latency_ns))
                .collect(),
            marks: marks::of_findings(model, report),
        })
    }

    fn x(&self, at_ns: u64) -> f64 {
        let at = (at_ns as f64 / self.duration_ns as f64).clamp(0.0, 1.0);
        LEFT + at * (WIDTH - LEFT - RIGHT)
    }
}

/// The section.
pub(crate) fn section(latencies: &Latencies, what: &str) -> Markup {
    html! {
        @if !latencies.buckets.is_empty() {
            section id="latency" {
                h2 { "Latency" }
                (histogram(latencies, what))
                @if let Some(heat) = &latencies.heat {
                    h3 { "Slow " (what) "s over time" }
                    (heat_map(heat))
                    p class="hint" {
                        "Each cell: how many came then and took so long; a stronger colour is \
                         more. "
                        (count(heat.shown)) " slow " (what)
                        "s have a row of their own; of quicker ones only sums are recorded. "
                        @if heat.left_out > 0 {
                            (count(heat.left_out)) " slow ones had none either. "
                        }
                        "Numbers: the slowest, as below."
                        @if !heat.marks.is_empty() {
                            " Below the cells: when the cause of a finding was where its stack \
                             shows it."
                        }
                    }
                }
            }
        }
    }
}

/// How many requests took how long. Both scales are logarithmic: the few slow ones count.
fn histogram(latencies: &Latencies, what: &str) -> Markup {
    const TOP: f64 = 40.0;
    const HEIGHT: f64 = 130.0;
    let bottom = TOP + HEIGHT;
    let buckets = &latencies.buckets;
    let from_ns = buckets.first().map_or(1, |bucket| bucket.from_ns);
    let to_ns = buckets.last().map_or(1, |bucket| bucket.to_ns);
    let scale = Log::new(from_ns, to_ns);
    let x = |ns: u64| LEFT + scale.at(ns) * (WIDTH - LEFT - RIGHT);
    let most = buckets.iter().map(|bucket| bucket.count).max().unwrap_or(1);
    let top = ((most as f64).log10().ceil()).max(1.0);
    let y = |count: f64| bottom - ((count * 2.0).log10() / (top + 2f64.log10())) * HEIGHT;
    let all: u64 = buckets.iter().fold(0, |sum, b| sum.saturating_add(b.count));
    let title = format!("How many {what}s took how long, logarithmic scales");
    picture(
        "histogram",
        &title,
        bottom + 22.0,
        html! {
            @for power in 0..=(top as u32) {
                @let tick = 10u64.saturating_pow(power);
                (grid(LEFT, y(tick as f64), WIDTH - RIGHT, y(tick as f64)))
                (label(LEFT - 8.0, y(tick as f64) + 4.0, "end", &count(tick)))
            }
            @for ns in scale.ticks() {
                (grid(x(ns), bottom, x(ns), bottom + 4.0))
                (label(x(ns), bottom + 16.0, "middle", &duration(ns)))
            }
            @for bucket in buckets {
                @let (left, right) = (x(bucket.from_ns), x(bucket.to_ns));
                g {
                    title {
                        (count(bucket.count)) " took "
                        (duration_range(bucket.from_ns, bucket.to_ns))
                        " (" (percent(bucket.count, all)) ")"
                    }
                    rect x=(px(left)) y=(px(y(bucket.count as f64)))
                        width=(px((right - left - 1.0).max(1.0)))
                        height=(px(bottom - y(bucket.count as f64))) fill=(COUNT.fill) {}
                }
            }
            @for (index, (text, ns)) in latencies.lines.iter().enumerate() {
                @let at = x(*ns);
                @let anchor = if at > WIDTH * 0.7 { "end" } else { "start" };
                @let gap = if at > WIDTH * 0.7 { -4.0 } else { 4.0 };
                line class="mark" x1=(px(at)) x2=(px(at)) y1=(px(12.0 * index as f64 + 2.0))
                    y2=(px(bottom)) stroke="#1f2430" stroke-dasharray="3 3" {}
                text class="t strong" x=(px(at + gap)) y=(px(12.0 * index as f64 + 10.0))
                    text-anchor=(anchor) fill="#1f2430" { (text) }
            }
        },
    )
}

fn heat_map(heat: &Heat) -> Markup {
    const CELL: f64 = 12.0;
    const LANE: f64 = 18.0;
    let bottom = CELL * ROWS as f64;
    let lanes = bottom + 6.0;
    let end = lanes + LANE * heat.marks.len() as f64;
    let width = (WIDTH - LEFT - RIGHT) / COLUMNS as f64;
    let cells = (0..COLUMNS).flat_map(|column| (0..ROWS).map(move |row| (column, row)));
    let cells = cells.filter(|(column, row)| heat.counts[*column][*row] > 0);
    picture(
        "heat",
        "Slow requests by time and latency",
        end + 22.0,
        html! {
            @for ns in heat.scale.ticks() {
                @let y = bottom - heat.scale.at(ns) * bottom;
                (grid(LEFT, y, WIDTH - RIGHT, y))
                (label(LEFT - 8.0, (y + 4.0).max(10.0), "end", &duration(ns)))
            }
            (time_axis(LEFT, WIDTH - LEFT - RIGHT, bottom, end, heat.duration_ns))
            @for (column, row) in cells {
                @let took = heat.counts[column][row];
                @let share = (took as f64 / heat.most as f64).sqrt();
                @let part = heat.duration_ns as f64 / COLUMNS as f64;
                rect x=(px(LEFT + width * column as f64)) y=(px(bottom - CELL * (row + 1) as f64))
                    width=(px(width - 0.5)) height=(px(CELL - 0.5)) fill=(COUNT.fill)
                    fill-opacity=(px(0.25 + 0.75 * share)) {
                    title {
                        (count(took)) " took "
                        (duration_range(
                            heat.scale.value(row as f64 / ROWS as f64),
                            heat.scale.value((row + 1) as f64 / ROWS as f64)
                        ))
                        ", from " (duration((part * column as f64) as u64)) " on"
                    }
                }
            }
            @for (index, (at_ns, ns)) in heat.slowest.iter().enumerate().rev() {
                @let y = (bottom - heat.scale.at(*ns) * bottom).clamp(8.0, bottom - 2.0);
                circle class="dot" cx=(px(heat.x(*at_ns))) cy=(px(y)) r="8" fill="#ffffff"
                    stroke="#1f2430" {}
                text class="t strong" x=(px(heat.x(*at_ns))) y=(px(y + 4.0)) text-anchor="middle"
                    fill="#1f2430" { (index + 1) }
            }
            @for (index, marks) in heat.marks.iter().enumerate() {
                (lane(heat, marks, lanes + LANE * index as f64))
            }
        },
    )
}

/// When the cause of a finding was where its stack shows it.
fn lane(heat: &Heat, marks: &Marks, y: f64) -> Markup {
    html! {
        (label(LEFT - 8.0, y + 11.0, "end", &format!("no. {}", marks.number)))
        g {
            title { (marks.title) }
            @for (from_ns, to_ns) in &marks.spans {
                rect x=(px(heat.x(*from_ns))) y=(px(y + 2.0))
                    width=(px((heat.x(*to_ns) - heat.x(*from_ns)).max(1.5))) height="10"
                    fill=(marks.paint.fill) {}
            }
        }
    }
}
