//! Who accepts connections, and what they do when nobody does.

use std::collections::{BTreeMap, BTreeSet};

use whywait_events::{Ns, StackId, Wait, WakeContext};
use whywait_model::requests::OpenState;
use whywait_model::requests::accept_queues::Holder;
use whywait_model::{
    Model, SystemCall, Thread, WaitClass, descriptor, is_accept, system_call, system_call_name,
};
use whywait_words::{counted, duration, list_by};

use crate::finding::Evidence;
use crate::numbers::{SHOWN, UNACCEPTED_NS};
use crate::shared::slow_paths;
use crate::shared::threads::named;

/// The threads that accept from a listener, as far as they were seen to.
pub(crate) struct Acceptors<'m> {
    threads: Vec<&'m Thread>,
    /// When the recording ended, or the target did.
    end_ns: Ns,
}

/// What a thread does in the end.
pub(super) struct Doing<'m> {
    pub(super) tid: u32,
    wait: &'m Wait,
    ns: u64,
}

impl<'m> Acceptors<'m> {
    pub(crate) fn of(model: &'m Model, port: u16, holders: &[&Holder], end_ns: Ns) -> Self {
        // Who polls the listener and nothing else waits for connections, too.
        let polls_it = |wait: &Wait| {
            let polls = system_call(wait) == SystemCall::Poll;
            let of = |holder: &&Holder| {
                holder.pid == wait.tgid && descriptor(wait) == i32::try_from(holder.fd).ok()
            };
            polls && holders.iter().any(of)
        };
        let accepts = holders.iter().flat_map(|holder| {
            let fd = i32::try_from(holder.fd).unwrap_or(-1);
            model.acceptors(holder.pid, fd)
        });
        let all = model.threads.values();
        let mut threads: Vec<&Thread> = all
            .filter(|thread| thread.timeline.waits().iter().any(polls_it))
            .chain(accepts)
            .collect();
        threads.sort_by_key(|thread| thread.tid);
        threads.dedup_by_key(|thread| thread.tid);
        if threads.is_empty() {
            let readers: BTreeSet<u32> = model
                .requests()
                .filter(|request| request.local_port == port && request.before_accept)
                .filter(|request| request.recv_ns.is_some())
                .map(|request| request.recv_tid)
                .collect();
            threads = readers
                .iter()
                .filter_map(|tid| model.threads.get(tid))
                .collect();
        }
        // When a process ends its threads do one after another.
        threads.retain(|thread| {
            let ended_ns = thread.ended_ns.unwrap_or(end_ns);
            ended_ns.saturating_add(*UNACCEPTED_NS) >= end_ns
        });
        Self { threads, end_ns }
    }

    pub(crate) fn threads(&self) -> &[&'m Thread] {
        &self.threads
    }

    pub(super) fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// Whether each of them has a request in hand.
    pub(super) fn all_have_work(&self, model: &Model) -> bool {
        let in_work: BTreeSet<u32> = model
            .requests()
            .filter(|request| request.open_state() == Some(OpenState::InWork))
            .map(|request| request.recv_tid)
            .collect();
        !self.threads.is_empty()
            && self
                .threads
                .iter()
                .all(|thread| in_work.contains(&thread.tid))
    }

    /// Whether one of them runs in the end, or waits for a CPU.
    pub(super) fn one_is_active(&self) -> bool {
        let asleep = |thread: &Thread| Doing::at(self.end_ns, thread).is_some();
        !self.threads.iter().all(|thread| asleep(thread))
    }

    /// What keeps them from accepting: the sleep of the one that has slept for longest in
    /// something else, if all do.
    pub(super) fn kept(&self, model: &'m Model) -> Option<Doing<'m>> {
        let doing: Option<Vec<Doing<'m>>> = self
            .threads
            .iter()
            .map(|thread| Doing::at(self.end_ns, thread).filter(|doing| !doing.polls(model)))
            .collect();
        doing?.into_iter().max_by_key(|doing| doing.ns)
    }

    /// What those who accept do; or else what the threads of the processes do that could.
    pub(super) fn evidence(&self, model: &'m Model, holders: &[&Holder]) -> Vec<Evidence> {
        if !self.threads.is_empty() {
            let all = self.threads.iter().filter_map(|thread| {
                let doing = Doing::at(self.end_ns, thread)?;
                let text = format!(
                    "thread {} accepted connections, or waited for them; in the end it had been {} \
                     for {}",
                    named(model, thread.tid),
                    doing.doing(model),
                    duration(doing.ns)
                );
                Some(Evidence::of_ns(doing.ns, text))
            });
            return all.take(*SHOWN).collect();
        }
        let mut groups: BTreeMap<String, usize> = BTreeMap::new();
        let of_holders = model
            .threads
            .values()
            .filter(|thread| holders.iter().any(|holder| holder.pid == thread.tgid));
        for doing in of_holders.filter_map(|thread| Doing::at(self.end_ns, thread)) {
            *groups.entry(doing.doing(model)).or_default() += 1;
        }
        let mut groups: Vec<(String, usize)> = groups.into_iter().collect();
        groups.sort_by_key(|(_, threads)| *threads);
        let groups: Vec<String> = groups
            .iter()
            .take(*SHOWN)
            .map(|(doing, threads)| format!("{} {doing}", counted(*threads, "thread")))
            .collect();
        let seen = "no thread was seen that accepts, while whywait watched".to_owned();
        let text = match groups.as_slice() {
            [] => seen,
            _ => format!("{seen}; in the end: {}", list_by(&groups, "; ")),
        };
        vec![Evidence::new(text)]
    }
}

/// Whether it is where connections are waited for, or anything else: nothing keeps the thread.
pub(crate) fn waits_for_work(model: &Model, wait: &Wait) -> bool {
    let idles = || {
        let pools = model.pools.iter().filter(|pool| pool.tgid == wait.tgid);
        model.class_of(wait) == Some(WaitClass::Idle)
            || pools.into_iter().any(|pool| pool.idles(wait))
            || model.is_rest(wait)
    };
    match system_call(wait) {
        SystemCall::Poll | SystemCall::Uring => true,
        SystemCall::Futex => idles(),
        _ => is_accept(wait),
    }
}

impl<'m> Doing<'m> {
    /// What it slept in when the recording ended, or when it was killed before.
    fn at(end_ns: Ns, thread: &'m Thread) -> Option<Self> {
        let wait = thread.timeline.before(end_ns)?;
        let woken_ns = wait.over_ns();
        let until_ns = match wait.wake_context {
            WakeContext::Exit => woken_ns.unwrap_or(end_ns),
            _ if woken_ns.is_none_or(|woken_ns| woken_ns >= end_ns) => end_ns,
            _ => return None,
        };
        Some(Self {
            tid: thread.tid,
            wait,
            ns: until_ns.saturating_sub(wait.out_ns),
        })
    }

    /// Whether it is where connections are waited for, or anything else: nothing keeps it.
    fn polls(&self, model: &Model) -> bool {
        waits_for_work(model, self.wait)
    }

    pub(super) fn stack(&self) -> StackId {
        self.wait.user_stack
    }

    /// `asleep in recvfrom (read_first)`.
    pub(super) fn doing(&self, model: &Model) -> String {
        let call = system_call_name(self.wait);
        match self.function(model) {
            Some(function) => format!("asleep in {call} ({function})"),
            None => format!("asleep in {call}"),
        }
    }

    /// `acceptor (12) sleeps in recvfrom (read_first)`.
    pub(super) fn in_words(&self, model: &Model) -> String {
        let call = system_call_name(self.wait);
        let function = self
            .function(model)
            .map_or_else(String::new, |function| format!(" ({function})"));
        format!(
            "{}, which accepts, sleeps in {call}{function}",
            named(model, self.tid)
        )
    }

    fn function(&self, model: &Model) -> Option<String> {
        slow_paths::function(model, self.wait.user_stack)
    }
}
