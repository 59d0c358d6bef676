//! What a recording lacks: what was lost, cut off or cannot be read, and what may rest on it.

use schemars::JsonSchema;
use serde::Serialize;
use whywait_events::recording::CUT_SHORT;
use whywait_words::{count, counted_as};

use crate::coverage::Coverage;
use crate::model::Model;

/// Losses below one in so many events leave every figure as it is, for what a report shows.
const HARMLESS_SHARE: u64 = 1000;
/// Damages that are named one by one.
const DAMAGES_SHOWN: usize = 5;
/// What is said of a full disk ([`whywait_events::recording::WriteError::DiskFull`]).
const DISK_FULL: &str = "the disk is full";

/// What a recording lacks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Incomplete {
    /// Whether a finding may be missing for it, or its figures too small. If not, too little is
    /// lost, or it is only that the recording ended early.
    pub matters: bool,
    /// The same in a line.
    pub what: String,
    /// Each thing that it lacks, and what may rest on that. Hostile: names of files.
    pub lacks: Vec<Lack>,
    /// What to do about it.
    pub remedy: String,
}

/// Something that a recording lacks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Lack {
    /// What was lost, cut off or cannot be read.
    pub what: String,
    /// Which conclusions may rest on it.
    pub affects: String,
}

impl Model {
    /// What the recording lacks; `None`: nothing.
    pub(crate) fn incomplete(&self, coverage: &Coverage) -> Option<Incomplete> {
        let why = self.cut_short();
        let lost = coverage.lost_by_reason.iter().map(|(reason, n)| Lack {
            what: format!("lost, {reason}: {}", count(*n)),
            affects: affected(reason).to_owned(),
        });
        let damaged = self.damaged.iter().take(DAMAGES_SHOWN).map(|damage| Lack {
            what: format!("damaged: {damage}"),
            affects: "what it held is left out: findings may be missing".to_owned(),
        });
        let unfinished = (!self.meta.complete).then(|| Lack {
            what: match why {
                Some(why) => format!("the recording was cut off: {why}"),
                None => {
                    "the recording was not finished: it was cut off, or is still being made".into()
                }
            },
            affects: "all but its end is there; names of functions in files may be missing"
                .to_owned(),
        });
        let lacks: Vec<Lack> = lost.chain(damaged).chain(unfinished).collect();
        if lacks.is_empty() {
            return None;
        }
        let full = why.is_some_and(|why| why.contains(DISK_FULL));
        let matters = coverage.lost.saturating_mul(HARMLESS_SHARE) > coverage.events
            || !self.damaged.is_empty();
        let what = match (coverage.lost, self.meta.complete) {
            (0, true) => "parts of the recording cannot be read: findings may be missing".into(),
            (0, false) if full => {
                "the recording was cut off because the disk was full: what came after is missing"
                    .into()
            }
            (0, false) => "the recording was cut off: its last seconds are missing".into(),
            (lost, _) => {
                let lost = counted_as(lost, "event was lost", "events were lost");
                match matters {
                    true => format!("{lost}: findings may be missing, and figures too small"),
                    false => format!("{lost}, too few to change what is said here"),
                }
            }
        };
        let remedy = match full {
            true => {
                "free some space, or record to another disk; a higher --threshold makes recordings \
                 smaller"
            }
            false => {
                "record again: for a shorter time, or with a higher --threshold when events were \
                 lost"
            }
        };
        Some(Incomplete {
            matters,
            what,
            lacks,
            remedy: remedy.to_owned(),
        })
    }

    /// Why the recording ended before its time, as far as whywait could say.
    fn cut_short(&self) -> Option<&str> {
        let mut notes = self.meta.notes.iter();
        notes.find_map(|note| note.strip_prefix(CUT_SHORT))
    }
}

/// What may rest on what was lost for that reason. Sums over all requests never do.
fn affected(reason: &str) -> &'static str {
    match reason {
        "ring-full" => {
            "single waits, requests and calls may be missing, findings with them; savings may be \
             too small"
        }
        "stack-ring-full" => "functions may be missing, or have too small a share",
        "wait-budget" => "single long waits may be missing, and findings with them",
        "thread-storage" => "of some threads nothing is known",
        "socket-storage" => "requests on some connections are in no figure",
        "futexes" => "short sleeps on some futex words are missing from the table of waits",
        "streams" => "some streams of HTTP/2 are in no figure",
        "call-streams" => "some calls over HTTP/2 are in no figure",
        "rings" => "of some io_uring rings nothing is known",
        "ring-ops" => "single io_uring operations may be missing",
        "calls" => "why a thread polls in vain may be missing",
        "held-locks" => "a deadlock may be missing",
        "file-names" | "over-memory" => {
            "functions may lack names, or have shortened ones, and stacks may be cut short"
        }
        "rows-left-out-of-analysis" => {
            "critical paths and what explains them may have gaps, and savings may be too small"
        }
        _ => "findings may be missing, or their figures too small",
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use whywait_events::recording::WriteError;

    use super::*;
    use crate::script::Script;

    fn incomplete(model: &Model) -> Option<Incomplete> {
        model.coverage().incomplete
    }

    #[test]
    fn a_whole_recording_lacks_nothing() {
        let model = Script::new().counter("lost.ring-full", 0).model();
        assert_eq!(incomplete(&model), None);
    }

    #[test]
    fn findings_do_not_rest_on_the_end_of_one_that_was_cut_off() {
        let incomplete = incomplete(&Script::new().cut_off().model()).unwrap();
        assert!(!incomplete.matters);
        assert!(incomplete.what.contains("cut off"), "{incomplete:?}");
    }

    #[test]
    fn a_full_disk_is_called_that() {
        let path = PathBuf::from("/recording/seg-000002");
        let error = WriteError::DiskFull { path };
        let notes = vec!["another".to_owned(), format!("{CUT_SHORT}{error}")];
        let mut script = Script::new();
        let script = script
            .cut_off()
            .recorded(|recorded| recorded.meta.notes = notes);
        let incomplete = incomplete(&script.model()).unwrap();
        assert!(incomplete.what.contains("the disk was full"));
        assert!(incomplete.lacks[0].what.contains("/recording/seg-000002"));
        assert!(incomplete.remedy.contains("another disk"));
    }

    #[test]
    fn losses_matter_when_they_are_not_few() {
        let lost = |n| {
            let mut script = Script::new();
            script.counter("events", 1_000).counter("lost.ring-full", n);
            incomplete(&script.model()).unwrap()
        };
        assert!(!lost(1).matters && lost(2).matters);
        assert_eq!(lost(10).lacks[0].what, "lost, ring-full: 10");
        assert!(lost(10).lacks[0].affects.contains("requests"));
    }

    #[test]
    fn damage_always_matters() {
        let damaged = vec!["seg-000001/waits.parquet: no table".to_owned()];
        let mut script = Script::new();
        script.recorded(|recorded| recorded.damaged = damaged);
        let incomplete = incomplete(&script.model()).unwrap();
        assert!(incomplete.matters);
        assert!(incomplete.lacks[0].what.starts_with("damaged: seg-000001"));
    }
}
