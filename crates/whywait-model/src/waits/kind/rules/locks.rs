//! Waits for locks that the kernel takes for a program, and for those on files that programs ask
//! for.

use whywait_events::Part;

use crate::waits::kind::rules::{INODE, MMAP};
use crate::waits::kind::{Rule, lock, on};

/// Functions that lock a file, or a folder to change or look up what is in it, and are the
/// innermost one when they wait.
pub(super) const FILE_LOCK: &[&str] = &[
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
pub(super) const LOCKS: &[Rule] = &[
    lock(FILE_LOCK, INODE),
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
    lock(MMAP_LOCK, MMAP),
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
