//! What a collector is to the core: what it declares, and what it keeps while a recording lasts.

use libbpf_rs::btf::Btf;
use whywait_events::recording::WriteError;

use super::error::CaptureError;
use super::functions::Functions;
use super::incoming::Incoming;
use super::options::Options;
use super::programs::Programs;
use super::records::Record;
use super::shared::Shared;
use super::skel::types;
use super::target::Target;
use super::thread_table::ThreadTable;

/// A collector: its programs, its records, and what they need.
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
    pub(crate) before: CollectorStep,
    pub(crate) after: CollectorStep,
    /// The records that it takes.
    pub(crate) takes: &'static [types::record_type],
    /// Makes what it keeps of a recording of this target.
    pub(crate) keeper: fn(&Target) -> Box<dyn Keeper>,
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
        takes: &[],
        keeper: |_| Box::new(Nothing),
    };
}

/// What a collector keeps while a recording lasts. All that it does is left out by default.
pub(crate) trait Keeper {
    /// Takes one of the records that the collector declares.
    fn take(&mut self, _: Record, shared: &mut Shared) -> Result<(), WriteError> {
        shared.refuse();
        Ok(())
    }

    /// The hooks were attached: what runs besides them begins.
    fn start(&mut self, _: &mut Programs, _: &Options) -> Result<(), CaptureError> {
        Ok(())
    }

    /// Nothing more is to be seen: what runs besides the hooks ends. It may begin again.
    fn stop(&mut self) {}

    /// A turn begins: the rings are not emptied yet.
    fn before_turn(&mut self, _: &mut Programs) {}

    /// A turn begins, and samples are wanted as often as there can be, or not.
    fn pace(&mut self, _: &mut Programs, _dense: bool) {}

    /// All records that came were taken, but for samples.
    fn turn(&mut self, _: &mut Programs, _: &mut Shared) -> Result<(), CaptureError> {
        Ok(())
    }

    /// All records that came were taken: records what the kernel tells only when it is asked, as
    /// far as that is due. Says whether it took so long that more have come.
    fn ask(&mut self, _: &mut Programs, _: &mut Asking<'_>) -> Result<bool, CaptureError> {
        Ok(false)
    }

    /// Records what it finds when it looks: when the recording begins, when a segment may be closed
    /// and in the end, as the stage says.
    fn look(&mut self, _: &mut Programs, _: &mut Shared) -> Result<(), CaptureError> {
        Ok(())
    }

    /// The recording ends, and hooks still run.
    fn close(&mut self, _: &mut Programs) -> Result<(), CaptureError> {
        Ok(())
    }

    /// No hook runs any more, and all records were taken: writes what is left.
    fn finish(
        &mut self,
        _: &mut Programs,
        _: &ThreadTable,
        _: &mut Shared,
    ) -> Result<(), CaptureError> {
        Ok(())
    }

    /// The counters of the recording that it has, by name.
    fn counters(&mut self, _: &Programs) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// Whether it wants frequent samples and no long pauses.
    fn is_urgent(&self, _: &Programs) -> bool {
        false
    }
}

/// What a collector has when it asks the kernel.
pub(crate) struct Asking<'a> {
    pub(crate) shared: &'a mut Shared,
    pub(crate) threads: &'a ThreadTable,
    /// To be kept up with meanwhile.
    pub(crate) incoming: &'a Incoming,
    /// The recording ends: all that can be asked is due.
    pub(crate) last: bool,
}

struct Nothing;

impl Keeper for Nothing {}

/// Of a collector that keeps nothing: how each of its records becomes a row.
pub(crate) struct Decodes(pub(crate) fn(Record, &mut Shared) -> Result<(), WriteError>);

impl Keeper for Decodes {
    fn take(&mut self, record: Record, shared: &mut Shared) -> Result<(), WriteError> {
        (self.0)(record, shared)
    }
}

/// A program at a tracepoint.
pub(crate) struct Hook {
    pub(crate) tracepoint: &'static str,
    pub(crate) program: &'static str,
    /// What a recording lacks where the kernel has no such tracepoint. `None`: every kernel that is
    /// supported has it.
    pub(crate) without: Option<&'static str>,
    /// Functions of the kernel at which programs of the same names see the same, where it has no
    /// such tracepoint; empty: there are none.
    pub(crate) functions: &'static [HookFunction],
}

/// A function of the kernel at which a program of the same name runs.
#[derive(Debug)]
pub(crate) struct HookFunction {
    pub(crate) name: &'static str,
    /// A kernel without it does what it did by way of the others.
    pub(crate) may_be_absent: bool,
}

impl HookFunction {
    pub(crate) const fn always(name: &'static str) -> Self {
        Self {
            name,
            may_be_absent: false,
        }
    }

    pub(crate) const fn at_times(name: &'static str) -> Self {
        Self {
            name,
            may_be_absent: true,
        }
    }
}

impl Hook {
    /// The program of the same name, at a tracepoint that every kernel has.
    pub(crate) const fn always(tracepoint: &'static str) -> Self {
        Self {
            tracepoint,
            program: tracepoint,
            without: None,
            functions: &[],
        }
    }

    /// The program of the same name, at a tracepoint that not every kernel has.
    pub(crate) const fn or(tracepoint: &'static str, without: &'static str) -> Self {
        Self {
            tracepoint,
            program: tracepoint,
            without: Some(without),
            functions: &[],
        }
    }

    /// The same, which has programs at functions instead.
    pub(crate) const fn or_at(self, functions: &'static [HookFunction]) -> Self {
        Self { functions, ..self }
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

type CollectorStep = fn(&mut Programs, &Target) -> Result<(), CaptureError>;
