//! Which runtime a program uses, from the functions in its stacks: a fix has a name only within a
//! runtime.

use whywait_events::ModuleKind;
use whywait_model::{Label, Model, StackText, Thread, app_frame};

use crate::numbers::SLEEPS_LOOKED_AT;

/// A runtime whose fixes are known by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runtime {
    Tokio,
    Go,
    Node,
    Python,
    Java,
    Libuv,
    Libevent,
    Unknown,
}

/// The runtime of a process.
pub(crate) fn of_process(model: &Model, tgid: u32) -> Runtime {
    let threads = model.threads_of(tgid);
    let mut found = Runtime::Unknown;
    for label in threads.flat_map(|thread| labels(model, thread)) {
        match of_label(label) {
            // A program may embed a loop that another runtime is built on: the outer one is the one
            // to talk about.
            Some(
                runtime @ (Runtime::Tokio
                | Runtime::Go
                | Runtime::Node
                | Runtime::Python
                | Runtime::Java),
            ) => {
                return runtime;
            }
            Some(runtime) => found = runtime,
            None => {}
        }
    }
    found
}

/// A proxy whose settings are known by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proxy {
    Haproxy,
    Pgbouncer,
    Nginx,
    Envoy,
}

/// Which proxy a process is, by its name: only to say what a setting is called there.
pub(crate) fn proxy(model: &Model, tgid: u32) -> Option<Proxy> {
    match model.thread_name(tgid) {
        "haproxy" => Some(Proxy::Haproxy),
        "pgbouncer" => Some(Proxy::Pgbouncer),
        "nginx" => Some(Proxy::Nginx),
        "envoy" => Some(Proxy::Envoy),
        _ => None,
    }
}

/// Stand for the application's function where a runtime did something on its own account, on a
/// thread that was in whatever function then.
pub(crate) const COLLECTOR: &str = "the garbage collector";
pub(crate) const PAUSE: &str = "a pause of the Java virtual machine";

/// What a runtime does on its own account in this stack, if it does. (A collector may call the
/// application: that is the application's.)
pub(crate) fn own_account(stack: &StackText) -> Option<&'static str> {
    let of_runtime = |label: &Label| {
        let name = label.name.as_ref();
        let begins = |names: &[&str]| names.iter().any(|begins| name.starts_with(begins));
        // V8 (src/heap/heap.h); CPython (Modules/gcmodule.c, later Python/gc.c).
        if begins(&[
            "v8::internal::Heap::CollectGarbage",
            "v8::internal::Heap::PerformGarbageCollection",
        ]) || (name.starts_with("gc_collect_") && of_label(label) == Some(Runtime::Python))
        {
            Some(COLLECTOR)
        // HotSpot (share/runtime/vmThread.hpp, safepoint.hpp): a thread has it stop all others, or
        // is stopped.
        } else if label.module.ends_with("/libjvm.so")
            && begins(&[
                "VMThread::execute",
                "SafepointSynchronize::block",
                "SafepointMechanism::process",
            ])
        {
            Some(PAUSE)
        } else {
            None
        }
    };
    let inner_most = app_frame(stack);
    stack
        .labels
        .iter()
        .take_while(|label| inner_most.is_none_or(|app| !std::ptr::eq(*label, app)))
        .find_map(of_runtime)
}

/// What code without names called of its runtime, in the words of those who write it: V8's
/// functions for it (src/builtins/builtins-definitions.h).
pub(crate) fn built_in(stack: &StackText) -> Option<&'static str> {
    const BUILT_INS: [(&str, &str); 2] = [
        ("v8::internal::Builtin_JsonParse", "JSON.parse"),
        ("v8::internal::Builtin_JsonStringify", "JSON.stringify"),
    ];
    stack
        .labels
        .iter()
        .take_while(|label| label.kind != ModuleKind::Jit)
        .find_map(|label| {
            let is = |known: &&(&str, &str)| label.name.starts_with(known.0);
            BUILT_INS.iter().find(is).map(|(_, name)| *name)
        })
}

/// Whether a stack is Python's, and ends before the functions of the program.
pub(crate) fn in_python_somewhere(stack: &StackText) -> bool {
    stack
        .labels
        .iter()
        .any(|label| of_label(label) == Some(Runtime::Python))
        && app_frame(stack).is_none()
}

/// What helps against what a runtime does on its own account.
pub(crate) fn fix_of_own_account(function: &str) -> Option<&'static str> {
    match function {
        COLLECTOR => Some(
            "whatever the thread computes, memory is what it pays for: a collection goes through \
             all that lives. Keep less alive, allocate less, collect at another time (Python: \
             gc.freeze, gc.set_threshold), or give the young more room (node: \
             --max-semi-space-size; --trace-gc tells what is collected when)",
        ),
        PAUSE => Some(
            "it stops all its threads, mostly to collect garbage (-Xlog:safepoint,gc tells): \
             keep less alive, allocate less, give it more memory, or take a collector with shorter \
             pauses (-XX:+UseZGC, -XX:+UseShenandoahGC)",
        ),
        _ => None,
    }
}

/// What a virtual machine's own threads are called, which collect the garbage and translate the
/// code that others of the process make (`Thread::set_native_thread_name` in HotSpot; the kernel
/// keeps 15 characters).
const HELPERS: [&str; 8] = [
    "VM Thread",
    "C1 CompilerThre",
    "C2 CompilerThre",
    "GC Thread#",
    "GC task thread#",
    "G1 ",
    "ZWorker",
    "Shenandoah GC",
];

/// The threads of a process that work for others of it, and the CPU time that they used,
/// nanoseconds.
pub(crate) fn helpers(model: &Model, tgid: u32) -> (Vec<&Thread>, u64) {
    let in_vm = |thread: &Thread| {
        labels(model, thread).any(|label| label.module.ends_with("/libjvm.so"))
            && HELPERS
                .iter()
                .any(|name| model.thread_name(thread.tid).starts_with(name))
    };
    let used_ns = |thread: &&Thread| {
        model
            .cpu
            .threads
            .get(&(tgid, thread.tid))
            .map_or(0, |used| used.on_cpu_ns)
    };
    let threads = model.threads_of(tgid);
    let helpers: Vec<&Thread> = threads
        .filter(|thread| used_ns(thread) > 0 && in_vm(thread))
        .collect();
    let ns = helpers.iter().map(used_ns).fold(0, u64::saturating_add);
    (helpers, ns)
}

fn labels<'a>(model: &'a Model, thread: &'a Thread) -> impl Iterator<Item = &'a Label> {
    let of_waits = thread.timeline.waits().iter().map(|wait| wait.user_stack);
    let of_samples = thread.samples.iter().map(|sample| sample.user_stack);
    // The first stacks tell: a runtime is at the bottom of every one of its threads.
    of_waits
        .take(*SLEEPS_LOOKED_AT)
        .chain(of_samples.take(*SLEEPS_LOOKED_AT))
        .filter_map(|id| model.stacks.get(id))
        .flat_map(|stack| &stack.labels)
}

fn of_label(label: &Label) -> Option<Runtime> {
    let file = label.module.rsplit('/').next().unwrap_or_default();
    let name = label.name.as_ref();
    if label.kind == ModuleKind::Python
        || file.starts_with("libpython")
        || file.starts_with("python3")
    {
        Some(Runtime::Python)
    } else if name.contains("tokio::runtime::") {
        Some(Runtime::Tokio)
    } else if name == "runtime.goexit" || name == "runtime.mstart" || name == "runtime.findRunnable"
    {
        Some(Runtime::Go)
    } else if name.contains("node::") || file == "node" || file.starts_with("libnode") {
        Some(Runtime::Node)
    } else if file.starts_with("libjvm") {
        Some(Runtime::Java)
    } else if name == "uv_run" || name.starts_with("uv__") {
        Some(Runtime::Libuv)
    } else if name.starts_with("event_base_") {
        Some(Runtime::Libevent)
    } else {
        None
    }
}
