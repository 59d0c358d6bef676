use whywait_events::Part;

use super::{D, DISK, IO, S, check};

#[test]
fn block_io_says_for_whom() {
    check(&[
        (
            IO,
            "__filemap_get_folio prepare_one_folio.constprop.0 btrfs_buffered_write \
             btrfs_direct_write btrfs_do_write_iter vfs_writev",
            "block I/O (file write)",
            DISK,
        ),
        (
            D,
            "btrfs_start_ordered_extent_nowriteback lock_and_cleanup_extent btrfs_buffered_write \
             btrfs_do_write_iter vfs_write",
            "writeback",
            DISK,
        ),
        (
            IO,
            "folio_wait_bit_common filemap_get_pages filemap_read vfs_read ksys_read",
            "block I/O (file read)",
            DISK,
        ),
        (
            IO,
            "__iomap_dio_rw iomap_dio_rw ext4_file_write_iter do_iter_readv_writev vfs_writev \
             do_pwritev",
            "block I/O (direct)",
            DISK,
        ),
        (
            IO,
            "__ext4_find_entry ext4_lookup path_openat do_filp_open do_sys_openat2 \
             __x64_sys_openat",
            "block I/O (metadata)",
            DISK,
        ),
        (
            IO,
            "ext4_read_bh ext4_bread __ext4_read_dirblock htree_dirblock_to_tree \
             ext4_htree_fill_tree ext4_readdir iterate_dir \
             __x64_sys_getdents64",
            "block I/O (metadata)",
            DISK,
        ),
        (
            IO,
            "submit_bio_wait blkdev_issue_discard ext4_free_blocks ext4_ext_remove_space \
             ext4_ext_truncate ext4_truncate ext4_evict_inode evict do_unlinkat",
            "block I/O (discard)",
            DISK,
        ),
        (
            IO,
            "__filemap_get_folio ext4_da_write_begin generic_perform_write \
             ext4_buffered_write_iter vfs_write",
            "block I/O (file write)",
            DISK,
        ),
        (
            IO,
            "do_get_write_access jbd2_journal_get_write_access __ext4_journal_get_write_access \
             ext4_reserve_inode_write \
             __ext4_mark_inode_dirty ext4_dirty_inode __mark_inode_dirty generic_update_time \
             file_update_time_flags \
             ext4_buffered_write_iter vfs_write __x64_sys_pwrite64",
            "journal busy",
            DISK,
        ),
        (
            IO,
            "rq_qos_wait wbt_wait __rq_qos_throttle blk_mq_submit_bio __submit_bio \
             submit_bio_noacct_nocheck btrfs_submit_bio \
             btrfs_submit_chunk btrfs_submit_bbio btree_writepages do_writepages \
             filemap_fdatawrite_wbc __filemap_fdatawrite_range \
             btrfs_write_marked_extents btrfs_sync_log btrfs_sync_file do_fsync __x64_sys_fsync",
            "writeback throttling",
            DISK,
        ),
        (
            D,
            "__reserve_bytes btrfs_reserve_metadata_bytes btrfs_delalloc_reserve_metadata \
             btrfs_buffered_write btrfs_do_write_iter vfs_write",
            "space reservation (btrfs)",
            DISK,
        ),
        (
            D,
            "jbd2_log_wait_commit __jbd2_journal_force_commit jbd2_journal_force_commit_nested \
             ext4_should_retry_alloc ext4_da_write_begin generic_perform_write \
             ext4_buffered_write_iter vfs_write",
            "journal commit",
            DISK,
        ),
        (
            D,
            "wb_wait_for_completion __writeback_inodes_sb_nr try_to_writeback_inodes_sb \
             ext4_nonda_switch ext4_da_write_begin generic_perform_write ext4_buffered_write_iter \
             vfs_write",
            "writeback",
            DISK,
        ),
        (
            S,
            "request_wait_answer __fuse_simple_request fuse_lookup_name fuse_lookup __lookup_slow \
             walk_component path_lookupat filename_lookup",
            "FUSE",
            DISK,
        ),
        (
            S,
            "fuse_dev_do_read fuse_dev_read vfs_read ksys_read",
            "FUSE server (idle)",
            Some(Part::Unknown),
        ),
        (
            IO,
            "balance_dirty_pages balance_dirty_pages_ratelimited_flags generic_perform_write \
             ext4_buffered_write_iter vfs_write ksys_write",
            "dirty page throttling",
            DISK,
        ),
        (IO, "a_driver_of_a_later_kernel", "block I/O", None),
    ]);
}
