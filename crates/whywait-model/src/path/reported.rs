//! A critical path as reports show it.

use schemars::JsonSchema;
use serde::Serialize;

use crate::model::Model;
use crate::path::PathStep;
use crate::requests::RequestRef;

/// One step of a critical path.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Step {
    /// What the time was: `ready-unserved` (before a thread read it) or the name of a part
    /// (`on-cpu`, `timer`, …).
    pub state: String,
    /// The thread it is about, 0 when none.
    pub tid: u32,
    /// The thread's name, hostile.
    pub thread: String,
    /// How long.
    pub ns: u64,
    /// What it was in: the innermost function of the application, or else the innermost one.
    /// Hostile.
    pub function: Option<String>,
    /// Function names, innermost first; empty when no stack was taken. Hostile.
    pub stack: Vec<String>,
    /// The thread that ended the wait, if one did.
    pub woken_by: Option<u32>,
    /// Its name, as far as it is known. Hostile. For views.
    #[serde(skip)]
    pub waker: Option<String>,
    /// What a sleep was for, by the kernel's stack: `fsync (journal commit)`.
    pub kind: Option<String>,
    /// The peer whose reply a sleep was for, where that is certain. Hostile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Kernel functions of a sleep, innermost first; empty when no stack was taken.
    pub kernel: Vec<String>,
    /// For a wait for a lock: what the thread that held it did meanwhile.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub meanwhile: Vec<Step>,
}

impl RequestRef<'_> {
    /// Its critical path for reports, from arrival to response.
    pub(crate) fn steps(self) -> Vec<Step> {
        let path = self.path();
        path.steps
            .iter()
            .map(|step| self.model().step(step))
            .collect()
    }
}

impl Model {
    fn step(&self, step: &PathStep) -> Step {
        Step {
            state: step.state.to_owned(),
            tid: step.tid,
            thread: if step.tid == 0 {
                String::new()
            } else {
                self.thread_name(step.tid).to_owned()
            },
            ns: step.ns(),
            function: self.stacks.telling(step.stack),
            stack: self.stacks.names(step.stack),
            woken_by: (step.woken_by != 0).then_some(step.woken_by),
            waker: Some(self.thread_name(step.woken_by))
                .filter(|name| *name != "?")
                .map(str::to_owned),
            kind: step.kind.map(|kind| kind.name.to_owned()),
            peer: self.peer_of_step(step).map(|peer| peer.to_string()),
            kernel: self.stacks.names(step.kernel_stack),
            meanwhile: step.meanwhile.iter().map(|step| self.step(step)).collect(),
        }
    }
}
