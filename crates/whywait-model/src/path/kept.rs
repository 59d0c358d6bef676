//! The critical paths of all requests, each walked once.
//!
//! Requests that are under way at a time have most of their steps in common: those of the threads
//! that serve them. Each such step is kept once, and a path is the places of its steps.

use whywait_events::{Ns, Part};

use super::sleeps::Sleeps;
use super::{Path, PathStep, Walked, unserved, walked};
use crate::calls::linked::Linked;
use crate::maps::HashMap;
use crate::requests::lives::Life;

/// Different steps that are kept, with those of the holders of locks. The slowest requests come
/// first; when there is no more room, nothing is known of the service of the others.
const MAX_STEPS: usize = 1_000_000;

/// A request's path.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept {
    /// Places of its steps among all, in order.
    steps: Box<[u32]>,
    truncated: bool,
}

impl Kept {
    /// The path, of which `all` are the steps of all paths.
    pub(crate) fn path<'m>(&self, all: &'m [PathStep]) -> Path<'m> {
        let steps = self.steps.iter().filter_map(|at| all.get(*at as usize));
        Path {
            steps: steps.collect(),
            truncated: self.truncated,
        }
    }

    /// It was too long to be followed to its beginning.
    pub(crate) fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// Places of its steps among all.
    pub(crate) fn places(&self) -> &[u32] {
        &self.steps
    }
}

/// The steps of all paths, while they are walked.
#[derive(Default)]
struct Steps {
    all: Vec<PathStep>,
    /// With those of holders.
    count: usize,
    /// The last one that has this time, thread and sleeper.
    same: HashMap<(Ns, Ns, u32, u32), u32>,
}

impl Steps {
    fn has(&self, place: u32, step: &PathStep) -> bool {
        let known = self.all.get(place as usize);
        known.is_some_and(|known| {
            (known.from_ns, known.to_ns) == (step.from_ns, step.to_ns) && known == step
        })
    }

    /// The place of a step that comes after the one at `last`.
    fn place(&mut self, step: PathStep, last: u32) -> u32 {
        // Most come in the order in which an earlier path had them.
        if self.has(last + 1, &step) {
            return last + 1;
        }
        let place = self.all.len() as u32;
        let name = (step.from_ns, step.to_ns, step.tid, step.waiting);
        if let Some(known) = self.same.get(&name)
            && self.has(*known, &step)
        {
            return *known;
        }
        self.same.insert(name, place);
        self.count += with_holders(&step);
        self.all.push(step);
        place
    }
}

fn with_holders(step: &PathStep) -> usize {
    1 + step.meanwhile.iter().map(with_holders).sum::<usize>()
}

/// The steps of all paths, and the path of each request, in their order.
pub(crate) fn all(model: &Linked) -> (Vec<PathStep>, Vec<Kept>) {
    with_room_for(MAX_STEPS, model)
}

fn with_room_for(most: usize, model: &Linked) -> (Vec<PathStep>, Vec<Kept>) {
    let mut order: Vec<(usize, Life<'_>)> = model.lives().enumerate().collect();
    order.sort_by_key(|(_, request)| std::cmp::Reverse(request.age_ns()));
    let sleeps = Sleeps::new(model);
    let mut steps = Steps::default();
    let mut kept = vec![Kept::default(); order.len()];
    for (at, request) in order {
        let path = match steps.count < most {
            true => walked(model, &sleeps, request),
            false => not_walked(request),
        };
        let mut last = 0;
        let places = path.steps.into_iter().map(|step| {
            last = steps.place(step, last);
            last
        });
        kept[at] = Kept {
            steps: places.collect(),
            truncated: path.truncated,
        };
    }
    steps.all.shrink_to_fit();
    (steps.all, kept)
}

fn not_walked(request: Life<'_>) -> Walked {
    let served_ns = request.served_ns();
    let unserved = unserved(request, served_ns, 0);
    let service = super::steps::step(
        Part::Unknown,
        request.recv_tid,
        served_ns,
        request.end_ns(),
        0,
    );
    let read = request.recv_ns.is_some();
    let steps = [
        (served_ns > request.ready_ns || !read).then_some(unserved),
        read.then_some(service),
    ];
    Walked {
        steps: steps.into_iter().flatten().collect(),
        truncated: read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::{Script, ms};

    #[test]
    fn without_room_the_slowest_requests_have_their_paths_and_of_the_others_all_is_unknown() {
        let mut script = Script::new();
        script.thread(1, "quick").thread(2, "slow");
        script.sleeps(1, 0, 12, 18);
        script.sleeps(2, 0, 12, 38);
        script.request(1).ready(10).read(11, 1).answered(20, 1);
        script.request(2).ready(10).read(11, 2).answered(40, 2);
        let model = script.model();
        let service =
            |(all, kept): &(Vec<PathStep>, Vec<Kept>), at: usize| -> Vec<(Option<Part>, u64)> {
                let steps = kept[at].path(all).steps;
                let served = steps.iter().filter(|step| step.from_ns >= ms(11));
                served.map(|step| (step.part, step.ns())).collect()
            };
        let (room, none) = (all(&model), with_room_for(1, &model));
        let timer = (Some(Part::Timer), 6_000_000);
        assert!(
            service(&room, 0).contains(&timer),
            "{:?}",
            service(&room, 0)
        );
        assert_eq!(service(&none, 1), service(&room, 1));
        assert_eq!(service(&none, 0), [(Some(Part::Unknown), 9_000_000)]);
        assert!(none.1[0].is_truncated() && !none.1[1].is_truncated());
    }
}
