//! Which programs run on this kernel: at its tracepoints; where those of sockets are missing, at
//! functions that see the same; where that is impossible, too, without sockets.

use std::collections::BTreeSet;

use super::collector::{Collector, Hook};

/// By which means a recording is made, the best first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// All at tracepoints.
    #[default]
    Tracepoints,
    /// Reads and writes of sockets at functions of the kernel.
    Fexit,
    /// No sockets, and so no requests.
    ThreadsOnly,
}

impl Tier {
    /// As recordings have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tracepoints => "tracepoints",
            Self::Fexit => "fexit",
            Self::ThreadsOnly => "threads only",
        }
    }
}

/// What a kernel has.
pub(crate) struct KernelHas<'a> {
    pub(crate) has_tracepoint: &'a dyn Fn(&str) -> bool,
    pub(crate) has_function: &'a dyn Fn(&str) -> bool,
    /// Why no program runs at a function of this kernel, if that was tried.
    pub(crate) refuses_functions: Option<&'a str>,
}

/// The programs that were chosen for a kernel.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) tier: Tier,
    /// Programs at tracepoints that are not loaded.
    pub(crate) left_out: BTreeSet<&'static str>,
    /// Programs at functions that are.
    pub(crate) at_functions: BTreeSet<&'static str>,
    /// What is missing without the others.
    pub(crate) notes: Vec<String>,
}

impl Chosen {
    pub(crate) fn of(collectors: &[&'static Collector], kernel: &KernelHas<'_>) -> Self {
        let mut chosen = Self::default();
        for collector in collectors {
            if collector.all_or_none {
                chosen.all_or_none(collector, kernel);
            } else {
                chosen.what_there_is(collector, kernel);
            }
        }
        chosen
    }

    /// Whether all that a collector's hooks see is seen.
    pub(crate) fn has_all(&self, collector: &Collector) -> bool {
        let at_functions = |hook: &Hook| {
            let mut functions = hook.functions.iter();
            functions.any(|function| self.at_functions.contains(function.name))
        };
        collector
            .hooks
            .iter()
            .all(|hook| !self.left_out.contains(hook.program) || at_functions(hook))
    }

    fn what_there_is(&mut self, collector: &Collector, kernel: &KernelHas<'_>) {
        for (hook, without) in lacking(collector, kernel) {
            self.notes.push(format!(
                "this kernel has no tracepoint {}: {without}",
                hook.tracepoint
            ));
            self.left_out.insert(hook.program);
        }
    }

    fn all_or_none(&mut self, collector: &Collector, kernel: &KernelHas<'_>) {
        let lacking = lacking(collector, kernel);
        let Some((first, without)) = lacking.first() else {
            return;
        };
        let tracepoint = first.tracepoint;
        let functions = lacking.iter().map(|(hook, _)| at_functions(hook, kernel));
        match functions.collect::<Result<Vec<_>, String>>() {
            Ok(functions) => {
                self.tier = self.tier.max(Tier::Fexit);
                self.left_out
                    .extend(lacking.iter().map(|(hook, _)| hook.program));
                self.at_functions.extend(functions.iter().flatten());
                self.notes.push(format!(
                    "this kernel has no tracepoint {tracepoint} (Linux 6.3 has it): programs at \
                     functions of the kernel see the same and take more time"
                ));
            }
            Err(why) => {
                self.tier = Tier::ThreadsOnly;
                self.left_out
                    .extend(collector.hooks.iter().map(|hook| hook.program));
                self.notes.push(format!(
                    "this kernel has no tracepoint {tracepoint} (Linux 6.3 has it){why}: {without}"
                ));
            }
        }
    }
}

/// The hooks that a kernel has no tracepoint for, with what is missing without them.
fn lacking(collector: &Collector, kernel: &KernelHas<'_>) -> Vec<(&'static Hook, &'static str)> {
    let hooks = collector.hooks.iter();
    hooks
        .filter(|hook| !(kernel.has_tracepoint)(hook.tracepoint))
        .filter_map(|hook| Some((hook, hook.without?)))
        .collect()
}

/// The functions at which what a hook sees is seen, too; or why it is not, as the end of a clause.
fn at_functions(hook: &Hook, kernel: &KernelHas<'_>) -> Result<Vec<&'static str>, String> {
    if hook.functions.is_empty() {
        return Err(String::new());
    }
    if let Some(why) = kernel.refuses_functions {
        return Err(format!(" and refuses programs at functions ({why})"));
    }
    let (has, lacks): (Vec<_>, Vec<_>) = hook
        .functions
        .iter()
        .partition(|function| (kernel.has_function)(function.name));
    match lacks.iter().find(|function| !function.may_be_absent) {
        Some(function) => Err(format!(" and no function {}", function.name)),
        None => Ok(has.iter().map(|function| function.name).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors;

    fn chosen(lacks: &str, lacks_function: &str, refuses_functions: Option<&str>) -> Chosen {
        Chosen::of(
            &collectors::ALL,
            &KernelHas {
                has_tracepoint: &|name| lacks.is_empty() || !name.starts_with(lacks),
                has_function: &|name| name != lacks_function,
                refuses_functions,
            },
        )
    }

    #[test]
    fn a_kernel_with_all_tracepoints_runs_no_program_at_a_function() {
        assert_eq!(chosen("", "", None), Chosen::default());
    }

    #[test]
    fn without_its_tracepoint_a_program_is_left_out_with_a_note() {
        let chosen = chosen("io_uring_create", "", None);
        assert_eq!(chosen.left_out, BTreeSet::from(["io_uring_create"]));
        assert_eq!(chosen.notes.len(), 1, "{chosen:?}");
        assert_eq!(chosen.tier, Tier::Tracepoints);
    }

    #[test]
    fn reads_and_writes_are_seen_at_functions_where_tracepoints_are_missing() {
        let chosen = chosen("sock_", "sock_sendpage", None);
        assert_eq!(chosen.tier, Tier::Fexit);
        assert!(chosen.left_out.contains("sock_recv_length"), "{chosen:?}");
        assert!(!chosen.left_out.contains("sk_data_ready"), "{chosen:?}");
        let at = &chosen.at_functions;
        assert!(at.contains("inet_recvmsg") && at.contains("unix_stream_sendmsg"));
        assert!(!at.contains("sock_def_readable") && !at.contains("sock_sendpage"));
    }

    #[test]
    fn requests_need_all_of_it() {
        let of_requests = |chosen: &Chosen| {
            let notes = chosen.notes.iter();
            Vec::from_iter(notes.filter(|note| note.contains("requests")).cloned())
        };
        for (absent, function, refused, why) in [
            ("inet_sock", "", None, "no tracepoint inet_sock_set_state"),
            (
                "sock_recv",
                "inet6_recvmsg",
                None,
                "no function inet6_recvmsg",
            ),
            (
                "sock_recv",
                "",
                Some("it is busy"),
                "functions (it is busy)",
            ),
        ] {
            let chosen = chosen(absent, function, refused);
            assert_eq!(chosen.tier, Tier::ThreadsOnly, "{chosen:?}");
            assert!(chosen.left_out.contains("sk_data_ready"), "{chosen:?}");
            assert!(chosen.at_functions.is_empty(), "{chosen:?}");
            let notes = of_requests(&chosen);
            assert!(notes.len() == 1 && notes[0].contains(why), "{notes:?}");
        }
    }
}
