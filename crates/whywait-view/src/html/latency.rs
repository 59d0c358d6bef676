//! Latency: how many requests took how long, and when the slow ones came.

use std::collections::BTreeMap;

use maud::{Markup, html};
use whywait_model::Model;
use whywait_model::requests::{LatencyBucket, Percentile};
use whywait_report::Report;
use whywait_report::text::sentences;
use whywait_words::{count, duration, duration_range, percent};

use super::marks::{self, Concerned, Marks};
use super::scale::Scale;
use super::svg::{
    Log, apart, grid, label, legend, picture, px, swatch, tick, time_axis, whole, wide,
};
use crate::palette::{COUNT, Paint};

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
    scale: Scale,
    duration_ns: u64,
    slow: Vec<DrawnRequest>,
    /// Of which finding some are: its number and colour, and how many these are.
    finding: Option<(usize, Paint, u64)>,
    /// Slow requests that have no row of their own.
    left_out: u64,
    /// The slowest: when, and how long.
    slowest: Vec<(u64, u64)>,
    marks: Vec<Marks>,
}

struct DrawnRequest {
    /// When it came, since the recording's start.
    at_ns: u64,
    /// How long it took.
    ns: u64,
    /// Whether it is one of the finding's.
    marked: bool,
}

/// How many requests came then and took so long, and how many of them are a finding's.
#[derive(Default, Clone, Copy)]
struct MapCell {
    count: u64,
    marked: u64,
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
        let concerned = Concerned::of(report);
        let slow: Vec<DrawnRequest> = model
            .requests()
            .filter_map(|request| {
                Some(DrawnRequest {
                    at_ns: request.ready_ns.saturating_sub(started_ns),
                    ns: request.took_ns()?,
                    marked: concerned.as_ref().is_some_and(|one| one.has(request)),
                })
            })
            .collect();
        if slow.is_empty() {
            return None;
        }
        let marked = slow.iter().filter(|one| one.marked).count() as u64;
        let scale = Scale::new(slow.iter().map(|one| one.ns).collect(), ROWS);
        Some(Self {
            scale,
            duration_ns: report.target.duration_ns.max(1),
            left_out: report.requests.slow.saturating_sub(slow.len() as u64),
            slow,
            finding: concerned
                .filter(|_| marked > 0)
                .map(|one| (one.number, one.paint, marked)),
            slowest: report
                .requests
                .slowest
                .iter()
                .map(|slow| (slow.at_ns, slow.latency_ns))
                .collect(),
            marks: marks::of_findings(model, report),
        })
    }

    /// How many there are by column and row, rows from the bottom.
    fn cells(&self, columns: usize) -> BTreeMap<(usize, usize), MapCell> {
        let mut cells: BTreeMap<(usize, usize), MapCell> = BTreeMap::new();
        for one in &self.slow {
            let at = one.at_ns as f64 / self.duration_ns as f64;
            let column = ((at * columns as f64) as usize).min(columns - 1);
            let cell = cells.entry((column, self.scale.row(one.ns))).or_default();
            cell.count += 1;
            cell.marked += u64::from(one.marked);
        }
        cells
    }

    /// The colour of a cell: the finding's, where most in it are.
    fn paint(&self, cell: MapCell) -> Paint {
        match self.finding {
            Some((_, paint, _)) if cell.marked * 2 > cell.count => paint,
            _ => COUNT,
        }
    }

    /// How strong its colour is: by how many are in it; a finding's stand out all the same.
    fn opacity(&self, cell: MapCell, most: u64) -> f64 {
        let share = (cell.count as f64 / most as f64).sqrt();
        let least = if self.paint(cell) == COUNT {
            0.25
        } else {
            0.75
        };
        least + (1.0 - least) * share
    }

    /// Where a time lies in a picture that ends at `right`.
    fn x(&self, at_ns: u64, right: f64) -> f64 {
        let at = (at_ns as f64 / self.duration_ns as f64).clamp(0.0, 1.0);
        LEFT + at * (right - LEFT)
    }
}

/// The section.
pub(crate) fn section(latencies: &Latencies, what: &str) -> Markup {
    html! {
        @if !latencies.buckets.is_empty() {
            section id="latency" {
                h2 { "Latency" }
                (histogram(latencies, what))
                p class="hint" {
                    "Upwards: how many " (what) "s; to the right: how long they took. Both scales \
                     are logarithmic."
                }
                @if let Some(heat) = &latencies.heat {
                    h3 { "Slow " (what) "s over time" }
                    (heat_map(heat))
                    p class="hint" {
                        "Each cell: how many came then and took so long; a stronger colour is \
                         more. "
                        (count(heat.slow.len() as u64)) " slow " (what)
                        "s have a row of their own; of quicker ones only sums are recorded. "
                        @if heat.left_out > 0 {
                            (count(heat.left_out)) " slow ones had none either. "
                        }
                        "Numbers: the slowest, as below, above when they came."
                        @if let Some((number, paint, marked)) = heat.finding {
                            " "
                            span class="figure" {
                                (swatch(paint)) (count(marked)) " are of finding no. " (number)
                                "."
                            }
                        }
                        @if !heat.marks.is_empty() {
                            " Below the cells: when the cause of a finding was where its stack \
                             shows it:"
                        }
                    }
                    @let titles = marked(heat);
                    @if !titles.is_empty() {
                        (legend(titles.iter().map(|(paint, title)| (*paint, title.as_str()))))
                    }
                }
            }
        }
    }
}

/// What the lanes below the cells are.
fn marked(heat: &Heat) -> Vec<(Paint, String)> {
    let title = |one: &Marks| format!("no. {}, {}", one.number, whole(&one.title));
    let marks = heat.marks.iter();
    marks.map(|one| (one.paint, title(one))).collect()
}

/// A line at a latency: where it is, its name and figure.
struct Marked<'a> {
    x: f64,
    text: &'a str,
    row: usize,
    /// Whether the label ends at the line, and does not begin there.
    ends: bool,
}

impl Marked<'_> {
    const GAP: f64 = 4.0;

    /// From where to where the label is.
    fn label(&self) -> (f64, f64) {
        let width = wide(self.text);
        match self.ends {
            true => (self.x - Self::GAP - width, self.x - Self::GAP),
            false => (self.x + Self::GAP, self.x + Self::GAP + width),
        }
    }
}

/// Labels of lines, so that none is crossed by the line of another one, which begins at its own
/// label and goes down, and all are within the picture.
fn labelled<'a>(lines: &[(f64, &'a str)], end: f64) -> Vec<Marked<'a>> {
    let count = lines.len();
    // As many rows as lines: a few, so that all ways can be tried.
    let ways = (0..count.pow(count as u32)).flat_map(|rows| {
        (0..1usize << count).map(move |ends| {
            let row = |at: usize| rows / count.pow(at as u32) % count;
            let marked = lines.iter().enumerate().map(|(at, (x, text))| Marked {
                x: *x,
                text,
                row: row(at),
                ends: ends >> at & 1 == 1,
            });
            marked.collect::<Vec<_>>()
        })
    });
    let crosses = |one: &Marked, other: &Marked| {
        let (from, to) = one.label();
        let line = other.row <= one.row && (from - 2.0..=to + 2.0).contains(&other.x);
        let (other_from, other_to) = other.label();
        let label = other.row == one.row && from < other_to + 8.0 && other_from < to + 8.0;
        line || label
    };
    let within = |one: &Marked| one.label().0 >= 0.0 && one.label().1 <= end;
    let fits = |marked: &Vec<Marked>| {
        marked.iter().enumerate().all(|(at, one)| {
            let mut others = marked.iter().enumerate().filter(|(other, _)| *other != at);
            within(one) && !others.any(|(_, other)| crosses(one, other))
        })
    };
    ways.filter(fits)
        .min_by_key(|marked| marked.iter().map(|one| one.row).sum::<usize>())
        .unwrap_or_default()
}

/// The least width of a bar: it is seen.
const LEAST_BAR: f64 = 5.0;

/// Buckets that are far enough apart for bars that are seen: those that are nearer are one.
fn seen(buckets: &[LatencyBucket], x: impl Fn(u64) -> f64) -> Vec<LatencyBucket> {
    let mut seen: Vec<LatencyBucket> = Vec::new();
    for bucket in buckets {
        match seen.last_mut() {
            Some(last) if x(bucket.from_ns) - x(last.from_ns) < LEAST_BAR => {
                last.to_ns = bucket.to_ns;
                last.count = last.count.saturating_add(bucket.count);
            }
            _ => seen.push(*bucket),
        }
    }
    seen
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
    let all: u64 = buckets.iter().fold(0, |sum, b| sum.saturating_add(b.count));
    let title = format!("How many {what}s took how long, logarithmic scales");
    picture("histogram", &title, |canvas| {
        let end = canvas.width - RIGHT;
        let x = |ns: u64| LEFT + scale.at(ns) * (end - LEFT);
        let buckets = seen(buckets, x);
        let most = buckets.iter().map(|bucket| bucket.count).max().unwrap_or(1);
        let top = ((most as f64).log10().ceil()).max(1.0);
        let y = |count: f64| bottom - ((count * 2.0).log10() / (top + 2f64.log10())) * HEIGHT;
        let ticks = scale.ticks().into_iter().map(|ns| {
            let text = duration(ns);
            (x(ns), wide(&text), text)
        });
        let lines = latencies.lines.iter();
        let lines: Vec<(f64, &str)> = lines.map(|(text, ns)| (x(*ns), text.as_str())).collect();
        let drawn = html! {
            @for power in 0..=(top as u32) {
                @let tick = 10u64.saturating_pow(power);
                (grid(LEFT, y(tick as f64), end, y(tick as f64)))
                (label(LEFT - 8.0, y(tick as f64) + 4.0, "end", &count(tick)))
            }
            @for (at, text) in apart(ticks) {
                (grid(at, bottom, at, bottom + 4.0))
                (tick(at, bottom + 16.0, canvas.width, &text))
            }
            @for bucket in &buckets {
                @let (left, right) = (x(bucket.from_ns), x(bucket.to_ns));
                g {
                    title {
                        (count(bucket.count)) " took "
                        (duration_range(bucket.from_ns, bucket.to_ns))
                        " (" (percent(bucket.count, all)) ")"
                    }
                    rect x=(px(left)) y=(px(y(bucket.count as f64)))
                        width=(px((right - left).max(LEAST_BAR) - 1.0))
                        height=(px(bottom - y(bucket.count as f64))) fill=(COUNT.fill) {}
                }
            }
            @for one in labelled(&lines, canvas.width) {
                @let top = 12.0 * one.row as f64;
                line class="mark" x1=(px(one.x)) x2=(px(one.x)) y1=(px(top + 2.0))
                    y2=(px(bottom)) stroke="#1f2430" stroke-dasharray="3 3" {}
                text class="t strong" x=(px(if one.ends { one.x - 4.0 } else { one.x + 4.0 }))
                    y=(px(top + 10.0)) text-anchor=(if one.ends { "end" } else { "start" })
                    fill="#1f2430" { (one.text) }
            }
        };
        (bottom + 22.0, drawn)
    })
}

/// Above the cells of the map: room for the numbers of the slowest requests, which hide no cell.
const NUMBERS: f64 = 26.0;

/// The slowest requests' numbers above when they came, in a picture so wide.
fn numbered(heat: &Heat, x: impl Fn(u64) -> f64, end: f64) -> Vec<Numbers> {
    let numbers = heat
        .slowest
        .iter()
        .enumerate()
        .map(|(index, (at_ns, _))| Numbers::new(x(*at_ns), 9.0, (index + 1).to_string(), end));
    clear_of_each_other(numbers.collect(), end)
}

/// A label with the numbers of one or more requests.
#[derive(Debug, Clone)]
struct Numbers {
    /// Its middle.
    x: f64,
    y: f64,
    text: String,
}

impl Numbers {
    /// Within the picture.
    fn new(x: f64, y: f64, text: String, end: f64) -> Self {
        let half = label_width(&text) / 2.0;
        let x = x.min(end - half).max(LEFT + half);
        Self { x, y, text }
    }

    fn covers(&self, other: &Self) -> bool {
        const HEIGHT: f64 = 18.0;
        const APART: f64 = 2.0;
        let widths = label_width(&self.text) + label_width(&other.text);
        (self.x - other.x).abs() < widths / 2.0 + APART && (self.y - other.y).abs() < HEIGHT
    }
}

/// Those that would cover each other share a label, which is wider, and may cover others.
fn clear_of_each_other(mut labels: Vec<Numbers>, end: f64) -> Vec<Numbers> {
    let covered = |labels: &[Numbers]| {
        let all = 0..labels.len();
        let mut pairs = all.flat_map(|one| (one + 1..labels.len()).map(move |other| (one, other)));
        pairs.find(|(one, other)| labels[*one].covers(&labels[*other]))
    };
    while let Some((one, other)) = covered(&labels) {
        let other = labels.remove(other);
        let Numbers { x, y, ref text } = labels[one];
        labels[one] = Numbers::new(x, y, format!("{text}, {}", other.text), end);
    }
    labels
}

/// How wide the box of such a label is.
fn label_width(text: &str) -> f64 {
    (wide(text) + 9.0).max(16.0)
}

fn heat_map(heat: &Heat) -> Markup {
    const CELL: f64 = 12.0;
    const LANE: f64 = 18.0;
    let bottom = NUMBERS + CELL * ROWS as f64;
    let y_of = |ns: u64| bottom - heat.scale.at(ns) * CELL * ROWS as f64;
    let lanes = bottom + 6.0;
    let end = lanes + LANE * heat.marks.len() as f64;
    let ticks = heat
        .scale
        .ticks()
        .into_iter()
        .rev()
        .map(|ns| (y_of(ns) + 4.0, 12.0, ns));
    let ticks = apart(ticks);
    let gap = heat.scale.gap().map(|gap| {
        let [from, to] = [gap.row, gap.end].map(|row| bottom - CELL * row as f64);
        let range = duration_range(gap.from_ns, gap.to_ns);
        (from, to, format!("none took {range}: cut short"))
    });
    picture("heat", "Slow requests by time and latency", |canvas| {
        let (left, right) = (LEFT, canvas.width - RIGHT);
        let columns = canvas.pick(COLUMNS, COLUMNS / 3);
        let part = heat.duration_ns as f64 / columns as f64;
        let width = (right - left) / columns as f64;
        let x = |at_ns: u64| heat.x(at_ns, right);
        let cells = heat.cells(columns);
        let most = cells.values().map(|cell| cell.count).max().unwrap_or(1);
        let drawn = html! {
            @for (y, ns) in &ticks {
                (grid(left, y_of(*ns), right, y_of(*ns)))
                (label(left - 8.0, *y, "end", &duration(*ns)))
            }
            (time_axis(left, right - left, NUMBERS, end, heat.duration_ns))
            @if let Some((from, to, text)) = &gap {
                rect class="gap" x=(px(left)) y=(px(*to)) width=(px(right - left))
                    height=(px(from - to)) fill="#8a94a3" fill-opacity="0.18" {}
                @let leads = heat.slowest.iter().filter(|(_, ns)| y_of(*ns) > *from);
                @let leads: Vec<f64> = leads.map(|(at_ns, _)| x(*at_ns)).collect();
                @if let Some((at, anchor)) = beside(&leads, left, right, wide(text)) {
                    (label(at, (from + to) / 2.0 + 4.0, anchor, text))
                }
            }
            @for ((column, row), cell) in &cells {
                rect x=(px(left + width * *column as f64))
                    y=(px(bottom - CELL * (*row + 1) as f64))
                    width=(px(width - 0.5)) height=(px(CELL - 0.5))
                    fill=(heat.paint(*cell).fill)
                    fill-opacity=(px(heat.opacity(*cell, most))) {
                    title {
                        (count(cell.count)) " took "
                        (duration_range(
                            heat.scale.begins(*row),
                            heat.scale.begins(*row + 1)
                        ))
                        ", from " (duration((part * *column as f64) as u64)) " on"
                        @if let (Some((number, ..)), 1..) = (heat.finding, cell.marked) {
                            "; " (count(cell.marked)) " of finding no. " (number)
                        }
                    }
                }
            }
            // From each number down to its cell.
            @for (at_ns, ns) in &heat.slowest {
                @let top = bottom - CELL * (heat.scale.row(*ns) + 1) as f64;
                @if top > NUMBERS + 1.0 {
                    line class="lead" x1=(px(x(*at_ns))) x2=(px(x(*at_ns))) y1="17" y2=(px(top))
                        stroke="#4a5260" {}
                }
            }
            @for Numbers { x, y, text } in numbered(heat, x, canvas.width) {
                @let width = label_width(&text);
                rect class="dot" x=(px(x - width / 2.0)) y=(px(y - 8.0)) width=(px(width))
                    height="16" rx="8" fill="#ffffff" fill-opacity="0.99" stroke="#1f2430" {}
                text class="t strong" x=(px(x)) y=(px(y + 4.0)) text-anchor="middle"
                    fill="#1f2430" { (text) }
            }
            @for (index, marks) in heat.marks.iter().enumerate() {
                (lane(marks, lanes + LANE * index as f64, &x))
            }
        };
        (end + 22.0, drawn)
    })
}

/// Where a label has room between two sides and no line crosses it: at the left, or else at the
/// right.
fn beside(lines: &[f64], left: f64, right: f64, width: f64) -> Option<(f64, &'static str)> {
    const GAP: f64 = 8.0;
    let free = |from: f64| {
        let around = from - 2.0..=from + width + 2.0;
        !lines.iter().any(|line| around.contains(line))
    };
    if free(left + GAP) {
        Some((left + GAP, "start"))
    } else if free(right - GAP - width) {
        Some((right - GAP, "end"))
    } else {
        None
    }
}

/// When the cause of a finding was where its stack shows it.
fn lane(marks: &Marks, y: f64, x: &impl Fn(u64) -> f64) -> Markup {
    html! {
        (label(LEFT - 8.0, y + 11.0, "end", &format!("no. {}", marks.number)))
        g {
            title { (marks.title) }
            @for (from_ns, to_ns) in &marks.spans {
                rect x=(px(x(*from_ns))) y=(px(y + 2.0))
                    width=(px((x(*to_ns) - x(*from_ns)).max(1.5))) height="10"
                    fill=(marks.paint.fill) {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_that_are_too_narrow_are_one() {
        let bucket = |from_ns, to_ns, count| LatencyBucket {
            from_ns,
            to_ns,
            count,
        };
        let buckets = [
            bucket(0, 3, 1),
            bucket(3, 6, 2),
            bucket(6, 20, 4),
            bucket(30, 31, 8),
        ];
        assert_eq!(
            seen(&buckets, |ns| ns as f64),
            [bucket(0, 6, 3), bucket(6, 20, 4), bucket(30, 31, 8)]
        );
    }

    #[test]
    fn no_line_crosses_what_is_said_of_a_gap() {
        assert_eq!(beside(&[], 0.0, 300.0, 100.0), Some((8.0, "start")));
        assert_eq!(beside(&[50.0], 0.0, 300.0, 100.0), Some((292.0, "end")));
        assert_eq!(beside(&[50.0, 250.0], 0.0, 300.0, 100.0), None);
    }

    #[test]
    fn no_number_covers_another_one() {
        const END: f64 = 380.0;
        // Five requests, so far apart, from here on: also where labels grow into others.
        for (from, apart) in (60..=380)
            .step_by(4)
            .flat_map(|from| (0..60).map(move |n| (from, n)))
        {
            let at = |n: usize| f64::from(from) + f64::from(apart) * n as f64;
            let single = |n: usize| Numbers::new(at(n), 40.0, (n + 1).to_string(), END);
            let labels = clear_of_each_other((0..5).map(single).collect(), END);
            let all: Vec<&str> = labels.iter().flat_map(|one| one.text.split(", ")).collect();
            assert_eq!(all.len(), 5, "{labels:?}");
            for (index, one) in labels.iter().enumerate() {
                let half = label_width(&one.text) / 2.0;
                assert!(
                    one.x - half >= LEFT - 0.01 && one.x + half <= END + 0.01,
                    "{one:?}"
                );
                assert!(
                    labels[index + 1..].iter().all(|other| !one.covers(other)),
                    "{labels:?}"
                );
            }
        }
    }

    #[test]
    fn no_line_crosses_another_ones_label() {
        for xs in [
            [100.0, 110.0, 110.0],
            [5.0, 20.0, 990.0],
            [980.0, 990.0, 995.0],
            [0.0; 3],
        ] {
            let lines = xs.map(|x| (x, "p99 484 ms"));
            let marked = labelled(&lines, 1000.0);
            assert_eq!(marked.len(), 3, "{xs:?}");
            for one in &marked {
                let (from, to) = one.label();
                assert!(from >= 0.0 && to <= 1000.0, "{xs:?}");
            }
        }
    }
}
