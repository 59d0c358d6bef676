//! Why something is missing from a stack, and how often.

/// Why a stack was cut, or lacks names or Python frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Loss {
    NoMaps,
    Registers,
    NotCode,
    NoUnwindData,
    FramePointer,
    StackBytes,
    OffStack,
    OtherStack,
    Misled,
    Refused,
    TooDeep,
    Panicked,
    TooManyProcesses,
    Memory,
    KernelSymbols,
    PythonVersion,
    PythonMoved,
    PythonThread,
    PythonRead,
    PythonUnmatched,
    PythonLate,
    PythonChanged,
    PythonUncertain,
    PythonInnermost,
    GoVersion,
    GoTask,
    GoTaskChanged,
}

const NAMES: [&str; 27] = [
    "process gone before its maps were read",
    "registers out of range",
    "return address outside of code",
    "no unwind data",
    "frame pointer unknown",
    "ran out of stack bytes",
    "address not on the stack",
    "continues on another stack",
    "unwind data misled",
    "unwind data refused",
    "too many frames",
    "unwinder panicked",
    "too many processes",
    "no memory left for the target",
    "kernel symbols hidden",
    "python version not supported",
    "python thread moved on",
    "python thread not found",
    "python state not readable",
    "python frames not matched",
    "python sample too old",
    "python frames changed while read",
    "python frames not certain",
    "python innermost frames not certain",
    "go version not supported",
    "go task not readable",
    "go task changed while read",
];

/// Counters, one for each reason.
#[derive(Debug, Default)]
pub(crate) struct Losses([u64; NAMES.len()]);

impl Losses {
    pub(crate) fn count(&mut self, loss: Loss) {
        self.0[loss as usize] += 1;
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        NAMES.into_iter().zip(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order() {
        let mut losses = Losses::default();
        losses.count(Loss::PythonUnmatched);
        losses.count(Loss::KernelSymbols);
        let counted: Vec<_> = losses
            .iter()
            .filter(|(_, n)| *n > 0)
            .map(|(name, _)| name)
            .collect();
        assert_eq!(
            counted,
            ["kernel symbols hidden", "python frames not matched"]
        );
    }
}
