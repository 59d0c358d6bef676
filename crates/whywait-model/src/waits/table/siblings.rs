//! Rows of sibling processes: what every worker process waits for is one row.

use std::collections::{BTreeMap, BTreeSet};

use super::{WaitRow, WaitWaker};
use crate::model::Model;
use crate::waits::futex::WaitClass;

/// Which rows can be the same wait in several processes.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Same {
    program: u32,
    what: String,
    class: Option<WaitClass>,
    function: Option<String>,
    /// Where a process has several such rows: its descriptor or its address as well. Processes that
    /// were forked have those of their parent.
    object: Option<(Option<i32>, Option<u64>)>,
}

impl Same {
    fn of(model: &Model, row: &WaitRow) -> Self {
        Self {
            program: model.program(row.tgid),
            what: kind(&row.what).to_owned(),
            class: row.class,
            function: row.function.clone(),
            object: None,
        }
    }
}

/// An epoll instance's number is given in the order in which they were seen.
fn kind(what: &str) -> &str {
    if what.starts_with("epoll ") {
        "epoll"
    } else {
        what
    }
}

/// Takes rows of the same kind together, of processes that run the same program.
pub(super) fn merged(model: &Model, rows: Vec<WaitRow>) -> Vec<WaitRow> {
    let mut groups: BTreeMap<Same, Vec<WaitRow>> = BTreeMap::new();
    for row in rows {
        groups.entry(Same::of(model, &row)).or_default().push(row);
    }
    let mut by_object: BTreeMap<Same, Vec<WaitRow>> = BTreeMap::new();
    for rows in groups.into_values() {
        let processes: BTreeSet<u32> = rows.iter().map(|row| row.tgid).collect();
        let one_each = processes.len() == rows.len();
        for row in rows {
            let same = Same {
                object: (!one_each).then_some((row.fd, row.address)),
                ..Same::of(model, &row)
            };
            by_object.entry(same).or_default().push(row);
        }
    }
    by_object
        .into_values()
        .flat_map(|rows| {
            let processes: BTreeSet<u32> = rows.iter().map(|row| row.tgid).collect();
            // Of one process they are different things: epoll instances, say.
            if processes.len() == rows.len() {
                one(rows).into_iter().collect()
            } else {
                rows
            }
        })
        .collect()
}

/// One row of several, with the stack and the reasons of the longest.
fn one(mut rows: Vec<WaitRow>) -> Option<WaitRow> {
    rows.sort_by_key(|row| (std::cmp::Reverse(row.total_ns), row.tgid));
    let same_fd = rows.windows(2).all(|pair| pair[0].fd == pair[1].fd);
    let same_address = rows
        .windows(2)
        .all(|pair| pair[0].address == pair[1].address);
    let mut rows = rows.into_iter();
    let mut all = rows.next()?;
    let mut wakers: Vec<WaitWaker> = all.waker.take().into_iter().collect();
    for row in rows {
        all.what = kind(&all.what).to_owned();
        all.pids.extend(row.pids);
        all.count = all.count.saturating_add(row.count);
        all.short = all.short.saturating_add(row.short);
        all.total_ns = all.total_ns.saturating_add(row.total_ns);
        all.longest_ns = all.longest_ns.max(row.longest_ns);
        all.unfinished = all.unfinished.saturating_add(row.unfinished);
        all.critical_ns = all.critical_ns.saturating_add(row.critical_ns);
        all.threads.extend(row.threads);
        if let Some(waker) = row.waker {
            add(&mut wakers, waker);
        }
    }
    all.pids.sort_unstable();
    all.threads
        .sort_by_key(|thread| (std::cmp::Reverse(thread.total_ns), thread.tid));
    all.waker = wakers.into_iter().max_by_key(|waker| waker.count);
    all.fd = all.fd.filter(|_| same_fd);
    all.address = all.address.filter(|_| same_address);
    all.mapping = all.mapping.filter(|_| same_address);
    all.critical_share = super::share(all.critical_ns, all.total_ns);
    Some(all)
}

/// Threads of the same name are one waker.
fn add(wakers: &mut Vec<WaitWaker>, waker: WaitWaker) {
    let Some(known) = wakers.iter_mut().find(|known| known.who == waker.who) else {
        wakers.push(waker);
        return;
    };
    known.count = known.count.saturating_add(waker.count);
    known.tid = known.tid.filter(|tid| Some(*tid) == waker.tid);
}

#[cfg(test)]
mod tests {
    use crate::script::Script;

    const FSYNC: u32 = 74;

    /// Processes of these names, each of which syncs files with these descriptors.
    fn synced(names: &[&str], fds: impl Fn(u32) -> Vec<u64>) -> Vec<(u64, usize, Option<i32>)> {
        let mut script = Script::new();
        let stack = script.stack(&["_start", "main", "append_entries", "fsync"]);
        for (pid, name) in (100..).zip(names) {
            script.thread_of(pid, pid, name);
            for (n, fd) in (0..).zip(fds(pid)) {
                script
                    .wait(pid, FSYNC, 100 + n * 100, 140 + n * 100)
                    .stack(stack)
                    .args([fd, 0])
                    .for_io()
                    .done();
            }
        }
        let rows = script.model().waits();
        let row = |row: &super::WaitRow| (row.total_ns / 1_000_000, row.pids.len(), row.fd);
        rows.iter().map(row).collect()
    }

    #[test]
    fn what_every_worker_process_waits_for_is_one_row() {
        let own = |pid: u32| vec![u64::from(pid)];
        assert_eq!(synced(&["httpd"; 4], own), [(160, 4, None)]);
        assert_eq!(synced(&["httpd"; 4], |_| vec![5]), [(160, 4, Some(5))]);
        let two = synced(&["httpd", "httpd", "logger"], own);
        assert_eq!(two, [(80, 2, None), (40, 1, Some(102))]);
    }

    #[test]
    fn what_a_process_has_several_of_stays_apart() {
        let same = synced(&["httpd"; 2], |_| vec![5, 6]);
        assert_eq!(same, [(80, 2, Some(5)), (80, 2, Some(6))]);
        let alone = synced(&["httpd"], |_| vec![5, 6]);
        assert_eq!(alone, [(40, 1, Some(5)), (40, 1, Some(6))]);
    }
}
