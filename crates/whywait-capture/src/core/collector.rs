//! What a collector tells the core of itself. What becomes of its records is said by
//! [`crate::core::recorder::Recorder::take`].

use libbpf_rs::btf::Btf;

use super::error::CaptureError;
use super::functions::Functions;
use super::options::Options;
use super::programs::Programs;
use super::recorder::Recorder;
use super::skel::types;

/// A collector: its programs, and what they need.
pub(crate) struct Collector {
    /// Its programs at tracepoints.
    pub(crate) hooks: &'static [Hook],
    /// It is of use with all of its hooks only.
    pub(crate) all_or_none: bool,
    /// Its hooks are attached when it asks for that, and not for the whole session.
    pub(crate) on_demand: bool,
    /// Sets the variables of BPF by which its programs know the kernel and what is wanted.
    pub(crate) configure: fn(&mut Configuration<'_>),
    /// What is done before its hooks are attached, and after, such as to take in what was there
    /// before whywait.
    pub(crate) before: Step,
    pub(crate) after: Step,
    /// Records what it finds when it looks: when the recording begins, when a segment is closed and
    /// in the end.
    pub(crate) look: Look,
    /// The counters of the recording that its maps hold, by name.
    pub(crate) counters: fn(&Programs) -> Vec<(String, u64)>,
}

impl Collector {
    /// One that has nothing.
    pub(crate) const NONE: Self = Self {
        hooks: &[],
        all_or_none: false,
        on_demand: false,
        configure: |_| {},
        before: |_, _| Ok(()),
        after: |_, _| Ok(()),
        look: |_, _| Ok(()),
        counters: |_| Vec::new(),
    };
}

/// A program at a tracepoint.
pub(crate) struct Hook {
    pub(crate) tracepoint: &'static str,
    pub(crate) program: &'static str,
    /// What a recording lacks where the kernel has no such tracepoint. `None`: every kernel that is
    /// supported has it.
    pub(crate) without: Option<&'static str>,
}

impl Hook {
    /// The program of the same name, at a tracepoint that every kernel has.
    pub(crate) const fn always(tracepoint: &'static str) -> Self {
        Self {
            tracepoint,
            program: tracepoint,
            without: None,
        }
    }

    /// The program of the same name, at a tracepoint that not every kernel has.
    pub(crate) const fn or(tracepoint: &'static str, without: &'static str) -> Self {
        Self {
            tracepoint,
            program: tracepoint,
            without: Some(without),
        }
    }
}

/// What a collector sets before the programs are loaded.
pub(crate) struct Configuration<'a> {
    /// The kernel's types.
    pub(crate) kernel: &'a Btf<'a>,
    /// What it has the programs call.
    pub(crate) functions: &'a Functions,
    pub(crate) options: &'a Options,
    pub(crate) variables: &'a mut types::rodata,
    /// What this kernel cannot give, for the recording.
    pub(crate) notes: &'a mut Vec<String>,
}

type Step = fn(&mut Programs, pid: u32) -> Result<(), CaptureError>;
type Look = fn(&Programs, &mut Recorder) -> Result<(), CaptureError>;
