//! Whether a recording still grows: who writes it holds a lock on its folder, which the kernel lets
//! go of however the writer ends.

use std::fs::File;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Takes the lock, for as long as the folder is open. Where the file system has no such locks,
/// nobody can tell.
pub(crate) fn hold(folder: &File) {
    let _ = flock(folder, FlockOperation::NonBlockingLockExclusive);
}

/// Whether a recording is still being written. One that is not and is not complete was cut off.
pub fn is_growing(dir: &Path) -> bool {
    let folder = File::open(dir);
    folder.is_ok_and(|folder| {
        flock(folder, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
    })
}
