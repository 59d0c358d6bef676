//! Words and figures in titles and evidence.

use whywait_model::Model;

/// A duration as people say it: `1.998 s`, `2.1 ms`, `340 us`.
pub(crate) fn duration(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} us", ns / 1_000),
        1_000_000..10_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        10_000_000..1_000_000_000 => format!("{:.0} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// `1 thread`, `3 threads`.
pub(crate) fn count(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// `worker (15)`.
pub(crate) fn named(model: &Model, tid: u32) -> String {
    format!("{} ({tid})", model.thread_name(tid))
}

/// `15 (worker)`.
pub(crate) fn numbered(model: &Model, tid: u32) -> String {
    format!("{tid} ({})", model.thread_name(tid))
}

/// Rounded; 100 only when it is all of it.
pub(crate) fn percent(ns: u64, of_ns: u64) -> u64 {
    if ns >= of_ns {
        return 100;
    }
    let share = (u128::from(ns) * 100 + u128::from(of_ns) / 2) / u128::from(of_ns);
    (share as u64).min(99)
}

/// `fsync (writeback) 57 %; block I/O 31 %`: what each has of the whole. The names may have commas
/// of their own.
pub(crate) fn shares<'a>(items: impl Iterator<Item = (&'a str, u64)>, of: u64) -> String {
    let parts: Vec<String> = items
        .map(|(name, part)| format!("{name} {} %", percent(part, of)))
        .collect();
    parts.join("; ")
}

/// `1, 2 and 3`; the first eight, then how many more.
pub(crate) fn list(items: &[String]) -> String {
    list_by(items, ", ")
}

/// The same with something else between the items, which may have commas of their own.
pub(crate) fn list_by(items: &[String], separator: &str) -> String {
    const SHOWN: usize = 8;
    match items {
        [] => String::new(),
        [one] => one.clone(),
        _ if items.len() > SHOWN => format!(
            "{} and {} more",
            items[..SHOWN].join(separator),
            items.len() - SHOWN
        ),
        [init @ .., last] => format!("{} and {last}", init.join(separator)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_as_people_say_them() {
        let said: Vec<String> = [999, 340_000, 2_100_000, 300_200_000, 1_998_000_000]
            .map(duration)
            .into_iter()
            .collect();
        assert_eq!(said, ["999 ns", "340 us", "2.1 ms", "300 ms", "2.00 s"]);
    }

    #[test]
    fn shares_are_apart_by_semicolons() {
        let items = [("fsync (writeback)", 57), ("map<u8, u8>", 43)];
        let text = shares(items.into_iter(), 100);
        assert_eq!(text, "fsync (writeback) 57 %; map<u8, u8> 43 %");
    }

    #[test]
    fn a_hundred_percent_is_all_of_it() {
        assert_eq!(
            [995, 999, 1_000].map(|ns| percent(ns, 1_000)),
            [99, 99, 100]
        );
        assert_eq!(percent(0, 0), 100);
    }

    #[test]
    fn lists_end_in_and() {
        let items: Vec<String> = (1..=10).map(|n: u32| n.to_string()).collect();
        assert_eq!(list(&items[..3]), "1, 2 and 3");
        assert_eq!(list(&items), "1, 2, 3, 4, 5, 6, 7, 8 and 2 more");
    }
}
