//! The CPU limits of the target's cgroup and of those above it, and how often they were
//! reached while it was watched.
//!
//! Files and their meaning: Documentation/admin-guide/cgroup-v2.rst (cpu.max, cpu.stat),
//! Documentation/scheduler/sched-bwc.rst for version 1.

use std::fs;
use std::path::{Path, PathBuf};

use crate::core::collector::{Collector, Keeper};
use crate::core::programs::Programs;

pub(crate) const COLLECTOR: Collector = Collector {
    keeper: |target| Box::new(CpuLimits::of(target.head)),
    ..Collector::NONE
};

/// Cgroups are not nested deeper than somebody made them; more are not looked at.
const MAX_LEVELS: usize = 32;

/// What a group's cpu.stat counts, since the group was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Stat {
    periods: u64,
    throttled: u64,
    throttled_ns: u64,
}

/// A cgroup with a limit.
#[derive(Debug)]
struct Cgroup {
    dir: PathBuf,
    /// Thousandths of a CPU.
    millicpus: u64,
    begun: Stat,
    last: Stat,
}

/// The groups that limit the target.
#[derive(Debug, Default)]
struct CpuLimits(Vec<Cgroup>);

impl Keeper for CpuLimits {
    fn counters(&mut self, _: &Programs) -> Vec<(String, u64)> {
        self.look()
    }
}

impl CpuLimits {
    /// Those of a process. None where there is no limit, or its files cannot be read.
    fn of(pid: u32) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let groups = read(&format!("/proc/{pid}/cgroup"));
        let mounts = read("/proc/self/mountinfo");
        Self(
            folders(&groups, &mounts)
                .into_iter()
                .filter_map(|dir| {
                    let millicpus = limit(&dir)?;
                    let begun = stat(&dir)?;
                    Some(Cgroup {
                        dir,
                        millicpus,
                        begun,
                        last: begun,
                    })
                })
                .collect(),
        )
    }

    /// The recording's counters, of the group whose limit was reached most often so far.
    fn look(&mut self) -> Vec<(String, u64)> {
        for group in &mut self.0 {
            // A group may be gone before its last process is waited for: then what was counted last
            // is all.
            if let Some(stat) = stat(&group.dir) {
                group.last = stat;
            }
        }
        let since =
            |group: &Cgroup, of: fn(&Stat) -> u64| of(&group.last).saturating_sub(of(&group.begun));
        let most = self
            .0
            .iter()
            .max_by_key(|group| since(group, |stat| stat.throttled));
        let Some(group) = most else {
            return Vec::new();
        };
        [
            ("periods", since(group, |stat| stat.periods)),
            ("throttled-periods", since(group, |stat| stat.throttled)),
            ("throttled-ns", since(group, |stat| stat.throttled_ns)),
            ("millicpus", group.millicpus),
        ]
        .map(|(name, value)| (format!("cpu-limit.{name}"), value))
        .into()
    }
}

/// The folders of a process's group in the hierarchy that distributes CPU time, and of those above
/// it: from /proc/PID/cgroup, and the mounts of whoever reads them.
fn folders(groups: &str, mounts: &str) -> Vec<PathBuf> {
    let path_of = |wanted: &dyn Fn(&str) -> bool| {
        groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            wanted(controllers).then(|| path.to_owned())
        })
    };
    // In a mixed system version 1 has the controllers that version 2 lacks.
    let has_cpu = |list: &str| list.split(',').any(|name| name == "cpu");
    let (path, mount) = match path_of(&has_cpu) {
        Some(path) => (Some(path), mount(mounts, "cgroup", &has_cpu)),
        None => (path_of(&str::is_empty), mount(mounts, "cgroup2", &|_| true)),
    };
    let (Some(path), Some((root, point))) = (path, mount) else {
        return Vec::new();
    };
    // In a container only a part of the hierarchy is mounted, and named by its own root.
    let below = path
        .strip_prefix(root.trim_end_matches('/'))
        .unwrap_or(&path);
    let below = Path::new(below.trim_start_matches('/'));
    below
        .ancestors()
        .take(MAX_LEVELS)
        .map(|level| point.join(level))
        .collect()
}

/// The root and the mount point of the first hierarchy of a kind (proc_pid_mountinfo(5)).
fn mount(mounts: &str, kind: &str, options: &dyn Fn(&str) -> bool) -> Option<(String, PathBuf)> {
    mounts.lines().find_map(|line| {
        let (mount, filesystem) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let mut filesystem = filesystem.split(' ');
        let found = filesystem.next()? == kind && options(filesystem.nth(1)?);
        found.then(|| (root.to_owned(), PathBuf::from(point)))
    })
}

/// The group's limit in thousandths of a CPU; `None`: it has none.
fn limit(dir: &Path) -> Option<u64> {
    let number = |file: &str| -> Option<u64> {
        fs::read_to_string(dir.join(file)).ok()?.trim().parse().ok()
    };
    let (quota, period) = match fs::read_to_string(dir.join("cpu.max")) {
        Ok(max) => {
            let (quota, period) = max.trim().split_once(' ')?;
            (quota.parse().ok()?, period.parse().ok()?)
        }
        // Without a limit the quota is -1.
        Err(_) => (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?),
    };
    quota.checked_mul(1000_u64)?.checked_div(period)
}

fn stat(dir: &Path) -> Option<Stat> {
    let text = fs::read_to_string(dir.join("cpu.stat")).ok()?;
    let value = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line?.strip_prefix(' ')?.trim().parse().ok()
    };
    Some(Stat {
        periods: value("nr_periods")?,
        throttled: value("nr_throttled")?,
        throttled_ns: value("throttled_time")
            .or_else(|| value("throttled_usec").map(|us| us.saturating_mul(1000)))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS_1: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpuacct
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
";
    const MOUNTS_2: &str =
        "28 24 0:25 /pod /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    fn named(groups: &str, mounts: &str) -> Vec<String> {
        folders(groups, mounts)
            .iter()
            .map(|dir| dir.display().to_string())
            .collect()
    }

    #[test]
    fn a_group_lies_within_those_that_hold_it() {
        assert_eq!(
            named("2:cpuacct:/other\n1:cpu:/web/api\n0::/\n", MOUNTS_1),
            [
                "/sys/fs/cgroup/cpu/web/api",
                "/sys/fs/cgroup/cpu/web",
                "/sys/fs/cgroup/cpu/"
            ]
        );
        assert_eq!(
            named("0::/pod/app\n", MOUNTS_2),
            ["/sys/fs/cgroup/app", "/sys/fs/cgroup/"]
        );
        assert_eq!(named("", MOUNTS_1), [""; 0], "the process has gone");
        assert_eq!(named("0::/\n", ""), [""; 0], "nothing is mounted");
    }

    #[test]
    fn limits_and_counts_of_both_versions_are_read() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let write =
            |name: &str, text: &str| fs::write(dir.path().join(name), text).expect("written");
        assert_eq!((limit(dir.path()), stat(dir.path())), (None, None));
        write("cpu.cfs_quota_us", "-1\n");
        write("cpu.cfs_period_us", "100000\n");
        assert_eq!(limit(dir.path()), None, "no limit");
        write("cpu.cfs_quota_us", "30000\n");
        assert_eq!(limit(dir.path()), Some(300));
        write(
            "cpu.stat",
            "nr_periods 9\nnr_throttled 4\nthrottled_time 77\n",
        );
        let counted = Stat {
            periods: 9,
            throttled: 4,
            throttled_ns: 77,
        };
        assert_eq!(stat(dir.path()), Some(counted));
        write("cpu.max", "150000 100000\n");
        assert_eq!(limit(dir.path()), Some(1500));
        write("cpu.max", "max 100000\n");
        assert_eq!(limit(dir.path()), None, "no limit");
        write(
            "cpu.stat",
            "usage_usec 5\nnr_periods 9\nnr_throttled 4\nthrottled_usec 77\n",
        );
        assert_eq!(stat(dir.path()).map(|stat| stat.throttled_ns), Some(77_000));
    }

    #[test]
    fn what_a_group_counted_before_is_not_this_recordings() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let write = |throttled: u64| {
            let text = format!("nr_periods 100\nnr_throttled {throttled}\nthrottled_time 0\n");
            fs::write(dir.path().join("cpu.stat"), text).expect("written");
        };
        write(40);
        let begun = stat(dir.path()).expect("counts");
        let mut limits = CpuLimits(vec![Cgroup {
            dir: dir.path().to_owned(),
            millicpus: 300,
            begun,
            last: begun,
        }]);
        write(47);
        let throttled = |counters: &[(String, u64)]| counters[1].clone();
        assert_eq!(
            throttled(&limits.look()),
            ("cpu-limit.throttled-periods".to_owned(), 7)
        );
        fs::remove_file(dir.path().join("cpu.stat")).expect("removed");
        assert_eq!(throttled(&limits.look()).1, 7, "what was counted last");
        assert_eq!(CpuLimits::default().look(), []);
    }
}
