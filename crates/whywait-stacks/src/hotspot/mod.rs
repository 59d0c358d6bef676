//! Java's frames, read from outside out of HotSpot's own structures.
//!
//! A virtual machine describes itself to tools that look at it from outside: `libjvm.so` exports
//! where each field of its structures lies. What is read with that is checked on the way, and where
//! something does not fit, the frame has no name, and a counter says so. No thread is stopped, and
//! nothing is written to the target.
//!
//! All that says which function a thread was in, and who called it, is on its copied stack: methods
//! of the interpreter by the frames' fixed places, compiled ones by the address and the frame's
//! size. So a sample may be read later than it was taken. What is read of the process itself
//! (names, the size of a frame, what was inlined) stays as long as the code does; code that has
//! made room for other code meanwhile is recognised by its head.

mod cache;
mod description;
mod exits;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
#[cfg(test)]
mod hotspot_tests;
mod layout;
mod loops;
#[cfg(any(test, fuzzing))]
mod made_up;
mod memory;
mod methods;
mod scopes;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use whywait_events::{Frame, ModuleKind};

use crate::arch::Registers;
use crate::budget::{Budget, Charge};
use crate::elf::ReadAt;
use crate::loss::Loss;
use crate::managed::{ManagedExit, ManagedFrames, ManagedPlace};
use crate::modules::Modules;
use cache::{Blob, BlobKind, Heap};
use description::Description;
use exits::CompiledExit;
use layout::{InterpreterFrame, JvmLayout};
use memory::{bytes_up_to, word};
use methods::Methods;
use scopes::{CodeScope, Scopes};

/// Structures that are read are smaller, and fields lie within.
const MAX_STRUCTURE: usize = 4096;
/// The interpreter has some 200 KiB.
const MAX_INTERPRETER: u64 = 16 << 20;
/// A virtual machine that has just begun has no code yet: it is looked at again.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(20);
/// Code and methods that were there are there for so long: the virtual machine first stops using
/// them, stops all threads, and finds them on no stack before it gives their memory to others.
const STAYS_FOR: Duration = Duration::from_millis(5);
const MAX_PLACES: usize = 1 << 16;
/// What a known place takes beside its frames and its blob's head.
const PLACE: usize = 2 * size_of::<((u64, bool), KnownCode)>();
/// The longest prologue or epilogue that is looked at.
const MAX_CODE: usize = 256;

/// A virtual machine.
#[derive(Debug)]
pub(crate) struct HotSpot {
    layout: JvmLayout,
    heaps: Vec<Heap>,
    interpreter: Range<u64>,
    call_stub_return: u64,
    looked_at: Option<Instant>,
    methods: Methods,
    /// Compiled code, by address and by whether it is the innermost.
    places: HashMap<(u64, bool), KnownCode>,
    charge: Charge,
}

/// What is known of an address in compiled code.
#[derive(Debug, Clone)]
struct KnownCode {
    blob: u64,
    frames: Arc<[Frame]>,
    exit: PlaceExit,
    /// When it was seen that the code is still there.
    seen: Instant,
    /// What the blob's head has that is another in other code: the method and its number.
    identity: CodeIdentity,
}

/// The same for as long as the same code is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CodeIdentity {
    code: (u64, u64),
    method: u64,
    id: u64,
    name: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PlaceExit {
    Frame(CompiledExit),
    ByCode,
    Unknown,
}

impl HotSpot {
    /// The virtual machine of which `symbol` gives where the exported variables are in the process.
    pub(crate) fn open(
        memory: &dyn ReadAt,
        symbol: impl Fn(&str) -> Option<u64>,
        budget: &Budget,
    ) -> Result<Self, Loss> {
        // Frames elsewhere were not tried.
        if cfg!(not(target_arch = "x86_64")) {
            return Err(Loss::HotSpotVersion);
        }
        let description = Description::read(memory, symbol).ok_or(Loss::HotSpotDescription)?;
        let layout = JvmLayout::of(&description, memory)?;
        Ok(Self::new(layout, budget))
    }

    fn new(layout: JvmLayout, budget: &Budget) -> Self {
        Self {
            layout,
            heaps: Vec::new(),
            interpreter: 0..0,
            call_stub_return: 0,
            looked_at: None,
            methods: Methods::new(budget),
            places: HashMap::new(),
            charge: budget.nothing(),
        }
    }

    /// Whether an address is in its code.
    pub(crate) fn covers(&mut self, memory: &dyn ReadAt, address: u64) -> bool {
        if self.call_stub_return == 0 {
            self.look(memory);
        }
        self.heaps.iter().any(|heap| heap.memory.contains(&address))
    }

    /// Looks for its code, until all is there that is made when it begins.
    fn look(&mut self, memory: &dyn ReadAt) {
        let recently = self
            .looked_at
            .is_some_and(|at| at.elapsed() < LOOK_AGAIN_AFTER);
        if recently {
            return;
        }
        self.looked_at = Some(Instant::now());
        self.heaps = cache::heaps(&self.layout.cache, memory);
        let interpreter = || {
            let queue = word(memory, self.layout.interpreter).filter(|&queue| queue != 0)?;
            let begin = self.layout.codelets.0.at(memory, queue)?;
            let size = self.layout.codelets.1.at(memory, queue)?;
            (size <= MAX_INTERPRETER).then_some(begin..begin.checked_add(size)?)
        };
        if let Some(interpreter) = interpreter() {
            self.interpreter = interpreter;
            self.call_stub_return = word(memory, self.layout.call_stub_return).unwrap_or(0);
        }
    }

    /// The functions at a place in its code, and the way out.
    pub(crate) fn frames(
        &mut self,
        place: ManagedPlace<'_>,
        memory: &dyn ReadAt,
        modules: &mut Modules,
    ) -> Result<ManagedFrames, Loss> {
        if self.interpreter.contains(&place.address()) {
            return self.interpreted(place, memory, modules);
        }
        if !place.innermost && place.registers.ip == self.call_stub_return {
            return Ok(ManagedFrames {
                frames: [stub("call_stub", modules)].into(),
                exit: by_frame_pointer(place),
            });
        }
        let known = self.compiled(place, memory, modules)?;
        let exit = match known.exit {
            PlaceExit::Frame(exit) => exit
                .caller(place.registers, place.stack)
                .map_or_else(ManagedExit::Lost, ManagedExit::To),
            PlaceExit::ByCode => ManagedExit::ByCode,
            PlaceExit::Unknown => ManagedExit::Lost(Loss::NoUnwindData),
        };
        Ok(ManagedFrames {
            frames: known.frames,
            exit,
        })
    }

    fn interpreted(
        &mut self,
        place: ManagedPlace<'_>,
        memory: &dyn ReadAt,
        modules: &mut Modules,
    ) -> Result<ManagedFrames, Loss> {
        let Registers { sp, bp, .. } = place.registers;
        if bp < sp {
            return Err(Loss::HotSpotFrame);
        }
        let frame = InterpreterFrame::at(bp, place.stack).ok_or_else(|| place.stack.loss(bp))?;
        let caller = frame.caller;
        // Its locals lie between the two.
        if caller.sp < bp.saturating_add(16) {
            return Err(Loss::HotSpotFrame);
        }
        let method = (frame.method, frame.bytecode);
        let named = self.methods.interpreted(
            &self.layout.method,
            self.layout.debug.excludes_zero,
            memory,
            method,
            modules,
        );
        let mut named = named.ok_or(Loss::HotSpotMethod)?;
        if place.innermost {
            // The bytecode that it is at is in a register: the one here is that of the last call.
            let method = (frame.method, None);
            let without_line = self.frame(method, memory, modules);
            named = without_line.ok_or(Loss::HotSpotMethod)?;
        }
        Ok(ManagedFrames {
            frames: [named].into(),
            exit: ManagedExit::To(caller),
        })
    }

    fn frame(
        &mut self,
        method: (u64, Option<u16>),
        memory: &dyn ReadAt,
        modules: &mut Modules,
    ) -> Option<Frame> {
        let excludes_zero = self.layout.debug.excludes_zero;
        self.methods
            .frame(&self.layout.method, excludes_zero, memory, method, modules)
    }

    /// What is known of a place in compiled code or a stub.
    fn compiled(
        &mut self,
        place: ManagedPlace<'_>,
        memory: &dyn ReadAt,
        modules: &mut Modules,
    ) -> Result<KnownCode, Loss> {
        let address = place.address();
        let ip = place.registers.ip;
        // A frame that is to be given up returns elsewhere: where it would have, it says itself.
        let key = (ip, place.innermost);
        if let Some(known) = self.places.get(&key) {
            if known.seen.elapsed() < STAYS_FOR {
                return Ok(known.clone());
            }
            let blob = Blob::read(&self.layout.blob, memory, known.blob, address);
            if blob.is_some_and(|blob| self.identity(&blob) == known.identity) {
                let mut known = known.clone();
                known.seen = Instant::now();
                self.places.insert(key, known.clone());
                return Ok(known);
            }
        }
        let start = cache::blob(&self.heaps, &self.layout.cache, memory, address);
        let blob = start.and_then(|at| Blob::read(&self.layout.blob, memory, at, address));
        let blob = blob.ok_or(Loss::HotSpotCode)?;
        let name = blob.name(memory).ok_or(Loss::HotSpotCode)?;
        let kind = blob.kind(&name);
        let deoptimised = (kind == BlobKind::Compiled && !place.innermost)
            .then(|| self.returns_to(&blob, place))
            .flatten();
        let frames = match kind {
            BlobKind::Compiled => {
                let ip = deoptimised.unwrap_or(ip);
                self.inlined(&blob, (ip, place.innermost), memory, modules)?
            }
            _ => [stub(&name, modules)].into(),
        };
        let known = KnownCode {
            blob: blob.start,
            frames,
            exit: self.exit(&blob, kind, place, memory),
            seen: Instant::now(),
            identity: self.identity(&blob),
        };
        // Where such a frame is, is another thing in each.
        if deoptimised.is_none() {
            self.keep(key, &known);
        }
        Ok(known)
    }

    fn keep(&mut self, key: (u64, bool), known: &KnownCode) {
        let size = PLACE + known.frames.len() * size_of::<Frame>();
        if self.places.len() >= MAX_PLACES || !self.charge.grow(size) {
            self.places = HashMap::new();
            self.charge = self.charge.emptied();
            return;
        }
        self.places.insert(key, known.clone());
    }

    fn identity(&self, blob: &Blob) -> CodeIdentity {
        let of_head = |field: memory::FieldPlace| field.of(&blob.head).unwrap_or(0);
        CodeIdentity {
            code: (blob.code.start, blob.code.end),
            method: of_head(self.layout.compiled.method),
            id: of_head(self.layout.compiled.id),
            name: of_head(self.layout.blob.name),
        }
    }

    /// Where a frame that is to be given up would have returned to; `None`: it is not.
    fn returns_to(&self, blob: &Blob, place: ManagedPlace<'_>) -> Option<u64> {
        let layout = &self.layout.compiled;
        let given_up = layout.deoptimise.iter();
        let mut given_up = given_up.filter_map(|it| blob.place(*it));
        given_up.find(|it| *it == place.registers.ip)?;
        let at = layout.original.of(&blob.head)?;
        let original = place.stack.read(place.registers.sp.checked_add(at)?)?;
        blob.code.contains(&original).then_some(original)
    }

    /// The functions at an address of a compiled method.
    fn inlined(
        &mut self,
        blob: &Blob,
        (ip, innermost): (u64, bool),
        memory: &dyn ReadAt,
        modules: &mut Modules,
    ) -> Result<Arc<[Frame]>, Loss> {
        let method = self.layout.compiled.method.of(&blob.head);
        let method = method.ok_or(Loss::HotSpotCode)?;
        let scopes = Scopes::of(&self.layout.debug, memory, blob);
        let chain = scopes.and_then(|scopes| match innermost {
            true => scopes.around(ip),
            false => scopes.returning_to(ip),
        });
        // The method itself is always one of them: the outermost.
        let chain = chain.filter(|it| it.last().is_some_and(|last| last.method == method));
        let chain = chain.unwrap_or_else(|| {
            vec![CodeScope {
                method,
                bytecode: None,
            }]
        });
        chain
            .iter()
            .map(|scope| self.frame((scope.method, scope.bytecode), memory, modules))
            .collect::<Option<_>>()
            .ok_or(Loss::HotSpotMethod)
    }

    fn exit(
        &self,
        blob: &Blob,
        kind: BlobKind,
        place: ManagedPlace<'_>,
        memory: &dyn ReadAt,
    ) -> PlaceExit {
        let ip = place.registers.ip;
        let exit = match kind {
            BlobKind::Other => return PlaceExit::ByCode,
            BlobKind::Adapter => None,
            BlobKind::Table => Some(CompiledExit::RETURN_ON_TOP),
            BlobKind::Compiled | BlobKind::Framed => {
                let whole = CompiledExit::of_size(blob.frame);
                match place.innermost {
                    true => self.innermost_exit(blob, kind, ip, memory).or(whole),
                    false => whole,
                }
            }
        };
        exit.map_or(PlaceExit::Unknown, PlaceExit::Frame)
    }

    /// That of the innermost frame, where it is not wholly there.
    fn innermost_exit(
        &self,
        blob: &Blob,
        kind: BlobKind,
        ip: u64,
        memory: &dyn ReadAt,
    ) -> Option<CompiledExit> {
        let entry = match kind {
            BlobKind::Compiled => blob.place(self.layout.compiled.entry),
            _ => None,
        };
        let entry = entry.unwrap_or(blob.code.start);
        if blob.complete.is_some_and(|complete| ip < complete) {
            // In front of it callers that do not know the class have it compared.
            if ip <= entry {
                return Some(CompiledExit::RETURN_ON_TOP);
            }
            let code = bytes_up_to(memory, entry, MAX_CODE);
            return CompiledExit::since_entry(&code, entry, ip);
        }
        CompiledExit::before_return(&bytes_up_to(memory, ip, MAX_CODE), ip)
    }
}

/// Out of a frame that keeps its frame pointer.
fn by_frame_pointer(place: ManagedPlace<'_>) -> ManagedExit {
    let bp = place.registers.bp;
    let word = |at: Option<u64>| place.stack.read(at?);
    match (word(Some(bp)), word(bp.checked_add(8))) {
        (Some(outer), Some(ip)) => ManagedExit::To(Registers {
            ip,
            sp: bp.saturating_add(16),
            bp: outer,
            lr: 0,
        }),
        _ => ManagedExit::Lost(place.stack.loss(bp)),
    }
}

/// The frame of code of the virtual machine's own: it is no function's.
fn stub(name: &str, modules: &mut Modules) -> Frame {
    let module = modules.special(ModuleKind::Jit);
    modules
        .symbols
        .frame(module, &format!("[jvm: {name}]"), "", 0)
}
