//! Waits until written data is durable: fsync, sync, and writes to files opened with `O_SYNC`.

use super::locks::FILE_LOCK;
use crate::waits::kind::{Rule, disk, lock};

/// What makes written data durable takes these steps; a caller may be in each.
macro_rules! durable {
    ($name:literal, $call:expr, $in:expr) => {
        &[
            disk(JOURNAL_COMMIT, concat!($name, " (journal commit)"))
                .under($call)
                .under($in),
            disk(JOURNAL_FULL, concat!($name, " (journal full)"))
                .under($call)
                .under($in),
            disk(JOURNAL_BUSY, concat!($name, " (journal busy)"))
                .under($call)
                .under($in),
            disk(DEVICE_FLUSH, concat!($name, " (device flush)"))
                .under($call)
                .under($in),
            disk(METADATA, concat!($name, " (metadata)"))
                .under($call)
                .under($in),
            disk(WRITEBACK, concat!($name, " (writeback)"))
                .under($call)
                .under($in),
            lock(FILE_LOCK, concat!($name, " (inode lock)"))
                .under($call)
                .under($in),
            disk($call, $name).under($in),
        ]
    };
}

/// A write to a file opened with `O_SYNC` or `O_DSYNC`: the writing function calls that of fsync.
pub(super) const OSYNC: &[Rule] = durable!("synchronous write", FSYNC_CALL, WRITE);

const WRITE: &[&str] = &[
    "vfs_write",
    "vfs_writev",
    "do_iter_write",
    "vfs_iter_write",
    "do_iter_readv_writev",
    "iter_file_splice_write",
    "io_write",
    "aio_write",
    "iomap_dio_complete",
    "dio_complete",
];

pub(super) const FSYNC: &[Rule] = durable!("fsync", FSYNC_CALL, &[]);

const FSYNC_CALL: &[&str] = &[
    "do_fsync",
    "generic_write_sync",
    "__do_sys_msync",
    "vfs_fsync_range",
    "vfs_fsync",
    "__x64_sys_fsync",
    "__x64_sys_fdatasync",
    "io_fsync",
    "ext4_sync_file",
    "xfs_file_fsync",
    "btrfs_sync_file",
    "f2fs_sync_file",
    "blkdev_fsync",
];

pub(super) const SYNC: &[Rule] = durable!("sync", SYNC_CALL, &[]);

const SYNC_CALL: &[&str] = &[
    "ksys_sync",
    "sync_filesystem",
    "__sync_filesystem",
    "ksys_sync_file_range",
    "sync_file_range",
    "__do_sys_syncfs",
    "__x64_sys_syncfs",
];

/// The file system's journal or log goes to disk, with what other threads put into it.
pub(super) const JOURNAL_COMMIT: &[&str] = &[
    "jbd2_log_wait_commit",
    "jbd2_complete_transaction",
    "jbd2_journal_force_commit*",
    "jbd2_fc_begin_commit",
    "jbd2_fc_wait_bufs",
    "ext4_fc_commit",
    "ext4_force_commit",
    "xfs_log_force*",
    "xlog_wait_on_iclog*",
    "xlog_force_lsn",
    "xlog_state_*",
    "xlog_cil_force*",
    "xlog_cil_push_now",
    "btrfs_sync_log",
    "btrfs_log_*",
    "btrfs_commit_transaction*",
    "btrfs_wait_for_commit",
    "wait_for_commit",
    "wait_log_commit",
    "f2fs_write_checkpoint",
    "f2fs_issue_checkpoint",
];

/// A change waits until the journal takes it.
pub(super) const JOURNAL_FULL: &[&str] = &[
    "__jbd2_log_wait_for_space",
    "jbd2_log_do_checkpoint",
    "add_transaction_credits",
    "xlog_grant_head_wait",
    "xlog_grant_head_check",
    "xfs_log_reserve",
];

/// A change waits for the commit that has its block, or that is closing.
pub(super) const JOURNAL_BUSY: &[&str] = &[
    "do_get_write_access",
    "wait_transaction_locked",
    "wait_transaction_switching",
    "start_this_handle",
    "wait_current_trans",
];

/// The device writes out its own volatile cache.
pub(super) const DEVICE_FLUSH: &[&str] = &[
    "blkdev_issue_flush",
    "xfs_blkdev_issue_flush",
    "write_dev_flush",
    "barrier_all_devices",
];

/// The pages of the file go to disk.
const WRITEBACK: &[&str] = &[
    "folio_wait_writeback*",
    "wait_on_page_writeback*",
    "folio_wait_stable",
    "__filemap_fdatawait_range",
    "filemap_fdatawait*",
    "file_write_and_wait_range",
    "filemap_write_and_wait_range",
    "do_writepages",
    "wb_wait_for_completion",
    "sync_inodes_sb",
    "btrfs_wait_ordered_range",
    "btrfs_start_ordered_extent*",
    "btrfs_wait_ordered_extents",
];

/// Blocks of the file system itself.
const METADATA: &[&str] = &[
    "sync_inode_metadata",
    "write_inode_now",
    "writeback_single_inode",
    "sync_mapping_buffers",
    "sync_dirty_buffer",
    "__sync_dirty_buffer",
    "__wait_on_buffer",
];
