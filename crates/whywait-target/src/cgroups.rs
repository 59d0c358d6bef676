//! Cgroups, as folders: where they are mounted, what lies below, which processes are in them.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Cgroups are not nested deeper than somebody made them; more are not looked at.
const MAX_LEVELS: usize = 32;
/// As many as a machine with a thousand containers has, many times over.
const MAX_CGROUPS: usize = 100_000;

/// A hierarchy of cgroups that is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// The cgroup that is mounted: `/`, or in a container a part of the whole.
    pub root: PathBuf,
    /// Where.
    pub point: PathBuf,
    /// Version 2.
    pub unified: bool,
    /// Of version 1: its controllers, or its name.
    pub options: String,
}

/// The hierarchies, from the lines of a mountinfo (proc_pid_mountinfo(5)). First that of version 2,
/// then systemd's own of version 1, then those of controllers: so is how often all processes are in
/// a cgroup of their service.
pub fn hierarchies(mounts: &[u8]) -> Vec<Hierarchy> {
    let lines = mounts.split(|byte| *byte == b'\n');
    let mut found: Vec<Hierarchy> = lines.filter_map(hierarchy).collect();
    let is_systemd = |options: &str| options.split(',').any(|it| it == "name=systemd");
    found.sort_by_key(|it| (!it.unified, !is_systemd(&it.options)));
    found
}

fn hierarchy(line: &[u8]) -> Option<Hierarchy> {
    let at = line.windows(3).position(|it| it == b" - ")?;
    let mut fields = line[..at].split(|byte| *byte == b' ').skip(3);
    let (root, point) = (path(fields.next()?), path(fields.next()?));
    let mut filesystem = line[at + 3..].split(|byte| *byte == b' ');
    let unified = match filesystem.next()? {
        b"cgroup2" => true,
        b"cgroup" => false,
        _ => return None,
    };
    Some(Hierarchy {
        root,
        point,
        unified,
        options: String::from_utf8_lossy(filesystem.nth(1)?).into_owned(),
    })
}

/// A path of a mountinfo, where blanks and the like are written in octal.
fn path(escaped: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped;
    while let [first, after @ ..] = rest {
        let octal = after
            .get(..3)
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match octal {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                rest = &after[3..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

/// Those of whywait itself.
pub(crate) fn mounted() -> Vec<Hierarchy> {
    hierarchies(&fs::read("/proc/self/mountinfo").unwrap_or_default())
}

/// All cgroups of which this is true, with what lies below them left out: theirs is in them.
pub(crate) fn find(top: &Path, is_it: &mut dyn FnMut(&Path) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    walk(top, &mut |dir| {
        let it = is_it(dir);
        if it {
            found.push(dir.to_owned());
        }
        !it
    });
    found
}

/// Visits a cgroup and those below it, as long as it is wanted to go deeper.
fn walk(top: &Path, visit: &mut dyn FnMut(&Path) -> bool) {
    let mut todo = vec![(top.to_owned(), 0)];
    let mut seen = 0;
    while let Some((dir, level)) = todo.pop() {
        seen += 1;
        if seen > MAX_CGROUPS || !visit(&dir) || level == MAX_LEVELS {
            continue;
        }
        let below = fs::read_dir(&dir).into_iter().flatten().flatten();
        let mut below: Vec<PathBuf> = below
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .collect();
        below.sort_unstable_by(|one, other| other.cmp(one));
        todo.extend(below.into_iter().map(|dir| (dir, level + 1)));
    }
}

/// The processes in a cgroup and in those below it. Whywait itself is none of them.
pub fn processes_in(cgroup: &Path) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    walk(cgroup, &mut |dir| {
        let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
        // Those of another PID namespace have no number here, which is written as 0.
        let pids = text.lines().filter_map(|line| line.parse::<u32>().ok());
        found.extend(pids.filter(|pid| *pid != 0 && *pid != std::process::id()));
        true
    });
    found
}

/// Whether it is a cgroup.
pub(crate) fn is_cgroup(dir: &Path) -> bool {
    fs::exists(dir.join("cgroup.procs")).unwrap_or(false)
}

/// A path as /proc/PID/cgroup has it, or as the file system does, as folders that there are.
pub(crate) fn named(path: &Path, hierarchies: &[Hierarchy]) -> Vec<PathBuf> {
    if is_cgroup(path) && path.is_absolute() {
        return vec![path.to_owned()];
    }
    let dirs = hierarchies.iter().map(|hierarchy| folder(path, hierarchy));
    dirs.filter(|dir| is_cgroup(dir)).collect()
}

/// The folder of a cgroup in a hierarchy.
fn folder(path: &Path, hierarchy: &Hierarchy) -> PathBuf {
    // In a container only a part of the hierarchy is mounted, and named by its own root.
    let below = path.strip_prefix(&hierarchy.root).unwrap_or(path);
    let below = below.as_os_str().as_bytes();
    let start = below.iter().take_while(|byte| **byte == b'/').count();
    hierarchy.point.join(OsStr::from_bytes(&below[start..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIXED: &[u8] = b"\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
33 31 0:30 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
32 31 0:29 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
34 31 0:31 / /sys/fs/cgroup/uni\\040fied rw,relatime - cgroup2 cgroup2 rw
";

    #[test]
    fn version_2_comes_first_and_then_systemds() {
        let found = hierarchies(MIXED);
        let points: Vec<&str> = found.iter().filter_map(|it| it.point.to_str()).collect();
        assert_eq!(
            points,
            [
                "/sys/fs/cgroup/uni fied",
                "/sys/fs/cgroup/systemd",
                "/sys/fs/cgroup/memory"
            ]
        );
        assert!(hierarchies(b"nonsense\n\n - \n1 2 3 / /x rw - cgroup2").is_empty());
    }

    #[test]
    fn paths_are_named_by_the_root_that_is_mounted() {
        let pod =
            &hierarchies(b"28 24 0:25 /pod /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw")[0];
        let named = |path: &str| folder(Path::new(path), pod).display().to_string();
        assert_eq!(named("/pod/web"), "/sys/fs/cgroup/web");
        assert_eq!(named("/web"), "/sys/fs/cgroup/web");
        assert_eq!(named("web/api"), "/sys/fs/cgroup/web/api");
        assert_eq!(path(br"a\134b\0"), Path::new(r"a\b\0"));
    }
}
