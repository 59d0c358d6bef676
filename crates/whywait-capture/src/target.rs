//! Which processes are watched, from /proc.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// Whether there is a process `pid` (a zombie counts as gone).
pub fn alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|stat| Some(stat.rsplit_once(") ")?.1.starts_with(['Z', 'X'])))
        .is_some_and(|dead| !dead)
}

/// The command line of a process, empty when it has gone. Hostile.
pub fn command_line(pid: u32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    bytes
        .split(|byte| *byte == 0)
        .filter(|argument| !argument.is_empty())
        .map(|argument| String::from_utf8_lossy(argument).into_owned())
        .collect()
}

/// `pid` and all that descend from it now.
pub(crate) fn with_descendants(pid: u32) -> BTreeSet<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(child) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(stat) = fs::read_to_string(format!("/proc/{child}/stat")) else { continue };
        if let Some(parent) = parent_in_stat(&stat) {
            children.entry(parent).or_default().push(child);
        }
    }
    let mut found = BTreeSet::from([pid]);
    let mut todo = vec![pid];
    while let Some(parent) = todo.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            if found.insert(*child) {
                todo.push(*child);
            }
        }
    }
    found
}

/// The parent's pid: the second field after the name, which is in parentheses and may itself hold any of them.
fn parent_in_stat(stat: &str) -> Option<u32> {
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_name_with_parentheses_does_not_hide_the_parent() {
        assert_eq!(super::parent_in_stat("42 (a) R 1) (b) S 7 42 42 0"), Some(7));
        assert_eq!(super::parent_in_stat("nonsense"), None);
    }
}
