//! Threads: those that are there, begin, become another program, take a name and end.
//!
//! Children are followed by the kernel. A process that another one puts into a cgroup of the
//! target, as a service manager does, is found by looking.

use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapFlags};
use whywait_events::recording::WriteError;
use whywait_events::{Event, ThreadChange, ThreadEvent};
use whywait_words::without_secrets;

use crate::collectors::sockets;
use crate::core::collector::{Collector, Hook, Keeper};
use crate::core::error::CaptureError;
use crate::core::iterate::{self, Scope};
use crate::core::programs::Programs;
use crate::core::records::Record;
use crate::core::shared::Shared;
use crate::core::skel::types::{self, record_type, thread_change};
use crate::core::target::Target;

pub(crate) const COLLECTOR: Collector = Collector {
    hooks: &[
        Hook::always("sched_process_fork"),
        Hook::always("sched_process_exec"),
        Hook::always("sched_process_exit"),
        Hook::always("task_rename"),
    ],
    // Threads are followed before they are looked for, so that none slips through in between.
    after: find,
    takes: &[record_type::RECORD_THREAD],
    keeper: |target| Box::new(Threads::of(target)),
    ..Collector::NONE
};

/// How often the target's cgroups are looked at …
const LOOK: Duration = Duration::from_millis(100);
/// … unless that takes more than this share of the time, as with hundreds of containers.
const SHARE: u32 = 100;

struct Threads {
    target: Target,
    next_look: Instant,
}

impl Threads {
    fn of(target: &Target) -> Self {
        Self {
            target: target.clone(),
            next_look: Instant::now() + LOOK,
        }
    }
}

impl Keeper for Threads {
    fn take(&mut self, record: Record, shared: &mut Shared) -> Result<(), WriteError> {
        match record {
            Record::Thread(record) => changes(&record, shared),
            _ => Ok(()),
        }
    }

    fn turn(&mut self, programs: &mut Programs, shared: &mut Shared) -> Result<(), CaptureError> {
        let now = Instant::now();
        if self.target.cgroups.is_empty() || now < self.next_look {
            return Ok(());
        }
        let mut new = Vec::from_iter(self.target.in_cgroups());
        new.retain(|tgid| shared.processes.threads(*tgid).is_empty());
        take_in(programs, &new)?;
        sockets::take_in(programs, &new)?;
        self.next_look = now + LOOK.max(now.elapsed() * SHARE);
        Ok(())
    }
}

/// Takes the threads that are there already into the target.
fn find(programs: &mut Programs, target: &Target) -> Result<(), CaptureError> {
    keep_apart(programs, target);
    // A process made between two looks descends from one that is followed by then, so two looks
    // suffice.
    for _ in 0..2 {
        programs.found = target.processes();
        let found = Vec::from_iter(programs.found.iter().copied());
        take_in(programs, &found)?;
    }
    if !target.lives() {
        return Err(CaptureError::NoSuchProcess(target.head));
    }
    Ok(())
}

/// Has the kernel know which server each process is of, before anything is counted.
fn keep_apart(programs: &Programs, target: &Target) {
    for (server, processes) in (1_u32..).zip(target.processes_of_servers()) {
        for tgid in processes {
            let map = &programs.skel.maps.servers;
            // It is full at 65,536 processes: what is left out is counted, of no server.
            let _ = map.update(&tgid.to_ne_bytes(), &server.to_ne_bytes(), MapFlags::ANY);
        }
    }
}

/// Takes the threads of processes into the target, unless they are there already.
fn take_in(programs: &mut Programs, tgids: &[u32]) -> Result<(), CaptureError> {
    let threads = |source| CaptureError::Iterate {
        what: "threads",
        source,
    };
    let mut buffer = Vec::new();
    for &tgid in tgids {
        match iterate::attach(&programs.skel.progs.find_threads, Scope::Process(tgid)) {
            Ok(link) => iterate::read(&link, &mut buffer).map_err(threads)?,
            Err(error) if has_ended(tgid, &error) => {}
            Err(error) => return Err(threads(error)),
        }
    }
    Ok(())
}

/// It ended before it could be looked at.
fn has_ended(tgid: u32, error: &std::io::Error) -> bool {
    !whywait_target::alive(tgid) || error.raw_os_error() == Some(libc::ESRCH)
}

/// A thread is there, or another, or no more.
fn changes(record: &types::thread_record, shared: &mut Shared) -> Result<(), WriteError> {
    let change = match thread_change(record.change) {
        thread_change::THREAD_FORK => ThreadChange::Fork,
        thread_change::THREAD_EXEC => ThreadChange::Exec,
        thread_change::THREAD_RENAME => ThreadChange::Rename,
        thread_change::THREAD_EXIT => ThreadChange::Exit,
        _ => ThreadChange::Found,
    };
    match change {
        ThreadChange::Exit => thread_ends(record, shared)?,
        ThreadChange::Exec => process_becomes_another(record, shared)?,
        _ => {
            // The number was another process's whose end was lost.
            let anew = change == ThreadChange::Fork && record.tid == record.tgid;
            if anew && shared.processes.forget(record.tgid) {
                shared.output.unwinder.forget(record.tgid);
            }
            shared.processes.thread_began(record.tgid, record.tid);
            if record.tid == record.tgid {
                shared.processes.program_began(record.tgid);
            }
        }
    }
    shared.output.write(&Event::Thread(ThreadEvent {
        at_ns: record.at_ns,
        tid: record.tid,
        tgid: record.tgid,
        parent_tid: record.parent_tid,
        change,
        comm: name(&record.comm),
        command: match change {
            ThreadChange::Exec => command(record.tgid),
            _ => String::new(),
        },
    }))
}

/// The command line of a process, without secrets: it is kept.
fn command(tgid: u32) -> String {
    without_secrets(&whywait_target::command_begins(tgid)).join(" ")
}

fn thread_ends(record: &types::thread_record, shared: &mut Shared) -> Result<(), WriteError> {
    shared.release(record.tid, None)?;
    shared.forget_thread(record.tid);
    if shared.processes.thread_ended(record.tgid, record.tid) {
        shared.output.unwinder.forget(record.tgid);
    }
    Ok(())
}

/// Of a process that becomes another program one thread is left, under the process's number. If
/// it had another number before, that one ends here, and no exit tells of it.
fn process_becomes_another(
    record: &types::thread_record,
    shared: &mut Shared,
) -> Result<(), WriteError> {
    shared.output.unwinder.forget(record.tgid);
    shared.processes.program_began(record.tgid);
    for tid in shared.processes.becomes_another(record.tgid, record.tid) {
        shared.release(tid, None)?;
        shared.forget_thread(tid);
        shared.output.write(&Event::Thread(ThreadEvent {
            at_ns: record.at_ns,
            tid,
            tgid: record.tgid,
            parent_tid: 0,
            change: ThreadChange::Exit,
            comm: name(&record.comm),
            command: String::new(),
        }))?;
    }
    Ok(())
}

fn name(comm: &[i8]) -> String {
    let bytes: Vec<u8> = comm
        .iter()
        .map(|byte| *byte as u8)
        .take_while(|byte| *byte != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use whywait_events::recording::{Meta, Recording, Writer};
    use whywait_stacks::Unwinder;

    use super::*;
    use crate::collectors;
    use crate::core::processes::ENDED_AT_ONCE;
    use crate::core::recorder::Recorder;

    const FOUND: u32 = thread_change::THREAD_FOUND.0;
    const FORK: u32 = thread_change::THREAD_FORK.0;
    const EXEC: u32 = thread_change::THREAD_EXEC.0;
    const EXIT: u32 = thread_change::THREAD_EXIT.0;

    fn recorder() -> (tempfile::TempDir, Recorder) {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let writer =
            Writer::create(&dir.path().join("recording"), &Meta::default()).expect("writable");
        let recorder = Recorder::new(
            &collectors::ALL,
            &Target::from(1),
            Box::new(writer),
            Box::new(Unwinder::new()),
        );
        (dir, recorder)
    }

    fn thread(recorder: &mut Recorder, at_ns: u64, change: u32, tgid: u32, tid: u32) {
        let record = types::thread_record {
            r#type: types::record_type::RECORD_THREAD.0,
            change,
            at_ns,
            tid,
            tgid,
            parent_tid: 0,
            parent_tgid: 0,
            comm: [0; 16],
        };
        recorder
            .take(Record::Thread(Box::new(record)))
            .expect("writable");
    }

    #[test]
    fn a_process_is_known_from_its_first_thread_to_its_last() {
        let (_dir, mut recorder) = recorder();
        thread(&mut recorder, 1, FOUND, 10, 10);
        thread(&mut recorder, 2, FORK, 10, 11);
        thread(&mut recorder, 3, FORK, 20, 20);
        thread(&mut recorder, 4, EXIT, 10, 10);
        assert_eq!(recorder.shared.processes.all(), [10, 20]);
        thread(&mut recorder, 5, EXIT, 10, 11);
        assert_eq!(recorder.shared.processes.all(), [20]);
    }

    #[test]
    fn a_thread_that_becomes_another_program_loses_its_number() {
        let (dir, mut recorder) = recorder();
        thread(&mut recorder, 1, FOUND, 10, 10);
        thread(&mut recorder, 2, FORK, 10, 11);
        thread(&mut recorder, 3, EXIT, 10, 10);
        // The kernel has given it the first thread's number by now.
        thread(&mut recorder, 4, EXEC, 10, 10);
        thread(&mut recorder, 5, EXIT, 10, 10);
        assert!(
            recorder.shared.processes.all().is_empty(),
            "{:?}",
            recorder.shared.processes.all()
        );
        recorder
            .shared
            .output
            .writer
            .finish(&Meta::default())
            .expect("writable");
        let mut exits = Vec::new();
        let recording = Recording::open(&dir.path().join("recording")).expect("readable");
        let visit = &mut |event: &ThreadEvent| {
            if event.change == ThreadChange::Exit {
                exits.push((event.at_ns, event.tid));
            }
        };
        recording
            .read::<ThreadEvent>(None, visit)
            .expect("readable");
        assert_eq!(exits, [(3, 10), (4, 11), (5, 10)]);
    }

    #[test]
    fn processes_whose_end_was_lost_are_forgotten_little_by_little() {
        let (_dir, mut recorder) = recorder();
        for tgid in 1..=150 {
            thread(&mut recorder, 1, FOUND, tgid, tgid);
        }
        let is_even = |tgid: u32| tgid.is_multiple_of(2);
        recorder.shared.forget_ended(is_even);
        assert_eq!(
            recorder.shared.processes.all().len(),
            150 - ENDED_AT_ONCE / 2
        );
        recorder.shared.forget_ended(is_even);
        recorder.shared.forget_ended(is_even);
        assert_eq!(recorder.shared.processes.all().len(), 75);
        recorder.shared.forget_ended(|_| false);
        assert_eq!(
            recorder.shared.processes.all().len(),
            75 - ENDED_AT_ONCE,
            "it begins again"
        );
    }
}
