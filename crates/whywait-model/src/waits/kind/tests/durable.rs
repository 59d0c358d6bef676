use super::{D, DISK, IO, LOCK, check};

#[test]
fn an_fsync_says_which_step_it_is_in() {
    let writeback =
        "folio_wait_bit folio_wait_writeback __filemap_fdatawait_range file_write_and_wait_range";
    check(&[
        (
            D,
            "jbd2_log_wait_commit ext4_sync_file do_fsync __x64_sys_fsync",
            "fsync (journal commit)",
            DISK,
        ),
        (
            IO,
            &format!("{writeback} ext4_sync_file do_fsync __x64_sys_fsync"),
            "fsync (writeback)",
            DISK,
        ),
        (
            IO,
            "submit_bio_wait blkdev_issue_flush ext4_sync_file do_fsync __x64_sys_fdatasync",
            "fsync (device flush)",
            DISK,
        ),
        (
            IO,
            "folio_wait_bit folio_wait_writeback mpage_prepare_extent_to_map ext4_do_writepages \
             ext4_writepages do_writepages \
             filemap_fdatawrite_wbc __filemap_fdatawrite_range file_write_and_wait_range \
             ext4_sync_file do_fsync __x64_sys_fsync",
            "fsync (writeback)",
            DISK,
        ),
        (
            IO,
            "do_get_write_access jbd2_journal_get_write_access __ext4_journal_get_write_access \
             ext4_mb_mark_context \
             ext4_mb_mark_diskspace_used ext4_mb_new_blocks ext4_ext_map_blocks ext4_map_blocks \
             ext4_do_writepages \
             ext4_writepages do_writepages filemap_fdatawrite_wbc __filemap_fdatawrite_range \
             file_write_and_wait_range \
             ext4_sync_file do_fsync __x64_sys_fsync",
            "fsync (journal busy)",
            DISK,
        ),
        (
            IO,
            &format!(
                "{writeback} generic_buffers_fsync_noflush ext4_fsync_nojournal.constprop.0 \
                 ext4_sync_file do_fsync"
            ),
            "fsync (writeback)",
            DISK,
        ),
        (
            D,
            "jbd2_log_wait_commit ext4_sync_file __do_sys_msync",
            "fsync (journal commit)",
            DISK,
        ),
        // XFS.
        (
            D,
            "xlog_wait_on_iclog xfs_file_fsync do_fsync __x64_sys_fsync",
            "fsync (journal commit)",
            DISK,
        ),
        (
            D,
            "xlog_force_lsn xfs_log_force_seq xfs_file_fsync do_fsync __x64_sys_fsync",
            "fsync (journal commit)",
            DISK,
        ),
        (
            D,
            "__flush_workqueue xlog_cil_push_now.isra.0 xlog_cil_force_seq xfs_log_force_seq \
             xfs_file_fsync do_fsync __x64_sys_fsync",
            "fsync (journal commit)",
            DISK,
        ),
        (
            IO,
            "submit_bio_wait blkdev_issue_flush xfs_file_fsync do_fsync __x64_sys_fsync",
            "fsync (device flush)",
            DISK,
        ),
        // Btrfs.
        (
            D,
            "wait_log_commit btrfs_sync_log btrfs_sync_file do_fsync __x64_sys_fsync",
            "fsync (journal commit)",
            DISK,
        ),
        (
            D,
            "btrfs_sync_log btrfs_sync_file do_fsync __x64_sys_fsync",
            "fsync (journal commit)",
            DISK,
        ),
        (
            IO,
            "folio_wait_bit write_all_supers btrfs_commit_transaction btrfs_sync_file do_fsync \
             __x64_sys_fsync",
            "fsync (journal commit)",
            DISK,
        ),
        (
            IO,
            "folio_wait_bit folio_wait_writeback __filemap_fdatawait_range \
             filemap_fdatawait_range btrfs_sync_file do_fsync __x64_sys_fsync",
            "fsync (writeback)",
            DISK,
        ),
        (
            D,
            "btrfs_inode_lock btrfs_sync_file do_fsync __x64_sys_fsync",
            "fsync (inode lock)",
            LOCK,
        ),
        // Linux 5.15 has pages where later ones have folios.
        (
            IO,
            "wait_on_page_bit_common wait_on_page_bit wait_on_page_writeback \
             __filemap_fdatawait_range file_write_and_wait_range ext4_sync_file do_fsync",
            "fsync (writeback)",
            DISK,
        ),
    ]);
}

#[test]
fn other_calls_that_make_data_durable_are_not_fsync() {
    check(&[
        (
            D,
            "jbd2_log_wait_commit ext4_sync_file ext4_buffered_write_iter vfs_write ksys_write",
            "synchronous write (journal commit)",
            DISK,
        ),
        (
            IO,
            "submit_bio_wait blkdev_issue_flush ext4_sync_file ext4_buffered_write_iter vfs_write \
             __x64_sys_pwrite64",
            "synchronous write (device flush)",
            DISK,
        ),
        (
            IO,
            "folio_wait_bit folio_wait_writeback __filemap_fdatawait_range \
             file_write_and_wait_range xfs_file_fsync \
             xfs_file_buffered_write vfs_write __x64_sys_pwrite64",
            "synchronous write (writeback)",
            DISK,
        ),
        (
            D,
            "wait_log_commit btrfs_sync_log btrfs_sync_file btrfs_do_write_iter vfs_write \
             __x64_sys_pwrite64",
            "synchronous write (journal commit)",
            DISK,
        ),
        (
            D,
            "wb_wait_for_completion sync_inodes_sb __iterate_supers ksys_sync __do_sys_sync",
            "sync (writeback)",
            DISK,
        ),
        (
            D,
            "jbd2_log_wait_commit ext4_sync_fs __iterate_supers ksys_sync __do_sys_sync",
            "sync (journal commit)",
            DISK,
        ),
        (
            D,
            "xlog_wait_on_iclog xfs_fs_sync_fs __iterate_supers ksys_sync __do_sys_sync",
            "sync (journal commit)",
            DISK,
        ),
    ]);
}
