//! Time.

use crate::count;
use crate::figures::figure;

/// From here on a duration is in minutes.
const MINUTES_FROM_S: u64 = 120;

/// A duration with three digits: `1.99 s`, `302 ms`, `46.3 us`, `12 min 5 s`. What is exact, as
/// thresholds are, has no zeros behind it: `1 ms`.
pub fn duration(ns: u64) -> String {
    if ns < 1_000 {
        return format!("{ns} ns");
    }
    let units = [
        (1_000, "us", 1_000),
        (1_000_000, "ms", 1_000),
        (1_000_000_000, "s", MINUTES_FROM_S),
    ];
    // What rounds to a thousand of a unit is one of the next: 999.96 ms is 1.00 s.
    for (unit_ns, unit, below) in units {
        for places in [2, 1, 0] {
            let scale = 10_u64.pow(places);
            let step_ns = unit_ns / scale;
            let steps = ns / step_ns + u64::from(ns % step_ns >= step_ns / 2);
            if steps < 1_000 && steps < below * scale {
                let exact = ns.is_multiple_of(step_ns);
                return format!("{} {unit}", decimal(steps, places as usize, exact));
            }
        }
    }
    let seconds = ns / 1_000_000_000 + u64::from(ns % 1_000_000_000 >= 500_000_000);
    match seconds {
        0..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..360_000 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} h", count(seconds / 3_600)),
    }
}

/// `steps` of the last of so many places behind the point.
fn decimal(steps: u64, places: usize, exact: bool) -> String {
    let scale = 10_u64.pow(places as u32);
    let text = match places {
        0 => return steps.to_string(),
        _ => format!("{}.{:0places$}", steps / scale, steps % scale),
    };
    match exact {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// A duration that is a quotient: below a microsecond its fractions tell something, too.
pub fn mean_duration(ns: f64) -> String {
    // Saturates, and makes nothing of what is no number.
    let whole = ns.round() as u64;
    match whole {
        0..1_000 => format!("{} ns", figure(ns)),
        _ => duration(whole),
    }
}

/// A time between two bounds: `1.2 to 3.5 s`, `320 us to 2 ms`, and one figure where they do not
/// differ.
pub fn duration_range(at_least_ns: u64, at_most_ns: u64) -> String {
    let (least, most) = (duration(at_least_ns), duration(at_most_ns));
    if least == most {
        return most;
    }
    if at_least_ns == 0 {
        return format!("0 to {most}");
    }
    match (least.split_once(' '), most.split_once(' ')) {
        (Some((figure, unit)), Some((_, other))) if unit == other => format!("{figure} to {most}"),
        _ => format!("{least} to {most}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_001, "1.00 us"),
            (9_994, "9.99 us"),
            (9_995, "10.0 us"),
            (46_280, "46.3 us"),
            (340_400, "340 us"),
            (999_499, "999 us"),
            (999_500, "1.00 ms"),
            (2_104_000, "2.10 ms"),
            (99_949_999, "99.9 ms"),
            (99_950_000, "100 ms"),
            (999_499_999, "999 ms"),
            (999_500_000, "1.00 s"),
            (1_998_000_000, "2.00 s"),
            (7_972_000_000, "7.97 s"),
            (18_034_000_000, "18.0 s"),
            (119_499_999_999, "119 s"),
            (119_500_000_000, "2 min 0 s"),
            (725_000_000_000, "12 min 5 s"),
            (7_260_000_000_000, "2 h 1 min"),
            (u64::MAX, "5,124,095 h"),
        ] {
            assert_eq!(duration(ns), text);
        }
    }

    #[test]
    fn what_is_exact_has_no_zeros_behind_it() {
        for (ns, text) in [
            (1_000, "1 us"),
            (20_000_000, "20 ms"),
            (1_500_000_000, "1.5 s"),
            (10_000_000_000, "10 s"),
            (110_000_000_000, "110 s"),
        ] {
            assert_eq!(duration(ns), text);
        }
    }

    #[test]
    fn quotients_have_fractions_of_nanoseconds() {
        for (ns, text) in [
            (0.4, "0.4 ns"),
            (12.34, "12.3 ns"),
            (999.6, "1 us"),
            (1_234_000.0, "1.23 ms"),
            (-5.0, "0 ns"),
            (f64::NAN, "0 ns"),
        ] {
            assert_eq!(mean_duration(ns), text);
        }
    }

    #[test]
    fn bounds_share_their_unit() {
        for (least, most, text) in [
            (0, 2_000_000, "0 to 2 ms"),
            (1_000_000, 2_000_000, "1 to 2 ms"),
            (2_000_000, 2_000_000, "2 ms"),
            (2_000_001, 2_000_002, "2.00 ms"),
            (2_000, 2_000_000, "2 us to 2 ms"),
            (121_000_000_000, 182_000_000_000, "2 min 1 s to 3 min 2 s"),
        ] {
            assert_eq!(duration_range(least, most), text);
        }
    }
}
