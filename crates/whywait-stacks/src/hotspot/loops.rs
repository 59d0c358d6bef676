//! Which loop an address of compiled code is in, by the code itself.
//!
//! Compilers write down which function code belongs to only for the places where a thread can stop.
//! Between them the code of several functions may lie in any order. But a loop that looks for a
//! reason to stop is of one function, and so is all that is done in it: by that function, or by
//! those that it called.

use std::collections::{BTreeSet, HashMap, HashSet};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

/// So many steps are looked at for one address.
const MAX_STEPS: usize = 1 << 15;
/// More loops around one place are not looked at.
const MAX_HEADERS: usize = 16;

/// The code of a method.
pub(super) struct LoopFlow {
    code: Vec<u8>,
    start: u64,
    known: HashMap<u64, Option<FlowStep>>,
    left: usize,
}

/// Where an instruction goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FlowStep {
    next: Option<u64>,
    jump: Option<u64>,
    is_poll: bool,
}

impl LoopFlow {
    /// The code that begins at an address.
    pub(super) fn of(start: u64, code: Vec<u8>) -> Self {
        Self {
            code,
            start,
            known: HashMap::new(),
            left: MAX_STEPS,
        }
    }

    /// Of the places where a thread may stop those that are looked at in each turn of the innermost
    /// loop around them, and that loop is around `address`, too: the one of the innermost loop.
    pub(super) fn innermost_around(&mut self, address: u64, places: &[u64]) -> Option<u64> {
        let mut reached = self.reach(address, None);
        reached.insert(address);
        let polls = places.iter().filter(|place| reached.contains(place));
        let mut innermost: Option<(u64, u64)> = None;
        for place in polls.copied().collect::<Vec<_>>() {
            if !self.step(place).is_some_and(|step| step.is_poll) {
                continue;
            }
            let Some((header, end)) = self.loop_around(place) else {
                continue;
            };
            // Who is in the loop comes to its end without another beginning.
            let is_inside = self.reach(address, Some(header)).contains(&end) || address == end;
            if is_inside && innermost.is_none_or(|(outer, _)| outer < header) {
                innermost = Some((header, place));
            }
        }
        innermost.map(|(_, place)| place)
    }

    /// The innermost loop around a place: where it begins, and the jump back.
    fn loop_around(&mut self, place: u64) -> Option<(u64, u64)> {
        let mut after = self.reach(place, None);
        after.insert(place);
        let mut back = BTreeSet::new();
        for from in after {
            let jump = self.step(from).and_then(|step| step.jump);
            back.extend(
                jump.filter(|to| *to <= place && *to <= from)
                    .map(|to| (to, from)),
            );
        }
        // Of loops within each other the inner one begins later.
        for (header, end) in back.into_iter().rev().take(MAX_HEADERS) {
            if end == place || self.reach(place, Some(header)).contains(&end) {
                return Some((header, end));
            }
        }
        None
    }

    /// All that is reached from an address, but for what lies behind `barrier`.
    fn reach(&mut self, from: u64, barrier: Option<u64>) -> HashSet<u64> {
        let mut reached = HashSet::new();
        let mut open = vec![from];
        while let Some(at) = open.pop() {
            let Some(step) = self.step(at) else { continue };
            for to in [step.next, step.jump].into_iter().flatten() {
                if Some(to) != barrier && self.left > 0 && reached.insert(to) {
                    self.left -= 1;
                    open.push(to);
                }
            }
        }
        reached
    }

    fn step(&mut self, at: u64) -> Option<FlowStep> {
        if let Some(known) = self.known.get(&at) {
            return *known;
        }
        let step = self.decoded(at).map(|it| FlowStep::of(&it));
        self.known.insert(at, step);
        step
    }

    fn decoded(&self, at: u64) -> Option<Instruction> {
        let offset = usize::try_from(at.checked_sub(self.start)?).ok()?;
        let code = self.code.get(offset..).filter(|code| !code.is_empty())?;
        let instruction = Decoder::with_ip(64, code, at, DecoderOptions::NONE).decode();
        (!instruction.is_invalid()).then_some(instruction)
    }
}

impl FlowStep {
    fn of(instruction: &Instruction) -> Self {
        let next = Some(instruction.next_ip());
        let jump = Some(instruction.near_branch_target());
        let (next, jump) = match instruction.flow_control() {
            FlowControl::ConditionalBranch => (next, jump),
            FlowControl::UnconditionalBranch => (None, jump),
            FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall => (next, None),
            _ => (None, None),
        };
        // A look at a page that cannot be read when threads are to stop.
        let is_poll = instruction.mnemonic() == Mnemonic::Test
            && (instruction.op0_kind() == OpKind::Memory
                || instruction.op1_kind() == OpKind::Memory);
        Self {
            next,
            jump,
            is_poll,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing but `nop`, and what is put in.
    fn flow(pieces: &[(usize, &[u8])]) -> LoopFlow {
        let mut code = vec![0x90; 0x100];
        for (at, bytes) in pieces {
            code[*at..*at + bytes.len()].copy_from_slice(bytes);
        }
        LoopFlow::of(0x1000, code)
    }

    /// test [r10],eax; jne
    const fn back(to: i8) -> [u8; 5] {
        [0x41, 0x85, 0x02, 0x75, to as u8]
    }

    const RETURN: (usize, &[u8]) = (0xf0, &[0xc3]);

    fn around(pieces: &[(usize, &[u8])], address: u64, places: &[u64]) -> Option<u64> {
        flow(pieces).innermost_around(address, places)
    }

    #[test]
    fn what_is_in_a_loop() {
        // At 0x80, back to 0x50.
        let code: [(usize, &[u8]); 2] = [(0x80, &back(-0x35)), RETURN];
        let places = [0x1080];
        for inside in [0x1050, 0x1060, 0x1080, 0x1083] {
            assert_eq!(around(&code, inside, &places), Some(0x1080), "{inside:x}");
        }
        for outside in [0x104f, 0x1085, 0x10f0, 0x2000] {
            assert_eq!(around(&code, outside, &places), None, "{outside:x}");
        }
        assert_eq!(around(&code, 0x1060, &[]), None);
        assert_eq!(around(&code, 0x1060, &[0x1070]), None, "no poll");
    }

    #[test]
    fn code_of_others_between_is_not() {
        // It jumps from 0x60 over what is up to 0x6f and returns there.
        let code: [(usize, &[u8]); 4] = [
            (0x60, &[0xeb, 0x0e]),
            (0x6f, &[0xc3]),
            (0x80, &back(-0x35)),
            RETURN,
        ];
        assert_eq!(around(&code, 0x1055, &[0x1080]), Some(0x1080));
        assert_eq!(around(&code, 0x1066, &[0x1080]), None);
    }

    #[test]
    fn an_outer_loop_is_not_the_inner_one() {
        // An inner one from 0x50 to 0x64, an outer one from 0x40 to 0x94.
        let code: [(usize, &[u8]); 3] = [(0x60, &back(-0x15)), (0x90, &back(-0x55)), RETURN];
        let places = [0x1060, 0x1090];
        assert_eq!(around(&code, 0x1055, &places), Some(0x1060));
        assert_eq!(around(&code, 0x1045, &places), Some(0x1090));
        assert_eq!(around(&code, 0x1070, &places), Some(0x1090));
        // Also where only the inner one has such a place.
        let places = [0x1060];
        assert_eq!(around(&code, 0x1055, &places), Some(0x1060));
        assert_eq!(around(&code, 0x1045, &places), None);
        assert_eq!(around(&code, 0x1070, &places), None);
    }

    #[test]
    fn a_place_at_the_beginning_of_its_loop() {
        // test at 0x50; jne at 0x80, back to 0x50.
        let code: [(usize, &[u8]); 3] =
            [(0x50, &[0x41, 0x85, 0x02]), (0x80, &[0x75, 0xce]), RETURN];
        assert_eq!(around(&code, 0x1060, &[0x1050]), Some(0x1050));
        assert_eq!(around(&code, 0x104f, &[0x1050]), None);
        assert_eq!(around(&code, 0x1082, &[0x1050]), None);
    }
}
