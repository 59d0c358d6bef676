//! Files that are generated from the source and kept in the repository: a test compares them with
//! what the source says today, and fails when they are stale.
//!
//! With `WHYWAIT_BLESS=1` in the environment, such a test writes the file instead.

use std::fs;
use std::path::{Path, PathBuf};

/// A file of the repository, by its path from the root.
pub fn repository(path: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("the crate is in `crates/`").join(path)
}

/// Holds a generated file to what it should be.
///
/// # Panics
/// When the file is stale.
#[track_caller]
pub fn check_file(path: &Path, expected: &str) {
    check(path, expected, blessing());
}

/// Holds the generated section of a file to what it should be: the lines between
/// `<!-- NAME: generated -->` and `<!-- NAME: end -->`. The rest of the file is written by hand.
///
/// # Panics
/// When the section is stale, or the file has no such markers.
#[track_caller]
pub fn check_section(path: &Path, name: &str, expected: &str) {
    let text = read(path);
    match with_section(&text, name, expected) {
        Some(expected) => check(path, &expected, blessing()),
        None => panic!(
            "{} should have the lines {} and {}, once and in this order",
            path.display(),
            begin(name),
            end(name)
        ),
    }
}

/// Whether what is stale is to be written anew.
pub fn blessing() -> bool {
    std::env::var_os("WHYWAIT_BLESS").is_some_and(|value| value == "1")
}

fn begin(name: &str) -> String {
    format!("<!-- {name}: generated -->\n")
}

fn end(name: &str) -> String {
    format!("<!-- {name}: end -->\n")
}

/// The text with the section replaced.
fn with_section(text: &str, name: &str, section: &str) -> Option<String> {
    let (before, rest) = text.split_once(&begin(name))?;
    let (_, after) = rest.split_once(&end(name))?;
    let (begin, end) = (begin(name), end(name));
    Some(format!("{before}{begin}{section}{end}{after}"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[track_caller]
fn check(path: &Path, expected: &str, bless: bool) {
    let found = read(path);
    if found == expected {
        return;
    }
    if bless {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).expect("the folder can be made");
        }
        fs::write(path, expected).expect("the file can be written");
        return;
    }
    let line = found
        .lines()
        .zip(expected.lines())
        .position(|(found, expected)| found != expected)
        .unwrap_or_else(|| found.lines().count().min(expected.lines().count()));
    let name = std::env::var("CARGO_PKG_NAME");
    let of_crate = name.map(|name| format!(" -p {name}")).unwrap_or_default();
    panic!(
        "{}:{} is stale: it is {:?} and should be {:?}. `WHYWAIT_BLESS=1 cargo test{of_crate}` \
         writes it.",
        path.display(),
        line + 1,
        found.lines().nth(line).unwrap_or_default(),
        expected.lines().nth(line).unwrap_or_default(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_replaced_and_nothing_else() {
        let text = "a\n<!-- x: generated -->\nold\n<!-- x: end -->\nb\n";
        assert_eq!(
            with_section(text, "x", "new\n").as_deref(),
            Some("a\n<!-- x: generated -->\nnew\n<!-- x: end -->\nb\n")
        );
        assert_eq!(with_section(text, "y", "new\n"), None);
    }

    #[test]
    fn blessing_writes_what_is_stale() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/page.md");
        check(&path, "text\n", true);
        assert_eq!(read(&path), "text\n");
        check(&path, "text\n", false);
    }

    #[test]
    #[should_panic(expected = ":2 is stale: it is \"old\" and should be \"new\"")]
    fn a_stale_file_is_named_with_its_first_line_that_differs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.md");
        fs::write(&path, "text\nold\n").unwrap();
        check(&path, "text\nnew\n", false);
    }
}
