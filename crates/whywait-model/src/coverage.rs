//! What a report is about, and what it rests on.
//!
//! The field names are those of the JSON report (schema 1).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use whywait_words::without_secrets;

use crate::incomplete::Incomplete;
use crate::model::Model;
use crate::stops::Stopped;

/// What was watched.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct Target {
    /// Process id of the launched command or of the process that was attached to.
    pub pid: u32,
    /// Its number in its own PID namespace, as in a container; absent: it has no other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inner_pid: Option<u32>,
    /// Command line, hostile. What looks like a secret is masked.
    pub command: String,
    /// The machine's name; absent: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// How long it was watched.
    pub duration_ns: u64,
    /// How many threads of it were seen.
    pub threads: u32,
    /// For how long it was stopped from outside, by a signal, a debugger or its cgroup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
}

/// What the report rests on.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct Coverage {
    /// Kernel events that were handled for the target.
    pub events: u64,
    /// Things lost, for any reason.
    pub lost: u64,
    /// The same by reason; only reasons that occurred.
    pub lost_by_reason: BTreeMap<String, u64>,
    /// Sleeps, short ones too, whose wake was not seen.
    pub unmatched_wakes: u64,
    /// What of the slow requests' time is unknown as it was spent in such sleeps.
    #[serde(skip_serializing_if = "is_zero")]
    pub unmatched_wakes_ns: u64,
    /// Connections on which something was written long after the last response, just before they
    /// ended: not counted as part of it.
    #[serde(skip_serializing_if = "is_zero")]
    pub farewells: u64,
    /// Share of the distinct frames that have a name; `None` without frames.
    pub frames_symbolised: Option<f64>,
    /// Stacks whose unwinding ended before the thread's start.
    pub truncated_stacks: u64,
    /// Long waits that ended.
    pub waits: u64,
    /// Those of them without a user stack.
    pub waits_without_stack: u64,
    /// Critical paths of slow requests that were too long to be followed to their beginning.
    pub truncated_paths: u64,
    /// Slow calls of other services that were only counted, as there were too many for a row each:
    /// any request may have made them.
    #[serde(skip_serializing_if = "is_zero")]
    pub calls_without_row: u64,
    /// How often all system calls were traced for a moment.
    #[serde(skip_serializing_if = "is_zero")]
    pub bursts: u64,
    /// … and how long altogether, nanoseconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub traced_ns: u64,
    /// How long threads of the target stood on a CPU that the virtual machine's host had taken
    /// away, nanoseconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub stolen_ns: u64,
    /// `waits` or `full`.
    pub tier: String,
    /// Whether the recording was finished (and not cut off, or damaged).
    pub complete: bool,
    /// What was lost, cut off or cannot be read, and what may rest on it; absent: nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<Incomplete>,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl Model {
    /// What was watched.
    pub fn target(&self) -> Target {
        Target {
            pid: self.meta.pid.unwrap_or(0),
            inner_pid: self.meta.inner_pid,
            command: without_secrets(&self.meta.command).join(" "),
            host: Some(self.meta.host.hostname.clone()).filter(|name| !name.is_empty()),
            duration_ns: self.end_ns.saturating_sub(self.meta.started_ns),
            threads: self.threads.len() as u32,
            stopped: self.stopped(),
        }
    }

    /// What the report rests on.
    pub fn coverage(&self) -> Coverage {
        let mut lost_by_reason: BTreeMap<String, u64> = self
            .counters
            .iter()
            .filter(|(name, value)| **value > 0 && name.starts_with("lost."))
            .map(|(name, value)| (name["lost.".len()..].to_owned(), *value))
            .collect();
        if self.left_out > 0 {
            lost_by_reason.insert("rows-left-out-of-analysis".to_owned(), self.left_out);
        }
        let mut coverage = Coverage {
            events: self.counters.get("events").copied().unwrap_or(0),
            lost: lost_by_reason
                .values()
                .copied()
                .fold(0, u64::saturating_add),
            lost_by_reason,
            unmatched_wakes: self.counters.get("unmatched-wakes").copied().unwrap_or(0),
            unmatched_wakes_ns: self.unmatched_wakes_ns(),
            farewells: self
                .counters
                .get("requests.farewells")
                .copied()
                .unwrap_or(0),
            frames_symbolised: self.stacks.named_share(),
            truncated_stacks: self.stacks.truncated(),
            waits: self.counters.get("waits.ended").copied().unwrap_or(0),
            waits_without_stack: self
                .counters
                .get("waits.without-stack")
                .copied()
                .unwrap_or(0),
            truncated_paths: self.truncated_paths(),
            calls_without_row: self.calls_without_row(),
            bursts: self.counters.get("bursts.count").copied().unwrap_or(0),
            traced_ns: self.counters.get("bursts.traced-ns").copied().unwrap_or(0),
            stolen_ns: self.counters.get("cpu.stolen-ns").copied().unwrap_or(0),
            tier: if self.meta.options.detail.is_empty() {
                "waits".to_owned()
            } else {
                self.meta.options.detail.clone()
            },
            complete: self.meta.complete && self.damaged.is_empty(),
            incomplete: None,
        };
        coverage.incomplete = self.incomplete(&coverage);
        coverage
    }
}
