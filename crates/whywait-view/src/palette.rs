//! Colours of parts. The same on light and dark ground: each stands out from both, and its ink can
//! be read on it. Names are always beside them: nothing is told by colour alone.

use whywait_model::requests::ReadyUnserved;
use whywait_report::text::words;

/// A colour, and what to write in on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Paint {
    pub(crate) fill: &'static str,
    pub(crate) ink: &'static str,
}

const WHITE: &str = "#ffffff";
const BLACK: &str = "#000000";

const fn dark(fill: &'static str) -> Paint {
    Paint { fill, ink: WHITE }
}

const fn mid(fill: &'static str) -> Paint {
    Paint { fill, ink: BLACK }
}

const STRANDED: Paint = dark("#cd100e");
const BUSY: Paint = mid("#c08b00");
const WAKEUP: Paint = dark("#576b40");
const CPU: Paint = dark("#0e7611");
const RUNNABLE: Paint = mid("#1198bd");
const LOCK: Paint = dark("#835483");
const THREAD: Paint = dark("#844cb5");
const DISK: Paint = mid("#a38c4a");
const NETWORK: Paint = dark("#2365ec");
const TIMER: Paint = dark("#6d6262");
const URING: Paint = mid("#0391f6");
const FAULT: Paint = mid("#bb8273");
const UNKNOWN: Paint = mid("#9c8c99");

/// The application's, a runtime's and the kernel's functions in flame graphs.
pub(crate) const APP: Paint = mid("#e8b76a");
pub(crate) const RUNTIME: Paint = mid("#ccd2da");
pub(crate) const KERNEL: Paint = mid("#b7c6e0");
pub(crate) const ROLE: Paint = mid("#a9b4c2");
pub(crate) const HOLDER: Paint = mid("#e3b5d3");
/// The side before a change.
pub(crate) const BEFORE: Paint = mid("#8a94a3");
/// What is a finding's, by its severity, as in the verdict: no colour of a part, and no amber.
pub(crate) const OF_ERROR: Paint = dark("#cc1a4d");
pub(crate) const OF_WARNING: Paint = dark("#c2500f");
pub(crate) const OF_NOTE: Paint = dark("#697280");
/// What is counted where kinds do not matter.
pub(crate) const COUNT: Paint = dark("#0f6cb0");

/// The colour of a part of a request's time, by the name that a reader sees.
pub(crate) fn of_part(words: &str) -> Paint {
    match words {
        words::STRANDED => STRANDED,
        words::UNREAD | words::POOL_BUSY => BUSY,
        words::WAKING_UP => WAKEUP,
        "on CPU" => CPU,
        "without a CPU" => RUNNABLE,
        "lock" => LOCK,
        "other thread" => THREAD,
        "disk" => DISK,
        "network" => NETWORK,
        "timer (sleep)" => TIMER,
        "io_uring" => URING,
        "page fault" => FAULT,
        _ => UNKNOWN,
    }
}

/// Why most of the time unread was: the name of that part of the time.
pub(crate) fn unread(ready: &ReadyUnserved) -> &'static str {
    let parts = [
        (words::WAKING_UP, ready.wakeup),
        (words::POOL_BUSY, ready.pool_busy),
        (words::STRANDED, ready.stranded),
    ];
    let known = parts
        .into_iter()
        .filter(|(_, ns)| ns.is_some_and(|ns| ns > 0));
    let most = known.max_by_key(|(_, ns)| *ns);
    most.map_or(words::UNREAD, |(part, _)| part)
}

/// The colour of a step's state, or of a wait's class.
pub(crate) fn of_state(state: &str) -> Paint {
    match state {
        "ready-unserved" => BUSY,
        "on-cpu" => CPU,
        "runnable" => RUNNABLE,
        "lock" => LOCK,
        "thread" | "result" => THREAD,
        "disk" => DISK,
        "network" => NETWORK,
        "timer" => TIMER,
        "uring" => URING,
        "page-fault" => FAULT,
        "idle" | "short" => RUNTIME,
        _ => UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Red, green and blue, linear.
    fn linear(colour: &str) -> [f64; 3] {
        let channel = |at: usize| {
            let value = u8::from_str_radix(&colour[at..at + 2], 16).expect("hexadecimal");
            let value = f64::from(value) / 255.0;
            match value {
                v if v <= 0.040_45 => v / 12.92,
                v => ((v + 0.055) / 1.055).powf(2.4),
            }
        };
        [channel(1), channel(3), channel(5)]
    }

    /// Relative luminance, as WCAG 2 defines it.
    fn luminance(colour: &str) -> f64 {
        let [r, g, b] = linear(colour);
        0.2126 * r + 0.7152 * g + 0.0722 * b
    }

    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    /// How the three kinds of cones of people see linear red, green and blue: as most do, without
    /// the cones for green, and without those for red (Machado, Oliveira and Fernandes, 2009).
    const EYES: [[[f64; 3]; 3]; 3] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [
            [0.367_322, 0.860_646, -0.227_968],
            [0.280_085, 0.672_501, 0.047_413],
            [-0.011_820, 0.042_940, 0.968_881],
        ],
        [
            [0.152_286, 1.052_583, -0.204_868],
            [0.114_503, 0.786_281, 0.099_216],
            [-0.003_882, -0.048_116, 1.051_998],
        ],
    ];

    /// CIE L*a*b*, under daylight.
    fn lab([r, g, b]: [f64; 3]) -> [f64; 3] {
        let f = |t: f64| match t {
            t if t > 0.008_856 => t.cbrt(),
            t => 7.787 * t + 16.0 / 116.0,
        };
        let x = f((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.950_47);
        let y = f(0.2126 * r + 0.7152 * g + 0.0722 * b);
        let z = f((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.088_83);
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    fn seen(colour: &str, eyes: &[[f64; 3]; 3]) -> [f64; 3] {
        let linear = linear(colour);
        let sum = |row: &[f64; 3]| row.iter().zip(linear).map(|(a, b)| a * b).sum::<f64>();
        lab([0, 1, 2].map(|at| sum(&eyes[at]).clamp(0.0, 1.0)))
    }

    /// The bar's colour of it, in the path and in the flame graph, too.
    #[test]
    fn time_unread_has_the_colour_of_what_most_of_it_was() {
        let ready = |stranded, pool_busy| ReadyUnserved {
            stranded,
            pool_busy,
            wakeup: Some(1),
        };
        let paint = |ready| of_part(unread(&ready));
        assert_eq!(paint(ready(Some(9), Some(3))), STRANDED);
        assert_eq!(paint(ready(Some(0), Some(3))), BUSY);
        assert_eq!(paint(ready(None, None)), WAKEUP);
        assert_eq!(paint(ReadyUnserved::default()), BUSY);
    }

    #[test]
    fn parts_can_be_told_apart_also_by_the_colour_blind() {
        // A difference of 2 is just seen side by side; apart from each other it takes some 10.
        const APART: f64 = 15.0;
        for eyes in &EYES {
            for (at, one) in PARTS.iter().enumerate() {
                for other in &PARTS[..at] {
                    let pairs = seen(one.fill, eyes).into_iter().zip(seen(other.fill, eyes));
                    let apart = pairs.map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
                    assert!(apart >= APART, "{one:?} and {other:?}: {apart:.1}");
                }
            }
        }
    }

    /// What verdicts and findings look like on the page, on both grounds.
    #[test]
    fn no_part_has_the_colour_of_a_verdict() {
        // Side by side, and the parts' names are there: less than what tells parts apart for all.
        const APART: f64 = 20.0;
        let css = include_str!("assets/page.css");
        let [most, ..] = &EYES;
        for tone in ["--error: ", "--warning: ", "--good: ", "--info: "] {
            let tones: Vec<&str> = css.split(tone).skip(1).map(|rest| &rest[..7]).collect();
            assert_eq!(tones.len(), 2, "{tone}");
            for (tone, part) in tones.iter().flat_map(|tone| PARTS.map(|part| (tone, part))) {
                let pairs = seen(tone, most).into_iter().zip(seen(part.fill, most));
                let apart = pairs.map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
                assert!(apart >= APART, "{tone} and {part:?}: {apart:.1}");
            }
        }
    }

    const PARTS: [Paint; 13] = [
        STRANDED, BUSY, WAKEUP, CPU, RUNNABLE, LOCK, THREAD, DISK, NETWORK, TIMER, URING, FAULT,
        UNKNOWN,
    ];

    const SEVERITIES: [Paint; 3] = [OF_ERROR, OF_WARNING, OF_NOTE];

    #[test]
    fn what_is_written_on_a_colour_can_be_read() {
        for paint in PARTS
            .into_iter()
            .chain([APP, RUNTIME, KERNEL, ROLE, HOLDER, BEFORE, COUNT])
            .chain(SEVERITIES)
        {
            assert!(contrast(paint.fill, paint.ink) >= 4.5, "{paint:?}");
        }
    }

    #[test]
    fn parts_stand_out_from_both_grounds() {
        for paint in PARTS.into_iter().chain(SEVERITIES) {
            for ground in ["#ffffff", "#14171c"] {
                assert!(contrast(paint.fill, ground) >= 3.0, "{paint:?} on {ground}");
            }
        }
    }
}
