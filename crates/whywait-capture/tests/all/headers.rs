//! The BPF programs' headers include what they use, and none includes itself by way of others.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// By header, as others include it: what it includes of ours.
fn includes() -> BTreeMap<String, Vec<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut found, mut folders) = (BTreeMap::new(), vec![root.clone()]);
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(folder).expect("the sources are there");
        for path in entries.map(|entry| entry.expect("an entry").path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "h") {
                found.insert(name(&root, &path), included_by(&path));
            }
        }
    }
    found
}

fn name(root: &Path, path: &Path) -> String {
    let path: PathBuf = path.strip_prefix(root).expect("it is in there").into();
    path.display().to_string()
}

fn included_by(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).expect("a header");
    text.lines()
        .filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix('"'))
        .map(str::to_owned)
        .collect()
}

/// The way from the last of `way` back to one of its headers.
fn circle(all: &BTreeMap<String, Vec<String>>, way: &mut Vec<String>) -> Option<Vec<String>> {
    for next in &all[way.last()?] {
        if way.contains(next) {
            return Some([way.as_slice(), std::slice::from_ref(next)].concat());
        }
        way.push(next.clone());
        if let Some(circle) = circle(all, way) {
            return Some(circle);
        }
        way.pop();
    }
    None
}

#[test]
fn no_header_includes_itself() {
    let all = includes();
    assert!(all.len() > 20, "{all:?}");
    for header in all.keys() {
        assert_eq!(circle(&all, &mut vec![header.clone()]), None);
    }
}

#[test]
fn core_knows_of_collectors_only_their_records() {
    for (header, included) in includes() {
        let of_collector = |name: &&String| name.starts_with("collectors/");
        for name in included.iter().filter(of_collector) {
            assert!(
                !header.starts_with("core/") || name.ends_with("/records.h"),
                "{header} includes {name}"
            );
        }
    }
}
