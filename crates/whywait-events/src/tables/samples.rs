//! The table `samples`.

use crate::recording::table;
use crate::{Ns, StackId};

table! {
    /// A thread of the target was on a CPU when the sampling clock ticked.
    #[span(at_ns)]
    #[stacks(user_stack, kernel_stack)]
    #[process(tgid)]
    pub struct Sample {
        /// When.
        at_ns: Ns = DeltaBounds,
        /// Thread id.
        tid: u32 = Dictionary,
        /// Process id.
        tgid: u32 = Dictionary,
        /// Which CPU.
        cpu: u32 = Dictionary,
        /// User stack.
        user_stack: StackId = Dictionary,
        /// Kernel stack, 0 when it ran in user mode.
        kernel_stack: StackId = Dictionary,
        /// For how many periods of `sample_hz` it stands: while nothing is slow the clock ticks
        /// less often. 0 is as good as 1.
        periods: u32 = Dictionary or 1,
    }
}

impl Sample {
    /// For how many periods of the clock it stands, 1 at least: its weight among others.
    pub fn weight(&self) -> u64 {
        u64::from(self.periods.max(1))
    }
}
