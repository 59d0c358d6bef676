//! Real programs, stopped at a known place.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use whywait_events::{Frame, Module, Symbol};
use whywait_stacks::{Registers, Symboliser, Unwinder, Unwound};

/// A program that is killed at the end of the test.
pub(crate) struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A sleeping thread: registers and a copy of its stack.
pub(crate) struct Sleeper {
    pub(crate) tgid: u32,
    pub(crate) tid: u32,
    pub(crate) registers: Registers,
    pub(crate) stack: Vec<u8>,
}

pub(crate) fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(name)
}

/// Where this test may write; each test its own, for they run side by side. What an earlier run
/// left there is gone.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if directory.exists() {
        std::fs::remove_dir_all(&directory).unwrap();
    }
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

/// Runs a compiler.
pub(crate) fn build(command: &str, arguments: &[&str], source: &Path, output: &Path) {
    let status = Command::new(command)
        .args(arguments)
        .arg("-o")
        .arg(output)
        .arg(source)
        .status()
        .unwrap_or_else(|error| panic!("{command}: {error}"));
    assert!(status.success(), "{command} {arguments:?}");
}

pub(crate) fn run(program: &Path, arguments: &[&str]) -> Running {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    loop {
        match command.spawn() {
            Ok(child) => return Running(child),
            // It was just written, and a process that another test was making at that moment has
            // the file open until its exec.
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                std::thread::yield_now();
            }
            Err(error) => panic!("{}: {error}", program.display()),
        }
    }
}

impl Running {
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Waits until a thread sleeps in one of these system calls (x86-64 numbers) and copies its
    /// stack.
    pub(crate) fn sleeper(&self, syscalls: &[u64], bytes: usize) -> Sleeper {
        self.sleeper_where(bytes, |_, syscall| syscalls.contains(&syscall))
    }

    /// As `sleeper`, with a choice by thread id too.
    pub(crate) fn sleeper_where(&self, bytes: usize, wanted: impl Fn(u32, u64) -> bool) -> Sleeper {
        Self::sleeper_of(self.id(), bytes, wanted)
    }

    /// The same of a process that it may have started.
    pub(crate) fn sleeper_of(
        tgid: u32,
        bytes: usize,
        wanted: impl Fn(u32, u64) -> bool,
    ) -> Sleeper {
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline {
            for task in std::fs::read_dir(format!("/proc/{tgid}/task"))
                .unwrap()
                .flatten()
            {
                let tid: u32 = task.file_name().to_str().unwrap().parse().unwrap();
                let Some((syscall, sp, ip)) = blocked(tgid, tid) else {
                    continue;
                };
                // Twice the same: it stays there.
                std::thread::sleep(Duration::from_millis(50));
                if wanted(tid, syscall) && blocked(tgid, tid) == Some((syscall, sp, ip)) {
                    let Some(bp) = frame_pointer(tid, sp) else {
                        continue;
                    };
                    let stack = copy(tgid, sp, bytes);
                    return Sleeper {
                        tgid,
                        tid,
                        registers: Registers { ip, sp, bp, lr: 0 },
                        stack,
                    };
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("no thread sleeps there");
    }
}

/// The monotonic clock.
pub(crate) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A thread that stands still, wherever it was, until this is dropped.
pub(crate) struct Stopped(nix::unistd::Pid);

impl Stopped {
    pub(crate) fn new(tid: u32) -> Self {
        use nix::sys::ptrace;
        use nix::sys::wait::{WaitPidFlag, waitpid};
        let thread = nix::unistd::Pid::from_raw(tid as i32);
        ptrace::seize(thread, ptrace::Options::empty()).unwrap();
        ptrace::interrupt(thread).unwrap();
        waitpid(thread, Some(WaitPidFlag::__WALL)).unwrap();
        Self(thread)
    }

    /// Its registers, and those that interpreters keep.
    pub(crate) fn registers(&self) -> (Registers, [u64; 2]) {
        let all = nix::sys::ptrace::getregs(self.0).unwrap();
        let registers = Registers {
            ip: all.rip,
            sp: all.rsp,
            bp: all.rbp,
            lr: 0,
        };
        (registers, [all.r14, all.r15])
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        nix::sys::ptrace::detach(self.0, None).unwrap();
    }
}

/// The frame pointer of a blocked thread. Interrupts the thread for a moment; it then sleeps on at
/// the same place.
fn frame_pointer(tid: u32, sp: u64) -> Option<u64> {
    use nix::sys::ptrace;
    use nix::sys::wait::{WaitPidFlag, waitpid};
    let thread = nix::unistd::Pid::from_raw(tid as i32);
    ptrace::seize(thread, ptrace::Options::empty()).ok()?;
    ptrace::interrupt(thread).unwrap();
    waitpid(thread, Some(WaitPidFlag::__WALL)).unwrap();
    let registers = ptrace::getregs(thread).unwrap();
    ptrace::detach(thread, None).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    (registers.rsp == sp).then_some(registers.rbp)
}

fn blocked(tgid: u32, tid: u32) -> Option<(u64, u64, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{tgid}/task/{tid}/syscall")).ok()?;
    let fields: Vec<&str> = text.split_whitespace().collect();
    let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    Some((
        fields.first()?.parse().ok()?,
        hex(fields.get(7)?)?,
        hex(fields.get(8)?)?,
    ))
}

/// The bytes from `at` upwards, as many as there are up to `size`.
pub(crate) fn copy(tgid: u32, at: u64, size: usize) -> Vec<u8> {
    let memory = File::open(format!("/proc/{tgid}/mem")).unwrap();
    let mut bytes = vec![0; size];
    let mut length = 0;
    while length < size {
        match memory.read_at(&mut bytes[length..], at + length as u64) {
            Ok(n) if n > 0 => length += n,
            _ => break,
        }
    }
    bytes.truncate(length);
    bytes
}

/// Names of frames, functions only: inlined ones innermost first.
#[derive(Default)]
pub(crate) struct Names {
    pub(crate) modules: Vec<Module>,
    pub(crate) symbols: HashMap<Frame, Vec<Symbol>>,
}

impl Names {
    pub(crate) fn of(unwinder: &mut Unwinder, unwound: &Unwound) -> Self {
        let modules = unwinder.take_new_modules();
        let mut symbols: HashMap<Frame, Vec<Symbol>> = HashMap::new();
        let live = unwinder.take_new_symbols();
        for symbol in Symboliser::new()
            .symbolise(&modules, &unwound.frames, None)
            .into_iter()
            .chain(live)
        {
            symbols.entry(symbol.frame).or_default().push(symbol);
        }
        Self { modules, symbols }
    }

    /// Adds what an unwinder has named since, without the names in files.
    pub(crate) fn add(&mut self, unwinder: &mut Unwinder) {
        self.modules.extend(unwinder.take_new_modules());
        for symbol in unwinder.take_new_symbols() {
            self.symbols.entry(symbol.frame).or_default().push(symbol);
        }
    }

    pub(crate) fn list(&self, frames: &[Frame]) -> Vec<String> {
        frames
            .iter()
            .flat_map(|frame| match self.symbols.get(frame) {
                Some(symbols) => symbols.iter().map(|s| s.name.clone()).collect(),
                None => vec![format!("?{}+{:#x}", frame.module, frame.address)],
            })
            .collect()
    }
}

/// Asserts that `wanted` are among `names`, in this order.
pub(crate) fn assert_in_order(names: &[String], wanted: &[&str]) {
    let mut rest = names.iter();
    for name in wanted {
        assert!(
            rest.any(|n| n.contains(name)),
            "{name} missing, or out of order, in {names:#?}"
        );
    }
}

/// What was lost.
pub(crate) fn losses(unwinder: &Unwinder) -> Vec<(&'static str, u64)> {
    unwinder.losses().filter(|&(_, count)| count > 0).collect()
}

/// Debian's Python, and all others that are installed side by side, up to a minor version. There
/// must be one.
pub(crate) fn interpreters(newest: u32) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = (8..=newest)
        .map(|minor| PathBuf::from(format!("/usr/bin/python3.{minor}")))
        .filter(|p| p.exists())
        .collect();
    let home = std::env::var("HOME").unwrap_or_default();
    for version in std::fs::read_dir(format!("{home}/.pyenv/versions"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = version.file_name().to_string_lossy().into_owned();
        let minor = name
            .strip_prefix("3.")
            .and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
        if minor.is_some_and(|minor| (8..=newest).contains(&minor)) {
            found.push(version.path().join("bin/python3"));
        }
    }
    assert!(!found.is_empty(), "no Python here");
    found
}
