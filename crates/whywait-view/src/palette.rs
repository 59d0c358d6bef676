//! Colours of parts. The same on light and dark ground: each stands out from both, and its ink can
//! be read on it. Names are always beside them: nothing is told by colour alone.

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

const STRANDED: Paint = dark("#c8500a");
const BUSY: Paint = mid("#b97a00");
const WAKEUP: Paint = mid("#8f7e3a");
const CPU: Paint = mid("#0b8a64");
const RUNNABLE: Paint = mid("#3a8fbf");
const LOCK: Paint = dark("#b4508f");
const THREAD: Paint = mid("#8467c2");
const DISK: Paint = dark("#8a5a2b");
const NETWORK: Paint = dark("#0f6cb0");
const TIMER: Paint = mid("#6f7d8c");
const URING: Paint = dark("#4f6fd0");
const FAULT: Paint = dark("#a8405f");
const UNKNOWN: Paint = mid("#808080");

/// The application's, a runtime's and the kernel's functions in flame graphs.
pub(crate) const APP: Paint = mid("#e8b76a");
pub(crate) const RUNTIME: Paint = mid("#ccd2da");
pub(crate) const KERNEL: Paint = mid("#b7c6e0");
pub(crate) const ROLE: Paint = mid("#a9b4c2");
pub(crate) const HOLDER: Paint = mid("#e3b5d3");
/// The side before a change.
pub(crate) const BEFORE: Paint = mid("#8a94a3");
/// What is counted where kinds do not matter.
pub(crate) const COUNT: Paint = dark("#0f6cb0");

/// The colour of a part of a request's time, by the name that a reader sees.
pub(crate) fn of_part(words: &str) -> Paint {
    match words {
        "ready (stranded)" => STRANDED,
        "ready (pool busy)" => BUSY,
        "ready (waking up)" => WAKEUP,
        "on CPU" => CPU,
        "runnable (no CPU)" => RUNNABLE,
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

    /// Relative luminance, as WCAG 2 defines it.
    fn luminance(colour: &str) -> f64 {
        let channel = |at: usize| {
            let value = u8::from_str_radix(&colour[at..at + 2], 16).expect("hexadecimal");
            let value = f64::from(value) / 255.0;
            match value {
                v if v <= 0.040_45 => v / 12.92,
                v => ((v + 0.055) / 1.055).powf(2.4),
            }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    }

    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    const PARTS: [Paint; 13] = [
        STRANDED, BUSY, WAKEUP, CPU, RUNNABLE, LOCK, THREAD, DISK, NETWORK, TIMER, URING, FAULT,
        UNKNOWN,
    ];

    #[test]
    fn what_is_written_on_a_colour_can_be_read() {
        for paint in PARTS
            .into_iter()
            .chain([APP, RUNTIME, KERNEL, ROLE, HOLDER, BEFORE, COUNT])
        {
            assert!(contrast(paint.fill, paint.ink) >= 4.5, "{paint:?}");
        }
    }

    #[test]
    fn parts_stand_out_from_both_grounds() {
        for paint in PARTS {
            for ground in ["#ffffff", "#14171c"] {
                assert!(contrast(paint.fill, ground) >= 3.0, "{paint:?} on {ground}");
            }
        }
    }
}
