//! Leaving a function that has no unwind tables, by what its code is about to do.
//!
//! musl is built without tables and without frame pointers, and most programs that are linked with
//! it block there. But whatever a function keeps on the stack it takes off again before it returns:
//! its code, followed from where it is to its `ret`, says where the return address lies and where
//! the caller's frame pointer is. All ways out that are found must agree, and whatever moves the
//! stack pointer in another way ends the search without an answer: nothing is guessed.

use std::collections::{HashMap, HashSet};

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, OpKind, Register,
};

/// The most instructions that are followed for one address. The longest function of musl, the one
/// of `printf`, has some 1,500.
const MAX_INSTRUCTIONS: usize = 4096;
/// Code is read in pieces of so many bytes.
const PIECE: u64 = 1024;
/// The most pieces for one address.
const MAX_PIECES: usize = 64;
/// Compilers have functions begin at multiples of this.
const FUNCTIONS_BEGIN_AT: u64 = 16;
/// No instruction is longer.
const MAX_LENGTH: u64 = 15;
/// No frame is larger.
const MAX_FRAME: i64 = 16 << 20;

/// A place on the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum StackPlace {
    /// So many bytes above the stack pointer.
    FromSp(i64),
    /// … above the frame pointer.
    FromBp(i64),
}

impl StackPlace {
    /// Whether it is no part of the stack that is yet to be pushed.
    fn is_there_now(self) -> bool {
        !matches!(self, Self::FromSp(..0))
    }

    fn moved(self, bytes: i64) -> Option<Self> {
        let moved = |at: i64| at.checked_add(bytes).filter(|at| at.abs() <= MAX_FRAME);
        Some(match self {
            Self::FromSp(at) => Self::FromSp(moved(at)?),
            Self::FromBp(at) => Self::FromBp(moved(at)?),
        })
    }
}

/// What the frame pointer is when the function returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum BpAtReturn {
    /// What it is now.
    Same,
    /// What lies there now.
    Saved(StackPlace),
    Unknown,
}

/// How a function returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CodeExit {
    pub(crate) return_address: StackPlace,
    pub(crate) bp: BpAtReturn,
}

/// Where a way through the code is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct CodePosition {
    ip: u64,
    sp: StackPlace,
    bp: BpAtReturn,
}

/// What an instruction does to a way through the code.
enum Next {
    Returns,
    GoesOn,
    /// It goes on if what is called returns.
    Calls,
    /// It goes on at one of two places.
    Branches(u64),
    Jumps(u64),
    /// Where it goes on, or with which stack, is not known; or it does not.
    Ends,
}

/// How the function at `ip` returns. `read` gives the code from an address on: fewer bytes than
/// asked for where there are no more.
pub(crate) fn exit(ip: u64, read: impl FnMut(u64, usize) -> Vec<u8>) -> Option<CodeExit> {
    let mut code = CodeBytes {
        read,
        pieces: HashMap::new(),
    };
    // A call may be of a function that does not return: what stands behind it is then another
    // function's. So ways without a call come first.
    let found = way_out(ip, &mut code, false)?;
    found.or_else(|| way_out(ip, &mut code, true)?)
}

/// What the ways out agree on, without or with those over calls; `None` within: there is none.
/// `None`: they do not agree, or there are too many.
fn way_out<R: FnMut(u64, usize) -> Vec<u8>>(
    ip: u64,
    code: &mut CodeBytes<R>,
    over_calls: bool,
) -> Option<Option<CodeExit>> {
    let mut info = InstructionInfoFactory::new();
    let mut seen = HashSet::new();
    let mut ways = vec![CodePosition {
        ip,
        sp: StackPlace::FromSp(0),
        bp: BpAtReturn::Same,
    }];
    let mut found: Option<CodeExit> = None;
    while let Some(mut at) = ways.pop() {
        while seen.insert(at) {
            if seen.len() > MAX_INSTRUCTIONS {
                return None;
            }
            let Some(instruction) = code.instruction(at.ip) else {
                break;
            };
            match step(&instruction, &mut at, &mut info) {
                Next::Calls if !over_calls || code.may_end_before(instruction.next_ip()) => break,
                Next::GoesOn | Next::Calls => at.ip = instruction.next_ip(),
                Next::Jumps(ip) => at.ip = ip,
                Next::Branches(ip) => {
                    ways.push(CodePosition { ip, ..at });
                    at.ip = instruction.next_ip();
                }
                // What was pushed since is no return address.
                Next::Returns if !at.sp.is_there_now() => break,
                Next::Returns => {
                    let exit = CodeExit {
                        return_address: at.sp,
                        bp: at.bp,
                    };
                    if found.is_some_and(|found| found != exit) {
                        return None;
                    }
                    found = Some(exit);
                    break;
                }
                Next::Ends => break,
            }
        }
    }
    Some(found)
}

/// Follows an instruction: what becomes of the stack pointer and the frame pointer, and where it
/// goes on.
fn step(
    instruction: &Instruction,
    at: &mut CodePosition,
    info: &mut InstructionInfoFactory,
) -> Next {
    match instruction.flow_control() {
        FlowControl::Return => return Next::Returns,
        FlowControl::UnconditionalBranch => return Next::Jumps(instruction.near_branch_target()),
        FlowControl::ConditionalBranch => {
            return Next::Branches(instruction.near_branch_target());
        }
        // Both leave the two pointers as they were.
        FlowControl::Call if instruction.mnemonic() == Mnemonic::Syscall => return Next::GoesOn,
        FlowControl::Call | FlowControl::IndirectCall => return Next::Calls,
        FlowControl::Next => {}
        // Where to is not known; or it is the end of a function that does not return.
        _ => return Next::Ends,
    }
    match followed(instruction, *at) {
        Some(next) => *at = next,
        None if writes(instruction, Register::RSP, info) => return Next::Ends,
        None if writes(instruction, Register::RBP, info) => at.bp = BpAtReturn::Unknown,
        None => {}
    }
    Next::GoesOn
}

/// The way after an instruction that is known to move one of the pointers; `None`: of any other.
fn followed(instruction: &Instruction, at: CodePosition) -> Option<CodePosition> {
    let moved = |bytes: i64| {
        Some(CodePosition {
            sp: at.sp.moved(bytes)?,
            ..at
        })
    };
    let at_bp = |bytes: i64| (at.bp == BpAtReturn::Same).then_some(StackPlace::FromBp(bytes));
    let to_sp =
        instruction.op0_kind() == OpKind::Register && instruction.op0_register() == Register::RSP;
    match instruction.mnemonic() {
        Mnemonic::Leave if instruction.code() == Code::Leaveq => Some(CodePosition {
            sp: at_bp(8)?,
            bp: BpAtReturn::Saved(at_bp(0)?),
            ..at
        }),
        Mnemonic::Pop if instruction.op0_kind() == OpKind::Register => {
            let bp = match instruction.op0_register() {
                Register::RBP if at.sp.is_there_now() => BpAtReturn::Saved(at.sp),
                Register::RBP => BpAtReturn::Unknown,
                Register::RSP => return None,
                _ => at.bp,
            };
            Some(CodePosition { bp, ..moved(8)? })
        }
        Mnemonic::Push | Mnemonic::Pop => moved(i64::from(instruction.stack_pointer_increment())),
        Mnemonic::Add | Mnemonic::Sub if to_sp => {
            let bytes = instruction.try_immediate(1).ok()? as i64;
            moved(if instruction.mnemonic() == Mnemonic::Add {
                bytes
            } else {
                bytes.checked_neg()?
            })
        }
        Mnemonic::Mov if to_sp && instruction.op1_kind() == OpKind::Register => {
            let sp = match instruction.op1_register() {
                Register::RBP => at_bp(0)?,
                _ => return None,
            };
            Some(CodePosition { sp, ..at })
        }
        Mnemonic::Lea if to_sp && instruction.memory_index() == Register::None => {
            let bytes = instruction.memory_displacement64() as i64;
            let sp = match instruction.memory_base() {
                Register::RSP => at.sp.moved(bytes)?,
                Register::RBP => at_bp(bytes)?,
                _ => return None,
            };
            Some(CodePosition { sp, ..at })
        }
        _ => None,
    }
}

/// Whether an instruction writes to a register, or to a part of it.
fn writes(
    instruction: &Instruction,
    register: Register,
    info: &mut InstructionInfoFactory,
) -> bool {
    let writes = |access| {
        matches!(
            access,
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        )
    };
    info.info(instruction)
        .used_registers()
        .iter()
        .any(|used| used.register().full_register() == register && writes(used.access()))
}

struct CodeBytes<R> {
    read: R,
    pieces: HashMap<u64, Vec<u8>>,
}

impl<R: FnMut(u64, usize) -> Vec<u8>> CodeBytes<R> {
    /// Whether a function may end before an address: there is padding, or the next one may begin.
    fn may_end_before(&mut self, ip: u64) -> bool {
        ip.is_multiple_of(FUNCTIONS_BEGIN_AT)
            || self
                .instruction(ip)
                .is_none_or(|next| next.mnemonic() == Mnemonic::Nop)
    }

    fn instruction(&mut self, ip: u64) -> Option<Instruction> {
        let begins = ip - ip % PIECE;
        if !self.pieces.contains_key(&begins) {
            if self.pieces.len() >= MAX_PIECES {
                return None;
            }
            // An instruction may begin in this piece and end in the next.
            let bytes = (self.read)(begins, (PIECE + MAX_LENGTH) as usize);
            self.pieces.insert(begins, bytes);
        }
        let bytes = self.pieces.get(&begins)?.get((ip - begins) as usize..)?;
        let mut decoder = Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE);
        let instruction = decoder.decode();
        (!instruction.is_invalid()).then_some(instruction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x40_0000;

    fn exit_of(code: &[u8]) -> Option<CodeExit> {
        exit(BASE, |from, size| {
            let mut bytes = vec![0xcc; size];
            for (at, byte) in code.iter().enumerate() {
                let at = (BASE as usize + at).checked_sub(from as usize);
                if let Some(place) = at.and_then(|at| bytes.get_mut(at)) {
                    *place = *byte;
                }
            }
            bytes
        })
    }

    fn returns(return_address: StackPlace, bp: BpAtReturn) -> Option<CodeExit> {
        Some(CodeExit { return_address, bp })
    }

    #[test]
    fn what_is_taken_off_the_stack_says_where_the_return_address_is() {
        use BpAtReturn::{Same, Saved};
        use StackPlace::{FromBp, FromSp};
        // syscall; ret
        assert_eq!(exit_of(&[0x0f, 0x05, 0xc3]), returns(FromSp(0), Same));
        // add rsp, 0x18; pop rbx; pop rbp; ret
        let popped = [0x48, 0x83, 0xc4, 0x18, 0x5b, 0x5d, 0xc3];
        assert_eq!(exit_of(&popped), returns(FromSp(40), Saved(FromSp(32))));
        // call …; sub rsp, 8; lea rsp, [rsp + 16]; ret
        let moved = [
            0xe8, 1, 2, 3, 4, 0x48, 0x83, 0xec, 8, 0x48, 0x8d, 0x64, 0x24, 16, 0xc3,
        ];
        assert_eq!(exit_of(&moved), returns(FromSp(8), Same));
        // leave; ret
        assert_eq!(exit_of(&[0xc9, 0xc3]), returns(FromBp(8), Saved(FromBp(0))));
        // lea rsp, [rbp - 8]; pop rbx; pop rbp; ret
        let by_bp = [0x48, 0x8d, 0x65, 0xf8, 0x5b, 0x5d, 0xc3];
        assert_eq!(exit_of(&by_bp), returns(FromBp(8), Saved(FromBp(0))));
    }

    #[test]
    fn all_ways_out_are_to_agree() {
        use BpAtReturn::Same;
        use StackPlace::FromSp;
        // je +2; pop rbx; ret; pop rbx; ret
        let alike = [0x74, 2, 0x5b, 0xc3, 0x5b, 0xc3];
        assert_eq!(exit_of(&alike), returns(FromSp(8), Same));
        // je +2; pop rbx; ret; ret
        assert_eq!(exit_of(&[0x74, 2, 0x5b, 0xc3, 0xc3]), None);
        // A loop: jne -2 (itself); ret
        assert_eq!(exit_of(&[0x75, 0xfe, 0xc3]), returns(FromSp(0), Same));
        // A tail call: jmp +1; (int3); ret
        assert_eq!(exit_of(&[0xeb, 1, 0xcc, 0xc3]), returns(FromSp(0), Same));
        // je +6; call …; ret; pop rbx; ret: what is called does not return
        let aborts = [0x74, 6, 0xe8, 1, 2, 3, 4, 0xc3, 0x5b, 0xc3];
        assert_eq!(exit_of(&aborts), returns(FromSp(8), Same));
        // jne +6; call …; ret; call (of what does not return); nop; pop rbx; ret
        let fails = [
            0x75, 6, 0xe8, 1, 2, 3, 4, 0xc3, 0xe8, 1, 2, 3, 4, 0x90, 0x5b, 0xc3,
        ];
        assert_eq!(exit_of(&fails), returns(FromSp(0), Same));
        // je +1; hlt (it does not return); ret
        assert_eq!(exit_of(&[0x74, 1, 0xf4, 0xc3]), returns(FromSp(0), Same));
    }

    #[test]
    fn nothing_is_guessed() {
        // and rsp, -16; ret
        assert_eq!(exit_of(&[0x48, 0x83, 0xe4, 0xf0, 0xc3]), None);
        // mov rsp, rax; ret
        assert_eq!(exit_of(&[0x48, 0x89, 0xc4, 0xc3]), None);
        // xor ebp, ebp; leave; ret: the frame pointer is none any more
        assert_eq!(exit_of(&[0x31, 0xed, 0xc9, 0xc3]), None);
        // push rax; pop rbp; ret
        assert_eq!(
            exit_of(&[0x50, 0x5d, 0xc3]).map(|exit| exit.bp),
            Some(BpAtReturn::Unknown)
        );
        // push rax; ret
        assert_eq!(exit_of(&[0x50, 0xc3]), None);
        // jmp rax
        assert_eq!(exit_of(&[0xff, 0xe0]), None);
        // exit: syscall; hlt
        assert_eq!(exit_of(&[0x0f, 0x05, 0xf4]), None);
        // mov rbp, rdi; ret
        assert_eq!(
            exit_of(&[0x48, 0x89, 0xfd, 0xc3]).map(|exit| exit.bp),
            Some(BpAtReturn::Unknown)
        );
    }
}
