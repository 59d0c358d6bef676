//! Which program the kernel refused, and why: from what libbpf prints while it loads, for its
//! errors have neither.

use std::cell::Cell;
use std::fmt;

use libbpf_rs::PrintLevel;

/// A program that was not loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Its name.
    pub program: String,
    /// The verifier's last line, or what libbpf said of it.
    pub why: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.program, self.why)
    }
}

thread_local! {
    /// The last program of which libbpf complained to this thread: several load programs.
    static LAST: Cell<Option<Refused>> = const { Cell::new(None) };
}

/// Has libbpf's messages kept instead of printed: they are long, and meant for its developers.
pub(crate) fn listen() {
    LAST.take();
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, message| {
        LAST.set(after(LAST.take(), &message));
    })));
}

/// The program that this thread was refused since [`listen`].
pub(crate) fn last() -> Option<Refused> {
    LAST.take()
}

/// What is known of a refusal after one more message.
fn after(before: Option<Refused>, message: &str) -> Option<Refused> {
    let Some((program, text)) = message
        .strip_prefix("libbpf: prog '")
        .and_then(|rest| rest.split_once("': "))
    else {
        return before;
    };
    let verdict = text
        .starts_with("-- BEGIN PROG LOAD LOG --")
        .then(|| last_line(text))
        .flatten();
    match before {
        // What comes after the reason only says that the program was not loaded, therefore.
        Some(before) if before.program == program && verdict.is_none() => Some(before),
        _ => Some(Refused {
            program: program.to_owned(),
            why: verdict.unwrap_or(text).trim().to_owned(),
        }),
    }
}

/// The verifier's last line, but for its statistics.
pub(crate) fn last_line(log: &str) -> Option<&str> {
    log.lines().map(str::trim).rfind(|line| {
        !line.is_empty() && !line.starts_with("--") && !line.starts_with("processed ")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(messages: &[&str]) -> Option<String> {
        let refused = messages.iter().fold(None, |last, said| after(last, said));
        refused.map(|refused| refused.to_string())
    }

    #[test]
    fn the_verifiers_last_line_is_the_reason() {
        let log = "libbpf: prog 'sweep': -- BEGIN PROG LOAD LOG --\n0: (79) r6 = *(u64 *)(r1 +0)\n\
                   R1 invalid mem access 'scalar'\nprocessed 12 insns (limit 1000000) \
                   max_states_per_insn 0\n-- END PROG LOAD LOG --\n";
        assert_eq!(
            of(&[
                "libbpf: prog 'sweep': BPF program load failed: -EACCES\n",
                log,
                "libbpf: prog 'sweep': failed to load: -EACCES\n",
                "libbpf: failed to load object 'whywait_bpf'\n",
            ]),
            Some("sweep: R1 invalid mem access 'scalar'".to_owned())
        );
    }

    #[test]
    fn libbpf_refuses_some_itself() {
        assert_eq!(
            of(&[
                "libbpf: prog 'find_threads': relo #3: insn #8 accesses field incorrectly.\n",
                "libbpf: prog 'find_threads': relo #3: failed to patch insn #8: -22\n",
                "libbpf: failed to perform CO-RE relocations: -22\n",
            ]),
            Some("find_threads: relo #3: insn #8 accesses field incorrectly.".to_owned())
        );
        assert_eq!(of(&["libbpf: Error in bpf_create_map_xattr(x)\n"]), None);
    }

    #[test]
    fn of_several_programs_the_last_counts() {
        assert_eq!(
            of(&[
                "libbpf: prog 'a': a warning\n",
                "libbpf: prog 'b': BPF program load failed: -EINVAL\n",
            ]),
            Some("b: BPF program load failed: -EINVAL".to_owned())
        );
    }
}
