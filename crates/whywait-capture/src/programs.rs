//! The BPF programs: options set, loaded, attached, taken off.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use libbpf_rs::btf::Btf;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{ErrorKind, Link, MapHandle, MapType, Object, OpenMapMut, ProgramMut};

use crate::clock::{Clock, DENSE_CLOCK_NS};
use crate::error::{CaptureError, one_line};
use crate::options::Options;
use crate::skel::{WhywaitSkel, WhywaitSkelBuilder};
use crate::{kernel, urings};

/// Shorter sleeps end before a sweep would see them.
const SWEEP_MIN_NS: u64 = 4_000_000;

/// The loaded programs.
pub(crate) struct Programs {
    pub(crate) skel: WhywaitSkel<'static>,
    attached: Vec<Link>,
    clock: Clock,
    /// Tracepoints of io_uring that this kernel does not have.
    lacking: Vec<&'static str>,
    /// The kernel has the tracepoint that bursts need.
    pub(crate) bursts_possible: bool,
    /// The kernel has the tracepoints that requests are seen by.
    sockets_possible: bool,
    /// A thread can leave its stack whatever it slept in.
    pub(crate) user_stacks_exact: bool,
    /// What this kernel could not give, for the recording's notes.
    pub(crate) notes: Vec<String>,
}

/// What requests are seen by: these (Linux 6.3), or none of them.
const SOCKET_PROGRAMS: [&str; 4] = [
    "inet_sock_set_state",
    "sk_data_ready",
    "sock_recv_length",
    "sock_send_length",
];

/// The sweep reads the stack of a thread that has slept for this long.
pub(crate) fn sweep_min_ns(options: &Options) -> u64 {
    options.threshold_ns.max(SWEEP_MIN_NS)
}

impl Programs {
    /// Loads the programs; nothing runs yet.
    pub(crate) fn load(options: &Options) -> Result<Self, CaptureError> {
        // libbpf's own messages are long and meant for its developers; what went wrong comes back
        // as an error.
        libbpf_rs::set_print(None);
        if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
            return Err(CaptureError::NoBtf);
        }
        let mut notes = Vec::new();
        let btf = Btf::from_vmlinux().map_err(|error| load_error(&error))?;
        // One object for the life of the process: the skeleton borrows from it.
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = WhywaitSkelBuilder::default()
            .open(storage)
            .map_err(|error| load_error(&error))?;
        let user_stacks_exact = !options.no_task_work && kernel::leaves_user_stacks(&btf);
        if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
            rodata.threshold_ns = options.threshold_ns;
            rodata.sweep_min_ns = sweep_min_ns(options);
            // One piece more than asked for, as the last piece of a copy is given up when it would
            // not fit.
            rodata.stack_bytes = options.stack_bytes;
            rodata.dense_clock_ns = DENSE_CLOCK_NS;
            rodata.hooks_do_nothing = options.hooks_do_nothing;
            rodata.untraced_process = options.untraced_process.unwrap_or(0);
            rodata.user_stacks_exact = user_stacks_exact;
            rodata.complete_passes_cqe = urings::complete_passes_cqe(&btf);
            rodata.switch_passes_state = kernel::switch_passes_state(&btf);
            let from_runqueue = kernel::from_runqueue(&btf);
            if let Some(distance) = from_runqueue.steal {
                rodata.steal_known = true;
                rodata.steal_from_runqueue = distance;
            }
            match from_runqueue.preempt_count {
                Some(distance) => {
                    rodata.preempt_count_known = true;
                    rodata.preempt_count_from_runqueue = distance;
                }
                None => notes
                    .push("this kernel does not tell in which context a wake is made".to_owned()),
            }
        }
        let lacking = urings::lacking(&btf);
        for (tracepoint, without) in &lacking {
            notes.push(format!(
                "this kernel has no tracepoint {tracepoint}: {without}"
            ));
        }
        let sockets_possible = match SOCKET_PROGRAMS
            .iter()
            .find(|tracepoint| !kernel::has_tracepoint(&btf, tracepoint))
        {
            Some(tracepoint) => {
                notes.push(format!(
                    "this kernel has no tracepoint {tracepoint} (Linux 6.3 has): requests are not seen, only threads and what they wait for"
                ));
                false
            }
            None => true,
        };
        for mut program in open.open_object_mut().progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            if lacking.iter().any(|(tracepoint, _)| *tracepoint == name)
                || !sockets_possible && SOCKET_PROGRAMS.contains(&name.as_str())
            {
                program.set_autoload(false);
            }
        }
        let bursts_possible = kernel::traces_calls(&btf);
        if !bursts_possible {
            open.progs.burst.set_autoload(false);
            notes.push(
                "this kernel does not trace system calls: loops that spin are not looked into"
                    .to_owned(),
            );
        }
        for map in [
            &mut open.maps.bss_threads,
            &mut open.maps.bss_sockets,
            &mut open.maps.bss_arrivals,
        ] {
            make_zeroed(map).map_err(|error| load_error(&error))?;
        }
        let skel = open.load().map_err(|error| load_error(&error))?;
        Ok(Self {
            skel,
            lacking: lacking
                .into_iter()
                .map(|(tracepoint, _)| tracepoint)
                .collect(),
            attached: Vec::new(),
            clock: Clock::default(),
            sockets_possible,
            bursts_possible,
            user_stacks_exact,
            notes,
        })
    }

    /// Follows threads from now on.
    pub(crate) fn attach_threads(&mut self) -> Result<(), CaptureError> {
        let progs = &self.skel.progs;
        self.attached.extend(attach(&[
            ("sched_process_fork", &progs.sched_process_fork),
            ("sched_process_exec", &progs.sched_process_exec),
            ("sched_process_exit", &progs.sched_process_exit),
            ("task_rename", &progs.task_rename),
            ("sched_waking", &progs.sched_waking),
            ("sched_switch", &progs.sched_switch),
        ])?);
        Ok(())
    }

    /// Follows sockets from now on, if this kernel tells of them.
    pub(crate) fn attach_sockets(&mut self) -> Result<(), CaptureError> {
        if !self.sockets_possible {
            return Ok(());
        }
        let progs = &self.skel.progs;
        self.attached.extend(attach(&[
            ("inet_sock_set_state", &progs.inet_sock_set_state),
            ("sk_data_ready", &progs.sk_data_ready),
            ("sock_recv_length", &progs.sock_recv_length),
            ("sock_send_length", &progs.sock_send_length),
        ])?);
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            bss.sockets_followed = true;
        }
        Ok(())
    }

    /// Follows rings from now on, as far as this kernel tells of them.
    pub(crate) fn attach_urings(&mut self) -> Result<(), CaptureError> {
        let progs = &self.skel.progs;
        let programs: Vec<(&'static str, &ProgramMut<'_>)> = [
            ("io_uring_create", &progs.io_uring_create),
            ("io_uring_register", &progs.io_uring_register),
            ("io_uring_complete", &progs.io_uring_complete),
            ("io_uring_cqe_overflow", &progs.io_uring_cqe_overflow),
            ("io_uring_cqring_wait", &progs.io_uring_cqring_wait),
            (
                "io_uring_queue_async_work",
                &progs.io_uring_queue_async_work,
            ),
            ("io_uring_poll_arm", &progs.io_uring_poll_arm),
            ("io_uring_submit_req", &progs.io_uring_submit_req),
            ("sock_exceed_buf_limit", &progs.sock_exceed_buf_limit),
        ]
        .into_iter()
        .filter(|(name, _)| !self.lacking.contains(name))
        .collect();
        let links = attach(&programs)?;
        self.attached.extend(links);
        Ok(())
    }

    /// The descriptor of whywait's own ring.
    pub(crate) fn set_own_ring(&mut self, fd: i32) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            bss.uring_own_fd = fd;
        }
    }

    /// Starts the sampling clock. Without it there are no stacks of threads that run: that is
    /// noted, not an error.
    pub(crate) fn sample(&mut self, hz: u32) {
        if hz == 0 {
            return;
        }
        let without = self.clock.start(&self.skel.progs.sample, hz);
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            bss.clock_ticks = without.is_empty();
        }
        self.notes.extend(without.into_iter().map(|(cpu, reason)| {
            format!("no samples on CPU {cpu}: the kernel gives no cpu-clock event ({reason})")
        }));
    }

    /// Has the sampling clock tick as often as is wanted; `dense`: as often as it can.
    pub(crate) fn set_clock(&mut self, dense: bool) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            self.clock.set(bss.slow_ns, dense, kernel::now_ns());
            bss.clock_is_sparse = self.clock.is_sparse();
        }
    }

    /// Ends the sampling, once and for all.
    pub(crate) fn stop_clock(&mut self) {
        self.clock.stop();
    }

    pub(crate) fn clock_is_sparse(&self) -> bool {
        self.clock.is_sparse()
    }

    /// Traces system calls for as long as the link lives.
    pub(crate) fn attach_burst(&self) -> Result<Link, CaptureError> {
        let mut links = attach(&[("sys_exit", &self.skel.progs.burst)])?;
        links.pop().ok_or(CaptureError::Attach {
            program: "sys_exit",
            reason: "no link".to_owned(),
        })
    }

    /// The next burst, which only counts calls at first.
    pub(crate) fn begin_burst(&mut self, id: u32) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            bss.burst_tells = false;
            bss.burst_id = id;
            bss.burst_told = 0;
        }
    }

    /// Calls are told, or only counted.
    pub(crate) fn tell_calls(&mut self, tell: bool) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            bss.burst_tells = tell;
        }
    }

    /// whywait's own calls are handled as those of the target, or not.
    pub(crate) fn calibrate(&mut self, on: bool) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            bss.calibrating_tid = if on { kernel::own_tid() } else { 0 };
        }
    }

    /// Takes everything off.
    pub(crate) fn detach(&mut self) {
        self.stop_clock();
        self.attached.clear();
    }

    /// Sets a variable of the BPF object that the programs read while they run.
    pub(crate) fn set_pass(&mut self, file_pass: u32) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            bss.file_pass = file_pass;
        }
    }

    /// Whether user space sleeps, and is to be woken for what cannot wait.
    pub(crate) fn wake_for_what_is_urgent(&mut self, sleeps: bool) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            bss.user_space_sleeps = sleeps;
        }
    }

    /// From now on a sweep tells every sleeping thread.
    pub(crate) fn sweep_all(&mut self) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            bss.sweep_all = true;
        }
    }

    /// From now on every stack that is told is copied: see `known_stack.bpf.h`.
    pub(crate) fn stacks_do_not_repeat(&mut self) {
        if let Some(data) = self.skel.maps.data_data.as_deref_mut() {
            data.stacks_repeat = false;
        }
    }

    pub(crate) fn object(&mut self) -> &mut Object {
        use libbpf_rs::skel::Skel;
        self.skel.object_mut()
    }

    /// The map of sockets, for the iterator that closes their books.
    pub(crate) fn attach_flush(&mut self) -> Result<Link, CaptureError> {
        let map = self.skel.maps.sockets.as_fd();
        self.skel
            .progs
            .flush_sockets
            .attach_iter(map)
            .map_err(|error| CaptureError::Attach {
                program: "bpf_sk_storage_map",
                reason: one_line(&error),
            })
    }
}

fn attach(programs: &[(&'static str, &ProgramMut<'_>)]) -> Result<Vec<Link>, CaptureError> {
    programs
        .iter()
        .map(|(name, program)| {
            program.attach().map_err(|error| CaptureError::Attach {
                program: name,
                reason: one_line(&error),
            })
        })
        .collect()
}

/// Makes the map of a section of variables that begin as zero, as it comes from the kernel: libbpf
/// would fill it with zeros once more, which takes 40 ms for the states of threads and sockets.
fn make_zeroed(map: &mut OpenMapMut<'_>) -> libbpf_rs::Result<()> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        map_flags: libbpf_sys::BPF_F_MMAPABLE,
        ..Default::default()
    };
    let made = MapHandle::create(
        MapType::Array,
        Some(map.name()),
        size_of::<u32>() as u32,
        map.value_size(),
        1,
        &options,
    )?;
    map.reuse_fd(made.as_fd())
}

fn load_error(error: &libbpf_rs::Error) -> CaptureError {
    match error.kind() {
        ErrorKind::PermissionDenied => CaptureError::NotPermitted,
        _ => CaptureError::Load {
            reason: one_line(error),
        },
    }
}
