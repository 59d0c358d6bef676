//! Requests that are answered when another client sends something, or something else comes from
//! outside: long polls, BLPOP, chats. Nothing of the target's makes them slow.
//!
//! **Evidence.** The thread that answers had read the request, slept in its poll, and was woken by
//! the network (or by a process outside of the target, as over unix sockets). Or it slept for
//! another thread of the target, on no lock, and that one was woken so, in a read. What came was
//! no reply to a call: one that a request waits for takes as long as its wait, and has a row.
//!
//! **Guards.** Sleeps below the threshold have no rows: an answer counts only if it follows the
//! wake within that. Where much comes, many an answer does so by chance: as many as that makes are
//! taken off. Where a call has no row, or the process asks DNS servers, nothing is said. Nor of
//! what a timer ends: a sleep of the program's own looks the same.

use whywait_events::{Ns, Part, Wait, WakeContext};
use whywait_model::{Model, RequestRef, SystemCall, Thread, WaitClass, is_accept, system_call};

use super::intervals::{Interval, overlap_ns, sum};

/// What requests waited for something from outside.
#[derive(Debug)]
pub(crate) struct OutsideEvents<'m> {
    model: &'m Model,
    /// Every call has a row.
    knows_calls: bool,
    waited_ns: u64,
    /// What would count if events had nothing to do with answers.
    by_chance_ns: u64,
}

impl<'m> OutsideEvents<'m> {
    pub(crate) fn new(model: &'m Model) -> Self {
        Self {
            model,
            knows_calls: knows_calls(model),
            waited_ns: 0,
            by_chance_ns: 0,
        }
    }

    pub(crate) fn add(&mut self, request: RequestRef<'_>) {
        let (Some(read_ns), Some(sent_ns)) = (request.recv_ns, request.first_send_ns) else {
            return;
        };
        let Some(sender) = self.model.threads.get(&request.send_tid) else {
            return;
        };
        if !self.knows_calls {
            return;
        }
        let worked = (read_ns, sent_ns);
        let came = came(self.model, sender, worked);
        let came = came.filter(|(_, came_ns)| !self.is_reply(request, (*came_ns, sent_ns)));
        let reader = came.map_or(sender, |(reader, _)| reader);
        let waited_ns = came.map_or(0, |(_, came_ns)| came_ns.saturating_sub(read_ns));
        self.waited_ns = self.waited_ns.saturating_add(waited_ns);
        let by_chance_ns = after_events_ns(self.model, reader, worked);
        self.by_chance_ns = self.by_chance_ns.saturating_add(by_chance_ns);
    }

    /// Of `total_ns`, how long they did, more than chance makes it.
    pub(crate) fn waited_ns(&self, total_ns: u64) -> u64 {
        let more_ns = self.waited_ns.saturating_sub(self.by_chance_ns);
        let open_ns = total_ns.saturating_sub(self.by_chance_ns).max(1);
        let ns = u128::from(more_ns) * u128::from(total_ns) / u128::from(open_ns);
        u64::try_from(ns).unwrap_or(u64::MAX).min(total_ns)
    }

    /// Whether a call ended then, or was under way.
    fn is_reply(&self, request: RequestRef<'_>, (from_ns, to_ns): Interval) -> bool {
        self.model.exchanges().iter().any(|call| {
            let replied = [call.arrived_ns, call.last_read_ns, call.gone_ns];
            let meanwhile = |ns: Ns| from_ns <= ns && ns <= to_ns;
            let over = call.first_send_ns <= from_ns && call.last_read_ns >= Some(from_ns);
            call.tgid == request.tgid && (over || replied.into_iter().flatten().any(meanwhile))
        })
    }
}

fn knows_calls(model: &Model) -> bool {
    let counter = |name: &str| model.counters.get(name).copied();
    let calls = sum(model.calls().iter().map(|peer| peer.calls));
    let rows = model.exchanges().len() as u64;
    calls <= rows
        && counter("exchanges.over-budget") == Some(0)
        && counter("dns.queries").unwrap_or(0) == 0
}

/// When something came that made this thread answer at the end of an interval what it had read at
/// its beginning, and the thread that got it.
fn came<'m>(
    model: &'m Model,
    sender: &'m Thread,
    (read_ns, sent_ns): Interval,
) -> Option<(&'m Thread, Ns)> {
    let at_once = |from_ns: Ns, to_ns: Ns| {
        to_ns
            .checked_sub(from_ns)
            .is_some_and(|ns| ns < model.threshold_ns())
    };
    // Several who wait for one event then want one lock, for a moment each.
    let is_moment = |wait: &Wait| at_once(wait.out_ns, wait.woken_ns());
    let mut until_ns = sent_ns;
    let last = loop {
        let last = sender.timeline.before(until_ns)?;
        if last.out_ns < read_ns || !at_once(last.end_ns(), until_ns) {
            return None;
        }
        if !is_moment(last) {
            break last;
        }
        until_ns = last.out_ns;
    };
    match system_call(last) {
        SystemCall::Poll => from_outside(model, last).then(|| (sender, last.woken_ns())),
        SystemCall::Futex if model.class_of(last) != Some(WaitClass::Lock) => {
            let other = model.threads.get(&last.waker_tid)?;
            let read = other.timeline.before(last.woken_ns())?;
            let during = last.out_ns <= read.woken_ns() && at_once(read.end_ns(), last.woken_ns());
            (reads(model, read) && during && from_outside(model, read))
                .then(|| (other, read.woken_ns()))
        }
        _ => None,
    }
}

/// How long, of an interval, a thread had just been woken from outside.
fn after_events_ns(model: &Model, reader: &Thread, (from_ns, to_ns): Interval) -> u64 {
    let waits = reader.timeline.overlapping(from_ns, to_ns);
    let next = waits.iter().skip(1).map(|wait| wait.out_ns).chain([to_ns]);
    let after = waits
        .iter()
        .zip(next)
        .filter(|(wait, _)| reads(model, wait) && from_outside(model, wait));
    sum(after.map(|(wait, next_ns)| {
        let end_ns = wait.end_ns().saturating_add(model.threshold_ns());
        overlap_ns((wait.end_ns(), end_ns.min(next_ns)), (from_ns, to_ns))
    }))
}

/// Whether it waits for something that somebody sends.
fn reads(model: &Model, wait: &Wait) -> bool {
    let is_network = || {
        let kind = model.kind_of(wait);
        kind.is_some_and(|kind| kind.part == Some(Part::Network))
    };
    match system_call(wait) {
        SystemCall::Poll => true,
        SystemCall::Socket => !is_accept(wait) && !writes(wait),
        SystemCall::Stream => !writes(wait) && is_network(),
        _ => false,
    }
}

/// Whether no thread of the target ended it, and no timer.
fn from_outside(model: &Model, wait: &Wait) -> bool {
    match wait.wake_context {
        WakeContext::Softirq => true,
        WakeContext::Task => wait.waker_tid != 0 && !model.threads.contains_key(&wait.waker_tid),
        _ => false,
    }
}

/// Whether it waits for the other side to take more.
fn writes(wait: &Wait) -> bool {
    const WRITES: [u32; 6] = [1, 20, 40, 44, 46, 307];
    wait.syscall.is_some_and(|call| WRITES.contains(&call))
}

#[cfg(test)]
mod tests {
    use whywait_events::{Exchange, PeerSums};
    use whywait_model::script::{Script, TGID, ms};

    use super::*;

    const EPOLL: u32 = 1;
    const RECVFROM: u32 = 45;
    const FUTEX: u32 = 202;
    const EPOLL_WAIT: u32 = 232;
    const MS: u64 = 1_000_000;

    fn waited_ns(script: &Script) -> u64 {
        let model = script.model();
        let mut events = OutsideEvents::new(&model);
        for request in model.requests() {
            events.add(request);
        }
        events.waited_ns(sum(model
            .requests()
            .map(|request| request.account().total_ns())))
    }

    /// A loop, thread 1, that is woken by `wake` at 300 and answers then what it read at 10.
    fn polled(change: impl FnOnce(&mut Script)) -> u64 {
        let mut script = Script::new();
        script.thread(1, "loop").thread(2, "helper").ends(1000);
        script.counter("exchanges.over-budget", 0);
        script
            .request(1)
            .epoll(EPOLL)
            .ready(10)
            .read(10, 1)
            .answered(300, 1);
        change(&mut script);
        waited_ns(&script)
    }

    fn by_network(script: &mut Script) {
        script
            .wait(1, EPOLL_WAIT, 11, 300)
            .epoll(EPOLL)
            .by_softirq()
            .done();
    }

    #[test]
    fn what_another_client_sends_ends_it() {
        assert_eq!(polled(by_network), 290 * MS);
    }

    #[test]
    fn a_timer_or_a_thread_of_the_target_may_be_the_programs_doing() {
        let by_timer = |script: &mut Script| {
            let wait = script.wait(1, EPOLL_WAIT, 11, 300).epoll(EPOLL);
            wait.by_timer().done();
        };
        let by_helper = |script: &mut Script| {
            let wait = script.wait(1, EPOLL_WAIT, 11, 300).epoll(EPOLL);
            wait.by(2).done();
        };
        assert_eq!(polled(by_timer), 0);
        assert_eq!(polled(by_helper), 0);
    }

    fn peer_with_calls(script: &mut Script, count: u64) {
        script.peer(&PeerSums {
            id: 1,
            tgid: TGID,
            count,
            ..PeerSums::default()
        });
    }

    #[test]
    fn a_reply_to_a_call_is_no_such_event() {
        let replied = polled(|script| {
            by_network(script);
            peer_with_calls(script, 1);
            script.exchange(&Exchange {
                socket: 9,
                tgid: TGID,
                peer: 1,
                first_send_ns: ms(12),
                last_send_ns: ms(12),
                arrived_ns: Some(ms(300)),
                first_read_ns: Some(ms(300)),
                last_read_ns: Some(ms(300)),
                ..Exchange::default()
            });
        });
        assert_eq!(replied, 0);
        let lost = polled(|script| {
            by_network(script);
            script.counter("exchanges.over-budget", 1);
        });
        assert_eq!(lost, 0, "it may be one of those that have no row");
        let short = polled(|script| {
            by_network(script);
            peer_with_calls(script, 1);
        });
        assert_eq!(short, 0, "it may be that one, which has no row");
    }

    #[test]
    fn a_thread_that_reads_another_connection_may_bring_it() {
        const READ: u32 = 0;
        const SENDTO: u32 = 44;
        let brought = |wait: u32| {
            polled(|script| {
                let kernel = script.stack(&["tcp_recvmsg", "sk_wait_data"]);
                let read = script.wait(2, wait, 5, 300).kernel(kernel);
                read.by_softirq().done();
                let stack = script.stack(&["start_thread", "serve", "pthread_cond_wait"]);
                let sleep = script.wait(1, FUTEX, 11, 300).word(0x1000).stack(stack);
                sleep.by(2).done();
            })
        };
        assert_eq!(brought(RECVFROM), 290 * MS);
        assert_eq!(brought(READ), 290 * MS);
        assert_eq!(brought(SENDTO), 0, "a client that reads slowly");
        // Woken at 290, it waits for a lock for no time, and for a CPU.
        let then_locks = polled(|script| {
            script.wait(2, RECVFROM, 5, 290).by_softirq().done();
            let stack = script.stack(&["start_thread", "serve", "pthread_cond_wait"]);
            let sleep = script.wait(1, FUTEX, 11, 290).word(0x1000).stack(stack);
            sleep.by(2).done();
            let lock = script.wait(1, FUTEX, 290, 290).word(0x2000).stack(stack);
            lock.by(2).on_cpu_at(300).done();
        });
        // An answer within a millisecond of the event could be chance.
        assert!((279 * MS..=280 * MS).contains(&then_locks), "{then_locks}");
    }

    /// A loop in which something comes every 2 ms, and of whose requests every other one is
    /// answered when it has just been woken.
    #[test]
    fn where_much_comes_answers_follow_it_by_chance() {
        let mut script = Script::new();
        script.thread(1, "loop").ends(2000);
        script.counter("exchanges.over-budget", 0);
        for at in (0..1000).map(|n| 2 * n) {
            script.polls(1, EPOLL, at, at + 1);
        }
        for number in 0..10_u64 {
            let read = 1 + 100 * number;
            let answered = read + 50 + number % 2;
            let request = script
                .request(number)
                .epoll(EPOLL)
                .ready(read)
                .read(read, 1);
            request.answered(answered, 1);
        }
        // Of half a second.
        let waited_ns = waited_ns(&script);
        assert!(waited_ns < 10 * MS, "{waited_ns}");
    }
}
