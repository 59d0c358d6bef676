//! Frames of JavaScript: of V8, as in node.
//!
//! V8 keeps frame pointers everywhere. Below each is a marker of what kind of frame it is, or the
//! function's context and the function itself; below that the bytecode, unless a compiler that
//! optimises has made the code. So a frame's function is found in two ways, and each is verified:
//!
//! - The interpreter and code that was compiled as it is: the function's closures share what leads
//!   to the bytecode, which must be the frame's.
//! - Optimised code: its object has the function.
//!
//! Nothing is stopped, and objects move: a function that was moved since the stack was copied, or
//! while it is read, fails these. Then it has no name, and is counted. What closures share, the
//! bytecode and code stay where they are as a rule, so that a function that was seen once is known
//! without its closure.
//!
//! Functions that were inlined into optimised code are named where the code calls. Elsewhere
//! nothing says which of them it is from, and the frame is named after the function that was
//! compiled. The line is the function's own.

mod code;
mod functions;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod heap;
mod inlined;
mod layout;
mod lines;
#[cfg(any(test, fuzzing))]
mod made_up;

use std::collections::HashMap;

use whywait_events::{Frame, ModuleKind};

use crate::arch::{self, Registers};
use crate::budget::{Budget, Charge};
use crate::elf::ReadAt;
use crate::loss::{Loss, Losses};
use crate::managed::{ManagedExit, ManagedFrames, ManagedPlace};
use crate::modules::Modules;
use code::{Compiled, JsCode};
use functions::Shared;
use heap::{Reference, V8Heap, small_integer};
use layout::V8Layout;
pub(crate) use layout::{Constants, EXPORTED, MAX_EXPORTED, V8Image};
use lines::Lines;

/// What code of a process lies at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum V8Code {
    /// In no file: compiled at run time.
    Compiled,
    /// One of V8's own functions, which have no unwind tables.
    Builtin(Frame),
    /// Anything else.
    Other,
}

/// The V8 of one process. All that is kept is read again when it has changed.
#[derive(Debug)]
pub(crate) struct V8 {
    layout: V8Layout,
    maps: HashMap<u64, Option<u16>>,
    functions: HashMap<Reference, KnownFunction>,
    /// What was verified to lead to bytecode.
    by_bytecode: HashMap<Reference, Reference>,
    code: JsCode,
    lines: Lines,
    charge: Charge,
}

#[derive(Debug, Clone, Copy)]
struct KnownFunction {
    shared: Shared,
    frame: Frame,
}

/// What a process costs: tables that are full at most.
const KNOWN: usize = 1 << 20;
/// What a function costs, with its places in tables.
const FUNCTION: usize = 4 * size_of::<(Reference, KnownFunction)>();
const MAX_FUNCTIONS: usize = 1 << 13;
/// A function without a frame of its own has put no more words on the stack.
const MAX_WITHOUT_FRAME: u64 = 16;
/// What compiled code is called that is a regular expression. (It is the runtime's: who has it
/// matched is the caller.)
const REGULAR_EXPRESSION: &str = "[regular expression]";

impl V8 {
    /// Of a file that has V8's numbers; fails when some are missing, or there is no room.
    pub(crate) fn open(image: &V8Image, budget: &Budget) -> Result<Self, Loss> {
        Ok(Self {
            layout: image.layout.clone().ok_or(Loss::V8Constants)?,
            maps: HashMap::new(),
            functions: HashMap::new(),
            by_bytecode: HashMap::new(),
            code: JsCode::default(),
            lines: Lines::new(budget),
            charge: budget.take(KNOWN).ok_or(Loss::Memory)?,
        })
    }

    /// The functions at a place, and the way out; `None`: it is in no code of V8's. `code` says
    /// what lies at an address.
    pub(crate) fn frames(
        &mut self,
        place: ManagedPlace<'_>,
        memory: &dyn ReadAt,
        code: &dyn Fn(u64) -> V8Code,
        modules: &mut Modules,
        losses: &mut Losses,
    ) -> Option<ManagedFrames> {
        let at = code(place.address());
        let mut look = JsLook {
            v8: self,
            memory,
            code_at: code,
            modules,
            losses,
            place,
        };
        match at {
            V8Code::Compiled => Some(look.compiled()),
            V8Code::Builtin(native) => Some(look.builtin(native)),
            V8Code::Other => None,
        }
    }
}

/// A look at one frame.
struct JsLook<'a> {
    v8: &'a mut V8,
    memory: &'a dyn ReadAt,
    code_at: &'a dyn Fn(u64) -> V8Code,
    modules: &'a mut Modules,
    losses: &'a mut Losses,
    place: ManagedPlace<'a>,
}

/// What a frame pointer leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JsFrameKind {
    /// A function's, of which there may be bytecode.
    Function { closure: u64, bytecode: u64 },
    /// Another one, by its marker.
    Marked(u64),
}

impl JsLook<'_> {
    /// Code that was compiled at run time.
    fn compiled(&mut self) -> ManagedFrames {
        let kind = self.kind();
        let marked = matches!(kind, Some(JsFrameKind::Marked(_)));
        // The frame of a function that called another one is its own.
        let found = match marked && !self.place.innermost {
            true => None,
            false => self.code(self.place.address()),
        };
        let (named, own) = match found {
            Some((begin, Some(Compiled::Optimised { shared, inlines }))) => {
                let calls_at = (!self.place.innermost).then(|| self.place.address());
                let inlined_at = calls_at.filter(|_| inlines).map(|at| (begin, at));
                let own = calls_at.is_some()
                    || matches!(kind, Some(JsFrameKind::Function { closure, .. })
                        if self.shared_of(closure) == Some(shared));
                (self.optimised(shared, inlined_at), own)
            }
            Some((_, Some(Compiled::Baseline(bytecode)))) => match kind {
                Some(JsFrameKind::Function {
                    closure,
                    bytecode: in_frame,
                }) if in_frame == bytecode.word() => {
                    let function = self.interpreted(closure, bytecode);
                    (function.map(|frame| vec![frame]), true)
                }
                _ => {
                    let known = self.v8.by_bytecode.get(&bytecode).copied();
                    let named = known.ok_or(Loss::V8Function).and_then(|it| self.named(it));
                    (named.map(|frame| vec![frame]), false)
                }
            },
            Some((_, Some(Compiled::RegularExpression))) => {
                (Ok(vec![self.regular_expression()]), true)
            }
            _ => (self.without_function(kind).map(|frame| vec![frame]), true),
        };
        let frames = named.unwrap_or_else(|loss| {
            self.losses.count(loss);
            Vec::new()
        });
        // The innermost function may have no frame yet, or no more.
        let caller = match self.place.innermost && !own {
            true => self.without_frame().map_or_else(|| self.caller(), Ok),
            false => self.caller(),
        };
        ManagedFrames {
            frames: frames.into(),
            exit: caller.map_or_else(ManagedExit::Lost, ManagedExit::To),
        }
    }

    /// One of V8's own functions, of the interpreter above all.
    fn builtin(&mut self, native: Frame) -> ManagedFrames {
        let mut frames = vec![native];
        if let Some(JsFrameKind::Function { closure, bytecode }) = self.kind() {
            match self.of_interpreter(closure, bytecode) {
                Some(found) => {
                    if !self.place.innermost {
                        frames.clear();
                    }
                    frames.push(found.unwrap_or_else(|loss| self.unnamed(loss)));
                }
                // A function without a frame that optimised code called.
                None if self.place.innermost => frames.append(&mut self.calling(closure)),
                None => {}
            }
        }
        ManagedFrames {
            frames: frames.into(),
            exit: match self.caller() {
                Ok(caller) => ManagedExit::To(caller),
                // Where V8 is entered, the frame pointer is still that of who does not keep it.
                Err(Loss::OffStack) if self.place.innermost => ManagedExit::ByCode,
                Err(loss) => ManagedExit::Lost(loss),
            },
        }
    }

    /// What the frame is that the frame pointer leads to.
    fn kind(&self) -> Option<JsFrameKind> {
        let slots = &self.v8.layout.frame;
        let slot = |offset: i64| {
            let bp = self.place.registers.bp;
            self.place.stack.read(bp.checked_add_signed(offset)?)
        };
        let context_or_type = slot(slots.context_or_type)?;
        if context_or_type & 1 == 0 {
            return Some(JsFrameKind::Marked(context_or_type));
        }
        Some(JsFrameKind::Function {
            closure: slot(slots.function)?,
            bytecode: slot(slots.bytecode).unwrap_or(0),
        })
    }

    /// The caller's registers, by the frame pointer.
    fn caller(&self) -> Result<Registers, Loss> {
        let (Registers { sp, bp, .. }, stack) = (self.place.registers, self.place.stack);
        if bp < sp || bp >= arch::USER_END || !bp.is_multiple_of(V8Layout::WORD) {
            return Err(Loss::OffStack);
        }
        let read = |address| stack.read(address).ok_or_else(|| stack.loss(address));
        Ok(Registers {
            bp: read(bp)?,
            ip: read(bp + V8Layout::WORD)?,
            sp: bp + 2 * V8Layout::WORD,
            lr: 0,
        })
    }

    /// The caller of a function that has no frame yet, or no more: the return address is the last
    /// word on the stack, or stands before the frame pointer that was just saved.
    fn without_frame(&self) -> Option<Registers> {
        let (Registers { sp, bp, .. }, stack) = (self.place.registers, self.place.stack);
        let first = stack.read(sp)?;
        let second = stack.read(sp + V8Layout::WORD)?;
        let (ip, at) = match first == bp {
            true => (second, sp + V8Layout::WORD),
            false => (first, sp),
        };
        ((self.code_at)(ip) != V8Code::Other).then_some(Registers {
            ip,
            sp: at + V8Layout::WORD,
            bp,
            lr: 0,
        })
    }

    /// The optimised function that called the innermost one, with what was inlined there: it is the
    /// closure's in the frame, and the call from its code has left its return address. None where
    /// the frame is the innermost one's own.
    fn calling(&mut self, closure: u64) -> Vec<Frame> {
        let shared = self.shared_of(closure);
        let Some((at, shared)) = shared.and_then(|at| Some((at, self.heap().shared(at)?))) else {
            return vec![self.unnamed(Loss::V8Changed)];
        };
        // What is V8's own has a number.
        if small_integer(shared.data).is_some() {
            return Vec::new();
        }
        let (Registers { sp, bp, .. }, stack) = (self.place.registers, self.place.stack);
        let end = bp.min(sp + MAX_WITHOUT_FRAME * V8Layout::WORD);
        for word in stack.words(sp..end) {
            if (self.code_at)(word) != V8Code::Compiled {
                continue;
            }
            let calls_at = word.saturating_sub(1);
            if let Some((begin, Some(Compiled::Optimised { shared, inlines }))) =
                self.code(calls_at)
                && shared == at
            {
                let found = self.optimised(shared, inlines.then_some((begin, calls_at)));
                return found.unwrap_or_else(|loss| vec![self.unnamed(loss)]);
            }
        }
        vec![self.unnamed(Loss::V8Code)]
    }

    /// Stands for a function that has no name for this reason.
    fn unnamed(&mut self, loss: Loss) -> Frame {
        self.losses.count(loss);
        self.modules.unnamed_jit()
    }

    /// The function that was compiled into optimised code, and what was inlined where it calls,
    /// innermost first: into the code of an object, at an address.
    fn optimised(
        &mut self,
        shared: Reference,
        inlined_at: Option<(u64, u64)>,
    ) -> Result<Vec<Frame>, Loss> {
        let inlined = inlined_at.and_then(|(begin, address)| self.heap().inlined(begin, address));
        let mut frames = Vec::new();
        for function in inlined.into_iter().flatten().chain([shared]) {
            frames.push(self.named(function)?);
        }
        Ok(frames)
    }

    /// Compiled code that is of no function: of a regular expression, or the interpreter's own that
    /// was copied.
    fn without_function(&mut self, kind: Option<JsFrameKind>) -> Result<Frame, Loss> {
        if let Some(JsFrameKind::Function { closure, bytecode }) = kind
            && let Some(found) = self.of_interpreter(closure, bytecode)
        {
            return found;
        }
        let marker = self.v8.layout.frame.regular_expression;
        match (kind, marker) {
            (Some(JsFrameKind::Marked(marked)), Some(marker)) if marked == marker => {
                Ok(self.regular_expression())
            }
            _ => Err(Loss::V8Code),
        }
    }

    fn regular_expression(&mut self) -> Frame {
        let module = self.modules.special(ModuleKind::Jit);
        let symbols = &mut self.modules.symbols;
        symbols.frame(module, REGULAR_EXPRESSION, "", 0)
    }

    fn code(&mut self, address: u64) -> Option<(u64, Option<Compiled>)> {
        let mut heap = V8Heap {
            memory: self.memory,
            layout: &self.v8.layout,
            maps: &mut self.v8.maps,
        };
        self.v8.code.find(&mut heap, address)
    }

    fn heap(&mut self) -> V8Heap<'_> {
        V8Heap {
            memory: self.memory,
            layout: &self.v8.layout,
            maps: &mut self.v8.maps,
        }
    }

    /// What a closure shares with the others of its function, if it is one.
    fn shared_of(&mut self, closure: u64) -> Option<Reference> {
        let field = Reference::of(closure)?.field(self.v8.layout.shared);
        Reference::of(self.heap().word(field)?)
    }

    /// The function of a frame that has bytecode; `None`: it has none.
    fn of_interpreter(&mut self, closure: u64, bytecode: u64) -> Option<Result<Frame, Loss>> {
        let bytecode = Reference::of(bytecode)?;
        let wanted = self.v8.layout.types.bytecode;
        let is_bytecode = self.v8.by_bytecode.contains_key(&bytecode)
            || self.heap().kind(bytecode) == Some(wanted);
        is_bytecode.then(|| self.interpreted(closure, bytecode))
    }

    /// The function that runs bytecode.
    fn interpreted(&mut self, closure: u64, bytecode: Reference) -> Result<Frame, Loss> {
        if let Some(&at) = self.v8.by_bytecode.get(&bytecode) {
            if let Ok(frame) = self.running(at, bytecode) {
                return Ok(frame);
            }
            self.v8.by_bytecode.remove(&bytecode);
        }
        let at = self.shared_of(closure).ok_or(Loss::V8Changed)?;
        let frame = self.running(at, bytecode)?;
        if self.v8.by_bytecode.len() >= MAX_FUNCTIONS {
            self.v8.by_bytecode.clear();
        }
        self.v8.by_bytecode.insert(bytecode, at);
        Ok(frame)
    }

    /// The function whose closures share this, if it runs the bytecode.
    fn running(&mut self, at: Reference, bytecode: Reference) -> Result<Frame, Loss> {
        let shared = self.heap().shared(at).ok_or(Loss::V8Changed)?;
        let known = self.v8.functions.get(&at);
        let as_verified = known.is_some_and(|known| known.shared == shared)
            && self.v8.by_bytecode.get(&bytecode) == Some(&at);
        if !as_verified && !self.heap().runs(shared, bytecode) {
            return Err(Loss::V8Changed);
        }
        self.named_as(at, shared)
    }

    /// The function whose closures share this.
    fn named(&mut self, at: Reference) -> Result<Frame, Loss> {
        let shared = self.heap().shared(at).ok_or(Loss::V8Changed)?;
        self.named_as(at, shared)
    }

    fn named_as(&mut self, at: Reference, shared: Shared) -> Result<Frame, Loss> {
        if let Some(known) = self.v8.functions.get(&at)
            && known.shared == shared
        {
            return Ok(known.frame);
        }
        let mut heap = V8Heap {
            memory: self.memory,
            layout: &self.v8.layout,
            maps: &mut self.v8.maps,
        };
        let function = heap
            .function(at, shared, &mut self.v8.lines)
            .ok_or(Loss::V8Function)?;
        let module = self.modules.special(ModuleKind::Jit);
        let symbols = &mut self.modules.symbols;
        let frame = symbols.frame(module, &function.name, &function.file, function.line);
        let full = self.v8.functions.len() >= MAX_FUNCTIONS;
        if full || !self.v8.charge.grow(FUNCTION) {
            self.v8.functions = HashMap::new();
            self.v8.by_bytecode = HashMap::new();
            self.v8.charge = self.v8.charge.emptied();
        }
        self.v8
            .functions
            .insert(at, KnownFunction { shared, frame });
        Ok(frame)
    }
}

#[cfg(test)]
mod made_up_tests;
