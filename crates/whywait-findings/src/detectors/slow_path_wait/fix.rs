//! What helps against a wait on slow requests' paths, by what is waited for.

use std::collections::BTreeSet;

use whywait_events::StackId;
use whywait_model::Model;
use whywait_model::waits::broad_kind;

use super::WaitTarget;
use crate::numbers::{IN_TITLE, MUCH, Share};
use crate::shared::intervals::sum;

/// What helps where requests wait for the sleeps of others.
pub(super) const IN_OTHERS: &str = "do not sleep with something in hand that other requests wait \
    for: a lock (a read-write lock, too: who waits to write holds up those who come to read), a \
    place, a result that one makes for all";

/// What helps where a poll for one descriptor ended with its timeout.
pub(super) const TIMED_OUT: &str = "nothing came within the timeout of what it polls for: see whom \
    it waits for there, and why that one does not answer; where nobody is to answer it is the \
    program's own sleep, which can be shorter";

/// Whether that is mostly a pipe without room.
pub(super) fn is_full_pipe(whats: &[(&str, u64)]) -> bool {
    let first = whats.first();
    first.is_some_and(|(what, _)| broad_kind(what) == "pipe write")
}

/// Whether that is mostly an accept queue without room, of a unix socket. (TCP drops what comes
/// then, and who connects tries again: see `connect-retried`.)
pub(super) fn is_full_backlog(whats: &[(&str, u64)]) -> bool {
    let first = whats.first();
    first.is_some_and(|(what, _)| *what == "connect (unix backlog full)")
}

/// What helps against such a wait.
pub(super) fn of(
    model: &Model,
    target: WaitTarget,
    whats: &[(&str, u64)],
    kernel_stacks: impl Iterator<Item = StackId>,
) -> String {
    match target {
        WaitTarget::Timer => {
            "it is the program's own sleep: wait for the event instead of for a time, or shorten it"
        }
        WaitTarget::Peer if is_full_pipe(whats) => {
            "the pipe is full: who reads it (a collector of logs, a terminal, the parent process) \
             is slower than who writes: write less, have a thread of its own write from a queue \
             that drops what has no room, or make the reader quicker"
        }
        WaitTarget::Peer if is_full_backlog(whats) => {
            "the accept queue of the socket is full: who accepts there is slower than those who \
             connect: have more accept there, or one that does not work meanwhile, make it \
             quicker, or keep connections open and use them again; a longer queue (listen's \
             backlog, net.core.somaxconn) only moves the wait"
        }
        WaitTarget::Peer => {
            "look at the peer: why it takes so long; ask it earlier or several at once, cache its \
             answers, or limit the wait"
        }
        WaitTarget::Client => {
            "nothing in the server waits but for its client: read and write with time limits, and \
             buffer what is large"
        }
        WaitTarget::Anything => {
            "find what these requests wait for: record the process they ask too, or trace one with \
             --request"
        }
        WaitTarget::Memory => {
            return fix_memory(whats).to_owned();
        }
        WaitTarget::Disk => return fix_disk(model, whats, kernel_stacks),
    }
    .to_owned()
}

/// … for memory.
fn fix_memory(whats: &[(&str, u64)]) -> &'static str {
    let is = |word: &str| whats.first().is_some_and(|(what, _)| what.contains(word));
    if is("reclaim") || is("cgroup") || is("swap") || is("out of memory") || is("compaction") {
        "memory is short: give it more (or raise the cgroup's memory.high), use less, or lock what \
         requests touch with mlock"
    } else if is("mmap lock") {
        "another thread maps or unmaps memory at the time: map less often, or more at once"
    } else {
        "touch the pages before requests need them (MAP_POPULATE, madvise), keep them with mlock, \
         or read the file instead of mapping it"
    }
}

/// … for the disk.
fn fix_disk(
    model: &Model,
    whats: &[(&str, u64)],
    kernel_stacks: impl Iterator<Item = StackId>,
) -> String {
    let total_ns = sum(whats.iter().map(|(_, ns)| *ns));
    let ns_of = |words: &[&str]| {
        let is_one = |what: &str| words.iter().any(|word| what.contains(word));
        sum(whats
            .iter()
            .filter(|(what, _)| is_one(what))
            .map(|(_, ns)| *ns))
    };
    // What is a small part of it is not worth a change of the program.
    let much = |words: &[&str]| {
        let ns = ns_of(words);
        ns > 0 && Share::new(ns, total_ns).is_at_least(*MUCH)
    };
    let kernel_stacks: BTreeSet<StackId> = kernel_stacks.collect();
    let allocates = kernel_stacks
        .iter()
        .filter_map(|id| model.stacks.get(*id))
        .flat_map(|stack| &stack.labels)
        .any(|label| {
            let name = &*label.name;
            name.contains("_da_") || name.contains("_map_blocks") || name.ends_with("_writepages")
        });
    let mut fixes: Vec<&str> = Vec::new();
    // The kernel holds back who writes more than the disk takes: fewer syncs are of no use then.
    let held_back = ["throttling", "queue full"];
    let syncs = ["sync", "fdatasync", "journal", "flush"];
    let throttled = much(&held_back) && ns_of(&held_back) >= ns_of(&syncs);
    if throttled {
        fixes.push(
            "more is written than the disk takes: write less (compress it, drop what nobody \
             reads), write elsewhere, or have it written off the requests' path",
        );
    }
    if much(&syncs) && !throttled {
        fixes.push(
            "sync less often, once for several requests (a group commit), or off the request's \
             path where the answer need not wait for it",
        );
    }
    // A file that becomes longer, or is made anew, has blocks and metadata to be written besides
    // its data.
    if (allocates && much(&["sync", "write", "throttling", "writeback"]))
        || much(&["journal", "metadata", "discard"])
    {
        fixes.push(
            "overwrite a file in place, or allocate it before it is written (posix_fallocate), so \
             that a sync has no blocks to allocate",
        );
    }
    if much(&["dirty page throttling"]) {
        fixes.push(
            "start writing back earlier and in smaller pieces (sync_file_range, a lower \
             vm.dirty_background_bytes)",
        );
    }
    if much(&["writeback throttling", "I/O throttling", "queue full"]) {
        fixes.push("keep bulk writers (copies, backups) off this disk, or slow them down (io.max)");
    }
    if much(&["read", "pread64"]) && fixes.is_empty() {
        fixes.push(
            "read ahead of the request (posix_fadvise), or keep what requests read in memory",
        );
    }
    if fixes.is_empty() {
        fixes.push("move the I/O off the request's path, or to a faster disk");
    }
    fixes.truncate(*IN_TITLE);
    fixes.join("; ")
}
