//! What the sampling clock says of a thread on a CPU: where it was, whether it ran at all, and
//! whether interrupts kept its CPU.

use whywait_events::{Ns, Sample, StackId};

use crate::joined::Joined;
use crate::maps::HashMap;
use crate::timeline::Thread;

/// So many samples are looked through one by one.
const FEW: usize = 16;

/// How much each user stack was sampled, in the order in which they were first.
fn by_stack(samples: &[Sample]) -> Vec<(StackId, u64)> {
    let mut stacks: Vec<(StackId, u64)> = Vec::new();
    let mut places: HashMap<StackId, usize> = HashMap::default();
    for sample in samples {
        let stack = sample.user_stack;
        let place = match samples.len() {
            // A few are found sooner without.
            ..=FEW => stacks.iter().position(|(known, _)| *known == stack),
            _ => places.get(&stack).copied(),
        };
        match place {
            Some(at) => stacks[at].1 += sample.weight(),
            None => {
                if samples.len() > FEW {
                    places.insert(stack, stacks.len());
                }
                stacks.push((stack, sample.weight()));
            }
        }
    }
    stacks
}

impl Joined {
    /// The stack in which a thread was seen most in an interval: the sampled stack whose innermost
    /// function of the application is the most frequent one. 0: no samples.
    pub fn sampled_stack(&self, thread: &Thread, from_ns: Ns, to_ns: Ns) -> StackId {
        let mut functions: Vec<(&str, u64, StackId)> = Vec::new();
        for (stack, weight) in by_stack(thread.samples_within(from_ns, to_ns)) {
            // A stack with none of the application's functions stands for its innermost one.
            let innermost = || self.stacks.get(stack)?.labels.first();
            let Some(label) = self.stacks.app_frame(stack).or_else(innermost) else {
                continue;
            };
            match functions
                .iter_mut()
                .find(|(name, _, _)| *name == &*label.name)
            {
                Some((_, count, _)) => *count += weight,
                None => functions.push((&label.name, weight, stack)),
            }
        }
        // The first of equals, to be the same from run to run.
        let most = functions.iter().map(|(_, count, _)| *count).max();
        functions
            .iter()
            .find(|(_, count, _)| Some(*count) == most)
            .map_or(0, |(_, _, stack)| *stack)
    }

    /// Whether the clock that ticks on each CPU bears out that a thread ran for `on_cpu_ns` in a
    /// interval. A virtual machine may lose its CPU to others for tens of milliseconds, and its
    /// kernel knows nothing of it: the thread is then on a CPU that stands still, as the clock
    /// does. Of two ticks and more that were to be expected a quarter must have come, and the clock
    /// must not have stood still for half of that time: it ticks once for all that it missed, so
    /// such an interval may have its ticks before and after. True where the clock says nothing:
    /// there is none, the thread had no tick in all of the recording, or ticks were lost.
    pub fn clock_agrees(&self, thread: &Thread, from_ns: Ns, to_ns: Ns, on_cpu_ns: u64) -> bool {
        let hz = u128::from(self.meta.options.sample_hz);
        let expected = u128::from(on_cpu_ns) * hz / 1_000_000_000;
        let lost = |name: &str| self.counters.get(name).copied().unwrap_or(0) > 0;
        if expected < 2 || thread.samples.is_empty() || lost("lost.stack-ring-full") {
            return true;
        }
        let at = |ns: Ns| thread.samples.partition_point(|sample| sample.at_ns < ns);
        let (first, last) = (at(from_ns), at(to_ns).max(at(from_ns)));
        let period_ns = 1_000_000_000 / u64::from(self.meta.options.sample_hz).max(1);
        let within = &thread.samples[first..last];
        let ticks: u64 = within.iter().map(Sample::weight).sum();
        // How often the clock ticked then: the slower of the rates on both sides of a gap.
        let mut weight = match thread.samples[..first].last() {
            Some(before) => before.weight(),
            None => within.first().map_or(1, Sample::weight),
        };
        let mut before_ns = from_ns;
        let mut still_ns = 0_u64;
        for (tick_ns, next_weight) in within
            .iter()
            .map(|sample| (sample.at_ns, sample.weight()))
            .chain([(to_ns, 1)])
        {
            let gap_ns = tick_ns.saturating_sub(before_ns);
            let due_ns = period_ns.saturating_mul(weight.max(next_weight));
            // CPUs tick at different moments: a thread that goes from one to another may miss a
            // tick.
            if gap_ns > due_ns.saturating_mul(3) {
                still_ns = still_ns.saturating_add(gap_ns - due_ns);
            }
            before_ns = tick_ns;
            weight = next_weight;
        }
        // While the thread was on no CPU there was nothing to tick for.
        let off_cpu_ns = to_ns.saturating_sub(from_ns).saturating_sub(on_cpu_ns);
        let still_ns = still_ns.saturating_sub(off_cpu_ns);
        u128::from(ticks) * 4 >= expected && still_ns.saturating_mul(2) <= on_cpu_ns
    }

    /// Whether a thread's CPU was kept by interrupts for most of an interval, by samples: the
    /// kernel then works for whoever is due (packets of others, timers), on the time of the thread
    /// that happens to be there. What a thread's own call sets off runs within that call, and is
    /// its own.
    pub fn kept_by_interrupts(&self, thread: &Thread, from_ns: Ns, to_ns: Ns) -> bool {
        let interrupted = |sample: &&Sample| self.in_interrupt(sample.kernel_stack);
        let within = thread.samples_within(from_ns, to_ns);
        let all: u64 = within.iter().map(Sample::weight).sum();
        let by_interrupts: u64 = within.iter().filter(interrupted).map(Sample::weight).sum();
        by_interrupts * 2 > all
    }

    /// Whether a sample's kernel stack is that of an interrupt.
    pub fn in_interrupt(&self, kernel_stack: StackId) -> bool {
        // The entries of arch/x86/include/asm/idtentry.h; the sampling clock's own is not in its
        // samples.
        let entered = |name: &str| {
            name.starts_with("asm_sysvec_") || name.starts_with("asm_common_interrupt")
        };
        let stack = self.stacks.get(kernel_stack);
        stack.is_some_and(|stack| stack.labels.iter().any(|label| entered(&label.name)))
    }
}
