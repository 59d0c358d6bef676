use super::*;

const EPOLL_WAIT: i32 = 232;
const SIOCOUTQ: u64 = 0x5411;

#[derive(Default)]
struct Calls {
    calls: Vec<types::call_record>,
    sleeps: u32,
}

impl Calls {
    fn call(&mut self, nr: i32, fd: i32, ret: i64) -> &mut types::call_record {
        let at_ns = self.calls.len() as u64 * 1000;
        self.calls.push(types::call_record {
            r#type: 32,
            nr,
            tid: 1,
            tgid: 1,
            at_ns,
            on_cpu_ns: at_ns,
            fd,
            ret,
            sleeps: self.sleeps,
            mode: 0o140_777,
            local_port: 80,
            peer_port: 5000u16.to_be(),
            state: 1,
            args: [fd as u64, 0, 0, 0],
            ..types::call_record::default()
        });
        self.calls.last_mut().expect("just pushed")
    }

    fn polls(&mut self, events: u32, data: u64) -> &mut Self {
        let call = self.call(EPOLL_WAIT, 3, 1);
        call.args[3] = u64::MAX; // without a timeout
        call.bytes[..4].copy_from_slice(&events.to_le_bytes());
        call.bytes[4..12].copy_from_slice(&data.to_le_bytes());
        call.bytes_len = 12;
        self
    }

    fn sleeps(&mut self) -> &mut Self {
        self.sleeps += 1;
        self
    }

    fn control(&mut self, fd: i32, events: u32) -> &mut Self {
        let call = self.call(EPOLL_CTL, fd, 0);
        call.args = [3, 3, fd as u64, 1];
        call.bytes[..4].copy_from_slice(&events.to_le_bytes());
        call.bytes[4..12].copy_from_slice(&(fd as u64).to_le_bytes());
        call.bytes_len = 12;
        self
    }

    fn seen(&mut self) -> CallsSeen {
        look(std::mem::take(&mut self.calls), &mut Files::default())
    }
}

#[test]
fn a_bounce_is_a_cycle_of_five_calls() {
    let mut calls = Calls::default();
    for _ in 0..20 {
        calls.polls(EPOLLOUT, 7);
        calls.control(7, EPOLLIN);
        for _ in 0..2 {
            let call = calls.call(IOCTL, 7, 0);
            call.args[1] = SIOCOUTQ;
            call.value = 60_000;
        }
        calls.control(7, EPOLLOUT);
    }
    let seen = calls.seen();
    assert_eq!((seen.spins, seen.turns, seen.progress), (18, 18, 0));
    assert_eq!((seen.cycle_length, seen.cycle_turns), (1, 18));
    let told: Vec<(u32, i32, u32, u64)> = seen
        .cycle
        .iter()
        .map(|call| (call.syscall, call.fd, call.events, call.value))
        .collect();
    assert_eq!(
        told,
        [
            (232, 7, EPOLLOUT, 0),
            (233, 7, EPOLLIN, 0),
            (16, 7, 0, 60_000),
            (16, 7, 0, 60_000),
            (233, 7, EPOLLOUT, 0)
        ]
    );
    assert_eq!(
        (seen.cycle[0].kind.as_str(), seen.cycle[0].peer_port),
        ("tcp", 5000)
    );
}

#[test]
fn whatever_moves_a_byte_is_progress() {
    for (nr, ret) in [
        (0, 1),
        (1, 10),
        (45, 100),
        (44, 5),
        (288, 9),
        (FUTEX, 1),
        (3, 0),
    ] {
        let mut calls = Calls::default();
        for _ in 0..10 {
            calls.polls(EPOLLIN, 7);
            calls.call(nr, 7, ret);
        }
        let seen = calls.seen();
        assert_eq!((seen.spins, seen.progress), (0, 8), "call {nr}");
    }
}

#[test]
fn reading_nothing_again_and_again_is_a_spin() {
    let mut calls = Calls::default();
    for _ in 0..10 {
        calls.polls(EPOLLIN, 7);
        calls.call(0, 7, 0);
    }
    assert_eq!(calls.seen().spins, 8);
}

#[test]
fn a_sleeper_that_finds_nothing_lost_a_race() {
    let mut calls = Calls::default();
    for _ in 0..10 {
        calls.sleeps().polls(EPOLLIN, 7);
        calls.call(288, 7, EAGAIN);
    }
    let seen = calls.seen();
    assert_eq!((seen.spins, seen.lost_races), (0, 8));
}

#[test]
fn a_sleeper_that_calls_nothing_was_woken_for_what_is_not_seen() {
    let mut calls = Calls::default();
    for _ in 0..10 {
        calls.sleeps().polls(EPOLLIN, 7);
        calls.call(228, -1, 0);
    }
    assert_eq!(
        calls.seen(),
        CallsSeen {
            turns: 8,
            ..CallsSeen::default()
        }
    );
}

#[test]
fn polling_without_waiting_is_the_programs_own_decision() {
    let mut calls = Calls::default();
    for _ in 0..10 {
        calls.call(EPOLL_WAIT, 3, 0);
    }
    let seen = calls.seen();
    assert_eq!((seen.spins, seen.lost_races, seen.progress), (0, 0, 0));
}

#[test]
fn a_loop_that_would_go_round_anyway_is_not_kept_awake() {
    // It computes a little, looks whether there is something, and leaves what there is for later.
    let mut calls = Calls::default();
    for _ in 0..10 {
        calls.polls(EPOLLIN, 7).calls[..]
            .last_mut()
            .expect("one")
            .args[3] = 0;
    }
    let seen = calls.seen();
    assert_eq!((seen.turns, seen.spins, seen.progress), (8, 0, 0));
}

#[test]
fn an_edge_is_an_event_of_its_own() {
    let mut files = Files::default();
    files.add(types::file_record {
        r#type: 33,
        fd: 7,
        data: 7,
        events: EPOLLIN | EPOLLET,
        registered: 1,
        ..types::file_record::default()
    });
    let mut calls = Calls::default();
    for _ in 0..10 {
        calls.polls(EPOLLIN, 7);
    }
    assert_eq!(look(calls.calls, &mut files).spins, 0);
    let mut calls = Calls::default();
    for _ in 0..10 {
        calls.polls(EPOLLIN, 7);
        calls.control(7, EPOLLIN | EPOLLET);
    }
    assert_eq!(look(calls.calls, &mut files).spins, 8, "asked for anew");
}

#[test]
fn poll_and_select_say_what_was_ready() {
    let mut calls = Calls::default();
    for _ in 0..4 {
        let call = calls.call(POLL, 0, 1);
        call.args[2] = 1000;
        for (at, fd, asked, came) in [(0usize, 5i32, 1u16, 0u16), (8, 6, 4, 4)] {
            call.bytes[at..at + 4].copy_from_slice(&fd.to_le_bytes());
            call.bytes[at + 4..at + 6].copy_from_slice(&asked.to_le_bytes());
            call.bytes[at + 6..at + 8].copy_from_slice(&came.to_le_bytes());
        }
        call.bytes_len = 16;
    }
    let cycle = calls.seen().cycle;
    assert_eq!((cycle[0].fd, cycle[0].events), (6, EPOLLOUT));
    let mut calls = Calls::default();
    for _ in 0..4 {
        let call = calls.call(SELECT, 20, 1);
        call.bytes[FD_SET_BYTES + 1] = 1 << 3;
        call.bytes_len = 96;
    }
    let cycle = calls.seen().cycle;
    assert_eq!((cycle[0].fd, cycle[0].events), (11, EPOLLOUT));
}

#[test]
fn a_cycle_may_be_of_several_turns() {
    let mut calls = Calls::default();
    for _ in 0..10 {
        calls.polls(EPOLLOUT, 7);
        calls.control(7, EPOLLIN);
        calls.polls(EPOLLIN, 8);
    }
    let seen = calls.seen();
    assert_eq!(seen.cycle_length, 2);
    assert_eq!(seen.cycle_turns, seen.spins);
}

impl Calls {
    /// io_uring_enter of the ring 4, that `head` completions were taken from and that has `tail`.
    fn enters(&mut self, min_complete: u64, ret: i64, head: u32, tail: u32) -> &mut Self {
        let call = self.call(IO_URING_ENTER, 4, ret);
        call.args = [4, 0, min_complete, 1];
        call.bytes[..4].copy_from_slice(&head.to_le_bytes());
        call.bytes[4..8].copy_from_slice(&tail.to_le_bytes());
        call.bytes_len = 8;
        self
    }
}

#[test]
fn a_ring_that_is_asked_again_and_again_and_has_nothing_is_a_cycle() {
    let mut calls = Calls::default();
    for _ in 0..20 {
        calls.enters(0, 0, 7, 7);
    }
    let seen = calls.seen();
    assert_eq!((seen.spins, seen.turns), (18, 18));
    let told: Vec<(u32, i32, u32, u64, &str)> = seen
        .cycle
        .iter()
        .map(|call| (call.syscall, call.fd, call.armed, call.value, &*call.kind))
        .collect();
    assert_eq!(told, [(426, 4, 0, 0, "io_uring")]);
}

#[test]
fn completions_that_nobody_takes_keep_a_loop_awake() {
    let mut calls = Calls::default();
    for _ in 0..20 {
        calls.enters(1, 0, 7, 9);
    }
    let seen = calls.seen();
    assert_eq!((seen.spins, seen.turns), (18, 18));
    assert_eq!((seen.cycle[0].armed, seen.cycle[0].value), (1, 2));
}

#[test]
fn a_ring_that_moves_or_that_is_waited_for_is_none() {
    let mut calls = Calls::default();
    for at in 0..20 {
        calls.enters(0, 0, at, at); // something is taken each time
    }
    let seen = calls.seen();
    assert_eq!((seen.spins, seen.progress), (0, 18));
    for _ in 0..20 {
        calls.enters(0, 1, 7, 7); // something is submitted each time
    }
    let seen = calls.seen();
    assert_eq!((seen.spins, seen.progress), (0, 18));
    for _ in 0..20 {
        calls.sleeps().enters(1, ETIME, 7, 7); // a timeout
    }
    let seen = calls.seen();
    assert_eq!((seen.spins, seen.progress), (0, 0));
    for _ in 0..20 {
        calls
            .enters(0, 0, 7, 7)
            .calls
            .last_mut()
            .expect("one")
            .bytes_len = 0; // of a ring that is not known
    }
    let seen = calls.seen();
    assert_eq!((seen.spins, seen.progress), (0, 18));
    for _ in 0..20 {
        calls.enters(0, 0, 7, 7).call(1, 5, 64); // it writes to a file meanwhile
    }
    let seen = calls.seen();
    assert_eq!((seen.spins, seen.progress), (0, 18));
}

#[test]
fn what_is_not_registered_any_more_may_have_been_an_edge() {
    // As Go has it: short connections come and go, and each thread polls for all.
    let mut files = Files::default();
    files.complete = true;
    let mut calls = Calls::default();
    for connection in 0..20 {
        calls.polls(EPOLLIN, 0x7f00_0000_1000 + connection * 64);
    }
    let seen = look(calls.calls, &mut files);
    assert_eq!((seen.turns, seen.spins), (18, 0));
}

#[test]
fn what_is_taken_out_of_shared_memory_is_not_seen() {
    const ANONYMOUS: u32 = 0o600;
    let spins = |mode: u32, family: u8, name: &str| {
        let mut files = Files::default();
        files.complete = true;
        files.is_called(9, name);
        files.add(types::file_record {
            r#type: 33,
            fd: 9,
            data: 9,
            events: EPOLLIN,
            mode,
            family,
            registered: 1,
            ..types::file_record::default()
        });
        let mut calls = Calls::default();
        for _ in 0..10 {
            calls.polls(EPOLLIN, 9);
        }
        look(calls.calls, &mut files).spins
    };
    for name in [
        "perf_event",
        "bpf-map",
        "io_uring",
        "eventpoll",
        "kvm-vcpu:0",
    ] {
        assert_eq!(spins(ANONYMOUS, 0, name), 0, "{name}");
    }
    assert_eq!(spins(0o140_777, 17, ""), 0, "packets in a ring");
    assert_eq!(spins(0o020_666, 0, ""), 0, "a device");
    assert_eq!(spins(ANONYMOUS, 0, "eventfd"), 8);
    assert_eq!(spins(ANONYMOUS, 0, "timerfd"), 8);
    assert_eq!(spins(0o140_777, 2, ""), 8, "a connection");
    assert_eq!(spins(0o010_600, 0, ""), 8, "a pipe");
}
