//! Waits for what other threads, processes, people and clocks make happen.

use whywait_events::Part;

use crate::waits::kind::{Rule, State, event, on, rule};

/// What other threads, processes, people and clocks make happen.
pub(super) const EVENTS: &[Rule] = &[
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
        "pipe write (pipe full)",
    ),
    event(&["eventfd_read", "eventfd_write"], "eventfd"),
    event(&["inotify_read"], "inotify"),
    event(&["fanotify_read"], "fanotify"),
    // A scanner of files has not allowed it yet.
    on(
        &["fanotify_handle_event", "fanotify_get_response"],
        "fanotify (permission)",
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
    on(&["io_wq_worker"], "io_uring worker (idle)", Part::Unknown),
    on(&["io_sq_thread"], "io_uring poller (idle)", Part::Unknown),
    // The guest has nothing to do on this CPU. What ends that is a timer, a device or another CPU
    // of the guest's; the host does not know which.
    on(
        &["kvm_vcpu_halt", "kvm_vcpu_block", "kvm_vcpu_check_block"],
        "vCPU halted by its guest",
        Part::Unknown,
    ),
];
