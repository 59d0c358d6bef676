//! Whatever the observed program does, unwinding ends, and without a panic.

use crate::common::*;
use whywait_events::{Frame, Module, ModuleKind};
use whywait_stacks::{Registers, Symboliser, Unwinder};

/// A small generator of numbers: runs are repeatable.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// An address worth trying: in the program's code, on the stack, or odd.
fn address(numbers: &mut Numbers, code: &[(u64, u64)], sp: u64) -> u64 {
    let n = numbers.next();
    match n % 8 {
        0..=3 => {
            let (start, end) = code[(n >> 8) as usize % code.len()];
            start + (n >> 16) % (end - start)
        }
        4 | 5 => sp.wrapping_add((n >> 16) % 20_000),
        6 => [0, 1, 7, 8, u64::MAX, u64::MAX - 7, 1 << 47, i64::MAX as u64][(n >> 8) as usize % 8],
        _ => n,
    }
}

fn code_of(tgid: u32) -> Vec<(u64, u64)> {
    let maps = std::fs::read_to_string(format!("/proc/{tgid}/maps")).unwrap();
    maps.lines()
        .filter(|line| line.contains(" r-xp "))
        .map(|line| {
            let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
            (
                u64::from_str_radix(start, 16).unwrap(),
                u64::from_str_radix(end, 16).unwrap(),
            )
        })
        .collect()
}

#[test]
fn random_registers_and_stacks() {
    let running = run("/bin/sleep".as_ref(), &["1000"]);
    let sleeper = running.sleeper(&[35, 219, 230], 8192);
    let code = code_of(running.id());
    let mut unwinder = Unwinder::new();
    let mut numbers = Numbers(0x1234_5678_9abc_def1);
    for round in 0..20_000 {
        let sp = if round % 3 == 0 {
            address(&mut numbers, &code, 0)
        } else {
            sleeper.registers.sp
        };
        let registers = Registers {
            ip: address(&mut numbers, &code, sp),
            sp,
            bp: address(&mut numbers, &code, sp),
            lr: 0,
        };
        let words = numbers.next() as usize % 64;
        let mut stack: Vec<u8> = (0..words)
            .flat_map(|_| address(&mut numbers, &code, sp).to_le_bytes())
            .collect();
        stack.truncate(stack.len().saturating_sub(numbers.next() as usize % 8));
        let unwound = unwinder.unwind_sleeping(running.id(), running.id(), registers, &stack);
        assert!(unwound.frames.len() <= words * 2 + 2048);
    }
    assert!(
        !losses(&unwinder)
            .iter()
            .any(|&(reason, _)| reason == "unwinder panicked"),
        "{:?}",
        losses(&unwinder)
    );
}

/// Programs that run well but whose unwind tables and section headers are damaged, which no loader
/// looks at.
#[test]
fn damaged_files() {
    let directory = scratch("damaged");
    let mut numbers = Numbers(0xfeed_beef_1234_5671);
    let whole = std::fs::read("/bin/sleep").unwrap();
    let word = |at: usize| u64::from_le_bytes(whole[at..at + 8].try_into().unwrap()) as usize;
    let headers = word(32);
    let eh_frame = (0..usize::from(whole[56]))
        .map(|i| headers + i * 56)
        .find(|&at| whole[at..at + 4] == 0x6474_e550u32.to_le_bytes())
        .map(|at| word(at + 8))
        .unwrap();
    let places = [
        (eh_frame, 12),
        (eh_frame, 2000),
        (eh_frame + 400, 4000),
        (word(40), whole.len() - word(40)),
    ];
    for round in 0..24 {
        let file = directory.join(format!("sleep-{round}"));
        let mut damaged = whole.clone();
        let (start, length) = places[round % 4];
        for _ in 0..1 + round / 4 * 3 {
            damaged[start + numbers.next() as usize % length] = numbers.next() as u8;
        }
        if round % 8 == 7 {
            damaged.truncate(word(40) + 100);
        }
        std::fs::copy("/bin/sleep", &file).unwrap();
        std::fs::write(&file, &damaged).unwrap();
        let running = run(&file, &["1000"]);
        let sleeper = running.sleeper(&[35, 219, 230], 8192);
        let mut unwinder = Unwinder::new();
        let unwound = unwinder.unwind(running.id(), sleeper.registers, &sleeper.stack);
        assert!(unwound.frames.len() > 1);
        // And from all over its code.
        let code = code_of(running.id());
        for _ in 0..2000 {
            let (start, end) = code[0];
            let ip = start + numbers.next() % (end - start);
            unwinder.unwind(
                running.id(),
                Registers {
                    ip,
                    ..sleeper.registers
                },
                &sleeper.stack,
            );
        }
        // In a build with overflow checks framehop may trip over its arithmetic; it is held, and
        // counted.
        let modules = unwinder.take_new_modules();
        let frames: Vec<Frame> = modules
            .iter()
            .flat_map(|m| {
                (0..100).map(|i| Frame {
                    module: m.id,
                    address: i * 97,
                })
            })
            .collect();
        Symboliser::new().symbolise(&modules, &frames, None);
        drop(running);
        std::fs::remove_file(&file).unwrap();
    }
}

#[test]
fn a_process_that_is_gone() {
    let mut unwinder = Unwinder::new();
    let registers = Registers {
        ip: 0x1000,
        sp: 0x2000,
        bp: 0,
        lr: 0,
    };
    let unwound = unwinder.unwind(u32::MAX - 1, registers, &[0; 64]);
    assert!(unwound.frames.is_empty() && unwound.truncated);
    assert_eq!(
        losses(&unwinder),
        [("process gone before its maps were read", 1)]
    );
}

#[test]
fn another_file_at_the_path_gives_no_names() {
    let module = |build_id: &str| Module {
        id: 1,
        kind: ModuleKind::Elf,
        build_id: build_id.to_owned(),
        path: std::env::current_exe()
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned(),
    };
    let frames: Vec<Frame> = (0..4096)
        .map(|i| Frame {
            module: 1,
            address: 0x10_0000 + i * 64,
        })
        .collect();
    for wrong in [
        "",
        "00",
        "0",
        "é1",
        "../../../../bin/true",
        "0123456789abcdef0123456789abcdef01234567",
    ] {
        let symbols = Symboliser::new().symbolise(&[module(wrong)], &frames, None);
        let has_none = wrong.is_empty() && !symbols.is_empty();
        assert!(symbols.is_empty() || has_none, "{wrong}");
    }
}
