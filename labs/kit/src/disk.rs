//! What a lab's files are kept on.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::fs::statfs;

const DISKS: [(i64, &str); 3] = [
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
];
const TMPFS: i64 = 0x0102_1994;

/// Refuses a folder where a sync is not a wait for a disk.
pub fn require_disk(dir: &Path) -> Result<()> {
    let kind = kind(dir)?;
    let names = DISKS.map(|(_, name)| name).join(", ");
    ensure!(
        DISKS.iter().any(|(disk, _)| *disk == kind),
        "{} is on a filesystem of type {kind:#x}; this lab needs {names} \
         (LABS_DISK names another folder)",
        dir.display()
    );
    Ok(())
}

/// Refuses a folder that is not in memory.
pub fn require_memory(dir: &Path) -> Result<()> {
    ensure!(kind(dir)? == TMPFS, "{} is not in memory", dir.display());
    Ok(())
}

fn kind(dir: &Path) -> Result<i64> {
    let found = statfs(dir).with_context(|| format!("cannot look at {}", dir.display()))?;
    Ok(found.f_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_disk_is_refused() {
        for other in ["/proc", "/nowhere"] {
            assert!(require_disk(Path::new(other)).is_err());
            assert!(require_memory(Path::new(other)).is_err());
        }
    }
}
