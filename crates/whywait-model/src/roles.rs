//! Roles: threads that do the same.
//!
//! Workers of a server are often processes, not threads: forked ahead, each with the same code.
//! What one of them waits for, all of them do. So processes that run the same program are one
//! program here: their main threads have the same name but for its numbers, and they have the same
//! executable as far as it is known. Of an interpreter that is not enough: what else tells two
//! programs apart is the function.

use std::collections::{BTreeMap, BTreeSet};

use whywait_events::ModuleKind;

use crate::stacks::StackNames;
use crate::timeline::Thread;

/// Stacks of a process that are looked through for its executable.
const MAX_STACKS: usize = 64;

/// Threads that do the same: in processes that run the same program, with names that differ in
/// numbers only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Role {
    /// The program, by the first process that runs it.
    pub program: u32,
    /// The threads' name, with `N` for each number.
    pub name: String,
}

/// Which processes run the same program: for each the first one that does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SameProgram(BTreeMap<u32, u32>);

impl SameProgram {
    pub(crate) fn of(threads: &BTreeMap<u32, Thread>, stacks: &StackNames) -> Self {
        let mut named: BTreeMap<String, Vec<(u32, Option<&str>)>> = BTreeMap::new();
        let mains = threads.values().filter(|thread| thread.tid == thread.tgid);
        for main in mains.filter(|thread| !thread.name.is_empty()) {
            let process = (main.tgid, executable(main, stacks));
            let name = without_numbers(&main.name);
            named.entry(name).or_default().push(process);
        }
        let mut first: BTreeMap<u32, u32> = BTreeMap::new();
        for processes in named.values() {
            let known: BTreeSet<&str> = processes.iter().filter_map(|(_, path)| *path).collect();
            // Where there is but one, those of which it is not known have it as well.
            let same = known.len() <= 1;
            let mut firsts: BTreeMap<Option<&str>, u32> = BTreeMap::new();
            for (tgid, path) in processes {
                let path = path.filter(|_| !same);
                first.insert(*tgid, *firsts.entry(path).or_insert(*tgid));
            }
        }
        Self(first)
    }

    /// That of a process.
    pub(crate) fn of_process(&self, tgid: u32) -> u32 {
        self.0.get(&tgid).copied().unwrap_or(tgid)
    }
}

/// The file that a process runs, by its main thread's stacks.
fn executable<'a>(main: &Thread, stacks: &'a StackNames) -> Option<&'a str> {
    let of_waits = main.timeline.waits().iter().map(|wait| wait.user_stack);
    let of_samples = main.samples.iter().map(|sample| sample.user_stack);
    of_waits
        .take(MAX_STACKS)
        .chain(of_samples.take(MAX_STACKS))
        .filter_map(|id| stacks.get(id))
        .find_map(|stack| {
            let start = stack.labels.iter().rev().find(|label| {
                label.kind == ModuleKind::Elf && matches!(&*label.name, "_start" | "_start_c")
            })?;
            Some(&*start.module)
        })
}

/// A thread's name with `N` for each number in it: workers of a pool differ in nothing else.
pub(crate) fn without_numbers(name: &str) -> String {
    let mut role = String::with_capacity(name.len());
    let mut in_number = false;
    for c in name.chars() {
        let digit = c.is_ascii_digit();
        if !digit {
            role.push(c);
        } else if !in_number {
            role.push('N');
        }
        in_number = digit;
    }
    role
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::Script;

    #[test]
    fn names_hold_from_run_to_run() {
        assert_eq!(without_numbers("worker-12"), "worker-N");
        assert_eq!(without_numbers("io1:2"), "ioN:N");
        assert_eq!(without_numbers("tokio-runtime-w"), "tokio-runtime-w");
    }

    /// The programs of processes 10, 20, 30, of these names and executables.
    fn programs(processes: [(&str, &str); 3]) -> [u32; 3] {
        let mut script = Script::new();
        for (tgid, (name, path)) in (10..).step_by(10).zip(processes) {
            script.thread_of(tgid, tgid, name);
            if !path.is_empty() {
                let stack = script.stack_in(path, &["_start", "main", "nanosleep"]);
                script.sleeps(tgid, stack, 10, 20);
            }
        }
        let model = script.model();
        [10, 20, 30].map(|tgid| model.program(tgid))
    }

    #[test]
    fn processes_of_one_executable_are_one_program() {
        let httpd = "/usr/sbin/httpd";
        assert_eq!(programs([("httpd", httpd); 3]), [10, 10, 10]);
        let numbered = [("w-1", httpd), ("w-2", httpd), ("w-13", "")];
        assert_eq!(
            programs(numbered),
            [10, 10, 10],
            "one of them shows nothing"
        );
        let others = [("httpd", httpd), ("httpd", "/opt/httpd"), ("httpd", httpd)];
        assert_eq!(programs(others), [10, 20, 10]);
        let named = [("httpd", httpd), ("rotatelogs", httpd), ("", "")];
        assert_eq!(programs(named), [10, 20, 30]);
    }

    #[test]
    fn a_version_in_a_programs_name_stays() {
        let mut script = Script::new();
        script
            .recorded(|recorded| recorded.meta.command = vec!["/usr/bin/python3".to_owned()])
            .thread_of(10, 10, "python3")
            .thread_of(10, 11, "worker-12");
        let model = script.model();
        assert_eq!(model.role_name(10), "python3");
        assert_eq!(model.role_name(11), "worker-N");
    }

    #[test]
    fn a_process_has_its_name_and_no_title() {
        let mut script = Script::new();
        script
            .thread_of(10, 10, "gunicorn: maste")
            .thread_of(10, 11, "pool: 7");
        let model = script.model();
        assert_eq!(model.thread_name(10), "gunicorn");
        assert_eq!(
            model.thread_name(11),
            "pool: 7",
            "threads have names of their own"
        );
    }

    #[test]
    fn threads_of_one_name_in_one_program_have_one_role() {
        let mut script = Script::new();
        script
            .thread_of(10, 10, "server")
            .thread_of(10, 11, "io-1")
            .thread_of(20, 20, "server")
            .thread_of(20, 21, "io-2")
            .thread_of(30, 30, "other")
            .thread_of(30, 31, "io-1");
        let model = script.model();
        assert_eq!(model.role(11), model.role(21));
        assert_ne!(model.role(11), model.role(31));
        assert_ne!(model.role(11), model.role(10));
        assert_ne!(model.role(98), model.role(99), "nobody knows them");
        assert_eq!(model.processes_of([11, 21, 20]).len(), 2);
    }
}
