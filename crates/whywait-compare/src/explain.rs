//! Why the requests' time changed: which part of it grew, on which thread, in which function; and
//! of which route.
//! Figures are medians of each side's runs, of the mean over a run's requests, so that parts add up
//! to the whole but for rounding between runs.

use serde::Serialize;

use crate::changes::{Change, Changes};
use crate::effect::median;
use crate::measures::Group;
use crate::measures::routes::statistic;
use crate::side::Side;

/// So many places of a part are shown.
const MAX_PLACES: usize = 3;
/// So many routes.
const MAX_ROUTES: usize = 5;
/// Parts and places that changed by less than this share of what all changed by say nothing.
const LEAST_SHARE: f64 = 0.05;

/// Why the requests' time changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// The mean time of a request in the base, nanoseconds; `None` without requests.
    pub base_ns: Option<f64>,
    /// In the head.
    pub head_ns: Option<f64>,
    /// The parts that changed most, the largest change first.
    pub parts: Vec<Shift>,
    /// The functions whose CPU time changed most, the largest change first; per request, or without
    /// requests per operation of io_uring or per second.
    pub functions: Vec<Shift>,
    /// The routes whose requests' time changed most, the largest change first; empty where a side
    /// has no names.
    pub routes: Vec<RouteShift>,
}

/// By how much the slow requests of a route changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RouteShift {
    /// What they are called: `GET /orders/{id}`. Hostile.
    pub name: String,
    /// Their time in the base, nanoseconds per request of all; 0: there is no slow one.
    pub base_ns: f64,
    /// In the head.
    pub head_ns: f64,
    /// The p99 of those that were recorded one by one, nanoseconds; `None`: there is none.
    pub base_p99_ns: Option<f64>,
    /// In the head.
    pub head_p99_ns: Option<f64>,
    /// Whether chance is ruled out.
    pub told_apart: bool,
}

impl RouteShift {
    fn of(change: &Change, base: &Side, head: &Side) -> Self {
        let name = &change.subject.what;
        let p99 = |side: &Side| {
            let runs = side.runs.iter();
            let measures = runs.filter_map(|run| run.measures.get(&statistic(name, "p99")));
            let values = measures.map(|measure| measure.at_most.unwrap_or(measure.value));
            median(&values.collect::<Vec<_>>())
        };
        Self {
            name: name.clone(),
            base_ns: change.base_median,
            head_ns: change.head_median,
            base_p99_ns: p99(base),
            head_p99_ns: p99(head),
            told_apart: change.is_told_apart(),
        }
    }

    /// By how much it grew, nanoseconds.
    pub fn ns(&self) -> f64 {
        self.head_ns - self.base_ns
    }
}

/// By how much something changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shift {
    /// The part of a request's time; empty for functions.
    pub part: String,
    /// The role of the thread; empty for a part as a whole. Hostile.
    pub thread: String,
    /// The function; empty where none is known. Hostile.
    pub function: String,
    /// What was waited for; may be empty.
    pub what: String,
    /// Nanoseconds in the base, per request.
    pub base_ns: f64,
    /// In the head.
    pub head_ns: f64,
    /// Whether chance is ruled out.
    pub told_apart: bool,
    /// The stack on the side where it is larger, innermost first. Hostile.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stack: Vec<String>,
    /// Where in the part.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<Shift>,
}

impl Shift {
    fn of(change: &Change) -> Self {
        Self {
            part: change.subject.part.clone(),
            thread: change.subject.thread.clone(),
            function: change.subject.function.clone(),
            what: change.subject.what.clone(),
            base_ns: change.base_median,
            head_ns: change.head_median,
            told_apart: change.is_told_apart(),
            stack: change.stack.clone(),
            places: Vec::new(),
        }
    }

    /// By how much it grew, nanoseconds.
    pub fn ns(&self) -> f64 {
        self.head_ns - self.base_ns
    }
}

/// Why the requests' time changed; `None` when nothing shows it.
pub fn explain(changes: &Changes, base: &Side, head: &Side) -> Option<Explanation> {
    let latency = find(changes, "latency.mean");
    let parts = of_group(changes, Group::Part);
    // Parts may move against each other and leave the sum as it was.
    let moved: f64 = parts.iter().map(|part| part.ns().abs()).sum();
    let mut parts = largest(parts, Shift::ns, moved, usize::MAX);
    for part in &mut parts {
        // The parts, not the paths, say why nobody read a request.
        if part.part.starts_with("ready-unserved") {
            continue;
        }
        let places = of_group(changes, Group::Path);
        let same_way: Vec<Shift> = places
            .into_iter()
            // What no sample fell on, or no stack was taken of, says nothing that the part does
            // not.
            .filter(|place| !place.function.is_empty() || !place.what.is_empty())
            .filter(|place| place.part == part.part && (place.ns() > 0.0) == (part.ns() > 0.0))
            .collect();
        part.places = largest(same_way, Shift::ns, part.ns().abs(), MAX_PLACES);
    }
    let functions = of_group(changes, Group::Function);
    let moved: f64 = functions.iter().map(|function| function.ns().abs()).sum();
    let functions = largest(functions, Shift::ns, moved, MAX_PLACES + 2);
    (latency.is_some() || !functions.is_empty()).then(|| Explanation {
        base_ns: latency.map(|latency| latency.base_median),
        head_ns: latency.map(|latency| latency.head_median),
        parts,
        functions,
        routes: routes(changes, base, head),
    })
}

fn routes(changes: &Changes, base: &Side, head: &Side) -> Vec<RouteShift> {
    let changes = changes.changes.iter();
    let routes: Vec<RouteShift> = changes
        .filter(|change| change.group == Group::Route)
        .map(|change| RouteShift::of(change, base, head))
        .collect();
    let moved: f64 = routes.iter().map(|route| route.ns().abs()).sum();
    largest(routes, RouteShift::ns, moved, MAX_ROUTES)
}

pub(crate) fn find<'a>(changes: &'a Changes, name: &str) -> Option<&'a Change> {
    changes.changes.iter().find(|change| change.name == name)
}

fn of_group(changes: &Changes, group: Group) -> Vec<Shift> {
    let changes = changes.changes.iter();
    changes
        .filter(|change| change.group == group)
        .map(Shift::of)
        .collect()
}

fn largest<T>(mut shifts: Vec<T>, ns: impl Fn(&T) -> f64, moved: f64, most: usize) -> Vec<T> {
    shifts.retain(|shift| ns(shift) != 0.0 && ns(shift).abs() >= moved * LEAST_SHARE);
    shifts.sort_by(|a, b| ns(b).abs().total_cmp(&ns(a).abs()));
    shifts.truncate(most);
    shifts
}
