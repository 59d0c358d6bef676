//! How the frame of compiled code is left while it is being made or taken down: by the few
//! instructions around. Everywhere else its size says it.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::arch::Registers;
use crate::loss::Loss;
use crate::unwind::CopiedStack;

/// Where the return address lies, and where the caller's frame pointer is, from the stack pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CompiledExit {
    pub(super) return_address: u64,
    /// `None`: still, or again, in its register.
    pub(super) bp: Option<u64>,
}

/// An epilogue has six instructions, two of them the look for a safepoint.
const MAX_EPILOGUE: usize = 8;
/// A prologue has some more.
const MAX_PROLOGUE: usize = 32;
/// No method's frame is larger.
const MAX_FRAME: u64 = 8 << 20;

impl CompiledExit {
    /// That of code that has no frame.
    pub(super) const RETURN_ON_TOP: Self = Self {
        return_address: 0,
        bp: None,
    };

    /// That of a frame of this size that is there: the caller's frame pointer is below the return
    /// address.
    pub(super) fn of_size(bytes: u64) -> Option<Self> {
        (16..=MAX_FRAME).contains(&bytes).then(|| Self {
            return_address: bytes - 8,
            bp: Some(bytes - 16),
        })
    }

    /// That of code that goes on to its return without a branch: its frame is being taken down.
    pub(super) fn before_return(code: &[u8], ip: u64) -> Option<Self> {
        let mut sp = 0u64;
        let mut bp = None;
        for instruction in instructions(code, ip).take(MAX_EPILOGUE) {
            match instruction.flow_control() {
                FlowControl::Return => {
                    return Some(Self {
                        return_address: sp,
                        bp,
                    });
                }
                // Out of the way, to a safepoint.
                FlowControl::Next | FlowControl::ConditionalBranch => {}
                _ => return None,
            }
            if instruction.mnemonic() == Mnemonic::Pop
                && instruction.op0_register() == Register::RBP
            {
                bp = Some(sp);
            }
            sp = moved(&instruction, sp)?;
        }
        None
    }

    /// That of code between the entry and the address `at`: its frame is being made.
    pub(super) fn since_entry(code: &[u8], entry: u64, at: u64) -> Option<Self> {
        // How far the stack pointer is below the return address.
        let mut below = 0u64;
        let mut bp = None;
        for instruction in instructions(code, entry).take(MAX_PROLOGUE) {
            if instruction.ip() >= at {
                return (instruction.ip() == at).then_some(Self {
                    return_address: below,
                    bp: bp.and_then(|saved: u64| below.checked_sub(saved)),
                });
            }
            (instruction.flow_control() == FlowControl::Next).then_some(())?;
            below = moved_down(&instruction, below)?;
            if instruction.mnemonic() == Mnemonic::Push
                && instruction.op0_register() == Register::RBP
            {
                bp = Some(below);
            }
        }
        None
    }

    /// The caller's registers.
    pub(super) fn caller(self, regs: Registers, stack: CopiedStack<'_>) -> Result<Registers, Loss> {
        let read = |offset| {
            let at = regs.sp.saturating_add(offset);
            stack.read(at).ok_or_else(|| stack.loss(at))
        };
        Ok(Registers {
            ip: read(self.return_address)?,
            sp: regs.sp.saturating_add(self.return_address + 8),
            bp: self.bp.map_or(Ok(regs.bp), read)?,
            lr: 0,
        })
    }
}

fn instructions(code: &[u8], ip: u64) -> impl Iterator<Item = Instruction> {
    let mut decoder = Decoder::with_ip(64, code, ip, DecoderOptions::NONE);
    std::iter::from_fn(move || {
        let more = decoder.can_decode();
        let instruction = more.then(|| decoder.decode())?;
        (!instruction.is_invalid()).then_some(instruction)
    })
}

/// How far above it was the stack pointer is, after an instruction of an epilogue.
fn moved(instruction: &Instruction, sp: u64) -> Option<u64> {
    let up = match instruction.mnemonic() {
        Mnemonic::Add if instruction.op0_register() == Register::RSP => immediate(instruction)?,
        _ if writes_sp(instruction) => return None,
        _ => u64::try_from(instruction.stack_pointer_increment()).ok()?,
    };
    sp.checked_add(up).filter(|sp| *sp <= MAX_FRAME)
}

/// How far below the return address the stack pointer is, after an instruction of a prologue.
fn moved_down(instruction: &Instruction, below: u64) -> Option<u64> {
    let down = match instruction.mnemonic() {
        Mnemonic::Sub if instruction.op0_register() == Register::RSP => immediate(instruction)?,
        _ if writes_sp(instruction) => return None,
        _ => u64::try_from(-i64::from(instruction.stack_pointer_increment())).ok()?,
    };
    below.checked_add(down).filter(|below| *below <= MAX_FRAME)
}

fn immediate(instruction: &Instruction) -> Option<u64> {
    match instruction.op1_kind() {
        OpKind::Immediate32to64 => u64::try_from(instruction.immediate32to64()).ok(),
        OpKind::Immediate8to64 => u64::try_from(instruction.immediate8to64()).ok(),
        _ => None,
    }
}

/// Whether an instruction sets the stack pointer in another way than those that are known to.
fn writes_sp(instruction: &Instruction) -> bool {
    let compares = matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test);
    !compares
        && matches!(
            instruction.op0_register(),
            Register::RSP | Register::ESP | Register::SP
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// add rsp,20h; pop rbp; cmp rsp,[r15+28h]; ja $+5; ret
    const EPILOGUE: [u8; 17] = [
        0x48, 0x83, 0xc4, 0x20, 0x5d, 0x49, 0x3b, 0x67, 0x28, 0x0f, 0x87, 0x05, 0, 0, 0, 0xc3, 0x90,
    ];
    /// mov [rsp-14000h],eax; push rbp; sub rsp,20h; nop
    const PROLOGUE: [u8; 13] = [
        0x89, 0x84, 0x24, 0x00, 0xc0, 0xfe, 0xff, 0x55, 0x48, 0x83, 0xec, 0x20, 0x90,
    ];

    #[test]
    fn a_frame_has_room_for_the_return_address_and_the_frame_pointer() {
        for too_small in [0, 8, 15] {
            assert_eq!(CompiledExit::of_size(too_small), None);
        }
        assert_eq!(CompiledExit::of_size(16), exit(8, Some(0)));
        assert_eq!(CompiledExit::of_size(MAX_FRAME + 1), None);
    }

    fn exit(return_address: u64, bp: Option<u64>) -> Option<CompiledExit> {
        Some(CompiledExit { return_address, bp })
    }

    #[test]
    fn a_frame_that_is_taken_down() {
        let at = |at: usize| CompiledExit::before_return(&EPILOGUE[at..], at as u64);
        assert_eq!(at(0), exit(0x28, Some(0x20)));
        assert_eq!(at(4), exit(8, Some(0)));
        assert_eq!(at(5), exit(0, None));
        assert_eq!(at(15), exit(0, None));
        assert_eq!(at(16), None);
    }

    #[test]
    fn a_frame_that_is_made() {
        let at = |at: u64| CompiledExit::since_entry(&PROLOGUE, 100, 100 + at);
        assert_eq!(at(0), exit(0, None));
        assert_eq!(at(7), exit(0, None));
        assert_eq!(at(8), exit(8, Some(0)));
        assert_eq!(at(12), exit(0x28, Some(0x20)));
        // Within an instruction, and behind the code.
        assert_eq!(at(9), None);
        assert_eq!(at(13), None);
    }

    #[test]
    fn code_that_branches_or_sets_the_stack_pointer_is_none_of_these() {
        // jmp; mov rsp,rbp; call
        for code in [
            &[0xeb, 0x00, 0xc3][..],
            &[0x48, 0x89, 0xec, 0xc3],
            &[0xe8, 0, 0, 0, 0, 0xc3],
        ] {
            assert_eq!(CompiledExit::before_return(code, 0), None, "{code:x?}");
        }
        assert_eq!(
            CompiledExit::since_entry(&[0x48, 0x89, 0xec, 0x90], 0, 3),
            None
        );
    }
}
