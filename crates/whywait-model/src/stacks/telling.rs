//! Which function of a stack is named: the one that a person can change.
//!
//! It is the innermost function of the program's own between the loop of its runtime and the leaf.
//! What called the loop says nothing of what the loop called: `main` is in every stack. Where a
//! compiler has inlined the program's functions, the frame that is most specific is left:
//! `<F as Handler>::call`. [`hidden`] says why a function has no frame, for how to have it named.

use whywait_events::ModuleKind;

use super::origin::{SYSCALL_WRAPPERS, of_interpreter, of_python};
use super::{FrameOrigin, Label, StackText, origin};

/// Why the function that a thread was in has no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hidden {
    /// The compiler has inlined it, and the program has no line tables.
    Inlined,
    /// It was compiled at run time, and its runtime does not write down its name.
    Compiled,
    /// It is in Python, and was not read in time.
    Python,
}

/// The innermost function of the application's own in a stack. `None` as well when it is code that
/// was compiled at run time and that nothing names: what called that says less.
pub fn app_frame(stack: &StackText) -> Option<&Label> {
    app_frames(stack).next()
}

/// The functions of the application's own in a stack, the innermost first, as far as they have
/// names and tell: up to code that was compiled at run time and has none, and up to the loop that
/// called them. Libraries of the system count where nothing else does.
pub fn app_frames(stack: &StackText) -> impl Iterator<Item = &Label> {
    let labels = named_part(stack);
    let (within, beyond) = at_loop(labels);
    let mut own = own_frames(within);
    if own.is_empty()
        && !beyond.is_empty()
        && generic(within).is_none()
        && !in_interpreter(within, of_interpreter)
    {
        own = own_frames(beyond);
    }
    if own.iter().any(|label| !of_system_library(label)) {
        own.retain(|label| !of_system_library(label));
    }
    // What called an interpreter says less than what it runs, of which no name is known.
    let caller = own.first().filter(|first| !first.kind.is_interpreted());
    let called = caller.map(|first| &labels[..position_of(labels, first)]);
    if called.is_some_and(|called| in_interpreter(called, of_interpreter)) {
        own.clear();
    }
    // What only sleeps says less than who has it sleep.
    let sleeps = own.iter().take_while(|label| is_sleep(&label.name)).count();
    own.drain(..sleeps.min(own.len().saturating_sub(1)));
    own.into_iter()
}

/// Whether a function is a program's own way to sleep: `i_sleep_usecs`, `msleep`, `sleepFor`.
fn is_sleep(name: &str) -> bool {
    let own = last_part(name).to_ascii_lowercase();
    let prefixes = ["", "u", "m", "n", "nano", "micro", "milli"];
    let mut words = own.split('_');
    words.any(|word| {
        prefixes.iter().any(|prefix| {
            let rest = word.strip_prefix(prefix);
            rest.is_some_and(|rest| rest.starts_with("sleep") && !rest.starts_with("sleepi"))
        })
    })
}

/// The frame that stands for a function of the application that was inlined: generic code that is
/// there for the application's sake.
pub fn generic_frame(stack: &StackText) -> Option<&Label> {
    generic(at_loop(named_part(stack)).0)
}

/// What a stack is in: the innermost function of the application, or else the frame that stands for
/// it, or the innermost one that is more than a step into the kernel.
pub(super) fn telling(stack: &StackText) -> Option<&Label> {
    let labels = || stack.labels.iter();
    let says = |label: &&Label| !SYSCALL_WRAPPERS.contains(&&*label.name);
    app_frame(stack)
        .or_else(|| generic_frame(stack))
        .or_else(|| labels().find(says))
        .or_else(|| labels().next())
}

/// Why the function that a thread was in has no name, where there is a way to see it.
pub fn hidden(stack: &StackText) -> Option<Hidden> {
    match app_frame(stack) {
        Some(label) if !is_closure_of_main(label) || label.line > 0 => return None,
        Some(_) => return Some(Hidden::Inlined),
        None => {}
    }
    let compiled = |label: &Label| !label.named && label.kind == ModuleKind::Jit;
    if stack.labels.iter().any(compiled) {
        return Some(Hidden::Compiled);
    }
    if in_interpreter(&stack.labels, of_python) {
        return Some(Hidden::Python);
    }
    // Only a compiler that inlines leaves nothing of a program but its entry.
    let entry = |label: &Label| label.kind == ModuleKind::Elf && label.named && is_main(label);
    let inlined = generic_frame(stack).or_else(|| stack.labels.iter().find(|label| entry(label)));
    inlined
        .filter(|label| label.line == 0)
        .map(|_| Hidden::Inlined)
}

/// Where this very frame of a stack is.
fn position_of(labels: &[Label], label: &Label) -> usize {
    let at = labels.iter().position(|one| std::ptr::eq(one, label));
    at.unwrap_or(0)
}

/// Up to code that was compiled at run time and that nothing names.
fn named_part(stack: &StackText) -> &[Label] {
    let labels = &stack.labels;
    let unnamed = |label: &Label| !label.named && label.kind == ModuleKind::Jit;
    let end = labels.iter().position(unnamed).unwrap_or(labels.len());
    &labels[..end]
}

/// The frames that the outermost loop of a runtime called, and those that called it. Without a loop
/// all are called by one.
fn at_loop(labels: &[Label]) -> (&[Label], &[Label]) {
    match labels.iter().rposition(is_loop) {
        Some(at) => labels.split_at(at),
        None => (labels, &[]),
    }
}

fn own_frames(labels: &[Label]) -> Vec<&Label> {
    let own = |label: &&Label| label.named && origin(label) == FrameOrigin::App && !is_main(label);
    let found: Vec<&Label> = labels.iter().filter(own).collect();
    // With line tables nothing is hidden, and what is in no other function is in this one.
    let main = |label: &&Label| {
        label.named && is_main(label) && label.line > 0 && origin(label) == FrameOrigin::App
    };
    if found.is_empty() {
        return labels.iter().filter(main).take(1).collect();
    }
    found
}

/// Whether an interpreter runs a function further in than those whose names are known.
fn in_interpreter(labels: &[Label], is_its_own: fn(&Label) -> bool) -> bool {
    labels
        .iter()
        .take_while(|label| !label.kind.is_interpreted())
        .any(is_its_own)
}

/// The last part of a path: `main` of `server::main` and of `void Server.main(String[])`.
fn last_part(name: &str) -> &str {
    let name = name.split('(').next().unwrap_or(name);
    name.rsplit([':', '.', ' ']).next().unwrap_or(name)
}

/// Whether it is where a program begins.
fn is_main(label: &Label) -> bool {
    matches!(
        last_part(&label.name),
        "main" | "<module>" | "<main>" | "{main}"
    )
}

/// Whether it is code that is written within `main`, as the handlers of small programs are: what
/// else was inlined into it does not show.
fn is_closure_of_main(label: &Label) -> bool {
    label.kind == ModuleKind::Elf
        && ["::main::{{closure}}", "::main::{closure#"]
            .iter()
            .any(|part| label.name.contains(part))
}

/// Functions of loops that call a program's, by the beginnings of their names.
const LOOPS: &[&str] = &[
    "uv_run",
    "event_base_loop",
    "ev_run",
    "g_main_loop_run",
    "g_main_context_iteration",
    "aeMain",
    "boost::asio::detail::scheduler::run",
    "boost::asio::io_context::run",
    "node::SpinEventLoop",
    "async_executor::",
    "futures_executor::",
    "net/http.(*conn).serve",
];

/// The same in Python's libraries: functions and methods.
const PYTHON_LOOPS: &[&str] = &[
    "run_forever",
    "run_until_complete",
    "serve_forever",
    "_run_once",
];

fn is_loop(label: &Label) -> bool {
    let name = &*label.name;
    if label.kind == ModuleKind::Python {
        // From 3.11 on with the class: `BaseEventLoop.run_forever`.
        return PYTHON_LOOPS.contains(&last_part(name)) && origin(label) == FrameOrigin::Runtime;
    }
    let of_tokio = name.contains("tokio::runtime::")
        && (name.contains("block_on")
            || (name.contains("::task::") && name.contains("poll"))
            || name.contains("::blocking::pool::"));
    label.named && (of_tokio || LOOPS.iter().any(|begins| name.starts_with(begins)))
}

/// Libraries of the system lie in one of its folders for them; what a program loads as a part of
/// itself, in one of its own.
fn of_system_library(label: &Label) -> bool {
    let Some((folder, file)) = label.module.rsplit_once('/') else {
        return false;
    };
    let folder = folder.strip_prefix("/usr").unwrap_or(folder);
    let folder = folder.strip_prefix("/local").unwrap_or(folder);
    let rest = ["/lib64", "/lib32", "/lib"]
        .iter()
        .find_map(|lib| folder.strip_prefix(lib));
    // `/usr/lib/x86_64-linux-gnu`: a folder for an architecture has no folder above it but `lib`.
    let of_system = |rest: &str| rest.is_empty() || rest.ends_with("-linux-gnu");
    label.kind == ModuleKind::Elf
        && file.starts_with("lib")
        && file.contains(".so")
        && rest.is_some_and(of_system)
}

/// Whether it is a worker's part of tokio's loops: it calls tasks, and waits for them. (The worker
/// itself may be a task.)
fn is_worker(label: &Label) -> bool {
    let of_worker = ["::worker::", "::current_thread::Co", "::park", "::block_on"];
    label.name.contains("tokio::runtime::scheduler::")
        && of_worker.iter().any(|part| label.name.contains(part))
}

/// The most specific of the generic frames that a loop called, the innermost of equals.
fn generic(labels: &[Label]) -> Option<&Label> {
    let worker = labels.iter().position(is_worker);
    let ranked = labels[..worker.unwrap_or(labels.len())]
        .iter()
        .rev()
        .filter(|label| label.named && label.kind == ModuleKind::Elf);
    ranked
        .map(|label| (specific(&label.name), label))
        .filter(|(rank, _)| *rank > 0)
        .max_by_key(|(rank, _)| *rank)
        .map(|(_, label)| label)
}

/// How much a generic frame of a library says of the application's function behind it; 0: nothing.
fn specific(name: &str) -> u32 {
    let is = |part: &str| name.contains(part);
    // A type parameter stands for a type of the application's.
    let of_parameter = name.strip_prefix('<').is_some_and(|path| {
        let parameter = path.split_once(" as ").map_or("", |(of, _)| of);
        (1..=3).contains(&parameter.len())
            && parameter.starts_with(|c: char| c.is_ascii_uppercase())
            && parameter.chars().all(|c| c.is_ascii_alphanumeric())
    });
    let of_pin = name.starts_with("<core::pin::Pin<P> as ");
    if of_parameter && is("Handler") && is(">::call") {
        4
    } else if (of_parameter && is(">::call")) || name.starts_with("core::ops::function::Fn") {
        3
    } else if (of_parameter || of_pin) && is("::poll") {
        2
    } else if is("tokio::runtime::task::") && is("::poll") {
        1
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = "/srv/server";
    const LIBC: &str = "/usr/lib/x86_64-linux-gnu/libc.so.6";

    fn label(module: &str, name: &str) -> Label {
        let kind = match module {
            "[jit]" => ModuleKind::Jit,
            "python" => ModuleKind::Python,
            _ => ModuleKind::Elf,
        };
        let (name, file) = name.split_once('@').unwrap_or((name, ""));
        Label {
            name: name.into(),
            named: name != "[jit]",
            file: file.into(),
            line: 0,
            module: module.into(),
            kind,
        }
    }

    /// A stack, innermost first.
    fn stack(frames: &[(&str, &str)]) -> StackText {
        StackText {
            labels: frames
                .iter()
                .map(|(module, name)| label(module, name))
                .collect(),
            truncated: false,
        }
    }

    /// A stack of one program without libraries.
    fn of_server(names: &[&str]) -> StackText {
        stack(&names.iter().map(|name| (SERVER, *name)).collect::<Vec<_>>())
    }

    fn named(stack: &StackText) -> Option<&str> {
        telling(stack).map(|label| &*label.name)
    }

    const TOKIO: [&str; 4] = [
        "tokio::runtime::task::raw::poll",
        "tokio::runtime::context::runtime::enter_runtime::block_on",
        "server::main",
        "main",
    ];

    fn in_tokio(inner: &[&str]) -> StackText {
        of_server(&[inner, &TOKIO].concat())
    }

    #[test]
    fn who_called_the_loop_is_not_who_was_called() {
        let found = in_tokio(&["alloc::vec::Vec<T>::push", "server::render"]);
        assert_eq!(named(&found), Some("server::render"));
        assert_eq!(hidden(&found), None);
        let inlined = in_tokio(&["core::str::from_utf8"]);
        assert_eq!(named(&inlined), Some("tokio::runtime::task::raw::poll"));
        assert_eq!(app_frame(&inlined), None);
        assert_eq!(hidden(&inlined), Some(Hidden::Inlined));
    }

    #[test]
    fn what_called_an_interpreter_is_not_what_it_runs() {
        let greenlet = "/srv/lib/greenlet/_greenlet.so";
        let bootstrap = (greenlet, "greenlet::UserGreenlet::inner_bootstrap");
        let evaluates = ("/usr/lib/libpython3.11.so.1.0", "_PyEval_EvalFrameDefault");
        let unread = stack(&[evaluates, bootstrap]);
        assert_eq!(app_frame(&unread), None);
        assert_eq!(hidden(&unread), Some(Hidden::Python));
        let read = stack(&[evaluates, ("python", "price_basket@/srv/app.py"), bootstrap]);
        assert_eq!(named(&read), Some("price_basket"));
        let extension = stack(&[(greenlet, "multiply"), evaluates]);
        assert_eq!(named(&extension), Some("multiply"));
    }

    #[test]
    fn of_generic_frames_the_most_specific_stands_for_what_was_inlined() {
        let handler = "<F as axum::handler::Handler<(M,T1),S>>::call";
        let found = in_tokio(&[
            "<core::pin::Pin<P> as core::future::future::Future>::poll",
            "core::ops::function::FnOnce::call_once",
            handler,
            "<S as tower_service::Service<R>>::call",
            "<hyper::proto::h1::dispatch::Dispatcher<D,Bs,I,T> as Future>::poll",
        ]);
        assert_eq!(named(&found), Some(handler));
        assert_eq!(hidden(&found), Some(Hidden::Inlined));
        let poll = "<core::pin::Pin<P> as core::future::future::Future>::poll";
        assert_eq!(
            named(&in_tokio(&["core::hint::spin_loop", poll])),
            Some(poll)
        );
    }

    #[test]
    fn a_worker_that_is_parked_is_in_no_function_of_the_programs() {
        let found = of_server(&[
            "syscall",
            "tokio::runtime::scheduler::multi_thread::park::Parker::park",
            "tokio::runtime::scheduler::multi_thread::worker::Context::park_timeout",
            "tokio::runtime::scheduler::multi_thread::worker::run",
            "tokio::runtime::task::raw::poll",
            "tokio::runtime::blocking::pool::Inner::run",
            "std::sys::backtrace::__rust_begin_short_backtrace",
        ]);
        assert_eq!(generic_frame(&found), None);
        assert_eq!(hidden(&found), None);
    }

    #[test]
    fn a_closure_in_main_is_named_and_said_to_hide_more() {
        let found = in_tokio(&["server::main::{{closure}}::{{closure}}"]);
        assert_eq!(
            named(&found),
            Some("server::main::{{closure}}::{{closure}}")
        );
        assert_eq!(hidden(&found), Some(Hidden::Inlined));
    }

    #[test]
    fn main_is_named_only_where_line_tables_show_that_nothing_is_hidden() {
        let mut alone = of_server(&["core::str::from_utf8", "server::main", "main"]);
        assert_eq!(app_frame(&alone), None);
        assert_eq!(hidden(&alone), Some(Hidden::Inlined));
        for label in &mut alone.labels {
            label.line = 7;
        }
        assert_eq!(named(&alone), Some("server::main"));
        assert_eq!(hidden(&alone), None);
    }

    #[test]
    fn a_handler_that_waits_for_a_future_called_the_loop_itself() {
        let found = of_server(&[
            "syscall",
            "tokio::runtime::park::Inner::park",
            "tokio::runtime::handle::Handle::block_on",
            "server::ask",
            "std::sys::backtrace::__rust_begin_short_backtrace",
        ]);
        assert_eq!(named(&found), Some("server::ask"));
    }

    #[test]
    fn who_has_a_function_sleep_is_named_and_not_the_function() {
        let sleep = (LIBC, "clock_nanosleep");
        let found = stack(&[sleep, (SERVER, "i_sleep_usecs"), (SERVER, "dotlock_create")]);
        assert_eq!(named(&found), Some("dotlock_create"));
        let alone = stack(&[sleep, (SERVER, "i_sleep_usecs"), (SERVER, "main")]);
        assert_eq!(named(&alone), Some("i_sleep_usecs"));
        for (name, is) in [
            ("ngx_msleep", true),
            ("Throttle.sleepFor", true),
            ("server::nanosleep_until", true),
            ("handle_sleeping_sessions", false),
            ("asleep", false),
        ] {
            assert_eq!(is_sleep(name), is, "{name}");
        }
    }

    #[test]
    fn a_systems_library_is_named_where_the_program_is_not() {
        let sha = ("/usr/lib/x86_64-linux-gnu/libcrypto.so.3", "SHA256_Update");
        let found = stack(&[
            (LIBC, "memcpy"),
            sha,
            (SERVER, "sign_token"),
            (SERVER, "main"),
        ]);
        assert_eq!(named(&found), Some("sign_token"));
        assert_eq!(
            named(&stack(&[(LIBC, "memcpy"), sha])),
            Some("SHA256_Update")
        );
        // A module that the program loads is a part of it.
        let module = ("/usr/lib/apache2/modules/mod_app.so", "app_handler");
        let found = stack(&[module, (SERVER, "ap_run_handler"), (SERVER, "main")]);
        assert_eq!(named(&found), Some("app_handler"));
    }

    #[test]
    fn python_that_was_not_read_in_time_is_not_who_began_the_loop() {
        let python = "/usr/bin/python3.11";
        let outer = [
            (
                "python",
                "BaseEventLoop.run_forever@/usr/lib/python3.11/asyncio/base_events.py",
            ),
            ("python", "serve@/srv/server.py"),
            ("python", "<module>@/srv/server.py"),
        ];
        let step = "/usr/lib/python3.11/lib-dynload/_asyncio.so";
        let inner = [
            (python, "_PyEval_EvalFrameDefault"),
            (step, "task_step_impl"),
        ];
        let found = stack(&[&inner[..], &outer].concat());
        assert_eq!(app_frame(&found), None);
        assert_eq!(hidden(&found), Some(Hidden::Python));
        let handler = [
            ("python", "render@/srv/server.py"),
            (step, "task_step_impl"),
        ];
        let found = stack(&[&handler[..], &outer].concat());
        assert_eq!(named(&found), Some("render"));
    }

    #[test]
    fn code_that_nothing_names_is_said_to_have_no_name() {
        let found = stack(&[
            ("[jit]", "[jit]"),
            ("/usr/lib/jvm/libjvm.so", "JavaCalls::call"),
        ]);
        assert_eq!(hidden(&found), Some(Hidden::Compiled));
    }

    #[test]
    fn the_last_part_of_a_name() {
        for (name, last) in [
            ("server::main", "main"),
            ("main.main", "main"),
            ("void Server.main(java.lang.String[])", "main"),
            ("main.handle", "handle"),
            ("<module>", "<module>"),
        ] {
            assert_eq!(last_part(name), last, "{name}");
        }
    }
}
