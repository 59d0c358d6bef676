//! Words and figures in titles and evidence.

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

/// `1, 2 and 3`; the first eight, then how many more.
pub(crate) fn list(items: &[String]) -> String {
    const SHOWN: usize = 8;
    match items {
        [] => String::new(),
        [one] => one.clone(),
        _ if items.len() > SHOWN => format!(
            "{} and {} more",
            items[..SHOWN].join(", "),
            items.len() - SHOWN
        ),
        [init @ .., last] => format!("{} and {last}", init.join(", ")),
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
    fn lists_end_in_and() {
        let items: Vec<String> = (1..=10).map(|n: u32| n.to_string()).collect();
        assert_eq!(list(&items[..3]), "1, 2 and 3");
        assert_eq!(list(&items), "1, 2, 3, 4, 5, 6, 7, 8 and 2 more");
    }
}
