//! Counts, and the nouns that go with them.

/// What counts come as.
pub trait Count: Copy {
    /// As the widest of them.
    fn wide(self) -> u64;
}

impl Count for u64 {
    fn wide(self) -> u64 {
        self
    }
}

impl Count for u32 {
    fn wide(self) -> u64 {
        self.into()
    }
}

impl Count for usize {
    fn wide(self) -> u64 {
        self as u64
    }
}

/// A count with a comma between thousands.
pub fn count(n: impl Count) -> String {
    let digits = n.wide().to_string();
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
pub fn counted(n: impl Count, noun: &str) -> String {
    match n.wide() {
        1 => format!("1 {noun}"),
        n => format!("{} {}", count(n), plural(noun)),
    }
}

/// The same of a phrase: `1 request was`, `2 requests were`.
pub fn counted_as(n: impl Count, one: &str, several: &str) -> String {
    match n.wide() {
        1 => format!("1 {one}"),
        n => format!("{} {several}", count(n)),
    }
}

fn plural(noun: &str) -> String {
    let hisses = ["s", "x", "ch", "sh"].iter().any(|end| noun.ends_with(end));
    match noun.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{stem}ies"),
        _ if hisses => format!("{noun}es"),
        _ => format!("{noun}s"),
    }
}

/// The text with its first letter in upper case. What is written with a figure stays as it is: p99.
pub fn capitalised(text: &str) -> String {
    let first = text.split_whitespace().next().unwrap_or_default();
    if first.contains(|c: char| c.is_ascii_digit()) {
        return text.to_owned();
    }
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_commas() {
        for (n, text) in [
            (0_u64, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(count(n), text);
        }
    }

    #[test]
    fn nouns_follow_their_count() {
        for (n, noun, text) in [
            (1_u32, "request", "1 request"),
            (0, "request", "0 requests"),
            (1_200, "CPU", "1,200 CPUs"),
            (2, "DNS query", "2 DNS queries"),
            (2, "day", "2 days"),
            (2, "process", "2 processes"),
        ] {
            assert_eq!(counted(n, noun), text);
        }
        assert_eq!(counted_as(1_usize, "call was", "calls were"), "1 call was");
        assert_eq!(
            counted_as(2_usize, "call was", "calls were"),
            "2 calls were"
        );
    }

    #[test]
    fn sentences_begin_with_a_capital() {
        assert_eq!(capitalised("érable"), "Érable");
        assert_eq!(capitalised("p99 288 ms"), "p99 288 ms");
        assert_eq!(capitalised(""), "");
    }
}
