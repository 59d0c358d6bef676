//! What things are called, once: in tables, steps, pictures and `whywait explain parts`. The keys
//! are those of JSON, which stay as they are.

use whywait_findings::Dominant;

/// A thing's name, and what it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    /// What JSON calls it; empty: nothing, as it is no part of a table there.
    pub key: &'static str,
    /// Its name.
    pub name: &'static str,
    /// What it means: a sentence without a full stop.
    pub meaning: &'static str,
}

const fn word(key: &'static str, name: &'static str, meaning: &'static str) -> Word {
    Word { key, name, meaning }
}

/// The time before a thread read a request.
pub const UNREAD: &str = "waiting unread";
/// The same, by why nobody read it.
pub const STRANDED: &str = "waiting unread (stranded)";
/// All that could read it were busy.
pub const POOL_BUSY: &str = "waiting unread (pool busy)";
/// Its reader was being woken.
pub const WAKING_UP: &str = "waiting unread (waking up)";
/// The reply of a call was in the kernel, and nobody read it.
pub const REPLY_UNREAD: &str = "reply unread";
/// Nothing of it ran, and none of its calls was open: it waited for something in the program.
pub const QUEUED: &str = "queued inside";
/// Its own work.
pub const AT_WORK: &str = "at work";

/// The parts of a request's time by what threads did, in the order of the tables.
pub const PARTS: [Word; 13] = [
    word(
        "ready-unserved.stranded",
        STRANDED,
        "the request was in the kernel, nobody read it, and a thread that could have was idle",
    ),
    word(
        "ready-unserved.pool-busy",
        POOL_BUSY,
        "the request was in the kernel, and all threads that could read it were busy",
    ),
    word(
        "ready-unserved.wakeup",
        WAKING_UP,
        "the request was in the kernel, and the thread that read it was being woken",
    ),
    word("on-cpu", "on CPU", "a thread computed for it"),
    word(
        "runnable",
        "without a CPU",
        "its thread could have run, and others had the CPUs",
    ),
    word(
        "lock",
        "lock",
        "its thread waited for a lock that another thread held",
    ),
    word(
        "thread",
        "other thread",
        "its thread waited for another thread to do something",
    ),
    word(
        "disk",
        "disk",
        "its thread waited for a disk or a file system",
    ),
    word(
        "network",
        "network",
        "its thread waited for a peer, or for whatever comes to its event loop",
    ),
    word(
        "timer",
        "timer (sleep)",
        "its thread slept, or waited until a time was over",
    ),
    word(
        "uring",
        "io_uring",
        "its thread waited for operations of an io_uring ring",
    ),
    word(
        "page-fault",
        "page fault",
        "its thread waited for a page of memory",
    ),
    word(
        "unknown",
        "unknown",
        "nothing recorded says what its thread waited for",
    ),
];

/// Other names of time: of a request whose waits are not told apart, and by its calls.
pub const OTHERS: [Word; 5] = [
    word(
        "ready-unserved",
        UNREAD,
        "the request was in the kernel, and nobody had read it yet",
    ),
    word("", "with PEER", "one of its calls to that peer was open"),
    word(
        "",
        REPLY_UNREAD,
        "the reply of one of its calls was in the kernel, and nobody read it",
    ),
    word(
        "",
        QUEUED,
        "it had been read, none of its calls was open and no thread worked for it: it waited for \
         a worker, a connection, a lock of tasks, a place in a queue or a timer",
    ),
    word("", AT_WORK, "a thread worked for it, or was about to"),
];

/// All of them.
pub fn words() -> impl Iterator<Item = &'static Word> {
    PARTS.iter().chain(&OTHERS)
}

/// The name of what JSON calls so. What has no other name keeps its own.
pub fn name_of(key: &str) -> &str {
    let found = words().find(|word| word.key == key && !key.is_empty());
    found.map_or(key, |word| word.name)
}

/// The same for what most of the slow requests' time was.
pub(super) fn dominant(part: Dominant) -> String {
    match part {
        Dominant::ReadyUnserved => UNREAD.to_owned(),
        Dominant::Queued => format!(
            "{QUEUED} (for a worker, a connection, a lock of tasks, another request's fetch, or a \
             timer)"
        ),
        Dominant::Part(part) if part.name() == "network" => {
            "network (a peer, or anything that a loop waits for)".to_owned()
        }
        Dominant::Part(part) => name_of(part.name()).to_owned(),
    }
}

/// What `whywait explain parts` says.
pub fn explained() -> String {
    let list = |words: &[Word]| -> String {
        let lines = words
            .iter()
            .map(|word| format!("- {}: {}\n", word.name, word.meaning));
        lines.collect()
    };
    format!(
        "# The parts of a request's time\n\nBy what threads did. These sum to the time from a \
         request's first byte in the kernel to the last byte of its response.\n\n{}\n# Other \
         names\n\nBy a request's calls to others, where threads do not show where it was: an \
         event loop's do not.\n\n{}",
        list(&PARTS),
        list(&OTHERS)
    )
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_name_is_one_things() {
        let names: HashSet<&str> = words().map(|word| word.name).collect();
        assert_eq!(names.len(), words().count());
        assert_eq!(name_of("ready-unserved"), UNREAD);
        assert_eq!(name_of("on-cpu"), "on CPU");
        assert_eq!(name_of("idle"), "idle");
        assert_eq!(name_of(""), "");
    }
}
