//! What all pictures have in common: coordinates, axes, and names from strangers.

use maud::{Markup, html};
use whywait_words::{Charset, duration, escape};

use crate::palette::Paint;

/// What a picture is drawn on. Each is drawn twice, for wide and for narrow windows: one that is
/// scaled to fit could not be read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Canvas {
    /// In its own units: about a pixel each.
    pub(crate) width: f64,
    pub(crate) narrow: bool,
}

impl Canvas {
    pub(crate) const WIDE: Self = Self {
        width: 1000.0,
        narrow: false,
    };
    pub(crate) const NARROW: Self = Self {
        width: 380.0,
        narrow: true,
    };

    /// One of two: for wide and for narrow windows.
    pub(crate) fn pick<T>(self, wide: T, narrow: T) -> T {
        if self.narrow { narrow } else { wide }
    }
}

/// How wide a letter of a label is at most, at its size of 11, in the fonts that browsers have.
const fn letter(c: char) -> f64 {
    match c {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' | '(' | ')' | '['
        | ']' | '{' | '}' | 'f' | 't' | 'r' | '/' => 4.9,
        'm' | 'w' | 'M' | 'W' | '%' | '@' | '…' | '→' => 11.0,
        'A'..='Z' => 8.0,
        c if c.is_ascii() => 7.1,
        _ => 11.0,
    }
}

/// A coordinate, to a hundredth.
pub(crate) fn px(value: f64) -> String {
    let rounded = (value * 100.0).round() / 100.0;
    // No "-0".
    format!("{}", if rounded == 0.0 { 0.0 } else { rounded })
}

/// A name from a stranger, made visible and cut to so many columns.
pub(crate) fn name(raw: &str, max: usize) -> String {
    escape(raw, Charset::Unicode, max)
}

/// The same, as long as a reader may want it.
pub(crate) fn whole(raw: &str) -> String {
    name(raw, 300)
}

/// A sentence, in which no line ends between a figure and its unit, or at a hyphen within an option
/// or a path.
pub(crate) fn figures(text: &str) -> Markup {
    figures_and(text, |word| html! { (word) })
}

/// The same of a sentence whose names may be wrapped where their parts end.
pub(crate) fn wrapping(text: &str) -> Markup {
    figures_and(text, parted)
}

fn figures_and(text: &str, other: impl Fn(&str) -> Markup) -> Markup {
    const UNITS: [&str; 10] = ["%", "ns", "us", "ms", "s", "min", "h", "KiB", "MiB", "GiB"];
    // Of a narrow window's line.
    const LONGEST: usize = 30;
    let unit = |word: &str| UNITS.contains(&word.trim_end_matches([',', ';', '.', ':', ')']));
    let is_option = |word: &str| {
        let begins = word.trim_start_matches('(').starts_with(['-', '/']);
        begins && (3..=LONGEST).contains(&word.len()) && word.contains('-')
    };
    let mut words = text.split(' ').peekable();
    let mut parts: Vec<(&str, Option<&str>)> = Vec::new();
    while let Some(word) = words.next() {
        let figure = word.ends_with(|c: char| c.is_ascii_digit());
        parts.push((word, words.next_if(|next| figure && unit(next))));
    }
    html! {
        @for (index, (word, unit)) in parts.iter().enumerate() {
            @if index > 0 { " " }
            @match unit {
                Some(unit) => span class="figure" { (word) " " (unit) },
                None if is_option(word) => span class="figure" { (word) },
                None => (other(word)),
            }
        }
    }
}

/// A name that may be wrapped where its parts end.
fn parted(text: &str) -> Markup {
    let ends = |c: char| matches!(c, ':' | '/');
    let mut parts: Vec<&str> = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(ends) {
        let end = at + rest[at..].find(|c| !ends(c)).unwrap_or(rest.len() - at);
        let (part, after) = rest.split_at(end);
        parts.push(part);
        rest = after;
    }
    html! {
        @for part in parts { (part) wbr; }
        (rest)
    }
}

/// As much of a label as there is room for; empty when that is next to nothing.
pub(crate) fn fitting(label: &str, width: f64) -> String {
    // Less than that says nothing.
    const LEAST: usize = 8;
    let all = label.chars().count();
    // As many letters as there is room for; wide ones need more than others.
    let mut room = all.min((width / letter('i')).max(0.0) as usize);
    loop {
        let cut = if room == all {
            label.to_owned()
        } else {
            name(label, room)
        };
        if fits(&cut, width) {
            return cut;
        }
        if room <= LEAST {
            return String::new();
        }
        room -= 1;
    }
}

/// Whether there is room for all of a label.
pub(crate) fn fits(label: &str, width: f64) -> bool {
    wide(label) + 6.0 <= width
}

/// A picture, with a title that screen readers say. `drawn` gives its height and what is in it.
pub(crate) fn picture(id: &str, title: &str, drawn: impl Fn(Canvas) -> (f64, Markup)) -> Markup {
    picture_of("chart", id, title, drawn)
}

/// A picture of a class.
pub(crate) fn picture_of(
    class: &str,
    id: &str,
    title: &str,
    drawn: impl Fn(Canvas) -> (f64, Markup),
) -> Markup {
    html! {
        div class="picture" {
            (on(Canvas::WIDE, class, id, title, &drawn))
            (on(Canvas::NARROW, class, &format!("{id}-narrow"), title, &drawn))
        }
    }
}

fn on(
    canvas: Canvas,
    class: &str,
    id: &str,
    title: &str,
    drawn: &impl Fn(Canvas) -> (f64, Markup),
) -> Markup {
    let (height, content) = drawn(canvas);
    let title_id = format!("{id}-title");
    let class = format!("{class} {}", canvas.pick("wide", "narrow"));
    // Styles may be blocked: then the wide one is seen.
    let display = canvas.narrow.then_some("none");
    html! {
        svg id=(id) class=(class) role="img" aria-labelledby=(title_id) display=[display]
            width=(px(canvas.width)) height=(px(height))
            viewBox=(format!("0 0 {} {}", px(canvas.width), px(height)))
            font-family="system-ui, sans-serif" font-size="11" {
            title id=(title_id) { (title) }
            (content)
        }
    }
}

/// How wide a label is, as a rule at most.
pub(crate) fn wide(label: &str) -> f64 {
    label.chars().map(letter).sum()
}

/// Of labels in order, each with its middle and its size along an axis, those that keep clear of
/// each other: the first one stays.
pub(crate) fn apart<T>(labels: impl IntoIterator<Item = (f64, f64, T)>) -> Vec<(f64, T)> {
    const GAP: f64 = 4.0;
    let mut kept: Vec<(f64, T)> = Vec::new();
    let mut last: Option<(f64, f64)> = None;
    for (at, size, label) in labels {
        let clear =
            |(other, other_size): (f64, f64)| (at - other).abs() >= (size + other_size) / 2.0 + GAP;
        if last.is_none_or(clear) {
            last = Some((at, size));
            kept.push((at, label));
        }
    }
    kept
}

/// A label of a tick below an axis that ends at `end`: within the picture.
pub(crate) fn tick(at: f64, y: f64, end: f64, text: &str) -> Markup {
    let half = wide(text) / 2.0;
    label(at.min(end - half).max(half), y, "middle", text)
}

/// A text in a picture.
pub(crate) fn label(x: f64, y: f64, anchor: &str, text: &str) -> Markup {
    html! {
        text class="t" x=(px(x)) y=(px(y)) text-anchor=(anchor) fill="#4a5260" { (text) }
    }
}

/// A text in a filled box, if there is room for it.
pub(crate) fn inside(x: f64, y: f64, width: f64, paint: Paint, text: impl AsRef<str>) -> Markup {
    let text = text.as_ref();
    html! {
        @if !text.is_empty() && fits(text, width) {
            text x=(px(x + 4.0)) y=(px(y)) fill=(paint.ink) { (text) }
        }
    }
}

/// A line of the grid.
pub(crate) fn grid(x1: f64, y1: f64, x2: f64, y2: f64) -> Markup {
    html! {
        line class="grid" x1=(px(x1)) y1=(px(y1)) x2=(px(x2)) y2=(px(y2)) stroke="#d9dde3" {}
    }
}

/// A small square of that colour, for legends.
pub(crate) fn swatch(paint: Paint) -> Markup {
    html! {
        svg class="swatch" width="12" height="12" aria-hidden="true" {
            rect width="12" height="12" rx="3" fill=(paint.fill) {}
        }
    }
}

/// What colours mean, below a picture.
pub(crate) fn legend<'a>(entries: impl IntoIterator<Item = (Paint, &'a str)>) -> Markup {
    html! {
        p class="legend" {
            @for (paint, text) in entries { span { (swatch(paint)) (figures(text)) } " " }
        }
    }
}

/// Round values from 0 to `max`, at most so many.
pub(crate) fn ticks(max: f64, most: usize) -> Vec<f64> {
    if !(max.is_finite() && max > 0.0) {
        return vec![0.0];
    }
    let raw = max / most.max(1) as f64;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|times| times * power)
        .find(|step| *step >= raw)
        .unwrap_or(power * 10.0);
    let count = (max / step).floor() as usize;
    (0..=count).map(|n| n as f64 * step).collect()
}

/// An axis of time below a picture: lines through it, and what they stand for.
pub(crate) fn time_axis(x: f64, width: f64, top: f64, bottom: f64, total_ns: u64) -> Markup {
    let total = total_ns.max(1) as f64;
    let most = if width < 500.0 { 4 } else { 8 };
    let at = |tick: f64| x + width * tick / total;
    let ticks = ticks(total, most);
    let labels = ticks.iter().map(|tick| {
        let text = moment(*tick as u64);
        (at(*tick), wide(&text), text)
    });
    let labels = apart(labels);
    html! {
        @for one in &ticks { (grid(at(*one), top, at(*one), bottom)) }
        @for (at, text) in &labels { (tick(*at, bottom + 14.0, x + width, text)) }
    }
}

/// A time since the start of what is shown.
fn moment(ns: u64) -> String {
    match ns {
        0 => "0".to_owned(),
        ns => duration(ns),
    }
}

/// A scale of latencies: equal factors are equally far apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Log {
    from: f64,
    to: f64,
}

impl Log {
    /// From one latency to another, both more than nothing. What is alike lies in the middle.
    pub(crate) fn new(from_ns: u64, to_ns: u64) -> Self {
        const LEAST: f64 = 0.1;
        let log = Self::between(from_ns, to_ns.max(from_ns));
        let more = ((LEAST - (log.to - log.from)) / 2.0).max(0.0);
        log.wider(more, more)
    }

    /// The same, which may have no width yet.
    pub(crate) fn between(from_ns: u64, to_ns: u64) -> Self {
        Self {
            from: (from_ns.max(1) as f64).log10(),
            to: (to_ns.max(1) as f64).log10(),
        }
    }

    /// Wider by so much below and above, as logarithms of factors.
    pub(crate) fn wider(self, below: f64, above: f64) -> Self {
        Self {
            from: self.from - below,
            to: self.to + above,
        }
    }

    /// Whether a latency is not above it.
    pub(crate) fn ends(self, ns: u64) -> bool {
        (ns.max(1) as f64).log10() <= self.to
    }

    /// Where a latency lies, from 0 to 1.
    pub(crate) fn at(self, ns: u64) -> f64 {
        let at = ((ns.max(1) as f64).log10() - self.from) / (self.to - self.from);
        at.clamp(0.0, 1.0)
    }

    /// The latency at a place.
    pub(crate) fn value(self, at: f64) -> u64 {
        10f64.powf(self.from + at * (self.to - self.from)) as u64
    }

    /// Powers of ten, and where they are few also twice and five times those; of less than that
    /// equal steps. There are always two.
    pub(crate) fn ticks(self) -> Vec<u64> {
        let ticks = self.round_ticks();
        if ticks.len() > 1 {
            return ticks;
        }
        let (from, to) = (10f64.powf(self.from), 10f64.powf(self.to));
        let raw = (to - from) / 4.0;
        let power = 10f64.powf(raw.log10().floor());
        let steps = [5.0, 2.0, 1.0].map(|times| (times * power).max(1.0));
        let within = steps.map(|step| {
            let all = (from / step).ceil() as u64..=(to / step).floor() as u64;
            all.map(|n| (n as f64 * step) as u64).collect::<Vec<u64>>()
        });
        let enough = within.into_iter().find(|ticks| ticks.len() > 1);
        enough.unwrap_or(ticks)
    }

    fn round_ticks(self) -> Vec<u64> {
        let decades = self.to - self.from;
        let times: &[u64] = match decades {
            d if d < 1.2 => &[1, 2, 3, 5, 7],
            d if d < 3.0 => &[1, 2, 5],
            _ => &[1],
        };
        let powers = (self.from.floor().max(0.0) as u32)..=(self.to.ceil().min(19.0) as u32);
        powers
            .flat_map(|power| {
                let ten = 10u64.saturating_pow(power);
                times.iter().map(move |times| ten.saturating_mul(*times))
            })
            .filter(|ns| {
                let log = (*ns as f64).log10();
                (self.from..=self.to).contains(&log)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        assert_eq!(ticks(10.0, 5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(0.0, 5), [0.0]);
        assert_eq!(ticks(f64::NAN, 5), [0.0]);
        assert_eq!(
            Log::new(1_000, 1_000_000).ticks(),
            [1_000, 10_000, 100_000, 1_000_000]
        );
        assert_eq!(
            Log::new(190_000_000, 276_000_000).ticks(),
            [200_000_000, 250_000_000]
        );
    }

    #[test]
    fn a_scale_of_latencies_has_two_labels_at_least() {
        let words = |ns: &u64| whywait_words::duration(*ns);
        for at in 0..=140 {
            let from = 10f64.powf(4.0 + f64::from(at) / 20.0);
            for times in [1.0, 1.01, 1.1, 1.3, 1.6, 2.0, 3.0, 9.0, 1000.0] {
                let scale = Log::new(from as u64, (from * times) as u64);
                let mut labels: Vec<String> = scale.ticks().iter().map(words).collect();
                let all = labels.len();
                labels.dedup();
                assert!((2..=8).contains(&all), "{from} {times}: {labels:?}");
                assert_eq!(labels.len(), all, "{from} {times}: {labels:?}");
            }
        }
    }

    #[test]
    fn a_label_is_cut_to_the_room_that_there_is() {
        assert_eq!(fitting("a_function", 100.0), "a_function");
        assert_eq!(fitting("", 0.0), "");
        assert_eq!(fitting("short", 20.0), "");
        let cut = fitting("mmmmmmmm_a_long_one", 100.0);
        assert!(cut.contains('…') && fits(&cut, 100.0), "{cut}");
    }

    #[test]
    fn a_figure_keeps_its_unit() {
        assert_eq!(
            figures("p99 4.00 s, or 5 % (9 ms) of 3 <b> --cfg").into_string(),
            "p99 <span class=\"figure\">4.00 s,</span> or <span class=\"figure\">5 %</span> \
             <span class=\"figure\">(9 ms)</span> of 3 &lt;b&gt; \
             <span class=\"figure\">--cfg</span>"
        );
        assert_eq!(figures("").into_string(), "");
    }

    #[test]
    fn no_line_ends_at_a_hyphen_of_an_option_or_a_path() {
        let whole = |word: &str| format!("<span class=\"figure\">{word}</span>");
        for word in [
            "(-XX:+UseZGC,",
            "-XX:+UseShenandoahGC)",
            "/tmp/perf-PID.map",
        ] {
            assert_eq!(figures(word).into_string(), whole(word));
        }
        for word in ["-", "--", "keep-alive", "/proc/1/maps", "- and"] {
            assert_eq!(figures(word).into_string(), word);
        }
    }

    #[test]
    fn a_name_is_wrapped_where_its_parts_end() {
        assert_eq!(
            wrapping("tokio::render_image (é)").into_string(),
            "tokio::<wbr>render_image (é)"
        );
    }

    #[test]
    fn labels_keep_clear_of_each_other() {
        let labels = [(0.0, 20.0, 'a'), (10.0, 20.0, 'b'), (24.0, 20.0, 'c')];
        assert_eq!(apart(labels), [(0.0, 'a'), (24.0, 'c')]);
    }

    #[test]
    fn a_scale_of_one_latency_has_a_width() {
        for ns in [0, 1, u64::MAX] {
            let scale = Log::new(ns, ns);
            assert!(scale.at(ns).is_finite() && (0.0..=1.0).contains(&scale.at(ns)));
            assert!(scale.ticks().len() < 100);
        }
    }

    #[test]
    fn coordinates_are_short() {
        assert_eq!(
            [px(1.0), px(0.123_456), px(-0.001), px(999.999)],
            ["1", "0.12", "0", "1000"]
        );
    }
}
