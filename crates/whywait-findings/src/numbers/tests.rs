//! The list of numbers, held to its page and to the rest of the source.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use whywait_testkit::{check_file, paragraphs, repository};
use whywait_words::duration;

use super::held_tests::{Holders, on_page};
use super::varied::Extreme;
use super::{LISTED, Listed, Share};

/// What numbers are.
pub(super) trait Figure: Copy {
    /// As the page shows it.
    fn shown(self, name: &str) -> String;
}

impl Figure for Share {
    fn shown(self, _: &str) -> String {
        self.to_string()
    }
}

impl Figure for u64 {
    fn shown(self, name: &str) -> String {
        match name.ends_with("_NS") {
            true => duration(self),
            false => self.to_string(),
        }
    }
}

macro_rules! shown_as_they_are {
    ($($type:ty)+) => {
        $(impl Figure for $type {
            fn shown(self, _: &str) -> String {
                self.to_string()
            }
        })+
    };
}

shown_as_they_are!(usize u32 f64);

/// Figures of layouts and indices, and those of what is said of the recording itself.
const STRUCTURAL: [&str; 5] = [
    "WIDTH",
    "WORKERS",
    "GONE",
    "HARMLESS_SHARE",
    "DAMAGES_SHOWN",
];

/// The page, from the root.
pub(super) const PAGE: &str = "docs/design/numbers.md";

const HEAD: &str = "\
# Numbers

What findings depend on: every threshold, and how much is looked at or shown. Written from
`crates/whywait-findings/src/numbers.rs` by `WHYWAIT_BLESS=1 cargo test -p whywait-findings`.

The last two columns say what holds a number: what breaks when it is 0, and when it is infinite. A
lab's variant breaks when a label does not hold of its recording in `tests/corpus`: the first
finding, a finding that must or must not be there, how bad findings are, or the bound of a saving.
Where no recording breaks, a test of `whywait-findings` that fails stands there, and where none
fails, nothing: the number may then be so far off on that side. `cargo test -p whywait-findings`
sees that what stands there still breaks. This looks for what does not, in a minute or two:

```
WHYWAIT_SWEEP=1 cargo test -p whywait-findings --lib held
```
";

#[test]
fn the_page_lists_the_numbers() {
    check_file(&repository(PAGE), &page(&on_page()));
}

pub(super) fn page(holders: &Holders) -> String {
    let mut page = String::from(HEAD);
    for section in LISTED.chunk_by(|one, other| one.section == other.section) {
        writeln!(page, "\n## {}\n", section[0].section).expect("text grows");
        page.push_str("| number | value | why | 0 | infinite |\n|---|---:|---|---|---|\n");
        for number in section {
            page.push_str(&row(number, holders));
        }
    }
    page
}

fn row(number: &Listed, holders: &Holders) -> String {
    let (name, value, why) = (number.name, (number.shown)(), paragraphs(number.why));
    let holder = |side| {
        let holder = holders.get(&(name, side));
        holder.map(ToString::to_string).unwrap_or_default()
    };
    let [zero, infinite] = Extreme::BOTH.map(holder);
    format!("| `{name}` | {value} | {why} | {zero} | {infinite} |\n")
}

#[test]
fn no_number_stands_elsewhere() {
    let mut elsewhere = Vec::new();
    look_for_numbers(&repository("crates/whywait-findings/src"), &mut elsewhere);
    assert!(
        elsewhere.is_empty(),
        "these belong to numbers.rs: {elsewhere:#?}"
    );
}

fn look_for_numbers(folder: &Path, elsewhere: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("the source can be read") {
        let path = entry.expect("the source can be read").path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            look_for_numbers(&path, elsewhere);
        } else if !["tests", "script", "numbers", "held_tests"].contains(&name.as_ref()) {
            let text = fs::read_to_string(&path).expect("the source can be read");
            let product = text.split("#[cfg(test)]\nmod tests {").next();
            let numbers = product
                .unwrap_or_default()
                .lines()
                .filter(|line| is_number(line));
            elsewhere.extend(numbers.map(|line| format!("{}: {}", path.display(), line.trim())));
        }
    }
}

/// Whether the line declares a constant with a figure. Those of the kernel's interface have the
/// kernel's types, which are narrower.
fn is_number(line: &str) -> bool {
    let declared = line.split_once("const ").map(|(_, declared)| declared);
    let Some((name, rest)) = declared.and_then(|declared| declared.split_once(": ")) else {
        return false;
    };
    let figure = ["u64 = ", "usize = ", "f64 = "]
        .iter()
        .find_map(|start| rest.strip_prefix(start))
        .is_some_and(|value| value.starts_with(|digit: char| digit.is_ascii_digit()));
    figure && !STRUCTURAL.contains(&name)
}

#[test]
fn numbers_are_told_from_other_constants() {
    assert!(is_number("pub(crate) const MIN_NS: u64 = 10_000;"));
    assert!(is_number("    const R2: f64 = 0.8;"));
    assert!(!is_number("const EAGAIN: i32 = 11;"));
    assert!(!is_number("const NAME: &str = \"1\";"));
    assert!(!is_number(
        "pub(crate) const fn percent(percent: u64) -> Self {"
    ));
}

#[test]
fn names_are_listed_once() {
    let mut names: Vec<&str> = LISTED.iter().map(|number| number.name).collect();
    names.sort_unstable();
    assert_eq!(names.windows(2).find(|pair| pair[0] == pair[1]), None);
}
