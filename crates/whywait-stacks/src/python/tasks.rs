//! What tasks of asyncio wait for, read out of a process that goes on meanwhile.
//!
//! A task has its coroutine, and the future that it waits for. A coroutine that is suspended has,
//! on top of its frame's stack of values, what it awaits: another coroutine, and so on down to that
//! future. If the future is a task itself, the chain goes on in that one.
//!
//! Nothing is guessed. Each object must be one by the name of its type, a chain must end at the
//! future that its task has, and both must be of the same loop. All of it is read twice: what has
//! changed meanwhile is dropped, and counted. Only tasks in C are read (`_asyncio`): those of 3.11
//! and later, unless the program has made its own.
//!
//! Where in a task its fields are shows in each task: one of them is a coroutine, the one in front
//! of it is the future or nothing, and the second behind it is a context. That order is the one of
//! 3.11 to 3.14.

use std::sync::Arc;
use std::time::{Duration, Instant};

use whywait_events::{Frame, ModuleKind, TaskState};

use super::layout::{CoroutineLayout, Frames, StackTop};
use super::objects::{ObjectKind, Types};
use super::read::{CPython, untagged};
use crate::elf::{u32_at, u64_at};
use crate::interpreter::RawFrame;
use crate::loss::Loss;
use crate::modules::Modules;
use crate::process::{Process, field, object, word};

/// A task of asyncio, as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoroutineTask {
    /// Where its coroutine has its frame: what `python_task` in BPF finds while it runs.
    pub address: u64,
    /// What it does.
    pub state: TaskState,
    /// The coroutines that wait for each other, innermost first, unless a thread runs it. In front
    /// of them is what is called when the innermost goes on, or the type of what that waits for,
    /// where these tell what it is.
    pub frames: Option<Vec<Frame>>,
    /// The locks that it has to do with.
    pub locks: TaskLocks,
}

/// Locks and semaphores of asyncio that a task waits for or has, by their addresses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TaskLocks {
    /// The one that it waits for; 0: none, or it does not show.
    pub awaited: u64,
    /// Of those that it has, the one that it took last; 0: none, or it does not show.
    pub held: u64,
}

/// Where a task can be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskPlace {
    pub(super) at: u64,
    /// At that address is a weak reference to it.
    pub(super) weak: bool,
}

/// The file of frames that are no functions, but types of what was awaited.
const AWAITED: &str = "<awaited>";
/// What has not begun to use asyncio may do so later.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// More tasks are not listed.
const MAX_TASKS: usize = 1 << 16;
/// So many tasks wait for each other, and so many coroutines within a task.
const MAX_AWAITED: usize = 8;
const MAX_COROUTINES: usize = 64;
/// A frame with more values is none.
const MAX_VALUES: u64 = 1 << 12;
/// Local variables in which a task is looked for.
const MAX_LOCALS: u64 = 32;
/// Variables and values of a frame in which locks are looked for.
const MAX_ENTERED: usize = 256;
pub(super) const OWNED_BY_GENERATOR: u8 = 1;
/// So much of a task is read, if it is as large.
const MAX_TASK: usize = 256;

/// Fields of futures, and so of tasks: `fut_loop`, `fut_callback0`, `fut_callbacks`.
const LOOP: usize = 16;
const CALLBACK: usize = 24;
const CALLBACKS: usize = 40;
/// The first field of any object, and `func_code`.
const FIRST: u64 = 16;
const FUNCTION_CODE: u64 = 48;

/// What is known of a process's tasks.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    pub(super) types: Types,
    source: Option<TaskSource>,
    looked_at: Option<Instant>,
    /// Where in a task its coroutine is.
    coroutine: Option<usize>,
}

/// Where a process has all its tasks.
#[derive(Debug, Clone, Copy)]
enum TaskSource {
    /// In a `WeakSet` (to 3.13).
    Set(u64),
    /// In a list of each thread, and one of the interpreter.
    Lists(TaskLists),
}

/// Offsets that `_asyncio` states (`Py_AsyncioModuleDebugOffsets`).
#[derive(Debug, Clone, Copy)]
struct TaskLists {
    /// In a task: its place in the list.
    node: u64,
    in_interpreter: u64,
    in_thread: u64,
}

/// A task's own fields.
struct TaskFields {
    coroutine: u64,
    /// What it waits for; 0: nothing.
    waits_for: u64,
    /// Its loop.
    of: u64,
}

/// Where a chain of coroutines ends.
enum ChainEnd {
    Future(u64),
    /// At something that is none of asyncio's.
    Other(u64),
    /// A thread runs the innermost.
    Running,
    /// It has not begun.
    New,
}

/// What a task waits for, as it was read once.
#[derive(Debug, PartialEq, Eq)]
struct TaskChain {
    state: TaskState,
    /// Outermost first.
    frames: Vec<RawFrame>,
    /// The code of what is called first when the future is done.
    callback: Option<u64>,
    /// The type of what is waited for, where that is none of asyncio's in C.
    awaited: Option<Arc<str>>,
}

impl CPython {
    /// Where all tasks are; nothing where asyncio is not used.
    pub(super) fn tasks(
        &mut self,
        process: &mut Process,
        modules: &mut Modules,
    ) -> Result<Vec<TaskPlace>, Loss> {
        let Some(source) = self.task_source(process, modules) else {
            return Ok(Vec::new());
        };
        let found = match source {
            TaskSource::Set(set) => self.of_set(process, set),
            TaskSource::Lists(lists) => self.of_lists(process, lists),
        };
        found.ok_or(Loss::PythonTasks)
    }

    fn task_source(&mut self, process: &mut Process, modules: &mut Modules) -> Option<TaskSource> {
        let lately = |at: Instant| at.elapsed() < LOOK_AGAIN;
        if self.tasks.source.is_none() && !self.tasks.looked_at.is_some_and(lately) {
            self.tasks.looked_at = Some(Instant::now());
            self.tasks.source = self.find_source(process, modules);
        }
        self.tasks.source
    }

    fn find_source(&mut self, process: &mut Process, modules: &mut Modules) -> Option<TaskSource> {
        let layout = self.layout.coroutines?;
        if layout.listed {
            process.reread();
            process.look_for(super::FILES, modules);
            let offsets = process.asyncio()?;
            let mut bytes = [0; 13 * 8];
            process.read_memory(offsets, &mut bytes).then_some(())?;
            let offset = |at: usize| u64_at(&bytes, at * 8).filter(|offset| *offset < 1 << 20);
            self.tasks.coroutine = Some(offset(5)? as usize);
            return Some(TaskSource::Lists(TaskLists {
                node: offset(6)?,
                in_interpreter: offset(8)?,
                in_thread: offset(12)?,
            }));
        }
        let of_python = field(process, self.runtime, self.layout.interpreters_head)?;
        let imported = field(process, of_python, layout.modules)?;
        let module = self.item(process, imported, "asyncio.tasks")?;
        if self.kind(process, module) != ObjectKind::Module {
            return None;
        }
        let names = field(process, module, FIRST)?;
        let set = self
            .item(process, names, "_scheduled_tasks")
            .or_else(|| self.item(process, names, "_all_tasks"))?;
        Some(TaskSource::Set(set))
    }

    fn of_lists(&mut self, process: &mut Process, lists: TaskLists) -> Option<Vec<TaskPlace>> {
        let mut heads = Vec::new();
        for (_, thread) in self.threads(process)? {
            let interpreter = field(process, thread, self.layout.thread_interpreter)?;
            heads.push(thread.checked_add(lists.in_thread)?);
            heads.push(interpreter.checked_add(lists.in_interpreter)?);
        }
        heads.sort_unstable();
        heads.dedup();
        let mut places = Vec::new();
        for head in heads {
            let mut node = word(process, head)?;
            while node != head && node != 0 && places.len() < MAX_TASKS {
                let at = node.checked_sub(lists.node)?;
                places.push(TaskPlace { at, weak: false });
                // One that was taken out of the list meanwhile leads nowhere.
                node = word(process, node).unwrap_or(0);
            }
        }
        Some(places)
    }

    fn of_set(&mut self, process: &mut Process, weak_set: u64) -> Option<Vec<TaskPlace>> {
        const MASK: u64 = 32;
        const TABLE: u64 = 40;
        let set = self.set_of(process, weak_set)?;
        let slots = field(process, set, MASK)?.checked_add(1)?;
        let slots = usize::try_from(slots)
            .ok()
            .filter(|n| *n <= MAX_TASKS * 4)?;
        let table = field(process, set, TABLE)?;
        let mut bytes = vec![0; slots * 16];
        process.read_memory(table, &mut bytes).then_some(())?;
        let keys = bytes.chunks_exact(16).filter_map(|slot| u64_at(slot, 0));
        let references = keys.filter(|at| *at != 0);
        // What was removed leaves something else in its place, which is told by its type later.
        Some(references.map(|at| TaskPlace { at, weak: true }).collect())
    }

    /// The set within a `WeakSet`. Its attributes are a set, a function, a list and a set, one
    /// behind the other.
    fn set_of(&mut self, process: &mut Process, weak_set: u64) -> Option<u64> {
        let is_one = self.type_of(process, weak_set)?;
        (&*is_one.name == "WeakSet").then_some(())?;
        let before = |process: &mut Process, words: u64| {
            word(process, weak_set.checked_sub(words * 8)?).filter(|at| *at != 0)
        };
        // 3.11, 3.12, and 3.13, where they lie within the object.
        let places = [
            before(process, 4),
            before(process, 3).map(|at| at.wrapping_add(1)),
            weak_set.checked_add(is_one.size)?.checked_add(8),
        ];
        let wanted = [
            ObjectKind::Set,
            ObjectKind::Function,
            ObjectKind::List,
            ObjectKind::Set,
        ];
        let within = places.into_iter().flatten().find_map(|at| {
            let bytes = object(process, at, 32)?;
            let fits = wanted.into_iter().enumerate().all(|(i, kind)| {
                u64_at(&bytes, i * 8).is_some_and(|at| self.kind(process, at) == kind)
            });
            u64_at(&bytes, 0).filter(|_| fits)
        });
        // Where somebody has asked for the object's dictionary.
        within.or_else(|| {
            let dictionary = before(process, 3)?;
            let data = self.item(process, dictionary, "data")?;
            (self.kind(process, data) == ObjectKind::Set).then_some(data)
        })
    }

    /// What a task does; `Ok(None)`: there is none any more.
    pub(super) fn task(
        &mut self,
        process: &mut Process,
        place: TaskPlace,
        modules: &mut Modules,
    ) -> Result<Option<CoroutineTask>, Loss> {
        let mut at = place.at;
        if place.weak {
            match self.with_first_field(process, at) {
                Some((ObjectKind::WeakReference, task)) => at = task,
                _ => return Ok(None),
            }
        }
        if self.kind(process, at) != ObjectKind::Task {
            return Ok(None);
        }
        let chain = self.task_chain(process, at)?;
        let locks = match chain.state {
            TaskState::Waiting => self.locks(process, &chain),
            _ => TaskLocks::default(),
        };
        let again = self.task_chain(process, at)?;
        if chain != again {
            return Err(Loss::PythonTaskChanged);
        }
        let address = chain.frames.first().ok_or(Loss::PythonTask)?.address;
        let frames = match chain.state {
            TaskState::Running | TaskState::SystemCall => None,
            TaskState::Waiting | TaskState::Runnable => Some(
                self.named(process, &chain, modules)
                    .ok_or(Loss::PythonTask)?,
            ),
        };
        Ok(Some(CoroutineTask {
            address,
            state: chain.state,
            frames,
            locks,
        }))
    }

    fn named(
        &mut self,
        process: &mut Process,
        chain: &TaskChain,
        modules: &mut Modules,
    ) -> Option<Vec<Frame>> {
        let module = modules.special(ModuleKind::Python);
        let mut frames = Vec::with_capacity(chain.frames.len() + 1);
        if let Some(name) = &chain.awaited {
            frames.push(modules.symbols.frame(module, name, AWAITED, 0));
        }
        if let Some(callback) = chain.callback {
            let code = self.code_at(process, callback)?;
            let line = code.place.first_line;
            frames.push(
                modules
                    .symbols
                    .frame(module, &code.name, &code.place.file, line),
            );
        }
        for raw in chain.frames.iter().rev() {
            let code = self.code_at(process, raw.code)?;
            let line = self.line_of(&code, raw);
            frames.push(
                modules
                    .symbols
                    .frame(module, &code.name, &code.place.file, line),
            );
        }
        Some(frames)
    }

    fn task_fields(&mut self, process: &mut Process, task: u64) -> Result<TaskFields, Loss> {
        let known = self.tasks.coroutine;
        let size = match known {
            Some(at) => at + 24,
            None => {
                let seen = self.type_of(process, task).ok_or(Loss::PythonTask)?;
                usize::try_from(seen.size).unwrap_or(usize::MAX)
            }
        };
        let size = size.min(MAX_TASK);
        let bytes = object(process, task, size).ok_or(Loss::PythonTask)?;
        let field = |at: usize| u64_at(&bytes[..size], at);
        let mut agrees = |at: usize| {
            let (Some(before), Some(coroutine), Some(context)) =
                (field(at - 8), field(at), field(at + 16))
            else {
                return false;
            };
            self.kind(process, coroutine) == ObjectKind::Coroutine
                && self.kind(process, context) == ObjectKind::Context
                && (before == 0 || self.type_of(process, before).is_some())
        };
        let at = match known {
            Some(at) => Some(at).filter(|at| *at >= CALLBACKS && agrees(*at)),
            None => (CALLBACKS + 8..size).step_by(8).find(|at| agrees(*at)),
        };
        let at = at.ok_or(Loss::PythonTask)?;
        self.tasks.coroutine = Some(at);
        Ok(TaskFields {
            coroutine: field(at).unwrap_or(0),
            waits_for: field(at - 8).unwrap_or(0),
            of: field(LOOP).unwrap_or(0),
        })
    }

    fn task_chain(&mut self, process: &mut Process, task: u64) -> Result<TaskChain, Loss> {
        let mut chain = TaskChain {
            state: TaskState::Waiting,
            frames: Vec::new(),
            callback: None,
            awaited: None,
        };
        let mut task = task;
        for _ in 0..MAX_AWAITED {
            let fields = self.task_fields(process, task)?;
            let end = self.coroutines(process, fields.coroutine, &mut chain.frames)?;
            match end {
                ChainEnd::Running => {
                    chain.state = TaskState::Running;
                    return Ok(chain);
                }
                ChainEnd::New => {
                    chain.state = TaskState::Runnable;
                    return Ok(chain);
                }
                // It runs again with the loop's next turn.
                _ if fields.waits_for == 0 => {
                    chain.state = TaskState::Runnable;
                    return Ok(chain);
                }
                ChainEnd::Future(future) if future != fields.waits_for => {
                    return Err(Loss::PythonTaskChanged);
                }
                ChainEnd::Future(_) => {}
                ChainEnd::Other(awaited) => {
                    let seen = self.type_of(process, awaited).ok_or(Loss::PythonTask)?;
                    chain.awaited = Some(seen.name);
                }
            }
            let future = object(process, fields.waits_for, CALLBACKS + 8);
            let future = future.ok_or(Loss::PythonTask)?;
            let of = u64_at(&future, 8).ok_or(Loss::PythonTask)?;
            let seen = self.type_by_address(process, of).ok_or(Loss::PythonTask)?;
            if !matches!(seen.kind, ObjectKind::Future | ObjectKind::Task) {
                // Somebody's own.
                chain.awaited.get_or_insert(seen.name);
                return Ok(chain);
            }
            let field = |at: usize| u64_at(&future, at).unwrap_or(0);
            if field(LOOP) != fields.of {
                return Err(Loss::PythonTask);
            }
            // Who waits has left there what wakes it. It is taken away as the future is done.
            if field(CALLBACK) == 0 && field(CALLBACKS) == 0 {
                chain.state = TaskState::Runnable;
                return Ok(chain);
            }
            if chain.awaited.is_some() {
                return Ok(chain);
            }
            let within = match seen.kind {
                ObjectKind::Task => Some(fields.waits_for),
                _ => self.waited_for(process, &chain),
            };
            let Some(within) = within else {
                if self.kind(process, field(CALLBACK)) == ObjectKind::Function {
                    chain.callback = word(process, field(CALLBACK) + FUNCTION_CODE);
                }
                let is_plain = &*seen.name == "_asyncio.Future";
                chain.awaited = Some(seen.name).filter(|_| !is_plain);
                return Ok(chain);
            };
            task = within;
        }
        Err(Loss::PythonTask)
    }

    /// The task for which `asyncio.wait_for` waits. To 3.11 that is not what it awaits, but the
    /// only task among its variables.
    fn waited_for(&mut self, process: &mut Process, chain: &TaskChain) -> Option<u64> {
        let innermost = chain.frames.last()?;
        let code = self.code_at(process, innermost.code)?;
        let is_it = &*code.name == "wait_for" && code.place.file.ends_with("/asyncio/tasks.py");
        is_it.then_some(())?;
        let layout = self.layout.coroutines?;
        let mut count = [0; 4];
        let at = innermost.code.checked_add(layout.local_count)?;
        process.read_memory(at, &mut count).then_some(())?;
        let count = u64::from(u32::from_le_bytes(count)).min(MAX_LOCALS);
        let mut tasks = (0..count).filter_map(|n| {
            let at = innermost.address.checked_add(layout.locals + n * 8)?;
            let value = untagged(word(process, at)?);
            (self.kind(process, value) == ObjectKind::Task).then_some(value)
        });
        let only = tasks.next()?;
        tasks.next().is_none().then_some(only)
    }

    /// Which lock a task waits for, and which it has. What `async with` has entered it leaves by a
    /// method, which lies on the frame's stack of values meanwhile (from 3.14 on what it is a
    /// method of does).
    fn locks(&mut self, process: &mut Process, chain: &TaskChain) -> TaskLocks {
        let mut locks = TaskLocks::default();
        for (depth, raw) in chain.frames.iter().rev().enumerate() {
            let Some((variables, values)) = self.values(process, raw) else {
                break;
            };
            if depth == 0 && self.takes_a_lock(process, raw) {
                locks.awaited = variables.first().copied().unwrap_or(0);
            }
            let mut entered = values
                .into_iter()
                .rev()
                .filter_map(|value| self.entered(process, value));
            let held = entered.find(|lock| *lock != locks.awaited);
            if let Some(held) = held {
                locks.held = held;
                break;
            }
        }
        locks
    }

    /// The variables of a suspended frame, and its stack of values but for what it awaits.
    fn values(&self, process: &mut Process, raw: &RawFrame) -> Option<(Vec<u64>, Vec<u64>)> {
        let layout = self.layout.coroutines?;
        let frame = object(process, raw.address, layout.locals as usize)?;
        let coroutine = raw.address.checked_sub(layout.frame)?;
        let top = top(layout, coroutine, &frame)?;
        let first = raw.address.checked_add(layout.locals)?;
        let count = top.checked_sub(first)? / 8;
        let mut variables = [0; 4];
        let at = raw.code.checked_add(layout.local_count)?;
        process.read_memory(at, &mut variables).then_some(())?;
        let variables = u32::from_le_bytes(variables) as usize;
        let count = usize::try_from(count).ok()?;
        (variables <= count && count <= MAX_ENTERED).then_some(())?;
        let mut bytes = vec![0; count * 8];
        process.read_memory(first, &mut bytes).then_some(())?;
        let words = bytes.chunks_exact(8);
        let words = words.map(|word| untagged(u64_at(word, 0).unwrap_or(0)));
        let mut all: Vec<u64> = words.collect();
        let values = all.split_off(variables);
        Some((all, values))
    }

    fn takes_a_lock(&mut self, process: &mut Process, raw: &RawFrame) -> bool {
        let code = self.code_at(process, raw.code);
        code.is_some_and(|code| {
            let takes = ["Lock.acquire", "Semaphore.acquire"].contains(&&*code.name);
            takes && code.place.file.ends_with("/asyncio/locks.py")
        })
    }

    /// The lock that a value on a frame's stack is there to leave.
    fn entered(&mut self, process: &mut Process, value: u64) -> Option<u64> {
        const METHOD_OF: u64 = 24;
        let seen = self.type_of(process, value)?;
        let lock = match &*seen.name {
            "method" => untagged(word(process, value.checked_add(METHOD_OF)?)?),
            _ => value,
        };
        let seen = self.type_of(process, lock)?;
        let is_lock = ["Lock", "Semaphore", "BoundedSemaphore"].contains(&&*seen.name);
        is_lock.then_some(lock)
    }

    /// Adds the frames of a coroutine and of those that it awaits, and says where that ends.
    fn coroutines(
        &mut self,
        process: &mut Process,
        coroutine: u64,
        frames: &mut Vec<RawFrame>,
    ) -> Result<ChainEnd, Loss> {
        let layout = self.layout.coroutines.ok_or(Loss::PythonTask)?;
        let mut coroutine = coroutine;
        for _ in 0..MAX_COROUTINES {
            let size = (layout.frame + layout.locals) as usize;
            let bytes = object(process, coroutine, size).ok_or(Loss::PythonTask)?;
            let frame = &bytes[layout.frame as usize..size];
            let raw = self.raw_frame(coroutine + layout.frame, frame);
            frames.push(raw.ok_or(Loss::PythonTask)?);
            let state = bytes.get(layout.state as usize).ok_or(Loss::PythonTask)?;
            match i8::from_le_bytes([*state]) {
                0 => return Ok(ChainEnd::Running),
                state if state == layout.new => return Ok(ChainEnd::New),
                ..0 => {}
                _ => return Err(Loss::PythonTaskChanged),
            }
            let at = top(layout, coroutine, frame).ok_or(Loss::PythonTask)?;
            let mut awaited = untagged(word(process, at).ok_or(Loss::PythonTask)?);
            let mut seen = self.with_first_field(process, awaited);
            if let Some((ObjectKind::Wrapper, within)) = seen {
                awaited = within;
                seen = self.with_first_field(process, awaited);
            }
            match seen {
                Some((ObjectKind::Coroutine, _)) => coroutine = awaited,
                Some((ObjectKind::FutureIterator, future)) => {
                    return Ok(ChainEnd::Future(future));
                }
                _ => return Ok(ChainEnd::Other(awaited)),
            }
        }
        Err(Loss::PythonTask)
    }

    fn raw_frame(&self, address: u64, bytes: &[u8]) -> Option<RawFrame> {
        let Frames::Light {
            code,
            instruction,
            entry,
            ..
        } = self.layout.frames
        else {
            return None;
        };
        let owner = *bytes.get(entry.owner() as usize)?;
        let raw = RawFrame {
            address,
            code: untagged(u64_at(bytes, code as usize)?),
            instruction: u64_at(bytes, instruction as usize)?,
            call: 0,
        };
        (owner == OWNED_BY_GENERATOR).then_some(raw)
    }
}

/// The address of the value on top of a coroutine's frame.
fn top(layout: CoroutineLayout, coroutine: u64, frame: &[u8]) -> Option<u64> {
    let first = coroutine.checked_add(layout.frame + layout.locals)?;
    let end = match layout.top {
        StackTop::Count(at) => first.checked_add(u64::from(u32_at(frame, at as usize)?) * 8)?,
        StackTop::Address(at) => u64_at(frame, at as usize)?,
    };
    let within = end > first && end - first <= MAX_VALUES * 8;
    within.then(|| end - 8)
}

#[cfg(test)]
mod tests {
    use super::super::layout::PythonLayout;
    use super::super::made_up::MadeUpMemory;
    use super::*;
    use crate::budget::Budget;
    use crate::loss::Unread;
    use crate::made_up::own_process;
    use crate::process::OBJECT;

    /// What is read of the task.
    fn read(made: &MadeUpMemory, process: &mut Process) -> Result<Option<CoroutineTask>, Loss> {
        let modules = &mut Modules::default();
        let layout = PythonLayout::of(12).expect("a layout");
        let mut python = made.interpreter(layout, &modules.budget);
        let place = TaskPlace {
            at: made.task,
            weak: false,
        };
        python.task(process, place, modules)
    }

    #[test]
    fn a_task_that_waits_agrees_with_itself() {
        let process = &mut own_process();
        let mut made = MadeUpMemory::new();
        let found = read(&made, process).expect("readable").expect("a task");
        assert_eq!(found.state, TaskState::Waiting);
        assert_eq!(found.address, made.coroutine + 72);
        assert_eq!(found.frames.map(|frames| frames.len()), Some(1));
        // The future is done: what wakes the task was taken away.
        made.set(made.future + 24, 0);
        let found = read(&made, process).expect("readable").expect("a task");
        assert_eq!(found.state, TaskState::Runnable);
        // The task waits for another one than its coroutine.
        made.set(made.task + 128, made.task);
        assert_eq!(read(&made, process), Err(Loss::PythonTaskChanged));
        let mut made = MadeUpMemory::new();
        made.set(made.future + 16, made.task);
        assert_eq!(
            read(&made, process),
            Err(Loss::PythonTask),
            "another loop's"
        );
        let mut made = MadeUpMemory::new();
        made.set(made.task + 8, made.types[0]);
        assert_eq!(read(&made, process), Ok(None), "no task");
    }

    /// What the target says of its own layout is as little to be trusted as its memory.
    #[test]
    fn a_state_behind_the_end_of_the_coroutine_is_none() {
        let process = &mut own_process();
        let made = MadeUpMemory::new();
        let mut layout = PythonLayout::of(12).expect("a layout");
        for state in [OBJECT as u64, (1 << 20) - 1] {
            layout.coroutines.as_mut().expect("some").state = state;
            let modules = &mut Modules::default();
            let mut python = made.interpreter(layout.clone(), &modules.budget);
            let place = TaskPlace {
                at: made.task,
                weak: false,
            };
            let found = python.task(process, place, modules);
            assert_eq!(found, Err(Loss::PythonTask));
        }
    }

    #[test]
    fn lists_that_lead_to_the_end_of_all_memory_end() {
        let process = &mut own_process();
        let layout = PythonLayout::of(12).expect("a layout");
        let mut made = MadeUpMemory::new();
        let (runtime, interpreter) = (made.task, made.coroutine);
        let interpreters = runtime + layout.interpreters_head;
        made.set(interpreters, interpreter);
        for head in [interpreter + layout.interpreter_threads, interpreters] {
            made.set(head, u64::MAX - 7);
            let mut python = made.interpreter(layout.clone(), &Budget::default());
            python.runtime = runtime;
            assert_eq!(python.thread_state(process, 1), Err(Unread::Memory));
        }
    }

    /// Whatever is in memory: what is taken for a task keeps its bounds.
    #[test]
    fn made_up_memory_is_bounded() {
        let process = &mut own_process();
        let mut made = MadeUpMemory::new();
        let original = made.words.clone();
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut taken = 0;
        for _ in 0..20_000 {
            made.words.copy_from_slice(&original);
            for _ in 0..next() % 4 {
                let count = original.len() as u64;
                let value = match next() % 5 {
                    0 => next() % 16,
                    1 | 2 => made.address() + next() % count * 8,
                    3 => u64::MAX - next() % 64,
                    _ => next(),
                };
                made.words[(next() % count) as usize] = value;
            }
            if let Ok(Some(found)) = read(&made, process) {
                taken += 1;
                let frames = found.frames.map_or(0, |frames| frames.len());
                assert!(frames <= MAX_AWAITED * MAX_COROUTINES + 2);
            }
        }
        assert!(taken > 1000, "some are left as they were: {taken}");
    }
}
