//! Folds a stack to what its reader can act on: their own functions.

use std::collections::HashSet;

use whywait_words::counted;

use super::page::{Page, Style};

/// A line of a folded stack.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FoldedLine<'a> {
    /// A function of the application.
    Own(&'a str),
    /// A function of a runtime that is worth seeing: the one that the application called, or one of
    /// a short run.
    Runtime(&'a str),
    /// Frames that were left out, and whose they are (empty: the application's).
    Folded(usize, Vec<&'static str>),
}

/// A run of runtime frames up to this length is shown: folding it would save no line.
const SHORT_RUN: usize = 1;
/// So many of the application's frames are shown.
const MAX_OWN: usize = 8;
/// So many frames are shown of a stack without any frame of the application.
const MAX_ALL_RUNTIME: usize = 4;

/// The rows of `stack` (innermost function first). `own` says for each function whether it is the
/// application's; without an entry the name decides.
pub(super) fn fold<'a>(stack: &'a [String], own: &[bool]) -> Vec<FoldedLine<'a>> {
    let frames: Vec<(&str, Option<&'static str>)> = stack
        .iter()
        .enumerate()
        .map(|(at, frame)| {
            let owner = match own.get(at) {
                Some(true) => None,
                Some(false) => Some(runtime(frame).unwrap_or("the runtime")),
                None => runtime(frame),
            };
            (frame.as_str(), owner)
        })
        .collect();
    if frames.iter().all(|(_, runtime)| runtime.is_some()) {
        return all_runtime(&frames);
    }
    let mut rows = Vec::new();
    let mut own = 0;
    let mut start = 0;
    for run in frames.chunk_by(|a, b| a.1.is_some() == b.1.is_some()) {
        let innermost = start == 0;
        start += run.len();
        if run[0].1.is_none() {
            let shown = run.len().min(MAX_OWN - own);
            own += shown;
            rows.extend(run[..shown].iter().map(|(name, _)| FoldedLine::Own(name)));
            if shown < run.len() {
                rows.push(FoldedLine::Folded(run.len() - shown, Vec::new()));
            }
        } else if run.len() <= SHORT_RUN {
            rows.extend(run.iter().map(|(name, _)| FoldedLine::Runtime(name)));
        } else if innermost {
            // What the application called says what it waits for: `std::thread::sleep` rather than
            // `clock_nanosleep`.
            let (inner, called) = run.split_at(run.len() - 1);
            rows.push(FoldedLine::Folded(inner.len(), owners(inner)));
            rows.push(FoldedLine::Runtime(called[0].0));
        } else {
            rows.push(FoldedLine::Folded(run.len(), owners(run)));
        }
    }
    rows
}

fn all_runtime<'a>(frames: &[(&'a str, Option<&'static str>)]) -> Vec<FoldedLine<'a>> {
    // As above: do not fold what takes no more room when shown.
    let shown = if frames.len() <= MAX_ALL_RUNTIME + SHORT_RUN {
        frames.len()
    } else {
        MAX_ALL_RUNTIME
    };
    let mut rows: Vec<FoldedLine> = frames[..shown]
        .iter()
        .map(|(name, _)| FoldedLine::Runtime(name))
        .collect();
    if shown < frames.len() {
        rows.push(FoldedLine::Folded(
            frames.len() - shown,
            owners(&frames[shown..]),
        ));
    }
    rows
}

/// A stack, folded, a row a line after `indent`.
pub(super) fn render(page: &mut Page, indent: &str, stack: &[String], own: &[bool]) {
    let room = page.width().saturating_sub(indent.len());
    for row in fold(stack, own) {
        let (style, text) = match row {
            FoldedLine::Own(name) => (Style::Strong, page.cut(name, room)),
            FoldedLine::Runtime("") => (Style::Dim, "??".to_owned()),
            FoldedLine::Runtime(name) => (Style::Dim, page.cut(name, room)),
            FoldedLine::Folded(frames, owners) if owners.is_empty() => {
                (Style::Dim, format!("… {}", counted(frames, "more frame")))
            }
            FoldedLine::Folded(frames, owners) => (
                Style::Dim,
                format!("… {} of {}", counted(frames, "frame"), owners.join(", ")),
            ),
        };
        page.paragraph(indent, indent, &[(style, &text)]);
    }
}

/// What the scheduler and the entry into the kernel add to every sleep's stack.
const KERNEL_FRAME: &[&str] = &[
    "schedule",
    "__schedule",
    "io_schedule",
    "schedule_timeout",
    "schedule_hrtimeout_range",
    "schedule_hrtimeout_range_clock",
    "schedule_preempt_disabled",
    "preempt_schedule",
    "context_switch",
    "x64_sys_call",
    "ret_from_fork",
    "ret_from_fork_asm",
];
const KERNEL_FRAME_PREFIX: &[&str] = &[
    "__traceiter_",
    "bpf_",
    "__bpf_",
    "io_schedule_",
    "do_syscall_",
    "entry_SYSCALL_",
    "__x64_sys_",
    "__se_sys_",
    "__do_sys_",
    "asm_",
];

/// The functions of a kernel stack that show what the sleep was for, innermost first, and how many
/// are left out.
pub fn telling_kernel(stack: &[String], max: usize) -> (Vec<&str>, usize) {
    let frame = |name: &str| {
        name.is_empty()
            || KERNEL_FRAME.contains(&name)
            || KERNEL_FRAME_PREFIX
                .iter()
                .any(|prefix| name.starts_with(prefix))
    };
    let shown: Vec<&str> = stack
        .iter()
        .map(String::as_str)
        .filter(|name| !frame(name))
        .take(max)
        .collect();
    let left_out = stack.len() - shown.len();
    (shown, left_out)
}

/// The application's innermost function, or else the innermost function.
pub(super) fn telling(stack: &[String]) -> Option<&str> {
    stack
        .iter()
        .find(|frame| runtime(frame).is_none())
        .or(stack.first())
        .map(String::as_str)
}

/// Whose frames these are, each once, in the order of appearance.
fn owners(frames: &[(&str, Option<&'static str>)]) -> Vec<&'static str> {
    let mut seen = HashSet::new();
    frames
        .iter()
        .filter_map(|(_, runtime)| *runtime)
        .filter(|name| seen.insert(*name))
        .collect()
}

/// First segments of Rust and C++ paths, and the name to show.
const CRATES: &[(&str, &str)] = &[
    ("std", "std"),
    ("core", "std"),
    ("alloc", "std"),
    ("tokio", "tokio"),
    ("tokio_util", "tokio"),
    ("mio", "mio"),
    ("axum", "axum"),
    ("axum_core", "axum"),
    ("hyper", "hyper"),
    ("hyper_util", "hyper"),
    ("tower", "tower"),
    ("tower_service", "tower"),
    ("tower_http", "tower"),
    ("actix_web", "actix"),
    ("actix_http", "actix"),
    ("actix_rt", "actix"),
    ("actix_server", "actix"),
    ("tonic", "tonic"),
    ("tracing", "tracing"),
    ("futures", "futures"),
    ("futures_core", "futures"),
    ("futures_util", "futures"),
    ("futures_executor", "futures"),
    ("parking_lot", "parking_lot"),
    ("parking_lot_core", "parking_lot"),
    ("crossbeam_channel", "crossbeam"),
    ("crossbeam_utils", "crossbeam"),
    ("smol", "smol"),
    ("async_io", "smol"),
    ("async_executor", "smol"),
    ("polling", "smol"),
    ("rayon", "rayon"),
    ("rayon_core", "rayon"),
    ("io_uring", "io_uring"),
    ("__gnu_cxx", "std"),
    ("v8", "v8"),
    ("node", "node"),
];

/// Prefixes of names without a Rust or C++ path.
const PREFIXES: &[(&str, &str)] = &[
    ("__GI_", "libc"),
    ("__libc_", "libc"),
    ("__pthread_", "libc"),
    ("pthread_", "libc"),
    ("__futex_", "libc"),
    ("__lll_lock_", "libc"),
    ("__rust_begin_short_backtrace", "std"),
    ("uv_", "libuv"),
    ("event_base_", "libevent"),
    ("PyEval_", "python"),
    ("PyObject_", "python"),
    ("PyRun_", "python"),
    ("PyVectorcall_", "python"),
    ("Py_", "python"),
    ("_Py", "python"),
    ("luaV_", "lua"),
    ("luaD_", "lua"),
    ("lua_", "lua"),
    ("runtime.", "go"),
    ("net.", "go"),
    ("net/", "go"),
    ("internal/", "go"),
    ("syscall.", "go"),
    ("sync.", "go"),
    ("bufio.", "go"),
    ("__x64_sys_", "kernel"),
    ("__se_sys_", "kernel"),
    ("__do_sys_", "kernel"),
    ("do_syscall_", "kernel"),
    ("entry_SYSCALL_", "kernel"),
    ("0x", "no symbol"),
    ("??", "no symbol"),
];

/// Whole names.
const NAMES: &[(&str, &str)] = &[
    ("_start", "libc"),
    ("start_thread", "libc"),
    ("clone", "libc"),
    ("__clone", "libc"),
    ("clone3", "libc"),
    ("__clone3", "libc"),
    ("syscall", "libc"),
    ("nanosleep", "libc"),
    ("__nanosleep", "libc"),
    ("clock_nanosleep", "libc"),
    ("__clock_nanosleep", "libc"),
    ("usleep", "libc"),
    ("sleep", "libc"),
    ("epoll_wait", "libc"),
    ("epoll_pwait", "libc"),
    ("poll", "libc"),
    ("__poll", "libc"),
    ("read", "libc"),
    ("__read", "libc"),
    ("write", "libc"),
    ("__write", "libc"),
    ("recv", "libc"),
    ("__recv", "libc"),
    ("recvfrom", "libc"),
    ("send", "libc"),
    ("__send", "libc"),
    ("sendto", "libc"),
    ("fsync", "libc"),
    ("fdatasync", "libc"),
    ("rust_begin_unwind", "std"),
    ("main", "libc"),
    ("schedule", "kernel"),
    ("__schedule", "kernel"),
    ("", "no symbol"),
];

/// The runtime or library whose function this is; `None` for the application's.
///
/// A guess by name, made only to choose what to show first: no figure rests on it.
fn runtime(name: &str) -> Option<&'static str> {
    let find = |table: &[(&str, &'static str)], key: &str| {
        table
            .iter()
            .find(|(k, _)| *k == key)
            .map(|(_, owner)| *owner)
    };
    if let Some(owner) = find(NAMES, name).or_else(|| find(CRATES, first_segment(name)?)) {
        return Some(owner);
    }
    PREFIXES
        .iter()
        .find(|(prefix, _)| name.starts_with(prefix))
        .map(|(_, owner)| *owner)
}

/// `tokio` of `tokio::park`, of `<tokio::Park as Drop>::drop` and of `<F as tokio::Run>::run`;
/// `None` without a path.
fn first_segment(name: &str) -> Option<&str> {
    let (path, implements) = match name.strip_prefix('<') {
        Some(inner) => (inner, inner.split_once(" as ").map(|(_, path)| path)),
        None => (name, None),
    };
    let path = path
        .trim_start_matches(['&', '*', '<', '(', '['])
        .trim_start_matches("mut ")
        .trim_start_matches("dyn ");
    let identifier = |path: &str| {
        path.find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(path.len())
    };
    let end = identifier(path);
    if path[end..].starts_with("::") {
        return Some(&path[..end]);
    }
    // A type parameter: the function belongs to the crate that implements the trait, usually the
    // trait's own crate.
    implements.map(|path| &path[..identifier(path)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_applications_functions_stand_out() {
        let stack = stack(&[
            "clock_nanosleep",
            "std::sys::thread::sleep",
            "std::thread::sleep",
            "images::render",
            "images::handler::{{closure}}",
            "<F as axum::handler::Handler<M, S>>::call",
            "<core::pin::Pin<P> as core::future::Future>::poll",
            "tokio::runtime::task::raw::poll",
            "start_thread",
            "clone3",
        ]);
        assert_eq!(
            fold(&stack, &[]),
            [
                FoldedLine::Folded(2, vec!["libc", "std"]),
                FoldedLine::Runtime("std::thread::sleep"),
                FoldedLine::Own("images::render"),
                FoldedLine::Own("images::handler::{{closure}}"),
                FoldedLine::Folded(5, vec!["axum", "std", "tokio", "libc"]),
            ]
        );
        assert_eq!(telling(&stack), Some("images::render"));
    }

    #[test]
    fn a_single_runtime_frame_is_not_folded() {
        let stack = stack(&["fsync", "save", "std::thread::scope", "run", "main"]);
        assert_eq!(
            fold(&stack, &[]),
            [
                FoldedLine::Runtime("fsync"),
                FoldedLine::Own("save"),
                FoldedLine::Runtime("std::thread::scope"),
                FoldedLine::Own("run"),
                FoldedLine::Runtime("main")
            ]
        );
    }

    #[test]
    fn a_stack_of_runtime_frames_alone_shows_its_innermost() {
        let stack = stack(&[
            "syscall",
            "std::a",
            "std::b",
            "tokio::c",
            "tokio::d",
            "start_thread",
        ]);
        let rows = fold(&stack, &[]);
        assert_eq!(rows.len(), 5);
        assert_eq!(rows[4], FoldedLine::Folded(2, vec!["tokio", "libc"]));
        assert_eq!(telling(&stack), Some("syscall"));
    }

    #[test]
    fn deep_recursion_is_cut() {
        let stack = vec!["app::visit".to_owned(); 500];
        let rows = fold(&stack, &[]);
        assert_eq!(rows.len(), MAX_OWN + 1);
        assert_eq!(rows[MAX_OWN], FoldedLine::Folded(492, vec![]));
    }

    #[test]
    fn an_empty_stack_has_no_rows() {
        assert_eq!(fold(&[], &[]), []);
        assert_eq!(telling(&[]), None);
    }

    #[test]
    fn the_scheduler_says_nothing_of_a_sleep() {
        let stack = stack(&[
            "__schedule",
            "schedule",
            "jbd2_log_wait_commit",
            "ext4_sync_file",
            "do_fsync",
            "__x64_sys_fsync",
            "do_syscall_64",
            "entry_SYSCALL_64_after_hwframe",
        ]);
        assert_eq!(
            telling_kernel(&stack, 2),
            (vec!["jbd2_log_wait_commit", "ext4_sync_file"], 6)
        );
        assert_eq!(telling_kernel(&[], 2), (vec![], 0));
    }

    #[test]
    fn who_owns_a_function() {
        for (name, owner) in [
            ("<images::App as tower::Service<R>>::call", None),
            ("<&mut tokio::io::Stdin as Read>::read", Some("tokio")),
            (
                "<T as futures_util::fns::FnOnce1<A>>::call_once",
                Some("futures"),
            ),
            ("tokio_images::render", None),
            ("runtime.gopark", Some("go")),
            ("main.handler", None),
            ("uv__io_poll", Some("libuv")),
            ("ext4_writepages", None),
            ("0x7f12", Some("no symbol")),
            ("<", None),
            ("<é as ", None),
        ] {
            assert_eq!(runtime(name), owner, "{name}");
        }
    }
}
