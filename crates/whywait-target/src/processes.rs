//! Processes, from /proc.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::linux::fs::MetadataExt;
use std::path::Path;

use whywait_words::{Charset, escape};

/// All that are there. Kernel threads are among them.
pub fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// The name as the kernel has it: at most 15 bytes, any but NUL.
pub(crate) fn name(pid: u32) -> Option<Vec<u8>> {
    let mut name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    // The kernel ends it so; a newline of the process's own may come before.
    if name.last() == Some(&b'\n') {
        name.pop();
    }
    Some(name)
}

/// `nginx (pid 12)`, safe to print.
pub(crate) fn shown(pid: u32) -> String {
    let name = name(pid).unwrap_or_default();
    let name = escape(&String::from_utf8_lossy(&name), Charset::Unicode, 40);
    let number = whywait_words::pid(pid, inner_number(pid));
    match name.is_empty() {
        true => format!("process {number}"),
        false => format!("{name} (pid {number})"),
    }
}

/// Which file a process runs, also where that was deleted or replaced. Kernel threads have none.
pub(crate) fn executable(pid: u32) -> Option<(u64, u64)> {
    let file = fs::metadata(format!("/proc/{pid}/exe")).ok()?;
    Some((file.st_dev(), file.st_ino()))
}

/// The base name of that file.
pub(crate) fn executable_name(pid: u32) -> Option<OsString> {
    let path = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let name = path.file_name()?;
    let bytes = name.as_encoded_bytes();
    // What the kernel says of a file that was deleted, as at an upgrade.
    let kept = bytes.strip_suffix(b" (deleted)").unwrap_or(bytes);
    Some(os_string(kept))
}

pub(crate) fn os_string(bytes: &[u8]) -> OsString {
    use std::os::unix::ffi::OsStrExt;
    std::ffi::OsStr::from_bytes(bytes).to_owned()
}

/// The parent of a process.
pub(crate) fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    parent_in_stat(&String::from_utf8_lossy(&stat)).filter(|parent| *parent != 0)
}

/// Its parent, the parent of that, and so on.
pub(crate) fn ancestors(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut at = pid;
    // Numbers may be given anew meanwhile, and then lead in a circle.
    while let Some(parent) = parent(at).filter(|parent| !found.contains(parent)) {
        found.push(parent);
        at = parent;
    }
    found
}

/// What tells a process's namespace of a kind (`net`, `pid`) from others.
pub fn namespace(pid: impl std::fmt::Display, kind: &str) -> Option<u64> {
    let link = fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok()?;
    let link = link.to_str()?;
    link.split_once('[')?.1.strip_suffix(']')?.parse().ok()
}

/// The process of which `pid` is a thread.
pub(crate) fn process_of(pid: u32) -> Option<u32> {
    field_of_status(pid, "Tgid:")?.first().copied()
}

/// Its numbers in each of the namespaces that it is in, the innermost last.
pub(crate) fn numbers(pid: u32) -> Vec<u32> {
    field_of_status(pid, "NSpid:").unwrap_or_default()
}

/// Its number in its own PID namespace, where that is another one than here.
pub fn inner_number(pid: u32) -> Option<u32> {
    match numbers(pid)[..] {
        [_, .., inner] => Some(inner),
        _ => None,
    }
}

/// Whether this is another PID namespace than the machine's first, in whose numbers BPF speaks.
/// `None`: /proc does not say.
pub fn in_own_pid_namespace() -> Option<bool> {
    /// PROC_PID_INIT_INO of linux/proc_ns.h.
    const FIRST: u64 = 0xEFFF_FFFC;
    Some(namespace("self", "pid")? != FIRST)
}

fn field_of_status(pid: u32, field: &str) -> Option<Vec<u32>> {
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    // The name is escaped there, and so in one line.
    let status = String::from_utf8_lossy(&status);
    let values = status.lines().find_map(|line| line.strip_prefix(field))?;
    let values = values.split_whitespace();
    Some(values.filter_map(|value| value.parse().ok()).collect())
}

/// Whether it is a thread of the kernel, which runs no file.
pub(crate) fn is_kernel_thread(pid: u32) -> bool {
    const KTHREADD: u32 = 2;
    pid == KTHREADD || parent(pid) == Some(KTHREADD)
}

/// The base names of the first words of its command line: the program, and what an interpreter
/// runs.
pub(crate) fn first_words(pid: u32) -> Vec<Vec<u8>> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0)
        .take(2)
        .map(|word| {
            let path = os_string(word);
            let base = Path::new(&path).file_name().unwrap_or_default();
            base.as_encoded_bytes().to_vec()
        })
        .collect()
}

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
    words_of(&bytes)
}

/// The same, of its first 4,096 bytes: it may have any length.
pub fn command_begins(pid: u32) -> Vec<String> {
    let mut bytes = Vec::new();
    if let Ok(file) = fs::File::open(format!("/proc/{pid}/cmdline")) {
        // What cannot be read is empty.
        let _ = file.take(4_096).read_to_end(&mut bytes);
    }
    words_of(&bytes)
}

fn words_of(bytes: &[u8]) -> Vec<String> {
    bytes
        .split(|byte| *byte == 0)
        .filter(|argument| !argument.is_empty())
        .map(|argument| String::from_utf8_lossy(argument).into_owned())
        .collect()
}

/// These processes and all that descend from them now, but for whywait itself: a shell that is
/// watched may have started it.
pub fn with_descendants(pids: &[u32]) -> BTreeSet<u32> {
    // Only a kernel without CONFIG_PROC_CHILDREN has no such file.
    if fs::exists("/proc/thread-self/children").unwrap_or(false) {
        descend(pids, children_of)
    } else {
        let children = children_of_all();
        descend(pids, |parent| {
            children.get(&parent).cloned().unwrap_or_default()
        })
    }
}

fn descend(pids: &[u32], children_of: impl Fn(u32) -> Vec<u32>) -> BTreeSet<u32> {
    let own = std::process::id();
    let mut found: BTreeSet<u32> = pids.iter().copied().collect();
    let mut todo = pids.to_vec();
    while let Some(parent) = todo.pop() {
        todo.extend(
            children_of(parent)
                .into_iter()
                .filter(|child| *child != own && found.insert(*child)),
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
    for child in all() {
        if let Some(parent) = parent(child) {
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
            super::descend(&[parent.id()], super::children_of),
            super::descend(&[parent.id()], |pid| {
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
