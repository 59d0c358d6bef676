//! What one recording's analysis gives, under names that mean the same in another recording:
//! objects are named by the role of their thread and by the function that waits or runs, never by
//! an address, a descriptor or a thread number.
//!
//! A new kind of measure is a file next to this one, a line in [`COLLECTORS`] and, if budgets may
//! name it, one in `catalogue.rs`.

mod calls;
pub mod catalogue;
mod cpu;
mod findings;
mod names;
mod paths;
mod requests;
mod rings;
pub(crate) mod routes;
mod spinning;
mod waits;

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use whywait_events::Sample;
use whywait_events::recording::{ReadError, Recording};
use whywait_findings::{Facts, Finding};
use whywait_model::{Input, Model};

pub use findings::Found;
pub(crate) use requests::is_of_requests;

/// What kind of thing a measure is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// What users and operators of the server feel: latency, throughput, CPU per request. Changes
    /// for the worse are regressions.
    Headline,
    /// A rate or share from some section of the analysis, such as futile wake-ups a second.
    /// Like a headline.
    Section,
    /// A finding's severity, 0 where there is none. New findings above note are regressions.
    Finding,
    /// A part of the requests' time. Says why a headline changed.
    Part,
    /// A part of slow requests' time, by thread role and function.
    Path,
    /// Waits on slow requests' critical paths, by what was waited for.
    Wait,
    /// The time of slow requests, by what they are called, for each request of all.
    Route,
    /// CPU time, by thread role and function.
    Function,
}

/// What a measure's value counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// How often a second.
    PerSecond,
    /// A number of things.
    Count,
    /// A share, 0 to 1.
    Share,
    /// 0: none, 1: note, 2: warning, 3: error.
    Severity,
}

/// Which direction is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Better {
    Less,
    More,
    Neither,
}

/// What a measure is about, for views. Empty: not about one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Subject {
    /// The part of a request's time, or a finding's code.
    pub part: String,
    /// The role of the thread: its name without what numbers it. Hostile.
    pub thread: String,
    /// The function. Hostile.
    pub function: String,
    /// What was waited for: `lock`, `fsync`. Hostile.
    pub what: String,
}

/// A measured value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// What kind of thing it is about.
    pub group: Group,
    /// What it counts.
    pub unit: Unit,
    /// Which direction is good.
    pub better: Better,
    /// The value; where only bounds are known, the lower one.
    pub value: f64,
    /// The upper bound, where only bounds are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    /// What it is about.
    #[serde(default)]
    pub subject: Subject,
    /// The stack in which most of it was, innermost first, the first [`MAX_FRAMES`]. Hostile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stack: Vec<String>,
}

/// Frames of a stack that are kept.
pub const MAX_FRAMES: usize = 12;

impl Measure {
    /// A value that is about no one thing.
    pub fn new(group: Group, unit: Unit, better: Better, value: f64) -> Self {
        Self {
            group,
            unit,
            better,
            value,
            at_most: None,
            subject: Subject::default(),
            stack: Vec::new(),
        }
    }

    fn about(self, subject: Subject) -> Self {
        Self { subject, ..self }
    }
}

/// Which machine, which command, for how long.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct About {
    /// The version of whywait that recorded.
    pub whywait: String,
    /// Host name. Hostile.
    pub host: String,
    /// Kernel release. Hostile.
    pub kernel: String,
    /// Online CPUs.
    pub cpus: u32,
    /// Command line. Hostile.
    pub command: String,
    /// How long it was watched, nanoseconds.
    pub duration_ns: u64,
    /// Requests that were answered.
    pub requests: u64,
    /// From this length on requests and waits were recorded one by one, nanoseconds.
    pub threshold_ns: u64,
}

/// What one recording's analysis gives.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    /// Names the run: the recording's path. Hostile.
    pub name: String,
    /// What was recorded.
    pub about: About,
    /// By name.
    pub measures: BTreeMap<String, Measure>,
    /// What was found.
    pub findings: Vec<Found>,
    /// What is missing from the recording, in words; empty: nothing that matters. Hostile.
    pub missing: Vec<String>,
    /// Whether requests could not be told apart: nothing of them is measured.
    pub untold: bool,
    /// Whether slow requests have names, if there are any.
    pub has_routes: bool,
}

/// Who adds measures.
const COLLECTORS: [fn(&MeasureSource<'_>, &mut Run); 9] = [
    requests::collect,
    paths::collect,
    waits::collect,
    cpu::collect,
    calls::collect,
    routes::collect,
    findings::collect,
    rings::collect,
    spinning::collect,
];

/// What collectors have to draw from.
pub(crate) struct MeasureSource<'a> {
    /// The analysis.
    pub(crate) model: &'a Model,
    /// Answered requests; none where they cannot be told apart.
    pub(crate) requests: u64,
    /// What was found.
    pub(crate) findings: &'a [Finding],
    /// The samples of the whole recording: by user stack and thread, in periods of the clock.
    pub(crate) samples: &'a BTreeMap<(u32, u32), u64>,
}

/// Distinct places in which threads were sampled that are kept apart.
const MAX_PLACES: usize = 262_144;
/// Measures of one run; beyond, the least of each group are left out.
const MAX_MEASURES: usize = 4_096;

impl Run {
    /// Analyses a recording.
    ///
    /// # Errors
    /// Fails when there is no recording, or it cannot be read. What is damaged is left out, and
    /// listed in `missing`.
    pub fn read(dir: &Path) -> Result<Self, ReadError> {
        let recording = Recording::open(dir)?;
        let model = Model::new(Input::read(&recording)?);
        let mut samples: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        recording.read::<Sample>(None, &mut |sample| {
            let place = (sample.user_stack, sample.tid);
            if samples.len() < MAX_PLACES || samples.contains_key(&place) {
                let weight = samples.entry(place).or_default();
                *weight = u64::saturating_add(*weight, sample.weight());
            }
        })?;
        Ok(Self::of(&model, &samples, dir.display().to_string()))
    }

    /// What an analysis gives. `samples`: for how many periods of the clock each thread was seen on
    /// a CPU in each user stack, by (stack, thread).
    pub fn of(model: &Model, samples: &BTreeMap<(u32, u32), u64>, name: String) -> Self {
        let findings = whywait_findings::find(&Facts::of(model));
        let summary = model.target();
        let mut run = Run {
            name,
            about: About {
                whywait: model.meta.whywait.clone(),
                host: model.meta.host.hostname.clone(),
                kernel: model.meta.host.kernel.clone(),
                cpus: model.meta.host.cpus,
                command: summary.command,
                duration_ns: summary.duration_ns,
                requests: model.requests_count(),
                threshold_ns: model.threshold_ns(),
            },
            missing: missing(model),
            untold: !model.tells_requests_apart(),
            ..Run::default()
        };
        let source = MeasureSource {
            model,
            requests: if run.untold { 0 } else { run.about.requests },
            findings: &findings,
            samples,
        };
        for collect in COLLECTORS {
            collect(&source, &mut run);
        }
        run.limit();
        run
    }

    /// A measure's value; the lower bound where only bounds are known.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.measures.get(name).map(|measure| measure.value)
    }

    /// Adds to a measure, which is made if it is not there yet.
    pub(crate) fn add(&mut self, name: String, measure: Measure) {
        if let Some(known) = self.measures.get_mut(&name) {
            known.value += measure.value;
        } else {
            self.measures.insert(name, measure);
        }
    }

    fn limit(&mut self) {
        if self.measures.len() <= MAX_MEASURES {
            return;
        }
        let mut values: Vec<(Group, f64, String)> = self
            .measures
            .iter()
            .map(|(name, measure)| (measure.group, -measure.value, name.clone()))
            .collect();
        // Headlines, sections, findings and parts are few; of the others the largest stay.
        let few = |group: &Group| *group <= Group::Part;
        values.sort_by(|a, b| {
            (!few(&a.0), a.1, &a.2)
                .partial_cmp(&(!few(&b.0), b.1, &b.2))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        for (_, _, name) in &values[MAX_MEASURES..] {
            self.measures.remove(name);
        }
    }
}

/// What is missing from the recording, if it matters for what is concluded.
fn missing(model: &Model) -> Vec<String> {
    let incomplete = model.coverage().incomplete;
    let incomplete = incomplete.filter(|incomplete| incomplete.matters);
    let lacks = incomplete.into_iter().flat_map(|what| what.lacks);
    lacks.map(|lack| lack.what).take(10).collect()
}
