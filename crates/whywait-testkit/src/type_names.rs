//! One name, one type: names of types that several crates or modules declare, each for something
//! else, are the exception.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::repository;

/// In percent of all names: fewer denote several types. What is left are the rows of tables and
/// what a report makes of them, which are named after the same thing, and names within one crate
/// that another has, too.
const BELOW: usize = 5;

#[test]
fn a_type_name_denotes_one_type() {
    let mut declared: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for path in product_files() {
        let text = fs::read_to_string(&path).expect("source can be read");
        for name in types(&text) {
            declared
                .entry(name.to_owned())
                .or_default()
                .push(path.clone());
        }
    }
    let several: Vec<_> = declared.iter().filter(|(_, at)| at.len() > 1).collect();
    assert!(
        declared.len() > 400,
        "only {} types were found",
        declared.len()
    );
    assert!(
        several.len() * 100 < declared.len() * BELOW,
        "{} of {} names denote several types: {several:#?}",
        several.len(),
        declared.len()
    );
}

/// The source of all crates but this one, without tests.
fn product_files() -> Vec<PathBuf> {
    let crates = entries(&repository("crates")).into_iter();
    let crates = crates.filter(|path| !path.ends_with("whywait-testkit"));
    crates
        .flat_map(|path| files_in(&path.join("src")))
        .collect()
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for path in entries(folder) {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if name == "tests" || name.ends_with("_tests") || name.contains("script") {
            continue;
        }
        if path.is_dir() {
            files.extend(files_in(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect()
}

/// The types that the text declares, above the tests at its end. A `type` that is not at the
/// beginning of its line belongs to a trait.
fn types(text: &str) -> impl Iterator<Item = &str> {
    let product = text.split("\n#[cfg(test)]\nmod tests {").next();
    product.unwrap_or_default().lines().filter_map(|line| {
        let item = without_visibility(line.trim_start());
        let keywords = ["struct ", "enum ", "union ", "trait "];
        let named = keywords.iter().find_map(|word| item.strip_prefix(word));
        let alias = item
            .strip_prefix("type ")
            .filter(|_| !line.starts_with(' '));
        let name = named.or(alias)?;
        let end = name.find(|letter: char| !letter.is_alphanumeric());
        Some(&name[..end.unwrap_or(name.len())]).filter(|name| !name.is_empty())
    })
}

fn without_visibility(item: &str) -> &str {
    let item = match item.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ").map_or(item, |(_, item)| item),
        None => item.strip_prefix("pub ").unwrap_or(item),
    };
    item.strip_prefix("unsafe ").unwrap_or(item)
}

#[test]
fn declarations_are_found() {
    let text = "pub struct A;\n    pub(crate) enum B<T> {\n    type C = u8;\ntype D = u8;\n\
        pub(in crate::x) trait E: F {\n// struct G\n\n\
        #[cfg(test)]\nmod tests {\n    struct H;\n}\n";
    assert_eq!(types(text).collect::<Vec<_>>(), ["A", "B", "D", "E"]);
}
