//! Waits for block devices and file systems, also those whose data is with another machine or
//! process.

use whywait_events::Part;

use super::durable::{DEVICE_FLUSH, JOURNAL_BUSY, JOURNAL_COMMIT, JOURNAL_FULL};
use crate::waits::kind::{Rule, disk, lock, on};

/// Somebody wrote faster than the device does, or than is allowed.
pub(super) const THROTTLED: &[Rule] = &[
    disk(&["balance_dirty_pages*"], "dirty page throttling"),
    disk(&["wbt_wait"], "writeback throttling"),
    disk(
        &[
            "ioc_rqos_throttle",
            "blkcg_iolatency_throttle",
            "blkcg_maybe_throttle_current",
            "__blkcg_maybe_throttle_current",
            "blkcg_maybe_throttle_blkg",
            "blkcg_schedule_throttle",
        ],
        "I/O throttling (cgroup)",
    ),
    disk(&["rq_qos_wait"], "I/O throttling"),
];

/// File systems whose data is with another machine or process.
pub(super) const REMOTE: &[Rule] = &[
    lock(
        &["nfs_start_io_*", "nfs_file_write", "netfs_start_io_*"],
        "file lock (inode)",
    ),
    on(
        &[
            "nfs_*",
            "nfs3_*",
            "nfs4_*",
            "nlmclnt_*",
            "rpc_wait_bit_killable",
            "__rpc_execute",
            "rpc_wait_for_completion_task",
        ],
        "NFS",
        Part::Network,
    ),
    on(
        &[
            "cifs_*",
            "smb2_*",
            "compound_send_recv",
            "wait_for_response",
        ],
        "SMB",
        Part::Network,
    ),
    on(&["ceph_*"], "Ceph", Part::Network),
    on(&["p9_client_rpc", "v9fs_*"], "9P", Part::Network),
    // A write to /dev/fuse is the server's side.
    on(&["fuse_dev_do_read"], "FUSE server (idle)", Part::Unknown),
    disk(
        &[
            "request_wait_answer",
            "fuse_get_req",
            "fuse_block_alloc",
            "fuse_set_nowrite",
            "fuse_wait_*",
        ],
        "FUSE",
    ),
    disk(
        &[
            "folio_wait_bit*",
            "filemap_get_pages",
            "folio_wait_writeback",
        ],
        "FUSE",
    )
    .under(&["fuse_*"]),
];

/// Block devices and file systems.
pub(super) const DISK: &[Rule] = &[
    disk(JOURNAL_FULL, "journal full"),
    disk(JOURNAL_BUSY, "journal busy"),
    disk(JOURNAL_COMMIT, "journal commit"),
    disk(
        &[
            "wait_reserve_ticket",
            "handle_reserve_ticket",
            "__reserve_bytes",
        ],
        "space reservation (btrfs)",
    ),
    disk(
        &[
            "blk_mq_freeze_queue_wait",
            "blk_queue_enter",
            "__bio_queue_enter",
        ],
        "block I/O (device frozen)",
    ),
    disk(&["blk_mq_get_tag"], "block I/O (queue full)"),
    disk(
        &[
            "blkdev_issue_discard",
            "blkdev_issue_zeroout",
            "blk_ioctl_discard",
        ],
        "block I/O (discard)",
    ),
    disk(DEVICE_FLUSH, "block I/O (device flush)"),
    disk(
        &[
            "__iomap_dio_rw",
            "iomap_dio_rw",
            "__blkdev_direct_IO*",
            "blkdev_direct_IO",
            "__blockdev_direct_IO",
            "dio_await_one",
            "dio_await_completion",
        ],
        "block I/O (direct)",
    ),
    disk(
        &[
            "folio_wait_writeback*",
            "wait_on_page_writeback*",
            "folio_wait_stable",
            "__filemap_fdatawait_range",
            "filemap_fdatawait*",
            "wb_wait_for_completion",
            "btrfs_start_ordered_extent*",
            "btrfs_wait_ordered*",
        ],
        "writeback",
    ),
    disk(
        &[
            "filemap_read",
            "filemap_get_pages",
            "filemap_splice_read",
            "generic_file_read_iter",
            "generic_file_buffered_read",
            "filemap_update_page",
            "page_cache_ra_unbounded",
            "read_cache_folio",
            "*_readpage",
            "*_read_folio",
        ],
        "block I/O (file read)",
    ),
    // To change a part of a block the whole of it is read first.
    disk(
        &[
            "btrfs_buffered_write",
            "*_write_begin",
            "iomap_file_buffered_write",
            "generic_perform_write",
        ],
        "block I/O (file write)",
    ),
    disk(
        &[
            "ext4_read_bh*",
            "ext4_bread*",
            "__ext4_find_entry",
            "ext4_lookup",
            "__ext4_get_inode_loc",
            "__ext4_iget",
            "__ext4_sb_bread_gfp",
            "ext4_ext_map_blocks",
            "ext4_mb_*",
            "xfs_buf_*",
            "xfs_trans_read_buf_map",
            "xfs_iget",
            "read_extent_buffer_pages*",
            "btrfs_read_extent_buffer",
            "btrfs_search_slot",
            "btrfs_lookup*",
            "__bread_gfp",
            "bread_gfp",
        ],
        "block I/O (metadata)",
    ),
    disk(
        &[
            "submit_bio_wait",
            "blk_execute_rq*",
            "blk_wait_io",
            "folio_wait_bit*",
            "wait_on_page_bit*",
            "__folio_lock*",
            "__lock_page*",
            "__wait_on_buffer",
            "__lock_buffer",
            "read_events",
            "do_io_getevents",
            "io_schedule*",
        ],
        "block I/O",
    ),
];
