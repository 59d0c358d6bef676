use whywait_events::Part;

use super::{D, LOCK, S, check};

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
            "pipe write (pipe full)",
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
            "wait_for_partner fifo_open do_dentry_open vfs_open path_openat do_filp_open \
             do_sys_openat2",
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
            "poll_schedule_timeout.constprop.0 do_select core_sys_select do_pselect.constprop.0 \
             __x64_sys_pselect6",
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
