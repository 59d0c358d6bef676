//! `stranded-readiness` between siblings: connections wait in the queue of a busy worker while
//! others, each with a listener of its own at the same port (`SO_REUSEPORT`), idle.
//!
//! **Invariant.** Of the workers that can serve a port, either all are busy, or one of them takes
//! what comes.
//!
//! **Evidence.** The target has several listening sockets with `SO_REUSEPORT` at the port: the
//! kernel gives a connection to one of them by its addresses, and there it stays. A request on a
//! new connection was ready and unread, while pollers of sibling instances slept in their polls.
//! Siblings are other processes that served requests at that very port, or instances of the same
//! process, whose pollers poll in the same functions.
//!
//! **Cost.** For each such request the time in which a sibling slept in its poll while it waited.
//!
//! **Guards.** Requests on connections that were accepted before belong to their worker, whoever
//! idles. Without the option, or with fewer such listeners than siblings, they share a listener,
//! and who is idle takes connections from it. A program of another kind at the same port is no
//! sibling. A worker that waited for a CPU for most of the time was not busy: the machine was.
//! Where siblings were busy for most of the wait too, and below [`SLOW_NS`], nothing
//! is reported.

use std::collections::BTreeMap;

use whywait_events::StackId;
use whywait_model::{EpollPool, Model, RequestRef, system_call_name};
use whywait_words::{counted, counted_as, duration, list};

use crate::detectors::stranded_readiness::DECLARATION;
use crate::finding::{Cause, Evidence, Finding, Saving, Severity};
use crate::numbers::{ERROR_NS, MOST, SLOW_NS, Share};
use crate::shared::intervals::{Interval, union_ns};
use crate::shared::threads::named;

struct UnsharedRequest<'a> {
    request: RequestRef<'a>,
    stranded_ns: u64,
    idle: Vec<u32>,
}

pub(super) fn detect(model: &Model) -> Vec<Finding> {
    let mut ports: Vec<u16> = model
        .requests()
        .filter(|request| request.before_accept && request.local_port != 0)
        .map(|request| request.local_port)
        .collect();
    ports.sort_unstable();
    ports.dedup();
    ports
        .into_iter()
        .filter_map(|port| of_port(model, port))
        .collect()
}

fn of_port(model: &Model, port: u16) -> Option<Finding> {
    let listeners = model
        .counters
        .get(&format!("herd.{port}.reuseport"))
        .copied()
        .unwrap_or(0);
    if listeners < 2 {
        return None;
    }
    // By own instance: who the siblings are takes a look at all pools and their stacks.
    let mut known: BTreeMap<(u32, u32), Vec<&EpollPool>> = BTreeMap::new();
    let victims: Vec<UnsharedRequest<'_>> = model
        .requests()
        .filter(|request| request.local_port == port && request.before_accept)
        .filter_map(|request| {
            let own = request.pool()?;
            let siblings = known
                .entry((own.tgid, own.epoll))
                .or_insert_with(|| siblings(model, port, own));
            victim(model, siblings, listeners, request)
        })
        .collect();
    let worst = victims.iter().max_by_key(|victim| victim.stranded_ns)?;
    Some(finding(model, port, listeners, &victims, worst))
}

fn victim<'a>(
    model: &Model,
    siblings: &[&EpollPool],
    listeners: u64,
    request: RequestRef<'a>,
) -> Option<UnsharedRequest<'a>> {
    let served_ns = request.served_ns();
    if served_ns.saturating_sub(request.ready_ns) < *SLOW_NS {
        return None;
    }
    // One that shares a listener takes from it when it is idle.
    if siblings.is_empty() || (siblings.len() as u64) >= listeners {
        return None;
    }
    let mut idle = Vec::new();
    let mut spans: Vec<Interval> = Vec::new();
    for pool in siblings {
        for thread in pool.members.keys().filter_map(|tid| model.threads.get(tid)) {
            let before = spans.len();
            spans.extend(
                thread
                    .timeline
                    .overlapping(request.ready_ns, served_ns)
                    .iter()
                    .filter(|wait| pool.polls(wait))
                    .map(|wait| {
                        let until = wait.over_ns().unwrap_or(served_ns);
                        (wait.out_ns.max(request.ready_ns), until.min(served_ns))
                    })
                    .filter(|(from, to)| from < to),
            );
            if spans.len() > before {
                idle.push(thread.tid);
            }
        }
    }
    let stranded_ns = union_ns(spans);
    let wait_ns = served_ns.saturating_sub(request.ready_ns);
    let reader = model.threads.get(&request.recv_tid);
    let without_cpu_ns = reader.map_or(0, |thread| {
        thread.without_cpu_ns(request.ready_ns, served_ns)
    });
    if Share::new(without_cpu_ns, wait_ns).exceeds(*MOST) {
        return None;
    }
    (stranded_ns >= SLOW_NS.max(MOST.of(wait_ns))).then_some(UnsharedRequest {
        request,
        stranded_ns,
        idle,
    })
}

/// The pools that could have served what came to `own` at the port.
fn siblings<'a>(model: &'a Model, port: u16, own: &EpollPool) -> Vec<&'a EpollPool> {
    model
        .pools
        .iter()
        .filter(|pool| are_siblings(model, port, own, pool))
        .collect()
}

/// Whether `other` could have served what came to `own` at the port.
fn are_siblings(model: &Model, port: u16, own: &EpollPool, other: &EpollPool) -> bool {
    if other.epoll == own.epoll && other.tgid == own.tgid {
        return false;
    }
    if other
        .members
        .keys()
        .any(|tid| own.members.contains_key(tid))
    {
        return false;
    }
    let serves = other.tgid == own.tgid
        || model
            .cpu
            .ports
            .get(&(other.tgid, i32::from(port)))
            .is_some_and(|used| used.requests > 0);
    serves && polls_alike(model, own, other)
}

/// Whether the pollers of both poll in the same functions.
fn polls_alike(model: &Model, own: &EpollPool, other: &EpollPool) -> bool {
    let names = |pool: &EpollPool| -> Vec<Vec<String>> {
        let name = |id: &StackId| model.stacks.names(*id);
        let mut names: Vec<Vec<String>> = pool.poll_stacks.iter().map(name).collect();
        names.retain(|names| !names.is_empty());
        names
    };
    let own = names(own);
    names(other).iter().any(|names| own.contains(names))
}

/// What the worker did in whose queue the request waited.
fn what_it_did(model: &Model, request: RequestRef<'_>) -> Option<Cause> {
    let served_ns = request.served_ns();
    let own = request.pool()?;
    let thread = model
        .threads
        .get(&request.recv_tid)
        .or_else(|| own.members.keys().find_map(|tid| model.threads.get(tid)))?;
    let asleep = thread
        .timeline
        .overlapping(request.ready_ns, served_ns)
        .iter()
        .filter(|wait| !own.polls(wait))
        .max_by_key(|wait| wait.in_ns.unwrap_or(served_ns).saturating_sub(wait.out_ns));
    let (doing, stack) = match asleep {
        Some(wait) => (
            format!("asleep in {}", system_call_name(wait)),
            wait.user_stack,
        ),
        None => (
            "on CPU".to_owned(),
            model.sampled_stack(thread, request.ready_ns, served_ns),
        ),
    };
    Some(Cause::new(model, thread.tid, doing, stack))
}

fn finding(
    model: &Model,
    port: u16,
    listeners: u64,
    victims: &[UnsharedRequest<'_>],
    worst: &UnsharedRequest<'_>,
) -> Finding {
    let saving = Saving::latency(victims.iter().map(|victim| victim.stranded_ns).collect());
    let cause = what_it_did(model, worst.request);
    let named: Vec<String> = worst.idle.iter().map(|tid| named(model, *tid)).collect();
    let title = format!(
        "{} at port {port} for up to {} behind a busy worker while {} idle",
        counted_as(
            victims.len(),
            "new connection waited",
            "new connections waited"
        ),
        duration(worst.stranded_ns),
        match worst.idle.len() {
            1 => "a sibling sat".to_owned(),
            n => format!("{n} siblings sat"),
        }
    );
    let queued = format!(
        "the kernel had queued {} at one of {listeners} listeners with SO_REUSEPORT at port \
         {port}, for up to {}",
        counted(victims.len(), "new connection"),
        duration(worst.stranded_ns)
    );
    let asleep = format!(
        "asleep in their polls meanwhile, at listeners of their own: {}",
        list(&named)
    );
    let given_to = cause.as_ref().map(|cause| {
        Evidence::new(format!(
            "thread {} ({}), to which they were given, was {}",
            cause.thread, cause.tid, cause.doing
        ))
    });
    let severity = Severity::of(worst.stranded_ns, 0, *ERROR_NS);
    Finding::new(&DECLARATION, severity, title)
        .about("pid", worst.request.tgid)
        .about("port", port)
        .about("threads", worst.idle.clone())
        .about("listeners", listeners)
        .saving(saving)
        .evidence([
            Evidence::of_ns(worst.stranded_ns, queued),
            Evidence::of_ns(worst.stranded_ns, asleep),
        ])
        .evidence(given_to)
        .cause(cause)
        .fix(
            "share one listener between the workers (open it before the fork, register it with \
             EPOLLEXCLUSIVE), or keep what blocks out of the workers' loops",
        )
}

#[cfg(test)]
mod tests;
