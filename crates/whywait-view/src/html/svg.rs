//! What all pictures have in common: coordinates, axes, and names from strangers.

use maud::{Markup, html};
use whywait_words::{Charset, duration, escape};

use crate::palette::Paint;

/// The width of every picture, in its own units: about a pixel each.
pub(crate) const WIDTH: f64 = 1000.0;
/// How wide a letter of a label is at most, as a rule, at its size of 11.
const LETTER: f64 = 6.3;

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

/// As much of a label as there is room for; empty when that is next to nothing.
pub(crate) fn fitting(label: &str, width: f64) -> String {
    // Less than that says nothing.
    const LEAST: f64 = 5.0;
    let room = ((width - 6.0) / LETTER).floor();
    if room < LEAST && room < label.chars().count() as f64 {
        return String::new();
    }
    name(label, room as usize)
}

/// Whether there is room for all of a label.
pub(crate) fn fits(label: &str, width: f64) -> bool {
    label.chars().count() as f64 * LETTER + 6.0 <= width
}

/// A picture of that height, with a title that screen readers say.
pub(crate) fn picture(id: &str, title: &str, height: f64, content: Markup) -> Markup {
    picture_of("chart", id, title, height, content)
}

/// A picture of a class.
pub(crate) fn picture_of(
    class: &str,
    id: &str,
    title: &str,
    height: f64,
    content: Markup,
) -> Markup {
    let title_id = format!("{id}-title");
    html! {
        div class="scroll" {
            svg id=(id) class=(class) role="img" aria-labelledby=(title_id)
                width=(px(WIDTH)) height=(px(height))
                viewBox=(format!("0 0 {} {}", px(WIDTH), px(height)))
                font-family="system-ui, sans-serif" font-size="11" {
                title id=(title_id) { (title) }
                (content)
            }
        }
    }
}

/// A text in a picture.
pub(crate) fn label(x: f64, y: f64, anchor: &str, text: &str) -> Markup {
    html! {
        text class="t" x=(px(x)) y=(px(y)) text-anchor=(anchor) fill="#4a5260" { (text) }
    }
}

/// A text in a filled box, as far as there is room for it.
pub(crate) fn inside(x: f64, y: f64, width: f64, paint: Paint, text: &str) -> Markup {
    let text = fitting(text, width);
    html! {
        @if !text.is_empty() {
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
    html! {
        @for tick in ticks(total, 8) {
            @let at = x + width * tick / total;
            (grid(at, top, at, bottom))
            @let anchor = if at > WIDTH - 30.0 { "end" } else { "middle" };
            (label(at, bottom + 14.0, anchor, &duration(tick as u64)))
        }
    }
}

/// A scale of latencies: equal factors are equally far apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Log {
    from: f64,
    to: f64,
}

impl Log {
    /// From one latency to another, both more than nothing.
    pub(crate) fn new(from_ns: u64, to_ns: u64) -> Self {
        let from = (from_ns.max(1) as f64).log10();
        let to = (to_ns.max(1) as f64).log10().max(from + 0.1);
        Self { from, to }
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

    /// Powers of ten, and where they are few also twice and five times those.
    pub(crate) fn ticks(self) -> Vec<u64> {
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
