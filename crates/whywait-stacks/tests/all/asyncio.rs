//! Tasks of asyncio, of every interpreter here whose layout is known.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::*;
use whywait_events::TaskState;
use whywait_stacks::{CoroutineTask, Unwinder, Unwound};

/// The program; it is killed in the end.
struct Waiting {
    child: Child,
    /// Function, line, and what it waits in.
    tasks: Vec<(String, u32, String)>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn waiting(interpreter: &Path) -> Waiting {
    let mut child = Command::new(interpreter)
        .arg(program("tasks.py"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let lines = lines.map(|line| line.expect("a line"));
    let tasks = lines.take_while(|line| !line.is_empty()).map(|line| {
        let mut words = line.splitn(3, ' ');
        let mut word = || words.next().expect("a word").to_owned();
        (word(), word().parse().expect("a line number"), word())
    });
    let tasks = tasks.collect();
    Waiting { child, tasks }
}

/// Interpreters that have tasks which are read.
fn with_tasks(interpreter: &Path) -> bool {
    let is_later = "import sys; sys.exit(sys.version_info < (3, 11))";
    let status = Command::new(interpreter).args(["-c", is_later]).status();
    status.expect("it runs").success()
}

fn all_tasks(unwinder: &mut Unwinder, tgid: u32) -> Vec<CoroutineTask> {
    assert!(unwinder.frame_places(tgid).is_some());
    let places = unwinder.tasks(tgid);
    let tasks = places.into_iter();
    tasks
        .filter_map(|place| unwinder.task(tgid, place))
        .collect()
}

#[test]
fn what_tasks_wait_in() {
    let mut tried = 0;
    for interpreter in interpreters(14) {
        if !with_tasks(&interpreter) {
            continue;
        }
        tried += 1;
        let what = interpreter.display();
        let running = waiting(&interpreter);
        let mut unwinder = Unwinder::new();
        let tasks = all_tasks(&mut unwinder, running.child.id());
        assert_eq!(losses(&unwinder), [], "{what}");
        let frames = tasks.iter().flat_map(|task| task.frames.iter().flatten());
        let all = Unwound {
            frames: frames.copied().collect(),
            ..Unwound::default()
        };
        let names = Names::of(&mut unwinder, &all);
        let runs = |task: &&CoroutineTask| task.state == TaskState::Running;
        assert_eq!(tasks.iter().filter(runs).count(), 1, "{what}");
        let stacks: Vec<Vec<(String, u32)>> = tasks
            .iter()
            .filter_map(|task| {
                let symbols = task.frames.iter().flatten().map(|f| &names.symbols[f][0]);
                (task.state == TaskState::Waiting)
                    .then(|| symbols.map(|s| (s.name.clone(), s.line)).collect())
            })
            .collect();
        for (function, line, waits_in) in &running.tasks {
            let has = |stack: &&Vec<(String, u32)>| {
                stack
                    .iter()
                    .any(|(name, at)| name == function && at == line)
            };
            let stack = stacks.iter().find(has);
            let stack = stack.unwrap_or_else(|| panic!("{what} {function} {line}: {stacks:#?}"));
            let innermost = match &*stack[0].0 {
                // As 3.11 has it.
                "TaskGroup.__aexit__" => "TaskGroup._aexit",
                name if name == function => "-",
                name => name,
            };
            assert_eq!(innermost, waits_in, "{what} {stack:#?}");
            let outermost = &stack.last().expect("a frame").0;
            assert_eq!(outermost, "decorated.<locals>.within", "{what}");
        }
        assert_eq!(running.tasks.len(), 20, "{what}");
        let locks = |function: &str| {
            let mut found = tasks.iter().filter(|task| {
                let mut frames = task.frames.iter().flatten();
                frames.any(|frame| names.symbols[frame][0].name == function)
            });
            found.next().expect("such a task").locks
        };
        let (has, wants) = (locks("has_lock"), locks("wants_it"));
        assert!(has.held != 0 && has.awaited == 0, "{what}: {has:?}");
        assert_eq!(wants.awaited, has.held, "{what}");
        assert!(
            wants.held != 0 && wants.held != has.held,
            "{what}: {wants:?}"
        );
        assert_eq!(locks("asleep").held, 0, "{what}");
    }
    assert!(tried > 0, "no Python here has tasks");
}
