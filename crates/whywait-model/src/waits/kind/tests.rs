//! Stacks as they were recorded, on Linux 6.18 if nothing else is said.

use std::sync::Arc;

use whywait_events::ModuleKind;

use super::*;
use crate::stacks::Label;

/// As the recording has the state.
#[derive(Clone, Copy)]
enum Sleep {
    /// A signal would end it.
    Light,
    /// State D, and accounted as I/O.
    Io,
    /// State D.
    Deep,
}

const S: Sleep = Sleep::Light;
const IO: Sleep = Sleep::Io;
const D: Sleep = Sleep::Deep;

/// Innermost function first.
fn kind_of(state: Sleep, stack: &str) -> Option<WaitKind> {
    let wait = Wait {
        uninterruptible: !matches!(state, Sleep::Light),
        io_wait: matches!(state, Sleep::Io),
        ..Wait::default()
    };
    let label = |name: &str| Label {
        name: Arc::from(name),
        named: true,
        file: "".into(),
        line: 0,
        module: "[kernel]".into(),
        kind: ModuleKind::Kernel,
    };
    let stack = StackText {
        labels: stack
            .split_ascii_whitespace()
            .chain(["do_syscall_64", "entry_SYSCALL_64_after_hwframe"])
            .map(label)
            .collect(),
        truncated: false,
    };
    wait_kind(&wait, &stack)
}

#[track_caller]
fn check(rows: &[(Sleep, &str, &str, Option<Part>)]) {
    for (state, stack, name, part) in rows {
        let found = kind_of(*state, stack).map(|kind| (kind.name, kind.part));
        assert_eq!(found, Some((*name, *part)), "{stack}");
    }
}

const DISK: Option<Part> = Some(Part::Disk);
const LOCK: Option<Part> = Some(Part::Lock);
const FAULT: Option<Part> = Some(Part::PageFault);
const NET: Option<Part> = Some(Part::Network);

#[test]
fn an_fsync_says_which_step_it_is_in() {
    let writeback =
        "folio_wait_bit folio_wait_writeback __filemap_fdatawait_range file_write_and_wait_range";
    check(&[
        (
            D,
            "jbd2_log_wait_commit ext4_sync_file do_fsync __x64_sys_fsync",
            "fsync, journal commit",
            DISK,
        ),
        (
            IO,
            &format!("{writeback} ext4_sync_file do_fsync __x64_sys_fsync"),
            "fsync, writeback",
            DISK,
        ),
        (
            IO,
            "submit_bio_wait blkdev_issue_flush ext4_sync_file do_fsync __x64_sys_fdatasync",
            "fsync, device flush",
            DISK,
        ),
        (
            IO,
            "folio_wait_bit folio_wait_writeback mpage_prepare_extent_to_map ext4_do_writepages ext4_writepages do_writepages \
             filemap_fdatawrite_wbc __filemap_fdatawrite_range file_write_and_wait_range ext4_sync_file do_fsync __x64_sys_fsync",
            "fsync, writeback",
            DISK,
        ),
        (
            IO,
            "do_get_write_access jbd2_journal_get_write_access __ext4_journal_get_write_access ext4_mb_mark_context \
             ext4_mb_mark_diskspace_used ext4_mb_new_blocks ext4_ext_map_blocks ext4_map_blocks ext4_do_writepages \
             ext4_writepages do_writepages filemap_fdatawrite_wbc __filemap_fdatawrite_range file_write_and_wait_range \
             ext4_sync_file do_fsync __x64_sys_fsync",
            "fsync, journal busy",
            DISK,
        ),
        (
            IO,
            &format!(
                "{writeback} generic_buffers_fsync_noflush ext4_fsync_nojournal.constprop.0 ext4_sync_file do_fsync"
            ),
            "fsync, writeback",
            DISK,
        ),
        (
            D,
            "jbd2_log_wait_commit ext4_sync_file __do_sys_msync",
            "fsync, journal commit",
            DISK,
        ),
        // XFS.
        (
            D,
            "xlog_wait_on_iclog xfs_file_fsync do_fsync __x64_sys_fsync",
            "fsync, journal commit",
            DISK,
        ),
        (
            D,
            "xlog_force_lsn xfs_log_force_seq xfs_file_fsync do_fsync __x64_sys_fsync",
            "fsync, journal commit",
            DISK,
        ),
        (
            D,
            "__flush_workqueue xlog_cil_push_now.isra.0 xlog_cil_force_seq xfs_log_force_seq xfs_file_fsync do_fsync __x64_sys_fsync",
            "fsync, journal commit",
            DISK,
        ),
        (
            IO,
            "submit_bio_wait blkdev_issue_flush xfs_file_fsync do_fsync __x64_sys_fsync",
            "fsync, device flush",
            DISK,
        ),
        // Btrfs.
        (
            D,
            "wait_log_commit btrfs_sync_log btrfs_sync_file do_fsync __x64_sys_fsync",
            "fsync, journal commit",
            DISK,
        ),
        (
            D,
            "btrfs_sync_log btrfs_sync_file do_fsync __x64_sys_fsync",
            "fsync, journal commit",
            DISK,
        ),
        (
            IO,
            "folio_wait_bit write_all_supers btrfs_commit_transaction btrfs_sync_file do_fsync __x64_sys_fsync",
            "fsync, journal commit",
            DISK,
        ),
        (
            IO,
            "folio_wait_bit folio_wait_writeback __filemap_fdatawait_range filemap_fdatawait_range btrfs_sync_file do_fsync __x64_sys_fsync",
            "fsync, writeback",
            DISK,
        ),
        (
            D,
            "btrfs_inode_lock btrfs_sync_file do_fsync __x64_sys_fsync",
            "fsync, file lock (inode)",
            LOCK,
        ),
        // Linux 5.15 has pages where later ones have folios.
        (
            IO,
            "wait_on_page_bit_common wait_on_page_bit wait_on_page_writeback __filemap_fdatawait_range file_write_and_wait_range ext4_sync_file do_fsync",
            "fsync, writeback",
            DISK,
        ),
    ]);
}

#[test]
fn other_calls_that_make_data_durable_are_told_from_fsync() {
    check(&[
        (
            D,
            "jbd2_log_wait_commit ext4_sync_file ext4_buffered_write_iter vfs_write ksys_write",
            "synchronous write, journal commit",
            DISK,
        ),
        (
            IO,
            "submit_bio_wait blkdev_issue_flush ext4_sync_file ext4_buffered_write_iter vfs_write __x64_sys_pwrite64",
            "synchronous write, device flush",
            DISK,
        ),
        (
            IO,
            "folio_wait_bit folio_wait_writeback __filemap_fdatawait_range file_write_and_wait_range xfs_file_fsync \
             xfs_file_buffered_write vfs_write __x64_sys_pwrite64",
            "synchronous write, writeback",
            DISK,
        ),
        (
            D,
            "wait_log_commit btrfs_sync_log btrfs_sync_file btrfs_do_write_iter vfs_write __x64_sys_pwrite64",
            "synchronous write, journal commit",
            DISK,
        ),
        (
            D,
            "wb_wait_for_completion sync_inodes_sb __iterate_supers ksys_sync __do_sys_sync",
            "sync, writeback",
            DISK,
        ),
        (
            D,
            "jbd2_log_wait_commit ext4_sync_fs __iterate_supers ksys_sync __do_sys_sync",
            "sync, journal commit",
            DISK,
        ),
        (
            D,
            "xlog_wait_on_iclog xfs_fs_sync_fs __iterate_supers ksys_sync __do_sys_sync",
            "sync, journal commit",
            DISK,
        ),
    ]);
}

#[test]
fn a_file_that_another_thread_has_locked_is_no_io() {
    check(&[
        (
            D,
            "ext4_buffered_write_iter vfs_write __x64_sys_pwrite64",
            "file lock (inode)",
            LOCK,
        ),
        (
            D,
            "ext4_file_write_iter do_iter_readv_writev vfs_writev do_pwritev",
            "file lock (inode)",
            LOCK,
        ),
        (
            D,
            "ext4_file_read_iter do_iter_readv_writev vfs_readv do_preadv",
            "file lock (inode)",
            LOCK,
        ),
        (
            D,
            "xfs_ilock xfs_file_buffered_write vfs_write __x64_sys_pwrite64",
            "file lock (inode)",
            LOCK,
        ),
        (
            D,
            "btrfs_inode_lock btrfs_buffered_write btrfs_do_write_iter vfs_write __x64_sys_pwrite64",
            "file lock (inode)",
            LOCK,
        ),
        (
            D,
            "ext4_da_get_block_prep ext4_block_write_begin ext4_da_write_begin generic_perform_write ext4_buffered_write_iter \
             vfs_write __x64_sys_pwrite64",
            "file lock (inode)",
            LOCK,
        ),
        (D, "do_unlinkat __x64_sys_unlink", "file lock (inode)", LOCK),
        (
            D,
            "do_renameat2 __x64_sys_rename",
            "file lock (inode)",
            LOCK,
        ),
        (
            D,
            "path_openat do_filp_open do_sys_openat2 __x64_sys_openat",
            "file lock (inode)",
            LOCK,
        ),
        (D, "fdget_pos ksys_write", "file lock (position)", LOCK),
        (
            D,
            "xfs_buf_lock xfs_buf_find_lock xfs_buf_get_map xfs_buf_read_map xfs_trans_read_buf_map xfs_read_agi xfs_iunlink \
             xfs_dir_remove_child xfs_remove xfs_vn_unlink vfs_unlink do_unlinkat __x64_sys_unlink",
            "metadata lock",
            LOCK,
        ),
        (
            S,
            "locks_lock_inode_wait __do_sys_flock",
            "file lock (flock)",
            LOCK,
        ),
        (
            S,
            "fcntl_setlk do_fcntl __x64_sys_fcntl",
            "file lock (fcntl)",
            LOCK,
        ),
        (D, "vm_mmap_pgoff ksys_mmap_pgoff", "mmap lock", LOCK),
    ]);
}

#[test]
fn block_io_says_for_whom() {
    check(&[
        (
            IO,
            "__filemap_get_folio prepare_one_folio.constprop.0 btrfs_buffered_write btrfs_direct_write btrfs_do_write_iter vfs_writev",
            "block I/O, file write",
            DISK,
        ),
        (
            D,
            "btrfs_start_ordered_extent_nowriteback lock_and_cleanup_extent btrfs_buffered_write btrfs_do_write_iter vfs_write",
            "writeback",
            DISK,
        ),
        (
            IO,
            "folio_wait_bit_common filemap_get_pages filemap_read vfs_read ksys_read",
            "block I/O, file read",
            DISK,
        ),
        (
            IO,
            "__iomap_dio_rw iomap_dio_rw ext4_file_write_iter do_iter_readv_writev vfs_writev do_pwritev",
            "block I/O, direct",
            DISK,
        ),
        (
            IO,
            "__ext4_find_entry ext4_lookup path_openat do_filp_open do_sys_openat2 __x64_sys_openat",
            "block I/O, metadata",
            DISK,
        ),
        (
            IO,
            "ext4_read_bh ext4_bread __ext4_read_dirblock htree_dirblock_to_tree ext4_htree_fill_tree ext4_readdir iterate_dir \
             __x64_sys_getdents64",
            "block I/O, metadata",
            DISK,
        ),
        (
            IO,
            "submit_bio_wait blkdev_issue_discard ext4_free_blocks ext4_ext_remove_space ext4_ext_truncate ext4_truncate ext4_evict_inode evict do_unlinkat",
            "block I/O, discard",
            DISK,
        ),
        (
            IO,
            "__filemap_get_folio ext4_da_write_begin generic_perform_write ext4_buffered_write_iter vfs_write",
            "block I/O, file write",
            DISK,
        ),
        (
            IO,
            "do_get_write_access jbd2_journal_get_write_access __ext4_journal_get_write_access ext4_reserve_inode_write \
             __ext4_mark_inode_dirty ext4_dirty_inode __mark_inode_dirty generic_update_time file_update_time_flags \
             ext4_buffered_write_iter vfs_write __x64_sys_pwrite64",
            "journal busy",
            DISK,
        ),
        (
            IO,
            "rq_qos_wait wbt_wait __rq_qos_throttle blk_mq_submit_bio __submit_bio submit_bio_noacct_nocheck btrfs_submit_bio \
             btrfs_submit_chunk btrfs_submit_bbio btree_writepages do_writepages filemap_fdatawrite_wbc __filemap_fdatawrite_range \
             btrfs_write_marked_extents btrfs_sync_log btrfs_sync_file do_fsync __x64_sys_fsync",
            "writeback throttling",
            DISK,
        ),
        (
            D,
            "__reserve_bytes btrfs_reserve_metadata_bytes btrfs_delalloc_reserve_metadata btrfs_buffered_write btrfs_do_write_iter vfs_write",
            "space reservation (btrfs)",
            DISK,
        ),
        (
            D,
            "jbd2_log_wait_commit __jbd2_journal_force_commit jbd2_journal_force_commit_nested ext4_should_retry_alloc ext4_da_write_begin generic_perform_write ext4_buffered_write_iter vfs_write",
            "journal commit",
            DISK,
        ),
        (
            D,
            "wb_wait_for_completion __writeback_inodes_sb_nr try_to_writeback_inodes_sb ext4_nonda_switch ext4_da_write_begin generic_perform_write ext4_buffered_write_iter vfs_write",
            "writeback",
            DISK,
        ),
        (
            S,
            "request_wait_answer __fuse_simple_request fuse_lookup_name fuse_lookup __lookup_slow walk_component path_lookupat filename_lookup",
            "FUSE",
            DISK,
        ),
        (
            S,
            "fuse_dev_do_read fuse_dev_read vfs_read ksys_read",
            "FUSE server, idle",
            Some(Part::Unknown),
        ),
        (
            IO,
            "balance_dirty_pages balance_dirty_pages_ratelimited_flags generic_perform_write ext4_buffered_write_iter vfs_write ksys_write",
            "dirty page throttling",
            DISK,
        ),
        (IO, "a_driver_of_a_later_kernel", "block I/O", None),
    ]);
}

#[test]
fn a_page_fault_is_one_whatever_it_waits_for() {
    let fault = "__handle_mm_fault handle_mm_fault exc_page_fault asm_exc_page_fault";
    let under = |functions: &str| format!("{functions} {fault}");
    check(&[
        (
            IO,
            &under("folio_wait_bit_common filemap_fault __do_fault do_fault"),
            "page fault, file read",
            FAULT,
        ),
        // In a system call that reads the program's memory.
        (
            IO,
            &format!(
                "{} fault_in_readable ext4_buffered_write_iter vfs_write ksys_write",
                under("folio_wait_bit_common filemap_fault __do_fault do_fault")
            ),
            "page fault, file read",
            FAULT,
        ),
        (
            IO,
            &under("__folio_lock block_page_mkwrite ext4_page_mkwrite do_page_mkwrite do_wp_page"),
            "page fault, write to a mapped file",
            FAULT,
        ),
        (
            IO,
            &under(
                "balance_dirty_pages balance_dirty_pages_ratelimited_flags fault_dirty_shared_page do_fault",
            ),
            "page fault, dirty page throttling",
            FAULT,
        ),
        (
            IO,
            &under(
                "__folio_lock shmem_swapin_folio shmem_get_folio_gfp shmem_fault __do_fault do_fault",
            ),
            "swap in",
            FAULT,
        ),
        (
            IO,
            &under(
                "folio_wait_bit folio_wait_writeback shrink_folio_list shrink_lruvec shrink_node do_try_to_free_pages \
                 try_to_free_mem_cgroup_pages try_charge_memcg charge_memcg mem_cgroup_swapin_charge_folio __read_swap_cache_async \
                 swap_cluster_readahead shmem_swapin_folio shmem_get_folio_gfp shmem_fault __do_fault do_fault",
            ),
            "memory reclaim (cgroup)",
            FAULT,
        ),
        (
            D,
            "reclaim_throttle shrink_lruvec shrink_node do_try_to_free_pages try_to_free_mem_cgroup_pages try_charge_memcg charge_memcg \
             __mem_cgroup_charge filemap_add_folio page_cache_ra_unbounded filemap_readahead.isra.0 filemap_get_pages filemap_read vfs_read",
            "memory reclaim (cgroup)",
            FAULT,
        ),
        (
            D,
            &under(
                "reclaim_throttle shrink_node do_try_to_free_pages try_to_free_pages __alloc_pages_slowpath",
            ),
            "memory reclaim",
            FAULT,
        ),
        (
            D,
            "lock_mm_and_find_vma exc_page_fault asm_exc_page_fault",
            "page fault, mmap lock",
            LOCK,
        ),
        // What whywait itself does in the thread.
        (
            D,
            "lock_mm_and_find_vma exc_page_fault asm_exc_page_fault _copy_from_user bpf_copy_from_user \
             bpf_prog_c29632ea8989c5b8_leave_user_stack bpf_task_work_callback task_work_run exit_to_user_mode_loop",
            "being measured",
            Some(Part::Unknown),
        ),
    ]);
}

#[test]
fn sockets() {
    check(&[
        (
            S,
            "wait_woken sk_wait_data tcp_recvmsg_locked tcp_recvmsg sock_recvmsg __sys_recvfrom",
            "network receive (TCP)",
            NET,
        ),
        (
            S,
            "wait_woken sk_stream_wait_memory tcp_sendmsg_locked tcp_sendmsg __sys_sendto",
            "network send, buffer full",
            NET,
        ),
        (
            S,
            "wait_woken sk_stream_wait_memory tcp_sendmsg_locked tcp_sendmsg sock_sendmsg splice_to_socket direct_splice_actor \
             splice_direct_to_actor do_splice_direct do_sendfile __x64_sys_sendfile64",
            "network send, buffer full",
            NET,
        ),
        (
            S,
            "wait_woken sk_stream_wait_close __tcp_close tcp_close inet_release sock_close __fput __x64_sys_close",
            "close, unsent data",
            NET,
        ),
        (
            S,
            "__skb_wait_for_more_packets __skb_recv_udp udp_recvmsg sock_recvmsg __sys_recvfrom",
            "network receive (UDP)",
            NET,
        ),
        (
            S,
            "__skb_wait_for_more_packets __skb_recv_udp udpv6_recvmsg sock_recvmsg __sys_recvfrom",
            "network receive (UDP)",
            NET,
        ),
        (
            S,
            "unix_stream_read_generic unix_stream_recvmsg sock_recvmsg sock_read_iter vfs_read ksys_read",
            "unix receive",
            None,
        ),
        (
            S,
            "__skb_wait_for_more_packets __unix_dgram_recvmsg sock_recvmsg __sys_recvfrom",
            "unix receive",
            None,
        ),
        (
            S,
            "sock_alloc_send_pskb unix_stream_sendmsg __sys_sendto",
            "unix send, buffer full",
            None,
        ),
        (
            S,
            "unix_wait_for_peer unix_dgram_sendmsg __sys_sendto",
            "unix send, buffer full",
            None,
        ),
        (
            S,
            "unix_wait_for_peer unix_stream_connect __sys_connect",
            "connect, backlog full (unix)",
            None,
        ),
        (
            S,
            "wait_woken __inet_stream_connect inet_stream_connect __sys_connect",
            "connect",
            NET,
        ),
        (
            S,
            "inet_csk_accept inet_accept do_accept __sys_accept4",
            "accept",
            NET,
        ),
        (
            S,
            "__skb_wait_for_more_packets __skb_recv_datagram skb_recv_datagram unix_accept do_accept __sys_accept4",
            "accept",
            NET,
        ),
        (
            S,
            "__skb_wait_for_more_packets __skb_recv_datagram skb_recv_datagram netlink_recvmsg sock_recvmsg __sys_recvfrom",
            "netlink receive",
            None,
        ),
        (
            S,
            "__skb_wait_for_more_packets __skb_recv_datagram skb_recv_datagram packet_recvmsg sock_recvmsg __sys_recvfrom",
            "network receive (raw)",
            NET,
        ),
        (
            D,
            "synchronize_rcu_normal packet_release sock_close __fput __x64_sys_close",
            "RCU grace period",
            Some(Part::Unknown),
        ),
    ]);
}

#[test]
fn what_others_make_happen() {
    let unknown = Some(Part::Unknown);
    let thread = Some(Part::Thread);
    let timer = Some(Part::Timer);
    check(&[
        (S, "anon_pipe_read vfs_read ksys_read", "pipe read", None),
        (
            S,
            "anon_pipe_write vfs_write ksys_write",
            "pipe write, pipe full",
            None,
        ),
        (
            S,
            "pipe_wait_readable ipipe_prep.part.0 do_splice __do_splice __x64_sys_splice",
            "pipe read",
            None,
        ),
        (
            D,
            "anon_pipe_read vfs_read ksys_read",
            "kernel mutex (pipe)",
            LOCK,
        ),
        (
            S,
            "wait_for_partner fifo_open do_dentry_open vfs_open path_openat do_filp_open do_sys_openat2",
            "open of a FIFO",
            None,
        ),
        (
            S,
            "wait_woken inotify_read vfs_read ksys_read",
            "inotify",
            None,
        ),
        (
            S,
            "do_wait_intr_irq eventfd_read vfs_read ksys_read",
            "eventfd",
            None,
        ),
        (
            S,
            "do_wait_intr_irq timerfd_read_iter vfs_read ksys_read",
            "timerfd",
            timer,
        ),
        (S, "signalfd_read_iter vfs_read ksys_read", "signalfd", None),
        (
            S,
            "do_sigtimedwait.isra.0 __x64_sys_rt_sigtimedwait",
            "signal",
            None,
        ),
        (S, "__do_sys_pause", "signal", None),
        (
            S,
            "wait_woken n_tty_read tty_read vfs_read ksys_read",
            "terminal read",
            unknown,
        ),
        (
            S,
            "wait_woken n_tty_write file_tty_write.isra.0 vfs_write ksys_write",
            "terminal write",
            unknown,
        ),
        (S, "do_epoll_wait __x64_sys_epoll_wait", "epoll", None),
        (
            S,
            "poll_schedule_timeout.constprop.0 do_sys_poll __x64_sys_poll",
            "poll",
            None,
        ),
        (
            S,
            "poll_schedule_timeout.constprop.0 do_select core_sys_select do_pselect.constprop.0 __x64_sys_pselect6",
            "select",
            None,
        ),
        (
            S,
            "hrtimer_nanosleep common_nsleep __x64_sys_clock_nanosleep",
            "sleep",
            timer,
        ),
        // After a signal: `restart_syscall`.
        (S, "", "sleep", timer),
        (D, "kernel_clone __do_sys_vfork", "child (vfork)", thread),
        (
            S,
            "do_signal_stop get_signal arch_do_signal_or_restart exit_to_user_mode_loop",
            "stopped",
            unknown,
        ),
        (
            S,
            "get_signal arch_do_signal_or_restart exit_to_user_mode_loop",
            "frozen (cgroup)",
            unknown,
        ),
        (
            S,
            "kvm_vcpu_block kvm_vcpu_halt kvm_arch_vcpu_ioctl_run kvm_vcpu_ioctl __x64_sys_ioctl",
            "vCPU halted by its guest",
            unknown,
        ),
        (S, "do_wait kernel_wait4", "child", thread),
        (S, "do_wait kernel_waitid __do_sys_waitid", "child", thread),
        (S, "do_msgrcv", "message queue", thread),
        (
            S,
            "wq_sleep do_mq_timedsend __x64_sys_mq_timedsend",
            "message queue",
            thread,
        ),
        (
            S,
            "__do_semtimedop do_semtimedop",
            "semaphore (System V)",
            thread,
        ),
        (
            S,
            "io_cqring_wait __do_sys_io_uring_enter",
            "io_uring",
            Some(Part::Uring),
        ),
    ]);
}

#[test]
fn what_the_stack_does_not_tell_is_left_to_others() {
    assert_eq!(
        kind_of(
            S,
            "futex_do_wait __futex_wait futex_wait do_futex __x64_sys_futex"
        ),
        None
    );
    assert_eq!(
        kind_of(S, "futex_wait_queue futex_wait do_futex __x64_sys_futex"),
        None
    );
    assert_eq!(kind_of(D, "a_driver_of_a_later_kernel"), None);
    assert_eq!(wait_kind(&Wait::default(), &StackText::default()), None);
}
