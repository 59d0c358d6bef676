//! Why something is missing from a stack, and how often.

/// Why a stack was cut or lacks names, or why a task could not be read.
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
    GoVersion,
    GoTasks,
    GoTask,
    GoTaskChanged,
    PythonTasks,
    PythonTask,
    PythonTaskChanged,
    HotSpotVersion,
    HotSpotDescription,
    HotSpotCode,
    HotSpotFrame,
    HotSpotMethod,
    V8Constants,
    V8Code,
    V8Function,
    V8Changed,
}

const NAMES: [&str; 31] = [
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
    "go version not supported",
    "go tasks not found",
    "go task not readable",
    "go task changed while read",
    "python tasks not found",
    "python task not readable",
    "python task changed while read",
    "hotspot version not supported",
    "hotspot description lacks fields",
    "hotspot code not readable",
    "hotspot frame not readable",
    "hotspot method not readable",
    "v8 constants missing",
    "v8 code not found",
    "v8 function not readable",
    "v8 function changed while read",
];

/// A language whose functions an interpreter keeps elsewhere than on the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Language {
    Python,
    Ruby,
    Php,
}

/// Why functions of such a language are missing from a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Unread {
    Version,
    Moved,
    Thread,
    Memory,
    Unmatched,
    Late,
    Changed,
    Uncertain,
    Innermost,
}

macro_rules! names_of {
    ($language:literal) => {
        [
            concat!($language, " version not supported"),
            concat!($language, " thread moved on"),
            concat!($language, " thread not found"),
            concat!($language, " state not readable"),
            concat!($language, " frames not matched"),
            concat!($language, " sample too old"),
            concat!($language, " frames changed while read"),
            concat!($language, " frames not certain"),
            concat!($language, " innermost frames not certain"),
        ]
    };
}

const UNREAD: [[&str; 9]; 3] = [names_of!("python"), names_of!("ruby"), names_of!("php")];

/// Counters, one for each reason.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    stacks: [u64; NAMES.len()],
    functions: [[u64; UNREAD[0].len()]; UNREAD.len()],
}

impl Losses {
    pub(crate) fn count(&mut self, loss: Loss) {
        self.stacks[loss as usize] += 1;
    }

    pub(crate) fn count_unread(&mut self, language: Language, unread: Unread) {
        self.functions[language as usize][unread as usize] += 1;
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let functions = UNREAD.as_flattened().iter().copied();
        NAMES
            .into_iter()
            .zip(self.stacks)
            .chain(functions.zip(self.functions.as_flattened().iter().copied()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order() {
        let mut losses = Losses::default();
        losses.count_unread(Language::Ruby, Unread::Unmatched);
        losses.count(Loss::KernelSymbols);
        let counted: Vec<_> = losses
            .iter()
            .filter(|(_, n)| *n > 0)
            .map(|(name, _)| name)
            .collect();
        assert_eq!(
            counted,
            ["kernel symbols hidden", "ruby frames not matched"]
        );
    }
}
