//! User stacks of long sleeps, and of those who ended them.

use whywait_events::recording::WriteError;
use whywait_stacks::Registers;

use crate::core::collector::{Collector, Configuration};
use crate::core::programs::Programs;
use crate::core::recorder::Recorder;
use crate::core::skel::types;

pub(crate) mod known_stacks;

pub(crate) const COLLECTOR: Collector = Collector {
    configure,
    ..Collector::NONE
};

fn configure(configuration: &mut Configuration<'_>) {
    configuration.variables.user_stacks_exact = configuration.functions.leave_user_stacks();
}

/// From now on every stack that is recorded is copied: see `known_stack.bpf.h`.
pub(crate) fn do_not_repeat(programs: &mut Programs) {
    if let Some(data) = programs.skel.maps.data_data.as_deref_mut() {
        data.stacks_repeat = false;
    }
}

impl Recorder {
    pub(crate) fn user_stack(
        &mut self,
        record: &types::user_stack_record,
        stack: &[u8],
    ) -> Result<(), WriteError> {
        let place = [record.ip, record.sp];
        if stack.is_empty() {
            // It came before; 0, and none at all, if it could not be read or too many came.
            let known = self.known.user(record.tid, record.stack_key);
            return self.release(record.tid, Some((place, known)));
        }
        let cut_short = self.futexes.unfinished.wants_stack(record.tid);
        if !cut_short && record.stack_key == 0 && !self.waits.wants_stack(record.tid) {
            return Ok(());
        }
        let registers = Registers {
            ip: record.ip,
            sp: record.sp,
            bp: record.bp,
        };
        let thread = (record.tgid, record.tid);
        let (user_stack, repeats) = self.output.stack_of_sleeper(thread, registers, stack)?;
        self.known
            .learn_user(record.tid, registers, record.stack_key, user_stack, repeats);
        if cut_short {
            let unfinished = &mut self.futexes.unfinished;
            unfinished.stack_came(record.tid, user_stack, stack);
        }
        self.release(record.tid, Some((place, user_stack)))
    }

    pub(crate) fn waker(
        &mut self,
        record: &types::waker_record,
        stack: &[u8],
    ) -> Result<(), WriteError> {
        let registers = Registers {
            ip: record.ip,
            sp: record.sp,
            bp: record.bp,
        };
        let waker = record.waker_tid;
        let stack = if stack.is_empty() {
            self.known.user(waker, record.stack_key)
        } else {
            let (stack, repeats) =
                self.output
                    .stack_of_waker(record.waker_tgid, registers, stack)?;
            self.known
                .learn_user(waker, registers, record.stack_key, stack, repeats);
            stack
        };
        self.waits.wakers.insert(record.tid, (record.seq, stack));
        Ok(())
    }
}
