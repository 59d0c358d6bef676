//! User stacks of long sleeps, and of those who ended them.

use libbpf_rs::{MapCore, MapFlags};
use whywait_events::recording::WriteError;
use whywait_stacks::{CopiedFunction, CopiedFunctions, LargeFrame, Registers, StackBehind};

use crate::core::collector::{Collector, Configuration, Keeper};
use crate::core::error::CaptureError;
use crate::core::programs::Programs;
use crate::core::records::Record;
use crate::core::shared::Shared;
use crate::core::skel::types::{self, record_type};

pub(crate) const COLLECTOR: Collector = Collector {
    configure,
    takes: &[
        record_type::RECORD_USER_STACK,
        record_type::RECORD_WAKER,
        record_type::RECORD_FUNCTIONS,
        record_type::RECORD_STACK_BEHIND,
    ],
    keeper: |_| Box::new(Stacks),
    ..Collector::NONE
};

fn configure(configuration: &mut Configuration<'_>) {
    configuration.variables.user_stacks_exact = configuration.functions.leave_user_stacks();
}

struct Stacks;

impl Keeper for Stacks {
    fn take(&mut self, record: Record, shared: &mut Shared) -> Result<(), WriteError> {
        match record {
            Record::UserStack(record, stack) => user_stack(&record, &stack, shared),
            Record::Waker(record, stack) => waker(&record, &stack, shared),
            Record::StackBehind(record, bytes) => {
                let behind = StackBehind {
                    place: [record.ip, record.sp],
                    distance: record.distance,
                    bytes,
                };
                shared.output.unwinder.stack_behind_came(record.tid, behind);
                Ok(())
            }
            Record::Functions(record, functions) => {
                functions_came(&record, &functions, shared);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn turn(&mut self, programs: &mut Programs, shared: &mut Shared) -> Result<(), CaptureError> {
        if !shared.sleeps.known.stacks_repeat() {
            do_not_repeat(programs);
        }
        let large = shared.output.unwinder.take_large_frames();
        if !large.is_empty() {
            say_large(programs, &large);
        }
        Ok(())
    }
}

/// From now on every stack that is recorded is copied: see `known_stack.bpf.h`.
fn do_not_repeat(programs: &mut Programs) {
    if let Some(data) = programs.skel.maps.data_data.as_deref_mut() {
        data.stacks_repeat = false;
    }
}

/// From now on what is behind these frames is copied, too.
fn say_large(programs: &mut Programs, large: &[LargeFrame]) {
    for frame in large {
        let key = types::large_frame_key {
            tgid: frame.tgid,
            pad: 0,
            ip: frame.ip,
        };
        let mut bytes = key.tgid.to_ne_bytes().to_vec();
        bytes.extend(key.pad.to_ne_bytes());
        bytes.extend(key.ip.to_ne_bytes());
        let map = &programs.skel.maps.large_frames;
        // Without it the stack ends there, as before.
        let _ = map.update(&bytes, &frame.distance.to_ne_bytes(), MapFlags::ANY);
    }
    if let Some(variables) = programs.variables_mut() {
        variables.large_frames_known = true;
    }
}

fn user_stack(
    record: &types::user_stack_record,
    stack: &[u8],
    shared: &mut Shared,
) -> Result<(), WriteError> {
    let place = [record.ip, record.sp];
    if stack.is_empty() {
        // It came before; 0, and none at all, if it could not be read or too many came.
        let known = shared.sleeps.known.user(record.tid, record.stack_key);
        shared.release(record.tid, Some((place, known)))?;
        return Ok(());
    }
    let cut_short = shared.sleeps.unfinished.wants_stack(record.tid);
    if !cut_short && record.stack_key == 0 && !shared.sleeps.wants_stack(record.tid) {
        shared.output.unwinder.forget_pieces(record.tid);
        return Ok(());
    }
    let registers = Registers {
        ip: record.ip,
        sp: record.sp,
        bp: record.bp,
        lr: record.lr,
    };
    let thread = (record.tgid, record.tid);
    let (user_stack, repeats) =
        shared
            .output
            .stack_of_sleeper(thread, registers, Some(record.kept), stack)?;
    shared
        .sleeps
        .known
        .learn_user(record.tid, registers, record.stack_key, user_stack, repeats);
    if cut_short {
        let unfinished = &mut shared.sleeps.unfinished;
        unfinished.stack_came(record.tid, user_stack, stack);
    }
    if shared.release(record.tid, Some((place, user_stack)))? {
        shared.sleeps.known.served(record.tid);
    }
    Ok(())
}

/// The stack comes next.
pub(crate) fn functions_came(record: &types::functions_record, bytes: &[u8], shared: &mut Shared) {
    // As interpreted_function has them.
    let words = bytes
        .as_chunks()
        .0
        .iter()
        .map(|word| u64::from_ne_bytes(*word));
    let words: Vec<u64> = words.collect();
    let (functions, _) = words.as_chunks();
    let function = |&[code, instruction, last]: &[u64; 3]| CopiedFunction {
        code,
        instruction,
        last: last != 0,
    };
    let copied = CopiedFunctions {
        at_ns: record.at_ns,
        place: [record.ip, record.sp],
        functions: functions.iter().map(function).collect(),
        all: record.more == 0,
    };
    shared.output.unwinder.functions_came(record.tid, copied);
}

fn waker(
    record: &types::waker_record,
    stack: &[u8],
    shared: &mut Shared,
) -> Result<(), WriteError> {
    let registers = Registers {
        ip: record.ip,
        sp: record.sp,
        bp: record.bp,
        lr: record.lr,
    };
    let waker = record.waker_tid;
    let stack = if stack.is_empty() {
        shared.sleeps.known.user(waker, record.stack_key)
    } else {
        let (stack, repeats) = shared
            .output
            .stack_of_waker(record.waker_tgid, registers, stack)?;
        shared
            .sleeps
            .known
            .learn_user(waker, registers, record.stack_key, stack, repeats);
        shared.sleeps.known.served(waker);
        stack
    };
    shared.sleeps.wakers.insert(record.tid, (record.seq, stack));
    Ok(())
}
