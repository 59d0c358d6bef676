//! In which cgroup a process is that had a CPU which a thread of the target waited for.

use std::collections::HashMap;
use std::fs;

/// Processes whose cgroup is kept; when there are more, they are looked up again.
const MAX_PROCESSES: usize = 4096;

/// The cgroups of processes, each looked up once.
pub(crate) struct Cgroups {
    targets: String,
    known: HashMap<u32, String>,
}

impl Cgroups {
    /// As seen from a target.
    pub(crate) fn seen_from(pid: u32) -> Self {
        Self {
            targets: cgroup_of(pid),
            known: HashMap::new(),
        }
    }

    /// The path of a process's cgroup; empty where it is that of the target, or the process has
    /// gone.
    pub(crate) fn other(&mut self, tgid: u32) -> String {
        if let Some(known) = self.known.get(&tgid) {
            return known.clone();
        }
        if self.known.len() >= MAX_PROCESSES {
            self.known.clear();
        }
        let path = cgroup_of(tgid);
        let other = if path == self.targets {
            String::new()
        } else {
            path
        };
        self.known.insert(tgid, other.clone());
        other
    }
}

fn cgroup_of(pid: u32) -> String {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    path_in(&groups).unwrap_or_default().to_owned()
}

/// The path in the hierarchy that distributes CPU time, else in that of version 2
/// (Documentation/admin-guide/cgroup-v2.rst).
fn path_in(groups: &str) -> Option<&str> {
    let path_of = |wanted: &dyn Fn(&str) -> bool| {
        groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            wanted(controllers).then_some(path)
        })
    };
    path_of(&|list| list.split(',').any(|name| name == "cpu")).or_else(|| path_of(&str::is_empty))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_that_has_the_cpu_counts() {
        assert_eq!(path_in("2:cpuacct:/x\n1:cpu:/web\n0::/\n"), Some("/web"));
        assert_eq!(path_in("0::/system.slice/a:b\n"), Some("/system.slice/a:b"));
        assert_eq!(path_in(""), None, "the process has gone");
    }

    #[test]
    fn the_targets_own_group_is_not_named() {
        let mut cgroups = Cgroups::seen_from(std::process::id());
        assert_eq!(cgroups.other(std::process::id()), "");
        assert_eq!(cgroups.other(u32::MAX), "", "there is no such process");
    }
}
