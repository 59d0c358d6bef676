//! Functions of the kernel that the programs call by name. A kernel may lack one, and one may stand
//! in its BTF all the same and be refused: Linux 7.0 gives some another form. So what can be called
//! is found out by loading.

use std::collections::BTreeSet;

use libbpf_rs::btf::Btf;

use super::error::CaptureError;
use super::kernel;
use super::limits::Refusal;
use super::skel::DATA;

/// A function of the kernel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    /// What is different where it cannot be called.
    without: &'static str,
}

const LATE_STACKS: &str = "a wait has a user stack from 1 ms on only where a thread of the same \
                           process ends it or it reads a socket, others from some 4 to 14 ms on";

/// All of them. Where a kernel refuses one, the first is left out first.
pub(crate) const ALL: [Function; 3] = [
    Function {
        name: "bpf_task_work_schedule_resume_impl",
        without: LATE_STACKS,
    },
    Function {
        name: "bpf_task_work_schedule_resume",
        without: LATE_STACKS,
    },
    Function {
        name: "bpf_rdonly_cast",
        without: "whywait's hooks take longer",
    },
];

/// By either of these a thread leaves its stack on its way out of the kernel.
const LEAVE_STACKS: [&str; 2] = [ALL[0].name, ALL[1].name];

/// Which of [`ALL`] the programs are to call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Functions {
    /// Those that the kernel's BTF has.
    known: BTreeSet<&'static str>,
    /// Those of them that are not called.
    left_out: BTreeSet<&'static str>,
    /// For tests: those that are refused.
    refused: BTreeSet<&'static str>,
}

impl Functions {
    pub(crate) fn of(btf: &Btf<'_>, refused: &[&'static str]) -> Self {
        let known = |name: &&str| kernel::has_function(btf, name);
        Self {
            known: ALL.iter().map(|it| it.name).filter(known).collect(),
            left_out: BTreeSet::new(),
            refused: refused.iter().copied().collect(),
        }
    }

    /// Calls `load` with all of them, and where the kernel refuses that, with ever fewer.
    pub(crate) fn load<T>(
        &self,
        mut load: impl FnMut(&Self) -> Result<T, CaptureError>,
    ) -> Result<T, CaptureError> {
        let known: Vec<_> = ALL
            .iter()
            .filter(|it| self.known.contains(it.name))
            .collect();
        let mut choices: Vec<u32> = (0..1 << known.len()).collect();
        choices.sort_by_key(|choice| choice.count_ones());
        let mut first = None;
        for choice in choices {
            let mut chosen = self.clone();
            let out = known.iter().enumerate();
            let out = out.filter(|(bit, _)| choice >> bit & 1 == 1);
            chosen.left_out = out.map(|(_, function)| function.name).collect();
            match load(&chosen) {
                Err(error) if may_be_a_functions(&error) => first.get_or_insert(error),
                other => return other,
            };
        }
        Err(first.expect("there is at least one choice"))
    }

    fn called(&self) -> impl Iterator<Item = &'static str> {
        self.known.difference(&self.left_out).copied()
    }

    /// Whether a thread can leave its stack on its way out of the kernel (Linux 6.18).
    pub(crate) fn leave_user_stacks(&self) -> bool {
        self.called().any(|name| LEAVE_STACKS.contains(&name))
    }

    /// The object, if it is another than the compiled one: it knows functions that are not to be
    /// called by a name that no kernel has. What the kernel does not have is no call to its
    /// verifier.
    pub(crate) fn object(&self) -> Option<&'static [u8]> {
        let unnamed: BTreeSet<_> = self.left_out.union(&self.refused).collect();
        let object = unnamed.into_iter().fold(None, |object, name| {
            Some(unname(object.unwrap_or_else(|| DATA.to_vec()), name))
        });
        // For the life of the process, as the skeleton that borrows from it.
        object.map(|object| &*Box::leak(object.into_boxed_slice()))
    }

    /// What came of it, for `whywait check`.
    pub(crate) fn said(&self) -> String {
        let called: Vec<_> = self
            .called()
            .filter(|name| !self.refused.contains(name))
            .collect();
        if called.is_empty() {
            return "none that whywait could use can be called: it takes more time".to_owned();
        }
        format!("{} can be called", called.join(" and "))
    }

    /// What a recording lacks because the kernel has no such function, or refuses what it seems to
    /// have.
    pub(crate) fn notes(&self) -> Vec<String> {
        let refused = ALL.iter().filter(|it| self.left_out.contains(it.name));
        let refused = refused
            .filter(|it| it.without != LATE_STACKS || !self.leave_user_stacks())
            .map(|Function { name, without }| {
                format!("this kernel has {name} and refuses a call of it: {without}")
            });
        let unknown = LEAVE_STACKS.iter().all(|name| !self.known.contains(name));
        let late = unknown.then(|| format!("before Linux 6.18 {LATE_STACKS}"));
        refused.chain(late).collect()
    }
}

/// Whether it may come from the verifier.
fn may_be_a_functions(error: &CaptureError) -> bool {
    matches!(
        error,
        CaptureError::Load { .. } | CaptureError::NotPermitted(Refusal::Seccomp)
    )
}

/// Gives a function another name of the same length, in the object's symbols and in its BTF.
fn unname(mut object: Vec<u8>, name: &str) -> Vec<u8> {
    let old = [b"\0", name.as_bytes(), b"\0"].concat();
    let mut at = 0;
    while let Some(found) = find(&object[at..], &old) {
        at += found + name.len();
        object[at] = b'0';
    }
    object
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|it| it == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Functions {
        Functions {
            known: ALL.iter().map(|it| it.name).collect(),
            ..Functions::default()
        }
    }

    fn refusal() -> CaptureError {
        CaptureError::Load {
            reason: "Invalid argument (os error 22)".to_owned(),
            refused: None,
        }
    }

    /// What is loaded on a kernel that knows all functions and refuses these.
    fn where_refused(refused: &[&str]) -> Result<Functions, CaptureError> {
        all().load(
            |functions| match functions.called().find(|it| refused.contains(it)) {
                Some(_) => Err(refusal()),
                None => Ok(functions.clone()),
            },
        )
    }

    #[test]
    fn only_what_the_kernel_refuses_is_left_out() {
        let [old, new, cast] = [0, 1, 2].map(|at: usize| ALL[at].name);
        for (refused, leave_stacks, notes) in [
            (vec![], true, 0),
            (vec![old], true, 0),
            (vec![new], true, 0),
            (vec![cast], true, 1),
            (vec![old, cast], true, 1),
            (vec![old, new], false, 2),
            (vec![old, new, cast], false, 3),
        ] {
            let loaded = where_refused(&refused).expect("something is left");
            assert_eq!(loaded.left_out, refused.iter().copied().collect());
            assert_eq!(loaded.leave_user_stacks(), leave_stacks, "{refused:?}");
            assert_eq!(loaded.notes().len(), notes, "{:?}", loaded.notes());
        }
    }

    #[test]
    fn an_older_kernel_says_which_waits_have_a_stack() {
        let notes = Functions::default().notes();
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].contains("Linux 6.18"), "{notes:?}");
    }

    #[test]
    fn what_is_refused_for_another_reason_is_tried_once() {
        let mut tries = 0;
        let error = all().load(|_| -> Result<(), _> {
            tries += 1;
            Err(CaptureError::NotPermitted(Refusal::NotRoot))
        });
        assert!(matches!(error, Err(CaptureError::NotPermitted(_))));
        assert_eq!(tries, 1);
        let error = all().load(|_| -> Result<(), _> { Err(refusal()) });
        assert!(matches!(error, Err(CaptureError::Load { .. })));
    }

    #[test]
    fn the_object_does_not_name_what_is_not_to_be_called() {
        let named = |object: &[u8], name: &str| {
            find(object, &[b"\0", name.as_bytes(), b"\0"].concat()).is_some()
        };
        assert_eq!(all().object(), None);
        for function in ALL {
            assert!(named(&DATA, function.name), "{}", function.name);
            let mut functions = all();
            functions.left_out.insert(function.name);
            let object = functions.object().expect("another object");
            assert_eq!(object.len(), DATA.len());
            for other in ALL {
                assert_eq!(named(object, other.name), other.name != function.name);
            }
        }
    }
}
