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

/// The fields of the kernel's whose sign is kept, and why that does not matter or has to be.
const SIGNED: [(&str, &str); 4] = [
    ("io_cqe.res", "a count, or an error as a negative number"),
    ("io_uring_cqe.res", "the same, as user space reads it"),
    ("sockaddr_un.sun_path", "bytes that are copied, not loaded"),
    ("task_struct.comm", "bytes that are copied, not loaded"),
];

/// `struct.field` of all members of signed integers in the kernel's types.
fn signed_fields(header: &str) -> Vec<String> {
    let (_, types) = header
        .split_once("#pragma clang attribute push")
        .expect("the types that are relocated");
    let mut found = Vec::new();
    // Names come at the opening brace, or behind the closing one (typedef struct { … } name).
    let mut open: Vec<(String, Vec<String>)> = Vec::new();
    for line in types.lines() {
        let line = line.split("/*").next().unwrap_or_default().trim();
        if let Some(head) = line.strip_suffix('{') {
            let name = head.split_whitespace().next_back().unwrap_or_default();
            open.push((name.to_owned(), Vec::new()));
        } else if let Some(tail) = line.strip_prefix('}') {
            let (name, fields) = open.pop().expect("an opening brace");
            let tail = tail.trim_end_matches(';').trim();
            let named_behind = matches!(name.as_str(), "struct" | "union");
            let name = if named_behind { tail } else { &name };
            match open.last_mut() {
                Some((_, outer)) => outer.extend(fields),
                None => found.extend(fields.iter().map(|field| format!("{name}.{field}"))),
            }
        } else if let Some((_, fields)) = open.last_mut() {
            let words: Vec<&str> = line
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .collect();
            let signed = |word: &&str| {
                matches!(*word, "char" | "short" | "int" | "long" | "signed")
                    || ["s8", "s16", "s32", "s64"].contains(&word.trim_start_matches('_'))
            };
            if words.contains(&"unsigned") || !words.iter().any(signed) {
                continue;
            }
            let declared = words
                .iter()
                .rfind(|word| !word.is_empty() && !word.chars().all(|c| c.is_ascii_digit()));
            fields.push(declared.expect("a name").to_string());
        }
    }
    found
}

/// libbpf narrows loads of unsigned fields only: a signed one that a kernel made narrower (as 7.2
/// did with `on_cpu`) makes it refuse the program.
#[test]
fn fields_of_the_kernel_are_unsigned() {
    let header = include_str!("../../src/core/vmlinux.h");
    let mut signed = signed_fields(header);
    signed.sort();
    assert_eq!(signed, SIGNED.map(|(field, _)| field));
    let before = header.replace("unsigned int on_cpu", "int on_cpu");
    assert!(signed_fields(&before).contains(&"task_struct.on_cpu".to_owned()));
}
