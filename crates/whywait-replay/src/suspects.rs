//! Which relaxation saves most, and what the others still save after it.

use crate::relaxation::Relaxation;
use crate::schedule::Schedule;

/// Something that a fix may relax.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// What the fix changes.
    pub relaxation: Relaxation,
}

/// A candidate, and what its fix saves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspect {
    /// The candidate's position.
    pub candidate: usize,
    /// What it saves each work by itself, nanoseconds.
    pub saves_ns: Vec<u64>,
    /// What it still saves altogether once those before it are fixed, nanoseconds.
    pub after_ns: u64,
}

impl Suspect {
    /// What it saves altogether by itself, nanoseconds.
    pub fn total_ns(&self) -> u64 {
        total_ns(&self.saves_ns)
    }
}

fn total_ns(each: &[u64]) -> u64 {
    each.iter().copied().fold(0, u64::saturating_add)
}

impl Schedule {
    /// The candidates whose fix saves something: the one that saves most comes first, then the one
    /// that saves most once that is fixed, and so on. What saves nothing more is left out.
    pub fn suspects(&self, candidates: &[Candidate]) -> Vec<Suspect> {
        let alone: Vec<Vec<u64>> = candidates
            .iter()
            .map(|candidate| self.savings(&candidate.relaxation))
            .collect();
        let mut left: Vec<usize> = (0..candidates.len()).collect();
        let mut fixed = Relaxation::default();
        let mut saved_ns = 0;
        let mut suspects = Vec::new();
        while !left.is_empty() {
            let more = left.iter().map(|at| {
                let together = fixed.clone().and(&candidates[*at].relaxation);
                let all_ns = match suspects.is_empty() {
                    true => total_ns(&alone[*at]),
                    false => total_ns(&self.savings(&together)),
                };
                (all_ns.saturating_sub(saved_ns), *at)
            });
            // Of those that save as much the first one.
            let best = more.max_by_key(|(ns, at)| (*ns, std::cmp::Reverse(*at)));
            let Some((after_ns, at)) = best.filter(|(ns, _)| *ns > 0) else {
                break;
            };
            fixed = fixed.and(&candidates[at].relaxation);
            saved_ns = saved_ns.saturating_add(after_ns);
            left.retain(|other| *other != at);
            suspects.push(Suspect {
                candidate: at,
                saves_ns: alone[at].clone(),
                after_ns,
            });
        }
        suspects
    }
}
