//! Stacks with names, and whose code a frame is.

use std::collections::HashMap;
use std::sync::Arc;

use whywait_events::recording::Stacks;
use whywait_events::{ModuleKind, StackId, UNNAMED_JIT};

/// A function in a stack. Inlined functions have labels of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The function's name, or `file+0xaddress` when it has none. Hostile.
    pub name: Arc<str>,
    /// Whether `name` is a function's.
    pub named: bool,
    /// Source file, empty when unknown. Hostile.
    pub file: Arc<str>,
    /// Line, 0 when unknown.
    pub line: u32,
    /// Path of the module. Hostile.
    pub module: Arc<str>,
    /// What the module is.
    pub kind: ModuleKind,
}

/// A stack with names, innermost first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StackText {
    /// Innermost first.
    pub labels: Vec<Label>,
    /// Unwinding ended before the thread's start.
    pub truncated: bool,
}

impl StackText {
    /// For reports: function names, Python functions with their line, and whose code each is. From
    /// the innermost Python function outwards the interpreter's own frames say nothing more, and
    /// are left out.
    pub fn names(&self) -> Vec<(String, FrameOrigin)> {
        let python = self
            .labels
            .iter()
            .position(|label| label.kind == ModuleKind::Python)
            .unwrap_or(usize::MAX);
        self.labels
            .iter()
            .enumerate()
            .filter(|(at, label)| {
                *at < python || label.kind == ModuleKind::Python || !of_python(label)
            })
            .map(|(_, label)| (shown(label), origin(label)))
            .collect()
    }
}

/// A function as reports show it.
fn shown(label: &Label) -> String {
    match label.kind {
        ModuleKind::Python if !label.file.is_empty() => {
            let file = label.file.rsplit('/').next().unwrap_or_default();
            match label.line {
                0 => format!("{} ({file})", label.name),
                line => format!("{} ({file}:{line})", label.name),
            }
        }
        _ => label.name.to_string(),
    }
}

/// All stacks of a recording, with names.
#[derive(Debug, Clone, Default)]
pub struct StackNames {
    stacks: HashMap<StackId, StackText>,
    frames: u64,
    named_frames: u64,
}

impl StackNames {
    /// Those of a recording.
    pub fn read(stacks: &Stacks) -> Self {
        let mut frames = HashMap::new();
        let mut all = HashMap::new();
        for id in stacks.ids() {
            let mut labels = Vec::new();
            for named in stacks.named(id) {
                frames.insert(named.frame, !named.names.is_empty());
                let path: Arc<str> = named
                    .module
                    .map_or("", |module| module.path.as_str())
                    .into();
                let kind = named
                    .module
                    .map_or(ModuleKind::Unknown, |module| module.kind);
                if named.names.is_empty() {
                    let file = path
                        .rsplit('/')
                        .next()
                        .filter(|file| !file.is_empty())
                        .unwrap_or("?");
                    labels.push(Label {
                        name: format!("{file}+{:#x}", named.frame.address).into(),
                        named: false,
                        file: "".into(),
                        line: 0,
                        module: path,
                        kind,
                    });
                    continue;
                }
                labels.extend(named.names.iter().map(|name| Label {
                    name: name.name.clone(),
                    named: tells_function(kind, &name.name),
                    file: name.file.clone(),
                    line: name.line,
                    module: path.clone(),
                    kind,
                }));
            }
            all.insert(
                id,
                StackText {
                    labels,
                    truncated: stacks.truncated(id).unwrap_or(false),
                },
            );
        }
        let named_frames = frames.values().filter(|named| **named).count() as u64;
        Self {
            stacks: all,
            frames: frames.len() as u64,
            named_frames,
        }
    }

    /// A stack; `None` for 0 and for one that the recording does not have.
    pub fn get(&self, id: StackId) -> Option<&StackText> {
        self.stacks.get(&id)
    }

    /// Function names of a stack for reports, innermost first; empty when there is none.
    pub fn names(&self, id: StackId) -> Vec<String> {
        self.get(id)
            .map(StackText::names)
            .unwrap_or_default()
            .into_iter()
            .map(|(name, _)| name)
            .collect()
    }

    /// What a stack is in: the innermost function of the application, or else the innermost one.
    pub fn telling(&self, id: StackId) -> Option<String> {
        let stack = self.get(id)?;
        app_frame(stack)
            .or(stack.labels.first())
            .map(|label| label.name.to_string())
    }

    /// Share of the distinct frames that have a name; `None` without frames.
    pub fn named_share(&self) -> Option<f64> {
        (self.frames > 0).then(|| self.named_frames as f64 / self.frames as f64)
    }

    /// Stacks whose unwinding ended before the thread's start.
    pub fn truncated(&self) -> u64 {
        self.stacks.values().filter(|stack| stack.truncated).count() as u64
    }

    /// Adds a stack; for scripts of events.
    pub fn insert(&mut self, id: StackId, stack: StackText) {
        self.frames += stack.labels.len() as u64;
        self.named_frames += stack.labels.iter().filter(|label| label.named).count() as u64;
        self.stacks.insert(id, stack);
    }
}

/// Whether a frame's name says which function it is. Compiled code that has no name of its own has
/// one for all of it.
fn tells_function(kind: ModuleKind, name: &str) -> bool {
    kind != ModuleKind::Jit || name != UNNAMED_JIT
}

/// Whose code a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameOrigin {
    /// The application's own, or a library of its own choosing.
    App,
    /// The language's runtime, an I/O framework or a standard library.
    Runtime,
    /// The C library, the loader, the kernel.
    System,
}

/// Crates whose frames say how the program is driven, not what it does.
const RUST_RUNTIME: &[&str] = &[
    "std",
    "core",
    "alloc",
    "tokio",
    "tokio_util",
    "mio",
    "hyper",
    "hyper_util",
    "axum",
    "axum_core",
    "tower",
    "tower_http",
    "tower_service",
    "http_body",
    "http_body_util",
    "futures",
    "futures_util",
    "futures_core",
    "actix_rt",
    "actix_server",
    "actix_http",
    "actix_web",
    "async_std",
    "async_io",
    "async_executor",
    "smol",
    "polling",
    "parking_lot",
    "parking_lot_core",
    "crossbeam",
    "crossbeam_channel",
    "rayon_core",
    "pin_project_lite",
    "tracing",
    "h2",
    "tonic",
];

/// Go packages of the standard library that drive a server.
const GO_RUNTIME: &[&str] = &[
    "runtime",
    "internal",
    "net",
    "net/http",
    "sync",
    "syscall",
    "os",
    "time",
    "bufio",
    "io",
    "crypto/tls",
    "context",
];

/// Whether a frame is the Python interpreter's own.
fn of_python(label: &Label) -> bool {
    let file = label.module.rsplit('/').next().unwrap_or_default();
    label.kind == ModuleKind::Elf
        && ["libpython", "python3", "python2"]
            .iter()
            .any(|name| file.starts_with(name))
}

/// Functions of the C library that threads start in or block in.
const LIBC: &[&str] = &[
    "_start",
    "main",
    "start_thread",
    "clone",
    "clone3",
    "syscall",
    "nanosleep",
    "clock_nanosleep",
    "usleep",
    "sleep",
    "poll",
    "ppoll",
    "select",
    "pselect",
    "epoll_wait",
    "epoll_pwait",
    "read",
    "readv",
    "pread64",
    "write",
    "writev",
    "pwrite64",
    "recv",
    "recvfrom",
    "recvmsg",
    "send",
    "sendto",
    "sendmsg",
    "accept",
    "accept4",
    "connect",
    "fsync",
    "fdatasync",
    "pthread_cond_wait",
    "pthread_cond_timedwait",
    "pthread_mutex_lock",
    "pthread_join",
    "sem_wait",
    "waitpid",
    "wait4",
];

/// In which PostgreSQL's processes wait, whatever for; who called them says what for.
const POSTGRES_WAITS: &[&str] = &[
    "WaitEventSetWait",
    "WaitLatch",
    "WaitLatchOrSocket",
    "ProcSleep",
    "LockAcquire",
    "LockAcquireExtended",
    "PGSemaphoreLock",
];

/// Whose code a frame is, from its name and its module.
pub fn origin(label: &Label) -> FrameOrigin {
    match label.kind {
        ModuleKind::Kernel => return FrameOrigin::System,
        ModuleKind::Python => {
            let stdlib = ["/lib/python3", "/lib/python2", "<frozen", "/site-packages/"];
            let library = stdlib.iter().any(|part| label.file.contains(part));
            return if library {
                FrameOrigin::Runtime
            } else {
                FrameOrigin::App
            };
        }
        _ => {}
    }
    // Code that a just-in-time compiler made and that nothing names.
    if label.kind == ModuleKind::Jit && label.name.starts_with('[') {
        return FrameOrigin::Runtime;
    }
    if of_python(label) {
        return FrameOrigin::Runtime;
    }
    let file = label.module.rsplit('/').next().unwrap_or_default();
    let system = [
        "libc.so",
        "libc-",
        "libpthread",
        "ld-linux",
        "ld-musl",
        "libstdc++",
        "libm.so",
        "libgcc_s",
        "[vdso]",
    ];
    if system.iter().any(|name| file.starts_with(name)) {
        return FrameOrigin::System;
    }
    if file == "node" || (file == "postgres" && POSTGRES_WAITS.contains(&&*label.name)) {
        return FrameOrigin::Runtime;
    }
    let runtimes = [
        "libuv",
        "libevent",
        "libev.",
        "libnode",
        "libjvm",
        "libcoreclr",
    ];
    if runtimes.iter().any(|name| file.starts_with(name)) {
        return FrameOrigin::Runtime;
    }
    let name = label.name.as_ref();
    // In a program that is linked statically these are its own.
    if name.starts_with("__") || LIBC.contains(&name) {
        return FrameOrigin::System;
    }
    // `<a::B as c::D>::e` is code of a; `a::b::{{closure}}` too.
    let path = name.trim_start_matches(['<', '&', '(']);
    let path = path
        .strip_prefix("mut ")
        .or_else(|| path.strip_prefix("dyn "))
        .unwrap_or(path);
    if let Some((krate, _)) = path.split_once("::") {
        // `<F as axum::handler::Handler>::call`: a type parameter belongs to nobody, the trait
        // tells.
        let krate = krate.rsplit(" as ").next().unwrap_or(krate);
        return if RUST_RUNTIME.contains(&krate) {
            FrameOrigin::Runtime
        } else {
            FrameOrigin::App
        };
    }
    // Generic shims such as `__rustc::rust_begin_short_backtrace` are covered above; Go names are
    // `package.Func`, with the package's path before the first dot after the last slash.
    let after_slash = name.rfind('/').map_or(0, |at| at + 1);
    if let Some(dot) = name[after_slash..].find('.') {
        let package = &name[..after_slash + dot];
        if GO_RUNTIME.contains(&package)
            || package.starts_with("internal/")
            || package.starts_with("runtime/")
        {
            return FrameOrigin::Runtime;
        }
    }
    let prefixes = [
        "uv_",
        "uv__",
        "node::",
        "v8::",
        "event_base_",
        "ev_run",
        "aeMain",
        "aeProcessEvents",
        "aeApiPoll",
        "ngx_",
    ];
    if prefixes.iter().any(|prefix| name.starts_with(prefix)) {
        return FrameOrigin::Runtime;
    }
    FrameOrigin::App
}

/// The innermost function of the application's own in a stack.
pub fn app_frame(stack: &StackText) -> Option<&Label> {
    stack
        .labels
        .iter()
        .find(|label| label.named && origin(label) == FrameOrigin::App)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(name: &str, module: &str, kind: ModuleKind, file: &str) -> Label {
        Label {
            name: name.into(),
            named: true,
            file: file.into(),
            line: 1,
            module: module.into(),
            kind,
        }
    }

    #[test]
    fn the_name_of_all_compiled_code_names_no_function() {
        assert!(!tells_function(ModuleKind::Jit, "[jit]"));
        assert!(tells_function(ModuleKind::Jit, "LazyCompile:*render"));
        assert!(tells_function(ModuleKind::Elf, "[jit]"));
    }

    #[test]
    fn the_applications_frames_are_told_from_the_runtimes() {
        let elf = |name, module| origin(&label(name, module, ModuleKind::Elf, ""));
        assert_eq!(
            elf("tokio::runtime::park::Inner::park", "/srv/app"),
            FrameOrigin::Runtime
        );
        assert_eq!(
            elf(
                "<std::sys::sync::condvar::futex::Condvar>::wait",
                "/srv/app"
            ),
            FrameOrigin::Runtime
        );
        assert_eq!(
            elf("<F as axum::handler::Handler<T>>::call", "/srv/app"),
            FrameOrigin::Runtime
        );
        assert_eq!(elf("app::render_image", "/srv/app"), FrameOrigin::App);
        assert_eq!(
            elf("clock_nanosleep", "/usr/lib/x86_64-linux-gnu/libc.so.6"),
            FrameOrigin::System
        );
        assert_eq!(
            elf("runtime.findRunnable", "/srv/app"),
            FrameOrigin::Runtime
        );
        assert_eq!(
            elf("github.com/me/app.handle", "/srv/app"),
            FrameOrigin::App
        );
        assert_eq!(
            elf("net/http.(*conn).serve", "/srv/app"),
            FrameOrigin::Runtime
        );
        assert_eq!(
            elf("_PyEval_EvalFrameDefault", "/usr/bin/python3.11"),
            FrameOrigin::Runtime
        );
        let python = |file| origin(&label("f", "python", ModuleKind::Python, file));
        assert_eq!(
            python("/usr/lib/python3.11/asyncio/events.py"),
            FrameOrigin::Runtime
        );
        assert_eq!(python("/srv/server.py"), FrameOrigin::App);
    }
}
