//! The stack of the BPF programs. Kernels before 6.13 refuse a program that needs more than 512
//! bytes together with what it calls; newer ones give each function of some programs its own 512.
//! So the compiled object is held against that, whichever kernel this machine has.

use std::collections::HashMap;

use object::{
    Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionIndex, SymbolKind, elf,
    read::elf::{ElfFile64, ElfSymbol64},
};

use super::skel::DATA;

/// `MAX_BPF_STACK` of `include/linux/filter.h`.
const MOST: u64 = 512;
/// To this the verifier rounds up each function's part (`check_max_stack_depth_subprog` of
/// `kernel/bpf/verifier.c`, before Linux 6.9).
const ROUNDED_TO: u64 = 32;
const INSTRUCTION: usize = 8;
/// The register with the frame's upper end.
const FRAME: u8 = 10;

/// Section and offset.
type Place = (SectionIndex, u64);

#[derive(Debug, Default)]
struct Function {
    name: String,
    own: u64,
    calls: Vec<Place>,
}

/// An instruction: Linux' `Documentation/bpf/standardization/instruction-set.rst`.
struct Instruction {
    code: u8,
    to: u8,
    from: u8,
    offset: i16,
    number: i32,
}

impl Instruction {
    fn at(bytes: &[u8]) -> Self {
        Self {
            code: bytes[0],
            to: bytes[1] & 15,
            from: bytes[1] >> 4,
            offset: i16::from_le_bytes([bytes[2], bytes[3]]),
            number: i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        }
    }

    /// How far below the frame's end it reads or writes.
    fn below(&self) -> u64 {
        let base = match self.code & 7 {
            1 => self.from,
            2 | 3 => self.to,
            _ => return 0,
        };
        if base == FRAME {
            u64::from(self.offset.min(0).unsigned_abs())
        } else {
            0
        }
    }

    fn is_copy_of_frame(&self) -> bool {
        self.code == 0xbf && self.from == FRAME
    }

    /// `rN += number`
    fn adds(&self) -> bool {
        self.code == 0x07
    }

    /// A call of a function of the object.
    fn calls(&self) -> bool {
        self.code == 0x85 && self.from == 1
    }

    /// A number of 64 bits: an address, for one that has a relocation.
    fn loads_address(&self) -> bool {
        self.code == 0x18
    }
}

/// The largest distance of an address that is made of the frame's end: `rN = r10; rN += -number`.
fn address_below(instructions: &[Instruction], at: usize) -> u64 {
    let copy = &instructions[at];
    let sum = instructions[at + 1..]
        .iter()
        .find(|next| next.adds() && next.to == copy.to);
    sum.map_or(0, |sum| u64::from(sum.number.min(0).unsigned_abs()))
}

fn functions(object: &ElfFile64<'_>) -> HashMap<Place, Function> {
    let mut found = HashMap::new();
    for symbol in object.symbols() {
        let Some(section) = symbol.section_index() else {
            continue;
        };
        if symbol.kind() != SymbolKind::Text || symbol.size() == 0 {
            continue;
        }
        let place = (section, symbol.address());
        let name = symbol.name().expect("clang names functions").to_owned();
        let (own, calls) = read(object, place, symbol.size());
        found.insert(place, Function { name, own, calls });
    }
    found
}

fn read(object: &ElfFile64<'_>, (section, from): Place, size: u64) -> (u64, Vec<Place>) {
    let section = object.section_by_index(section).expect("it has a function");
    let bytes = section.data().expect("it is in the file");
    let relocations: HashMap<u64, _> = section.relocations().collect();
    let range = usize::try_from(from).unwrap()..usize::try_from(from + size).unwrap();
    let instructions: Vec<_> = bytes[range]
        .chunks_exact(INSTRUCTION)
        .map(Instruction::at)
        .collect();
    let (mut own, mut calls) = (0, Vec::new());
    for (at, it) in instructions.iter().enumerate() {
        own = own.max(it.below());
        if it.is_copy_of_frame() {
            own = own.max(address_below(&instructions, at));
        }
        let here = from + (at * INSTRUCTION) as u64;
        let target = relocations.get(&here).map(|it| it.target());
        let symbol = match target {
            Some(RelocationTarget::Symbol(index)) => {
                Some(object.symbol_by_index(index).expect("it is in the table"))
            }
            _ => None,
        };
        // A symbol of a section: the instruction has the place within it.
        let place = |symbol: &ElfSymbol64<'_, '_>, within: i64| {
            let at = match symbol.kind() {
                SymbolKind::Section => within,
                _ => symbol.address().cast_signed(),
            };
            // A function of the kernel has no section.
            Some((symbol.section_index()?, at.cast_unsigned()))
        };
        let number = i64::from(it.number);
        if it.calls() {
            let next = here.cast_signed() + 8;
            calls.extend(match &symbol {
                Some(symbol) => place(symbol, (number + 1) * 8),
                None => Some((section.index(), (next + number * 8).cast_unsigned())),
            });
        } else if it.loads_address() {
            // A function that another calls back, as those of loops: it is on the stack, too.
            calls.extend(symbol.and_then(|symbol| place(&symbol, number)));
        }
    }
    (own, calls)
}

/// What a function needs with what it calls, and through which.
fn needs(
    functions: &HashMap<Place, Function>,
    known: &mut HashMap<Place, (u64, Vec<String>)>,
    place: Place,
) -> (u64, Vec<String>) {
    let Some(function) = functions.get(&place) else {
        // What it loads is the address of a variable.
        return (0, Vec::new());
    };
    if let Some(known) = known.get(&place) {
        return known.clone();
    }
    let own = function.own.max(1).next_multiple_of(ROUNDED_TO);
    let deepest = function
        .calls
        .iter()
        .map(|&called| needs(functions, known, called))
        .max_by_key(|(bytes, _)| *bytes)
        .unwrap_or_default();
    let mut through = vec![format!("{} ({own})", function.name)];
    through.extend(deepest.1);
    let all = (own + deepest.0, through);
    known.insert(place, all.clone());
    all
}

#[test]
fn every_program_has_the_stack_that_older_kernels_give_it() {
    let object = ElfFile64::parse(DATA.as_slice()).expect("clang makes an ELF file");
    assert_eq!(
        object.elf_header().e_machine.get(object.endian()),
        elf::EM_BPF
    );
    let functions = functions(&object);
    let mut known = HashMap::new();
    let mut programs = 0;
    for &place in functions.keys() {
        let section = object.section_by_index(place.0).expect("it has a function");
        if section.name() == Ok(".text") {
            continue;
        }
        programs += 1;
        let (bytes, through) = needs(&functions, &mut known, place);
        assert!(
            bytes <= MOST,
            "{} needs {bytes} bytes of stack through {}: Linux 6.12 refuses more than {MOST}; make \
             functions of their own (`__noinline`) of what is done beside the deepest call",
            through[0],
            through[1..].join(", "),
        );
    }
    assert!(programs > 30, "{programs} programs were found");
    let deepest = known.values().map(|(bytes, _)| *bytes).max();
    assert!(
        deepest > Some(256),
        "no function calls another: {deepest:?}"
    );
}
