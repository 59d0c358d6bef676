//! Figures in units that people read.

/// A duration with about four digits: `1.998 s`, `2.1 ms`, `340 us`, `12 min 5 s`. What is exact,
/// as thresholds are, has no decimals: `1 ms`.
pub fn duration(ns: u64) -> String {
    for (unit_ns, unit) in [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")] {
        if ns > 0 && ns.is_multiple_of(unit_ns) && ns / unit_ns < 120 {
            return format!("{} {unit}", ns / unit_ns);
        }
    }
    // Each arm takes what its own rounding keeps below the next unit, so that 999.96 ms becomes
    // 1.000 s, not 1000.0 ms.
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..9_950 => format!("{} us", decimal(ns, 1_000, 1)),
        9_950..999_500 => format!("{} us", decimal(ns, 1_000, 0)),
        999_500..99_950_000 => format!("{} ms", decimal(ns, 1_000_000, 1)),
        99_950_000..999_500_000 => format!("{} ms", decimal(ns, 1_000_000, 0)),
        999_500_000..9_999_500_000 => format!("{} s", decimal(ns, 1_000_000_000, 3)),
        9_999_500_000..119_995_000_000 => format!("{} s", decimal(ns, 1_000_000_000, 2)),
        _ => {
            let seconds = ns / 1_000_000_000 + u64::from(ns % 1_000_000_000 >= 500_000_000);
            match seconds {
                0..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
                3_600..360_000 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
                _ => format!("{} h", count(seconds / 3_600)),
            }
        }
    }
}

/// `value / unit`, rounded to `places`.
fn decimal(value: u64, unit: u64, places: u32) -> String {
    let scale = 10_u64.pow(places);
    let step = unit / scale;
    let rounded = value / step + u64::from(value % step >= step.div_ceil(2));
    match places {
        0 => rounded.to_string(),
        _ => format!(
            "{}.{:0width$}",
            rounded / scale,
            rounded % scale,
            width = places as usize
        ),
    }
}

/// A count with a comma between thousands.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count and its noun: `1 request`, `2 requests`.
pub fn counted(value: u64, noun: &str) -> String {
    let plural = if value == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", count(value))
}

/// A share in percent with one decimal. Never rounds something to nothing, nor almost all to all.
pub fn percent(part: u64, total: u64) -> String {
    match (part, total) {
        (_, 0) => "-".to_owned(),
        (0, _) => "0.0 %".to_owned(),
        _ if part >= total => "100.0 %".to_owned(),
        _ => {
            let permille = (u128::from(part) * 1_000 + u128::from(total) / 2) / u128::from(total);
            match permille {
                0 => "<0.1 %".to_owned(),
                1_000.. => ">99.9 %".to_owned(),
                _ => format!("{}.{} %", permille / 10, permille % 10),
            }
        }
    }
}

/// A ratio in percent, as [`percent`] does it.
pub fn ratio_percent(ratio: f64) -> String {
    const SCALE: f64 = 1e9;
    percent((ratio.clamp(0.0, 1.0) * SCALE) as u64, SCALE as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1 us"),
            (1_001, "1.0 us"),
            (10_000_000_000, "10 s"),
            (9_949, "9.9 us"),
            (9_950, "10 us"),
            (340_000, "340 us"),
            (999_499, "999 us"),
            (999_500, "1.0 ms"),
            (2_100_000, "2.1 ms"),
            (99_949_999, "99.9 ms"),
            (999_499_999, "999 ms"),
            (999_500_000, "1.000 s"),
            (1_998_000_000, "1.998 s"),
            (9_999_499_999, "9.999 s"),
            (18_034_000_000, "18.03 s"),
            (119_994_999_999, "119.99 s"),
            (119_995_000_000, "2 min 0 s"),
            (725_000_000_000, "12 min 5 s"),
            (7_260_000_000_000, "2 h 1 min"),
            (u64::MAX, "5,124,095 h"),
        ] {
            assert_eq!(duration(ns), text);
        }
    }

    #[test]
    fn counts() {
        for (value, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(count(value), text);
        }
        assert_eq!(counted(1, "request"), "1 request");
        assert_eq!(counted(0, "request"), "0 requests");
    }

    #[test]
    fn percents_do_not_hide_the_ends() {
        for (part, total, text) in [
            (0, 0, "-"),
            (0, 9, "0.0 %"),
            (1, 1_000_000, "<0.1 %"),
            (444, 1_000, "44.4 %"),
            (999_999, 1_000_000, ">99.9 %"),
            (7, 7, "100.0 %"),
        ] {
            assert_eq!(percent(part, total), text);
        }
        assert_eq!(ratio_percent(1.0), "100.0 %");
        assert_eq!(ratio_percent(0.9999), ">99.9 %");
    }
}
