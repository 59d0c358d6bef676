//! The vocabulary of whywait: what the capture says, what a recording holds and what the model
//! replays.
//!
//! Everything here is plain data. This crate knows nothing of BPF, needs no kernel and has no
//! `unsafe` code, so that a recording can be read on any machine.
//!
//! All times are nanoseconds of `CLOCK_MONOTONIC` (what `bpf_ktime_get_ns` returns), all durations
//! nanoseconds.

mod names;
mod part;
pub mod recording;
mod socket_cpu;
mod spin;
pub mod uring;

pub use part::{PART_COUNT, Part, Parts};
pub use socket_cpu::SocketCpu;
pub use spin::{Burst, BurstCall, Cpu};

/// A point in time: nanoseconds of `CLOCK_MONOTONIC`.
pub type Ns = u64;

/// Identifies a stack within a recording; 0 means "no stack was taken".
pub type StackId = u32;

/// One thing that the capture has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A thread of the target appeared, changed its name or program, or went.
    Thread(ThreadEvent),
    /// A thread slept for long.
    Wait(Wait),
    /// A thread that does I/O did none for long.
    Busy(Busy),
    /// A thread that had not slept was without a CPU for long.
    Preempted(Preempted),
    /// The short sleeps on a futex word.
    Futex(FutexSum),
    /// A slow request.
    Request(Request),
    /// A thread of the target was seen on the CPU.
    Sample(Sample),
    /// A stack that later events name by its id.
    Stack(Stack),
    /// A mapped file that frames name by its id.
    Module(Module),
    /// The name of a frame.
    Symbol(Symbol),
    /// Something about a ring of io_uring.
    Ring(uring::RingEvent),
    /// What a thread or a port used of the CPUs.
    Cpu(Cpu),
    /// What a connection used of the CPUs.
    SocketCpu(SocketCpu),
    /// What a burst of system-call tracing saw of a thread.
    Burst(Burst),
    /// A step of a cycle that a burst saw.
    BurstCall(BurstCall),
}

/// What happened to a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ThreadChange {
    /// It was there when the recording began.
    Found = 0,
    /// It was created.
    Fork = 1,
    /// It became another program.
    Exec = 2,
    /// It changed its name.
    Rename = 3,
    /// It ended.
    Exit = 4,
}

/// A thread of the target appeared, changed its name or program, or went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadEvent {
    /// When.
    pub at_ns: Ns,
    /// Thread id in the initial pid namespace.
    pub tid: u32,
    /// Process id (thread group id).
    pub tgid: u32,
    /// For `Fork`: the thread that created it. Otherwise 0.
    pub parent_tid: u32,
    /// What happened.
    pub change: ThreadChange,
    /// The thread's name after the change, as the kernel has it. Hostile: may hold any byte but
    /// NUL, here decoded lossily.
    pub comm: String,
}

/// In which context a wake was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum WakeContext {
    /// No wake was seen.
    #[default]
    Unknown = 0,
    /// A task woke it (which one: `waker_tid`).
    Task = 1,
    /// A soft interrupt: as a rule the network.
    Softirq = 2,
    /// A hard interrupt: a timer or a device.
    Hardirq = 3,
    /// Nothing it waited for: its process ended, or was killed.
    Exit = 4,
}

/// A thread slept for at least the threshold (or still sleeps), or slept in an epoll instance for
/// the first time: who polls what is to be known also of threads that never poll for long.
///
/// The row also says how the thread spent the stretch between its previous row and this one
/// (`segment`): on a CPU, runnable, and in sleeps below the threshold, by kind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wait {
    /// Thread id.
    pub tid: u32,
    /// Process id.
    pub tgid: u32,
    /// Counts the thread's sleeps, also the short ones. With `tid` it identifies the sleep: a row
    /// with `in_ns` replaces an earlier one without.
    pub seq: u32,
    /// When it left the CPU to sleep. For a thread that slept already when the recording began:
    /// when the recording began.
    pub out_ns: Ns,
    /// When it was woken; `None` when no wake was seen (yet).
    pub wake_ns: Option<Ns>,
    /// When it was back on a CPU; `None` while it still sleeps (or is still runnable).
    pub in_ns: Option<Ns>,
    /// It slept already when the recording began: the true start is unknown.
    pub since_before: bool,
    /// The blocked system call's number (x86-64 numbering); `None` when it was in none (page
    /// fault).
    pub syscall: Option<u32>,
    /// The first three arguments of the system call.
    pub args: [u64; 3],
    /// For a futex wait: it had a timeout.
    pub timeout: bool,
    /// For a futex wait: the thread that the word's surroundings named as the lock's owner when the
    /// sleep began. A mutex of the GNU C library has it 8 bytes after the word. Only threads of the
    /// same process are written. 0: none.
    pub owner_tid: u32,
    /// For a futex wait: the address that the word's surroundings named as what the thread queues
    /// for. `parking_lot` has one word for each thread, and the address of the lock 32 bytes before
    /// it. A guess until the stack says that it is `parking_lot`. 0: none.
    pub lock: u64,
    /// For a futex wait that had not ended when the recording did: the word nearest to the top of
    /// the thread's stack, of those for which other threads wait without end. A thread has a lock's
    /// address there while it holds the lock. 0: none.
    pub holds: u64,
    /// Uninterruptible sleep (state D).
    pub uninterruptible: bool,
    /// The kernel accounted the sleep as waiting for I/O.
    pub io_wait: bool,
    /// In which context it was woken.
    pub wake_context: WakeContext,
    /// The thread that woke it, 0 unless `wake_context` is `Task`. May be outside of the target.
    pub waker_tid: u32,
    /// The process that woke it, 0 unless `wake_context` is `Task`.
    pub waker_tgid: u32,
    /// For a wait in epoll: identifies the epoll instance within the recording. 0: none, or
    /// unknown.
    pub epoll: u32,
    /// User stack of this very sleep.
    pub user_stack: StackId,
    /// Kernel stack of this very sleep.
    pub kernel_stack: StackId,
    /// For a futex wait that a thread of the target ended: the user stack of that thread when it
    /// did.
    pub waker_stack: StackId,
    /// How the thread spent the stretch between its previous row (or its start) and `out_ns`, short
    /// sleeps and all.
    pub segment: Parts,
}

/// A thread that does I/O (polls, reads or writes sockets) did neither for at least the threshold,
/// and had no long sleep in that stretch: a long sleep is a [`Wait`], and ends one stretch and
/// begins the next.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Busy {
    /// Thread id.
    pub tid: u32,
    /// Process id.
    pub tgid: u32,
    /// The last I/O before the stretch.
    pub start_ns: Ns,
    /// The first I/O after it.
    pub end_ns: Ns,
    /// Nanoseconds on a CPU.
    pub on_cpu_ns: u64,
    /// Nanoseconds runnable, waiting for a CPU. The rest was asleep.
    pub runnable_ns: u64,
}

/// A thread could have run for at least the threshold and had no CPU, though it had not slept:
/// another one had it, or the CPU time of its control group was used up. (Without a CPU after a
/// sleep is part of that [`Wait`].)
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Preempted {
    /// Thread id.
    pub tid: u32,
    /// Process id.
    pub tgid: u32,
    /// When it lost its CPU.
    pub out_ns: Ns,
    /// When it got one again.
    pub in_ns: Ns,
}

/// A futex word or a descriptor, and the sleeps on it that have no [`Wait`] of their own: on
/// futexes because each was shorter than the threshold, on either because there were too many to
/// tell one by one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FutexSum {
    /// Process id.
    pub tgid: u32,
    /// Address of the word; of a descriptor, see [`FutexSum::descriptor`].
    pub address: u64,
    /// How many.
    pub count: u64,
    /// Nanoseconds asleep (not those spent runnable).
    pub total_ns: u64,
    /// The longest of them, nanoseconds.
    pub longest_ns: u64,
    /// What is mapped at the word: a path, `[heap]`, `[stack]`, `[anonymous]`; empty when not
    /// known. Hostile.
    pub mapping: String,
}

impl FutexSum {
    /// No address of a program has this bit.
    const IS_DESCRIPTOR: u64 = 1 << 63;

    /// When these are sleeps on a descriptor: the number of the call and the descriptor.
    pub fn descriptor(&self) -> Option<(u32, i32)> {
        (self.address & Self::IS_DESCRIPTOR != 0)
            .then_some(((self.address >> 32) as u32 & 0xffff, self.address as i32))
    }
}

/// A request that took at least the threshold: on a stream socket, from the kernel having its first
/// byte to the last byte of the response before the next request.
///
/// A row may come twice for the same (`socket`, `seq`), when more of the response was sent after
/// the first row: the later row replaces the earlier.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Request {
    /// Identifies the socket within the recording.
    pub socket: u64,
    /// Counts the socket's requests.
    pub seq: u32,
    /// Process that read it; 0 when it was never read.
    pub tgid: u32,
    /// When the kernel had the first byte.
    pub ready_ns: Ns,
    /// When the target first read from the socket; `None`: never.
    pub recv_ns: Option<Ns>,
    /// When the target wrote the first byte of the response; `None`: never.
    pub first_send_ns: Option<Ns>,
    /// When the target wrote the last byte of the response; `None`: never.
    pub last_send_ns: Option<Ns>,
    /// The thread that first read it, 0: none.
    pub recv_tid: u32,
    /// The thread that wrote the last byte, 0: none.
    pub send_tid: u32,
    /// Bytes read.
    pub bytes_in: u64,
    /// Bytes written.
    pub bytes_out: u64,
    /// File descriptor under which the socket is registered with epoll, -1: not registered or
    /// unknown.
    pub fd: i32,
    /// The epoll instance with which the socket is registered (before it was accepted: the
    /// listener's). 0: none or unknown.
    pub epoll: u32,
    /// Whether epoll read interest was armed for the socket when the row was made; `None`: unknown.
    pub read_armed: Option<bool>,
    /// The first byte came before the connection was accepted.
    pub before_accept: bool,
    /// The thread that took the connection from the accept queue, 0: unknown.
    pub accept_tid: u32,
    /// Local port, 0 for unix sockets.
    pub local_port: u16,
    /// Part of `recv_ns - ready_ns`: the reader was waking up (wake to on-CPU, and the wake
    /// itself).
    pub unserved_wakeup_ns: u64,
    /// How the reader-then-writer spent `last_send_ns - recv_ns`, as counted in the kernel.
    pub service: Parts,
    /// Until then what was read lay in a ring of io_uring, done and not taken, for certain; `None`:
    /// not known, or not so.
    pub taken_ns: Option<Ns>,
}

/// A thread of the target was on a CPU when the sampling clock ticked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sample {
    /// When.
    pub at_ns: Ns,
    /// Thread id.
    pub tid: u32,
    /// Process id.
    pub tgid: u32,
    /// Which CPU.
    pub cpu: u32,
    /// User stack.
    pub user_stack: StackId,
    /// Kernel stack, 0 when it ran in user mode.
    pub kernel_stack: StackId,
    /// For how many periods of the clock it stands: where nothing was slow the clock ticked less
    /// often. 0 is as good as 1.
    pub periods: u32,
}

impl Sample {
    /// For how many periods of the clock it stands, 1 at least: its weight beside others.
    pub fn weight(&self) -> u64 {
        u64::from(self.periods.max(1))
    }
}

/// A stack, innermost frame first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stack {
    /// Its id, from 1.
    pub id: StackId,
    /// Whether unwinding ended before the thread's start (too few bytes copied, or no unwind data).
    pub truncated: bool,
    /// Frames, innermost first.
    pub frames: Vec<Frame>,
}

/// A frame: an address within a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame {
    /// Which [`Module`].
    pub module: u32,
    /// For an ELF file: the address as its symbol table has it (not a file offset, not a process
    /// address), of the call instruction rather than of the return address. For other kinds: a
    /// number that [`Symbol`] names.
    pub address: u64,
}

/// What a module is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ModuleKind {
    /// A mapped ELF file.
    Elf = 0,
    /// The kernel. Addresses are arbitrary numbers (no kernel address is written to disk).
    Kernel = 1,
    /// Anonymous code, such as a just-in-time compiler's.
    Jit = 2,
    /// Frames of the Python interpreter.
    Python = 3,
    /// No mapping was found for the address.
    Unknown = 4,
}

/// What all code of a just-in-time compiler is called that has no name of its own. It may be any
/// function.
pub const UNNAMED_JIT: &str = "[jit]";

/// A mapped file, or another source of frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Its id, from 1.
    pub id: u32,
    /// What it is.
    pub kind: ModuleKind,
    /// The GNU build-id in hex, empty when it has none.
    pub build_id: String,
    /// Its path as the target saw it. Hostile, decoded lossily.
    pub path: String,
}

/// The name of a frame. A frame in inlined code has several, innermost (`depth` 0) first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// The frame.
    pub frame: Frame,
    /// 0: the innermost function at this address; 1: the function it was inlined into; and so on.
    pub depth: u16,
    /// Demangled function name. Hostile.
    pub name: String,
    /// Source file, empty when unknown. Hostile.
    pub file: String,
    /// Line, 0 when unknown.
    pub line: u32,
}
