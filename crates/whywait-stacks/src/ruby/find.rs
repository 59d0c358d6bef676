//! Finding the interpreter in a process, and whether it is laid out as is known of its version.

use std::ops::Range;

use iced_x86::{Code, Decoder, DecoderOptions, Mnemonic, OpKind};

use super::objects::{RubyInternal, internal};
use super::{Ruby, RubyLayout};
use crate::elf::u64_at;
use crate::interpreter::FoundInterpreter;
use crate::modules::{Modules, RubyImage};
use crate::process::{Process, object, word};

/// Beginnings of the names of files that may have the interpreter.
const FILES: &[&[u8]] = &[b"libruby", b"ruby"];
/// A process goes on while it is looked at.
const TRIES: u32 = 8;
/// How much of `ruby_vm_at_exit` is decoded.
const AT_EXIT_BYTES: usize = 64;
const MAX_DATA: u64 = 1 << 20;
const MAX_FRAMES: usize = 4096;

/// What a look at a virtual machine gave.
enum VmLook {
    Agrees(Range<u64>),
    /// No thread has a function.
    Begins,
    Differs,
}

pub(super) fn find(process: &mut Process, modules: &mut Modules) -> FoundInterpreter<Ruby> {
    process.look_for(FILES, modules);
    let Some((image, bias)) = process.holding(|image| image.ruby.is_some()) else {
        return FoundInterpreter::No;
    };
    let Some(ruby) = image.ruby.clone() else {
        return FoundInterpreter::No;
    };
    let layout = version(process, bias.wrapping_add(ruby.version)).and_then(RubyLayout::of);
    let place = place_of_vm(process, &ruby, bias);
    let (Some(layout), Some(place)) = (layout, place) else {
        return FoundInterpreter::Unknown;
    };
    let mut begins = false;
    for _ in 0..TRIES {
        let vm = match word(process, place) {
            None => return FoundInterpreter::Unknown,
            Some(0) => return FoundInterpreter::NotYet,
            Some(vm) => vm,
        };
        let mut found = Ruby::new(layout, vm, &modules.budget);
        match found.look(process, modules) {
            VmLook::Agrees(code) => {
                found.code = code;
                found.names = found.table_of_names(process, &ruby, bias);
                return FoundInterpreter::Yes(found);
            }
            VmLook::Begins => begins = true,
            VmLook::Differs => {}
        }
    }
    match begins {
        true => FoundInterpreter::NotYet,
        false => FoundInterpreter::Unknown,
    }
}

/// The version as `ruby_version` states it, without the last part.
fn version(process: &mut Process, at: u64) -> Option<(u32, u32)> {
    let bytes = process.read_up_to(at, 16);
    let text = bytes.split(|byte| *byte == 0).next()?;
    let mut parts = std::str::from_utf8(text).ok()?.split('.');
    let mut part = || parts.next()?.parse().ok();
    Some((part()?, part()?))
}

/// Where the address of the virtual machine is: a symbol that Ruby to 3.2 exports, and otherwise
/// what a function that it exports loads first.
fn place_of_vm(process: &mut Process, ruby: &RubyImage, bias: u64) -> Option<u64> {
    if let Some(vm) = ruby.vm {
        return Some(bias.wrapping_add(vm));
    }
    let at = bias.wrapping_add(ruby.at_exit?);
    let bytes = process.read_up_to(at, AT_EXIT_BYTES);
    let mut decoder = Decoder::with_ip(64, &bytes, at, DecoderOptions::NONE);
    decoder
        .iter()
        .take_while(|it| it.code() != Code::INVALID && it.mnemonic() != Mnemonic::Ret)
        .find(|it| {
            it.code() == Code::Mov_r64_rm64
                && it.op1_kind() == OpKind::Memory
                && it.is_ip_rel_memory_operand()
        })
        .map(|it| it.ip_rel_memory_address())
}

impl Ruby {
    /// Whether a virtual machine's structures lead to each other as they should.
    fn look(&self, process: &mut Process, modules: &mut Modules) -> VmLook {
        if word(process, self.vm.wrapping_add(self.layout.vm_ractors)) == Some(0) {
            return VmLook::Begins;
        }
        let Some(threads) = self.threads(process) else {
            return VmLook::Differs;
        };
        let mut begins = threads.is_empty();
        for thread in threads {
            let vm = word(process, thread.wrapping_add(self.layout.thread_vm));
            let frames = self.frames(process, thread, MAX_FRAMES);
            let (Some(frames), true) = (frames, vm == Some(self.vm)) else {
                continue;
            };
            begins |= frames.is_empty();
            let code = frames
                .iter()
                .find_map(|frame| self.code_of_loop(process, frame.code, modules));
            if let Some(code) = code {
                return VmLook::Agrees(code);
            }
        }
        match begins {
            true => VmLook::Begins,
            false => VmLook::Differs,
        }
    }

    /// The function whose code the first instruction of a function in Ruby leads to.
    fn code_of_loop(
        &self,
        process: &mut Process,
        function: u64,
        modules: &mut Modules,
    ) -> Option<Range<u64>> {
        let head = object(process, function, 32)?;
        if internal(u64_at(&head, 0)?) != Some(RubyInternal::Function) {
            return None;
        }
        let body = u64_at(&head, self.layout.iseq_body as usize)?;
        let code = word(process, body.checked_add(self.layout.body_code)?)?;
        let first = word(process, code)?;
        let (image, range) = process.function(first, modules)?;
        image.ruby.is_some().then_some(range)
    }

    /// The array of all names, from the only place in the library's data where it can be.
    fn table_of_names(&self, process: &mut Process, ruby: &RubyImage, bias: u64) -> Option<u64> {
        let Range { start, end } = ruby.data;
        let size = end.checked_sub(start)?.min(MAX_DATA);
        let bytes = process.read_up_to(bias.wrapping_add(start), usize::try_from(size).ok()?);
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .filter_map(|word| u64_at(word, 0))
            .collect();
        // `rb_symbols_t`: the last number given, a table by names, and the array by numbers.
        let heap = |at: u64| {
            at > u64::from(u32::MAX) && at < crate::arch::USER_END && at.is_multiple_of(8)
        };
        let candidates = words
            .windows(3)
            .filter(|it| (1..u64::from(u32::MAX)).contains(&it[0]) && heap(it[1]) && heap(it[2]));
        candidates
            .map(|it| it[2])
            .find(|table| self.is_table(process, *table))
    }
}
