//! Lists.

use crate::percent;

/// `1, 2 and 3`; the first eight, then how many more.
pub fn list(items: &[String]) -> String {
    list_by(items, ", ")
}

/// The same with something else between the items, which may have commas of their own.
pub fn list_by(items: &[String], separator: &str) -> String {
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

/// `fsync (writeback) 57 %; block I/O 31 %`: what each has of the whole. The names may have commas
/// of their own.
pub fn shares<'a>(items: impl Iterator<Item = (&'a str, u64)>, of: u64) -> String {
    let parts: Vec<String> = items
        .map(|(name, part)| format!("{name} {}", percent(part, of)))
        .collect();
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_end_in_and() {
        let items: Vec<String> = (1..=10).map(|n: u32| n.to_string()).collect();
        assert_eq!(list(&items[..3]), "1, 2 and 3");
        assert_eq!(list(&items), "1, 2, 3, 4, 5, 6, 7, 8 and 2 more");
        assert_eq!(list_by(&items[..3], "; "), "1; 2 and 3");
    }

    #[test]
    fn shares_are_apart_by_semicolons() {
        let items = [("fsync (writeback)", 57), ("map<u8, u8>", 43)];
        let text = shares(items.into_iter(), 100);
        assert_eq!(text, "fsync (writeback) 57 %; map<u8, u8> 43 %");
    }
}
