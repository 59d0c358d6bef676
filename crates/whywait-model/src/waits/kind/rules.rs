//! Which functions of the kernel tell what a sleep in them was for. The first rule that matches
//! says it, so the order of the groups, and of the rules in them, is part of what they say.

use whywait_events::Part;

use super::{Rule, State, disk, event, lock, on, rule};

/// The first rule that matches says what it is.
pub(super) const RULES: &[&[Rule]] = &[
    STOPPED, MEMORY, PAGE_FAULT, THROTTLED, REMOTE, OSYNC, FSYNC, SYNC, LOCKS, DISK, NETWORK,
    EVENTS, REST,
];

/// Not waiting for anything of its own.
const STOPPED: &[Rule] = &[
    // A recorder such as whywait reads the thread's stack, before the thread returns to its
    // program.
    on(
        &["bpf_task_work_callback", "bpf_task_work_irq"],
        "being measured",
        Part::Unknown,
    ),
    on(
        &["do_signal_stop", "ptrace_stop", "do_jobctl_trap"],
        "stopped",
        Part::Unknown,
    ),
    // The freezer of cgroups, version 2 and 1.
    on(
        &["cgroup_enter_frozen", "do_freezer_trap", "__refrigerator"],
        "frozen (cgroup)",
        Part::Unknown,
    ),
    on(
        &["do_coredump", "vfs_coredump", "coredump_task_exit"],
        "core dump",
        Part::Unknown,
    ),
    // The freezer again, inlined.
    rule(
        &["get_signal"],
        State::Innermost,
        "frozen (cgroup)",
        Some(Part::Unknown),
    ),
];

/// Memory is short. What it delays is the page fault or the call that wants memory; which of them,
/// the stack shows.
const MEMORY: &[Rule] = &[
    on(
        &[
            "mem_cgroup_handle_over_high",
            "__mem_cgroup_handle_over_high",
        ],
        "memory throttling (cgroup)",
        Part::PageFault,
    ),
    on(
        &[
            "mem_cgroup_oom_synchronize",
            "mem_cgroup_out_of_memory",
            "out_of_memory",
        ],
        "out of memory",
        Part::PageFault,
    ),
    on(
        &["try_to_free_mem_cgroup_pages"],
        "memory reclaim (cgroup)",
        Part::PageFault,
    ),
    on(
        &[
            "try_to_free_pages",
            "throttle_direct_reclaim",
            "reclaim_throttle",
            "__alloc_pages_direct_reclaim",
            "shrink_node",
            "shrink_lruvec",
        ],
        "memory reclaim",
        Part::PageFault,
    ),
    on(
        &["try_to_compact_pages", "__alloc_pages_direct_compact"],
        "memory compaction",
        Part::PageFault,
    ),
    on(
        &[
            "do_swap_page",
            "swap_readpage",
            "swap_read_folio",
            "swapin_readahead",
            "shmem_swapin_folio",
        ],
        "swap in",
        Part::PageFault,
    ),
];

/// Taken in user mode, or in a call that touches the program's memory. Whatever it waits for, it is
/// a page fault to the program.
const FAULT: &[&str] = &[
    "asm_exc_page_fault",
    "exc_page_fault",
    "do_user_addr_fault",
    "do_page_fault",
    "handle_mm_fault",
    "__handle_mm_fault",
    "faultin_page",
    // arm64
    "do_mem_abort",
];

const PAGE_FAULT: &[Rule] = &[
    // As a guest: the host fetches the page.
    on(
        &["kvm_async_pf_task_wait_schedule", "__kvm_handle_async_pf"],
        "page fault, in the host",
        Part::PageFault,
    ),
    on(
        &["handle_userfault"],
        "page fault, userfaultfd",
        Part::PageFault,
    ),
    // A thread that maps or unmaps memory, or forks, has the address space.
    lock(
        &[
            "lock_mm_and_find_vma",
            "get_mmap_lock_carefully",
            "do_user_addr_fault",
            "exc_page_fault",
            "do_page_fault",
            "mmap_read_lock",
            "lock_vma_under_rcu",
        ],
        "page fault, mmap lock",
    )
    .under(FAULT),
    on(
        &["balance_dirty_pages*", "fault_dirty_shared_page"],
        "page fault, dirty page throttling",
        Part::PageFault,
    )
    .under(FAULT),
    on(
        &[
            "migration_entry_wait*",
            "do_numa_page",
            "do_huge_pmd_numa_page",
        ],
        "page fault, page migration",
        Part::PageFault,
    )
    .under(FAULT),
    on(
        &["do_page_mkwrite", "*_page_mkwrite"],
        "page fault, write to a mapped file",
        Part::PageFault,
    )
    .under(FAULT),
    on(
        &["fuse_*", "request_wait_answer"],
        "page fault, FUSE",
        Part::PageFault,
    )
    .under(FAULT),
    on(
        &["nfs_*", "rpc_wait_bit_killable"],
        "page fault, NFS",
        Part::PageFault,
    )
    .under(FAULT),
    on(
        &[
            "filemap_fault",
            "*_filemap_fault",
            "__folio_lock_or_retry",
            "filemap_map_pages",
            "shmem_fault",
        ],
        "page fault, file read",
        Part::PageFault,
    )
    .under(FAULT),
    on(FAULT, "page fault", Part::PageFault),
];

/// Somebody wrote faster than the device does, or than is allowed.
const THROTTLED: &[Rule] = &[
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
const REMOTE: &[Rule] = &[
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
    on(&["fuse_dev_do_read"], "FUSE server, idle", Part::Unknown),
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

/// What makes written data durable takes these steps; a caller may be in each.
macro_rules! durable {
    ($name:literal, $call:expr, $in:expr) => {
        &[
            disk(JOURNAL_COMMIT, concat!($name, ", journal commit"))
                .under($call)
                .under($in),
            disk(JOURNAL_FULL, concat!($name, ", journal full"))
                .under($call)
                .under($in),
            disk(JOURNAL_BUSY, concat!($name, ", journal busy"))
                .under($call)
                .under($in),
            disk(DEVICE_FLUSH, concat!($name, ", device flush"))
                .under($call)
                .under($in),
            disk(METADATA, concat!($name, ", metadata"))
                .under($call)
                .under($in),
            disk(WRITEBACK, concat!($name, ", writeback"))
                .under($call)
                .under($in),
            lock(FILE_LOCK, concat!($name, ", file lock (inode)"))
                .under($call)
                .under($in),
            disk($call, $name).under($in),
        ]
    };
}

/// A write to a file opened with `O_SYNC` or `O_DSYNC`: the writing function calls that of fsync.
const OSYNC: &[Rule] = durable!("synchronous write", FSYNC_CALL, WRITE);

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

const FSYNC: &[Rule] = durable!("fsync", FSYNC_CALL, &[]);

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

const SYNC: &[Rule] = durable!("sync", SYNC_CALL, &[]);

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
const JOURNAL_COMMIT: &[&str] = &[
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
const JOURNAL_FULL: &[&str] = &[
    "__jbd2_log_wait_for_space",
    "jbd2_log_do_checkpoint",
    "add_transaction_credits",
    "xlog_grant_head_wait",
    "xlog_grant_head_check",
    "xfs_log_reserve",
];

/// A change waits for the commit that has its block, or that is closing.
const JOURNAL_BUSY: &[&str] = &[
    "do_get_write_access",
    "wait_transaction_locked",
    "wait_transaction_switching",
    "start_this_handle",
    "wait_current_trans",
];

/// The device writes out its own volatile cache.
const DEVICE_FLUSH: &[&str] = &[
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

/// Functions that lock a file, or a folder to change or look up what is in it, and are the
/// innermost one when they wait.
const FILE_LOCK: &[&str] = &[
    // Files.
    "*_file_write_iter",
    "*_file_read_iter",
    "*_buffered_write_iter",
    "*_file_buffered_write",
    "*_file_buffered_read",
    "*_dio_write_iter",
    "*_dio_read_iter",
    "xfs_ilock*",
    "xfs_file_*",
    "*_iomap_begin",
    "btrfs_inode_lock",
    "btrfs_direct_write",
    "btrfs_buffered_write",
    "inode_lock*",
    "ext4_map_blocks",
    "ext4_da_map_blocks*",
    "ext4_da_get_block_prep",
    "ext4_truncate",
    "ext4_fallocate",
    "*_sync_file",
    "__generic_file_fsync",
    "generic_buffers_fsync_noflush",
    "do_truncate",
    "vfs_fallocate",
    "vfs_setxattr*",
    "chmod_common",
    "chown_common",
    "vfs_utimes",
    "generic_file_llseek*",
    "*_file_llseek",
    // Folders.
    "path_openat",
    "open_last_lookups",
    "filename_create",
    "start_dirop",
    "__start_dirop",
    "lookup_slow",
    "d_alloc_parallel",
    "do_unlinkat",
    "do_rmdir",
    "do_renameat2",
    "lock_rename*",
    "lock_two_*",
    "iterate_dir",
    "kern_path_locked*",
];

/// The address space is locked for a change.
const MMAP_LOCK: &[&str] = &[
    "vm_mmap_pgoff",
    "vm_munmap",
    "__vm_munmap",
    "__do_sys_brk",
    "__x64_sys_brk",
    "__do_sys_mremap",
    "__x64_sys_mremap",
    "do_mprotect_pkey",
    "do_madvise*",
    "madvise_*",
    "dup_mmap",
    "dup_mm",
    "exit_mmap",
    "mmap_write_lock_killable",
    "mmap_read_lock_killable",
    "__vma_start_write",
    "__vma_enter_locked",
    "do_mlock",
    "proc_pid_cmdline_read",
    "m_start",
    "get_user_pages_unlocked",
    "__get_user_pages_locked",
    "__gup_longterm_locked",
    "internal_get_user_pages_fast",
    "gup_fast_fallback",
];

/// Locks that the kernel holds on a program's behalf, and those that programs ask for.
const LOCKS: &[Rule] = &[
    lock(FILE_LOCK, "file lock (inode)"),
    // Calls that use a descriptor's position, as read and write, exclude each other.
    lock(&["fdget_pos", "__fdget_pos"], "file lock (position)"),
    lock(
        &["btrfs_lock_extent_bits", "btrfs_lock_extent"],
        "file lock (range)",
    ),
    on(
        &[
            "xfs_buf_lock",
            "btrfs_tree_lock*",
            "btrfs_tree_read_lock*",
            "btrfs_lock_root_node",
            "btrfs_read_lock_root_node",
        ],
        "metadata lock",
        Part::Lock,
    ),
    lock(MMAP_LOCK, "mmap lock"),
    on(
        &["flock_lock_inode_wait", "__do_sys_flock", "__x64_sys_flock"],
        "file lock (flock)",
        Part::Lock,
    ),
    on(
        &[
            "fcntl_setlk",
            "fcntl_setlk64",
            "do_lock_file_wait",
            "posix_lock_inode_wait",
            "locks_lock_inode_wait",
        ],
        "file lock (fcntl)",
        Part::Lock,
    ),
    on(&["__break_lease"], "file lock (lease)", Part::Lock),
    lock(
        &[
            "do_epoll_ctl",
            "__x64_sys_epoll_ctl",
            "ep_send_events",
            "do_epoll_wait",
        ],
        "kernel mutex (epoll)",
    ),
    lock(
        &[
            "pipe_read",
            "pipe_write",
            "anon_pipe_read",
            "anon_pipe_write",
            "fifo_pipe_read",
            "fifo_pipe_write",
            "splice_*",
            "iter_file_splice_write",
            "pipe_double_lock",
        ],
        "kernel mutex (pipe)",
    ),
    lock(
        &[
            "n_tty_read",
            "n_tty_write",
            "tty_write_lock",
            "iterate_tty_write",
            "file_tty_write",
        ],
        "kernel mutex (terminal)",
    ),
    lock(
        &[
            "unix_stream_read_generic",
            "unix_dgram_recvmsg",
            "__unix_dgram_recvmsg",
        ],
        "kernel mutex (unix socket)",
    ),
    on(&["__lock_sock"], "kernel lock (socket)", Part::Lock),
    lock(
        &[
            "io_uring_enter",
            "__do_sys_io_uring_enter",
            "__io_cqring_overflow_flush",
            "io_handle_tw_list",
            "io_iopoll_check",
        ],
        "kernel mutex (io_uring)",
    ),
    lock(&["kvm_vm_ioctl*", "kvm_vcpu_ioctl*"], "kernel mutex (KVM)"),
    on(&["percpu_rwsem_wait"], "kernel lock", Part::Lock),
    // Of the scheduler's own functions; they are only in stacks that were not taken from a sleeping
    // thread.
    on(
        &["__mutex_lock*", "rt_mutex_slowlock*"],
        "kernel mutex",
        Part::Lock,
    ),
    on(&["rwsem_down_*"], "kernel lock", Part::Lock),
];

/// Block devices and file systems.
const DISK: &[Rule] = &[
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
        "block I/O, device frozen",
    ),
    disk(&["blk_mq_get_tag"], "block I/O, queue full"),
    disk(
        &[
            "blkdev_issue_discard",
            "blkdev_issue_zeroout",
            "blk_ioctl_discard",
        ],
        "block I/O, discard",
    ),
    disk(DEVICE_FLUSH, "block I/O, device flush"),
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
        "block I/O, direct",
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
        "block I/O, file read",
    ),
    // To change a part of a block the whole of it is read first.
    disk(
        &[
            "btrfs_buffered_write",
            "*_write_begin",
            "iomap_file_buffered_write",
            "generic_perform_write",
        ],
        "block I/O, file write",
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
        "block I/O, metadata",
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

/// Sockets.
const NETWORK: &[Rule] = &[
    on(
        &[
            "inet_csk_accept",
            "inet_csk_wait_for_connect",
            "unix_accept",
            "vsock_accept",
            "mptcp_stream_accept",
            "sctp_accept",
        ],
        "accept",
        Part::Network,
    ),
    event(&["unix_stream_connect"], "connect, backlog full (unix)"),
    on(
        &[
            "inet_wait_for_connect",
            "__inet_stream_connect",
            "inet_stream_connect",
            "sctp_wait_for_connect",
            "vsock_connect",
        ],
        "connect",
        Part::Network,
    ),
    // TCP, TLS.
    on(
        &[
            "sk_stream_wait_memory",
            "sk_stream_wait_connect",
            "tls_sw_sendmsg",
            "mptcp_sendmsg",
            "sctp_wait_for_sndbuf",
            "vsock_connectible_sendmsg",
        ],
        "network send, buffer full",
        Part::Network,
    ),
    event(
        &[
            "unix_wait_for_peer",
            "unix_stream_sendmsg",
            "unix_dgram_sendmsg",
        ],
        "unix send, buffer full",
    ),
    on(
        &["sock_alloc_send_pskb", "sock_wait_for_wmem"],
        "network send, buffer full",
        Part::Network,
    ),
    on(
        &["sk_stream_wait_close", "inet_csk_listen_stop"],
        "close, unsent data",
        Part::Network,
    ),
    on(
        &["udp_recvmsg", "udpv6_recvmsg", "__skb_recv_udp"],
        "network receive (UDP)",
        Part::Network,
    ),
    event(
        &[
            "unix_stream_read_generic",
            "unix_stream_data_wait",
            "unix_stream_recvmsg",
            "unix_dgram_recvmsg",
            "__unix_dgram_recvmsg",
            "unix_seqpacket_recvmsg",
        ],
        "unix receive",
    ),
    event(&["netlink_recvmsg"], "netlink receive"),
    on(
        &["tls_sw_recvmsg", "tls_rx_rec_wait", "tls_sw_splice_read"],
        "network receive (TLS)",
        Part::Network,
    ),
    on(
        &[
            "tcp_recvmsg",
            "tcp_recvmsg_locked",
            "tcp_splice_read",
            "mptcp_recvmsg",
        ],
        "network receive (TCP)",
        Part::Network,
    ),
    on(
        &[
            "vsock_connectible_recvmsg",
            "vsock_connectible_wait_data",
            "vsock_dgram_recvmsg",
        ],
        "network receive (vsock)",
        Part::Network,
    ),
    on(
        &["packet_recvmsg", "raw_recvmsg", "rawv6_recvmsg"],
        "network receive (raw)",
        Part::Network,
    ),
    on(
        &[
            "sk_wait_data",
            "__skb_wait_for_more_packets",
            "sock_recvmsg",
            "__sys_recvfrom",
            "___sys_recvmsg",
        ],
        "network receive",
        Part::Network,
    ),
];

/// What other threads, processes, people and clocks make happen.
const EVENTS: &[Rule] = &[
    on(
        &["hrtimer_nanosleep", "common_nsleep*", "alarm_timer_nsleep"],
        "sleep",
        Part::Timer,
    ),
    // What goes on with a sleep after a signal belongs to the scheduler, and leaves only what
    // called it.
    rule(
        &["do_syscall_64", "invoke_syscall"],
        State::Innermost,
        "sleep",
        Some(Part::Timer),
    ),
    on(
        &["timerfd_read", "timerfd_read_iter"],
        "timerfd",
        Part::Timer,
    ),
    event(&["ep_poll", "do_epoll_wait", "do_epoll_pwait"], "epoll"),
    event(&["do_poll", "do_sys_poll"], "poll"),
    event(&["do_select", "core_sys_select"], "select"),
    event(&["wait_for_partner", "fifo_open"], "open of a FIFO"),
    event(
        &[
            "pipe_read",
            "anon_pipe_read",
            "fifo_pipe_read",
            "pipe_wait_readable",
            "ipipe_prep",
        ],
        "pipe read",
    ),
    event(
        &[
            "pipe_write",
            "anon_pipe_write",
            "fifo_pipe_write",
            "pipe_wait_writable",
            "opipe_prep",
            "wait_for_space",
        ],
        "pipe write, pipe full",
    ),
    event(&["eventfd_read", "eventfd_write"], "eventfd"),
    event(&["inotify_read"], "inotify"),
    event(&["fanotify_read"], "fanotify"),
    // A scanner of files has not allowed it yet.
    on(
        &["fanotify_handle_event", "fanotify_get_response"],
        "fanotify, permission",
        Part::Thread,
    ),
    event(
        &[
            "userfaultfd_read",
            "userfaultfd_read_iter",
            "userfaultfd_ctx_read",
        ],
        "userfaultfd",
    ),
    event(
        &["signalfd_read", "signalfd_read_iter", "signalfd_dequeue"],
        "signalfd",
    ),
    event(
        &[
            "do_sigtimedwait",
            "sigsuspend",
            "__do_sys_pause",
            "__x64_sys_pause",
        ],
        "signal",
    ),
    on(
        &["do_wait", "kernel_wait4", "kernel_waitid"],
        "child",
        Part::Thread,
    ),
    // Until the child has exited or become another program.
    on(&["wait_for_vfork_done"], "child (vfork)", Part::Thread),
    rule(
        &["kernel_clone"],
        State::Innermost,
        "child (vfork)",
        Some(Part::Thread),
    ),
    rule(
        &["n_tty_read"],
        State::Interruptible,
        "terminal read",
        Some(Part::Unknown),
    ),
    on(
        &["n_tty_write", "tty_wait_until_sent", "tty_send_xchar"],
        "terminal write",
        Part::Unknown,
    ),
    on(
        &[
            "do_msgrcv",
            "do_msgsnd",
            "do_mq_timedreceive",
            "do_mq_timedsend",
            "wq_sleep",
        ],
        "message queue",
        Part::Thread,
    ),
    on(
        &["do_semtimedop", "__do_semtimedop"],
        "semaphore (System V)",
        Part::Thread,
    ),
    on(
        &["io_cqring_wait", "io_cqring_schedule_timeout"],
        "io_uring",
        Part::Uring,
    ),
    on(&["io_wq_worker"], "io_uring worker, idle", Part::Unknown),
    on(&["io_sq_thread"], "io_uring poller, idle", Part::Unknown),
    // The guest has nothing to do on this CPU. What ends that is a timer, a device or another CPU
    // of the guest's; the host cannot tell which.
    on(
        &["kvm_vcpu_halt", "kvm_vcpu_block", "kvm_vcpu_check_block"],
        "vCPU halted by its guest",
        Part::Unknown,
    ),
];

/// Things of the kernel's own.
const REST: &[Rule] = &[
    on(
        &[
            "synchronize_rcu*",
            "__wait_rcu_gp",
            "wait_rcu_exp_gp",
            "exp_funnel_lock",
            "rcu_barrier",
            "synchronize_srcu*",
            "__synchronize_srcu",
        ],
        "RCU grace period",
        Part::Unknown,
    ),
    on(
        &[
            "__flush_work*",
            "flush_work",
            "__flush_workqueue",
            "__lru_add_drain_all",
        ],
        "kernel work queue",
        Part::Unknown,
    ),
    on(&["wait_for_random_bytes"], "randomness", Part::Unknown),
    on(
        &[
            "dma_fence_*",
            "drm_ioctl",
            "drm_syncobj_*",
            "amdgpu_*",
            "i915_*",
            "nvidia_*",
            "uvm_*",
            "kfd_*",
        ],
        "GPU",
        Part::Unknown,
    ),
];
