//! What threads did on a CPU in the kernel, by samples: the time of a program's calls and faults.

use std::collections::{BTreeMap, HashMap};

use whywait_events::{Sample, StackId};
use whywait_model::{Model, StackText};
use whywait_words::{percent, shares, whole_percent};

use crate::finding::Evidence;
use crate::numbers::{MIN_SAMPLES, MOST, MUCH, SHOWN, Share};

/// What a thread does in the kernel.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum KernelWork {
    /// The memory that it touches is not there yet.
    PageFault,
    /// Bytes of a call go between the program and the kernel.
    Copying(String),
    /// The rest of a call.
    Call(String),
    Other,
}

impl KernelWork {
    fn of(stack: &StackText) -> Self {
        let has = |parts: &[&str]| {
            let mut labels = stack.labels.iter();
            labels.any(|label| parts.iter().any(|part| label.name.starts_with(part)))
        };
        // A call that copies may meet memory that is not there: then that is what takes the time.
        if has(&["asm_exc_page_fault", "exc_page_fault", "handle_mm_fault"]) {
            return KernelWork::PageFault;
        }
        let Some(call) = call(stack) else {
            return KernelWork::Other;
        };
        // arch/x86/lib/copy_user_64.S, lib/iov_iter.c
        let copies = &[
            "copy_user_",
            "rep_movs_alternative",
            "_copy_from_iter",
            "_copy_to_iter",
            "_copy_from_user",
            "_copy_to_user",
            "copy_page_from_iter",
            "copy_page_to_iter",
            "copy_folio_from_iter",
            "copyin",
            "copyout",
        ];
        match has(copies) {
            true => KernelWork::Copying(call),
            false => KernelWork::Call(call),
        }
    }

    fn said(&self) -> String {
        match self {
            KernelWork::PageFault => "page faults".to_owned(),
            KernelWork::Copying(call) => format!("copying for {call}()"),
            KernelWork::Call(call) => format!("{call}()"),
            KernelWork::Other => "other work".to_owned(),
        }
    }
}

/// The system call that a kernel stack is in.
fn call(stack: &StackText) -> Option<String> {
    let mut labels = stack.labels.iter().rev();
    labels.find_map(|label| {
        let entry = ["__x64_sys_", "__se_sys_", "__do_sys_", "ksys_"];
        let name = entry
            .iter()
            .find_map(|entry| label.name.strip_prefix(entry));
        name.map(str::to_owned)
    })
}

/// How much of some samples was in the kernel, and for what.
#[derive(Debug, Default)]
pub(crate) struct InKernel {
    all: u64,
    inside: u64,
    /// The most first.
    works: Vec<(KernelWork, u64)>,
}

impl InKernel {
    /// Interrupts are the work of others.
    pub(crate) fn of<'a>(model: &Model, samples: impl Iterator<Item = &'a Sample>) -> Self {
        let mut found = Self::default();
        let mut stacks: HashMap<StackId, u64> = HashMap::new();
        for sample in samples {
            found.all = found.all.saturating_add(sample.weight());
            *stacks.entry(sample.kernel_stack).or_default() += sample.weight();
        }
        let mut works: BTreeMap<KernelWork, u64> = BTreeMap::new();
        for (id, weight) in stacks {
            let stack = model.stacks.get(id);
            if let Some(stack) = stack.filter(|_| !model.in_interrupt(id)) {
                found.inside = found.inside.saturating_add(weight);
                *works.entry(KernelWork::of(stack)).or_default() += weight;
            }
        }
        found.works = works.into_iter().collect();
        found.works.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
        found
    }

    /// What most of all the time went to, if it is in the kernel.
    fn mostly(&self) -> Option<&KernelWork> {
        let (work, weight) = self.works.first()?;
        let most = Share::new(*weight, self.all).is_at_least(*MOST) && *work != KernelWork::Other;
        (most && self.all >= *MIN_SAMPLES).then_some(work)
    }

    /// For titles: `, in the kernel, copying for write()`; empty when it is not most of it.
    pub(crate) fn place(&self) -> String {
        match self.mostly() {
            Some(KernelWork::Call(call)) => format!(", in the kernel for {call}()"),
            Some(KernelWork::PageFault) => ", in the kernel for page faults".to_owned(),
            Some(work) => format!(", in the kernel, {}", work.said()),
            None => String::new(),
        }
    }

    /// How much of it was in the kernel, where that is notable.
    pub(crate) fn evidence(&self) -> Option<Evidence> {
        let notable =
            Share::new(self.inside, self.all).is_at_least(*MUCH) && self.all >= *MIN_SAMPLES;
        let said: Vec<(String, u64)> = self
            .works
            .iter()
            .filter(|(_, weight)| whole_percent(*weight, self.all) > 0)
            .take(*SHOWN)
            .map(|(work, weight)| (work.said(), *weight))
            .collect();
        let works = said.iter().map(|(work, weight)| (work.as_str(), *weight));
        notable.then(|| {
            Evidence::new(format!(
                "{} of it in the kernel: {}",
                percent(self.inside, self.all),
                shares(works, self.all)
            ))
        })
    }

    /// What helps, where most of the time went to one thing in the kernel.
    pub(crate) fn fix(&self) -> Option<&'static str> {
        Some(match self.mostly()? {
            KernelWork::PageFault => {
                "keep memory instead of giving it back and taking it again (reuse buffers, \
                 M_MMAP_THRESHOLD and M_TRIM_THRESHOLD), touch it before requests need it, or use \
                 huge pages"
            }
            KernelWork::Copying(_) => {
                "the kernel copies what the call moves: move less, or let it move without a copy \
                 (sendfile, splice, MSG_ZEROCOPY, O_DIRECT, mmap)"
            }
            KernelWork::Call(_) | KernelWork::Other => {
                "make this call less often, several at once (writev, sendmmsg, io_uring), or off \
                 the requests' path"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use whywait_model::script::Script;

    use super::*;

    /// What is said of a thread that is sampled in these kernel stacks, 10 ms each; empty: it runs
    /// in user mode.
    fn of(stacks: &[&[&str]]) -> InKernel {
        let mut script = Script::new();
        script.thread(1, "server");
        for (at, stack) in (0u64..).zip(stacks) {
            let kernel = script.stack(stack);
            if stack.is_empty() {
                let user = script.stack(&["main", "render"]);
                script.sampled(1, user, at * 10, at * 10 + 10);
            } else {
                script.sampled_in_kernel(1, kernel, at * 10, at * 10 + 10);
            }
        }
        script.ends(1_000);
        let model = script.model();
        InKernel::of(&model, model.threads[&1].samples.iter())
    }

    const COPYING: &[&str] = &[
        "entry_SYSCALL_64_after_hwframe",
        "do_syscall_64",
        "__x64_sys_write",
        "ksys_write",
        "vfs_write",
        "copy_page_from_iter_atomic",
        "rep_movs_alternative",
    ];
    const FAULT: &[&str] = &["asm_exc_page_fault", "exc_page_fault", "clear_page_erms"];

    #[test]
    fn what_most_of_the_time_goes_to_is_named() {
        let found = of(&[COPYING, COPYING, COPYING, FAULT, &[]]);
        assert_eq!(found.place(), ", in the kernel, copying for write()");
        let said = found.evidence().expect("most of it is in the kernel").text;
        assert_eq!(
            said,
            "80 % of it in the kernel: copying for write() 60 %; page faults 20 %"
        );
        assert_eq!(
            of(&[FAULT, FAULT, &[]]).place(),
            ", in the kernel for page faults"
        );
    }

    #[test]
    fn what_is_done_in_user_mode_or_for_others_is_not_the_kernels() {
        let interrupt: &[&str] = &["do_syscall_64", "asm_sysvec_apic_timer_interrupt"];
        for stacks in [
            &[&[], &[], FAULT, &[], &[], &[]][..],
            &[interrupt, interrupt],
        ] {
            let found = of(stacks);
            assert_eq!(found.place(), "");
            assert!(found.evidence().is_none() && found.fix().is_none());
        }
    }
}
