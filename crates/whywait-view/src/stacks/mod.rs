//! Stacks with the time that was spent in them: what flame graphs, folded stacks and profiles have
//! in common.

mod collect;
mod tree;

use whywait_events::StackId;
use whywait_model::{FrameOrigin, Label, Model, origin};
use whywait_report::text::sentences;

pub(crate) use tree::ROOT;
pub use tree::{Node, Tree};

/// Which time is shown by stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// The critical paths of slow requests: their waits and their work. Sums to these requests'
    /// latencies.
    Critical,
    /// All waits of all threads, idle ones too.
    Waits,
    /// CPU time, by samples.
    Cpu,
}

impl Of {
    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Of::Critical => "critical",
            Of::Waits => "waits",
            Of::Cpu => "cpu",
        }
    }

    /// What a picture of it is called.
    pub const fn title(self) -> &'static str {
        match self {
            Of::Critical => "Slow requests' critical paths",
            Of::Waits => "All waits",
            Of::Cpu => "CPU time",
        }
    }
}

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FrameKind {
    /// A role: threads that do the same.
    Thread,
    /// A function of the application.
    App,
    /// A function of a language's runtime.
    Runtime,
    /// A function of the C library.
    System,
    /// A function of the kernel.
    Kernel,
    /// What the time was: a part's name, or `ready-unserved`; for waits their class.
    State(&'static str),
    /// Who held the lock meanwhile.
    Holder,
}

/// A frame of a stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackedFrame {
    /// Its name. Hostile.
    pub name: String,
    /// What it is.
    pub kind: FrameKind,
    /// Source file, empty when unknown. Hostile.
    pub file: String,
    /// Line, 0 when unknown.
    pub line: u32,
}

impl StackedFrame {
    /// A frame that is no function.
    pub(crate) fn new(kind: FrameKind, name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            kind,
            file: String::new(),
            line: 0,
        }
    }

    fn of_label(label: &Label) -> Self {
        Self {
            name: label.shown(),
            kind: match origin(label) {
                FrameOrigin::App => FrameKind::App,
                FrameOrigin::Runtime => FrameKind::Runtime,
                FrameOrigin::System => FrameKind::System,
            },
            file: label.file.to_string(),
            line: label.line,
        }
    }
}

/// The stacks of a recording with their time.
pub fn tree(model: &Model, of: Of) -> Tree {
    let mut collector = collect::TreeBuilder::new(model);
    match of {
        Of::Critical => collector.critical(),
        Of::Waits => collector.waits(),
        Of::Cpu => collector.cpu(),
    }
    collector.into_tree()
}

/// The functions of a stack, outermost first; none for 0.
fn functions(model: &Model, stack: StackId) -> Vec<StackedFrame> {
    let labels = model.stacks.get(stack).into_iter();
    let mut frames: Vec<StackedFrame> = labels
        .flat_map(|text| text.shown())
        .map(StackedFrame::of_label)
        .collect();
    frames.reverse();
    frames
}

/// The functions of a kernel stack that show what happened, outermost first.
fn kernel_functions(model: &Model, stack: StackId) -> Vec<StackedFrame> {
    const MAX_KERNEL: usize = 12;
    let names = model.stacks.names(stack);
    let (telling, _) = sentences::telling_kernel(&names, MAX_KERNEL);
    let frames = telling.into_iter().rev();
    frames
        .map(|name| StackedFrame::new(FrameKind::Kernel, name))
        .collect()
}
