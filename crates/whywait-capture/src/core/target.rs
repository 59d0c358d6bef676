//! Which processes are watched, from /proc.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// Whether there is a process `pid` (a zombie counts as gone).
pub fn alive(pid: u32) -> bool {
    // The name may hold any bytes.
    fs::read(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| alive_in_stat(&String::from_utf8_lossy(&stat)))
}

/// The state is the first field after the name, the number of threads the 18th. A zombie may be the
/// first thread only, which ended before the others.
fn alive_in_stat(stat: &str) -> bool {
    let Some((_, fields)) = stat.rsplit_once(") ") else {
        return false;
    };
    let mut fields = fields.split(' ');
    match fields.next() {
        Some("Z") => fields
            .nth(16)
            .and_then(|threads| threads.parse::<u32>().ok())
            .is_some_and(|threads| threads > 1),
        Some("X") | None => false,
        Some(_) => true,
    }
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
    // Only a kernel without CONFIG_PROC_CHILDREN has no such file.
    if fs::exists("/proc/thread-self/children").unwrap_or(false) {
        descend(pid, children_of)
    } else {
        let children = children_of_all();
        descend(pid, |parent| {
            children.get(&parent).cloned().unwrap_or_default()
        })
    }
}

fn descend(pid: u32, children_of: impl Fn(u32) -> Vec<u32>) -> BTreeSet<u32> {
    let mut found = BTreeSet::from([pid]);
    let mut todo = vec![pid];
    while let Some(parent) = todo.pop() {
        todo.extend(
            children_of(parent)
                .into_iter()
                .filter(|child| found.insert(*child)),
        );
    }
    found
}

/// The children that the threads of a process have.
fn children_of(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let children = threads
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    children
        .flat_map(|children| {
            let children = children.split_whitespace();
            children
                .filter_map(|child| child.parse().ok())
                .collect::<Vec<u32>>()
        })
        .collect()
}

/// The children of all processes, by parent.
fn children_of_all() -> BTreeMap<u32, Vec<u32>> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(child) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(stat) = fs::read(format!("/proc/{child}/stat")) else {
            continue;
        };
        if let Some(parent) = parent_in_stat(&String::from_utf8_lossy(&stat)) {
            children.entry(parent).or_default().push(child);
        }
    }
    children
}

/// The parent's pid: the second field after the name, which is in parentheses and may itself hold
/// any of them.
fn parent_in_stat(stat: &str) -> Option<u32> {
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_name_with_parentheses_does_not_hide_the_parent() {
        assert_eq!(
            super::parent_in_stat("42 (a) R 1) (b) S 7 42 42 0"),
            Some(7)
        );
        assert_eq!(super::parent_in_stat("nonsense"), None);
    }

    #[test]
    fn children_of_any_thread_are_descendants() {
        let program = "
import subprocess, sys, threading
def make():
    child = subprocess.Popen(['sh', '-c', 'sleep 100 & echo $!; read x; kill $!'],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    print(child.pid, int(child.stdout.readline()), flush=True)
    sys.stdin.read()
    child.stdin.close()
    child.wait()
thread = threading.Thread(target=make)
thread.start()
thread.join()
";
        let mut parent = std::process::Command::new("/usr/bin/python3")
            .args(["-c", program])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("Python is there");
        let mut line = String::new();
        let output = parent.stdout.take().expect("it is piped");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line)
            .expect("it says its children");
        let mut expected: Vec<u32> = line
            .split_whitespace()
            .map(|pid| pid.parse().expect("a number"))
            .collect();
        expected.push(parent.id());
        expected.sort_unstable();
        let all = super::children_of_all();
        for found in [
            super::descend(parent.id(), super::children_of),
            super::descend(parent.id(), |pid| {
                all.get(&pid).cloned().unwrap_or_default()
            }),
        ] {
            assert_eq!(Vec::from_iter(found), expected);
        }
        drop(parent.stdin.take());
        parent.wait().expect("it ends");
    }

    #[test]
    fn a_process_outlives_its_first_thread() {
        let stat = |state, threads| {
            format!("7 (a) b) {state} 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 4242 0")
        };
        assert!(super::alive_in_stat(&stat("S", 1)));
        assert!(super::alive_in_stat(&stat("Z", 2)));
        assert!(!super::alive_in_stat(&stat("Z", 1)));
        assert!(!super::alive_in_stat(&stat("X", 0)));
        assert!(!super::alive_in_stat("7 (a"));
        assert!(super::alive(std::process::id()));
    }
}
