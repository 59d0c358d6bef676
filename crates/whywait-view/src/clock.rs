//! Wall-clock times.

use whywait_compare::gate::Date;

/// A time since 1970 as `2026-11-25 07:12:03 UTC`; `None` for 0, which is not known.
pub(crate) fn utc(unix_ns: u64) -> Option<String> {
    let seconds = unix_ns / 1_000_000_000;
    let day = Date::of_unix(seconds);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    (unix_ns > 0).then(|| format!("{day} {hour:02}:{minute:02}:{second:02} UTC"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (seconds, text) in [
            (1, "1970-01-01 00:00:01 UTC"),
            (1_767_225_599, "2025-12-31 23:59:59 UTC"),
        ] {
            assert_eq!(utc(seconds * 1_000_000_000).as_deref(), Some(text));
        }
        assert_eq!(utc(0), None);
    }
}
