//! What the processes of one program have alike: workers that were forked ahead are one program,
//! and what all of them meet is one finding with its whole weight.

use std::collections::{BTreeMap, BTreeSet};

use whywait_model::Model;

use crate::finding::{Evidence, Finding};
use crate::shared::slow_paths::{self, Shares};
use crate::shared::traffic::Traffic;

/// What was found in the traffic of one process.
pub(crate) struct OfProcess<'t, 'm, T> {
    pub(crate) traffic: &'t Traffic<'m>,
    pub(crate) shares: Shares,
    pub(crate) what: T,
}

/// The same of all processes of a program.
pub(crate) struct OfProgram<'t, 'm, T> {
    /// The process with the most of it.
    pub(crate) traffic: &'t Traffic<'m>,
    /// What is known of it there, …
    pub(crate) what: T,
    /// … and in the others.
    pub(crate) others: Vec<T>,
    /// Of all processes.
    pub(crate) shares: Shares,
    /// The threads of all of them that made the calls.
    pub(crate) threads: BTreeSet<u32>,
}

impl<T> OfProgram<'_, '_, T> {
    /// Names those processes in a finding about them.
    pub(crate) fn about_processes(&self, model: &Model, finding: Finding) -> Finding {
        let first = self.traffic.threads().first().copied();
        slow_paths::about_processes(model, finding, first, self.threads.iter().copied())
    }

    /// That several processes have it, if they do.
    pub(crate) fn evidence(&self) -> Option<Evidence> {
        let others = match self.others.len() {
            0 => return None,
            1 => "another process of the same program has it".to_owned(),
            n => format!("{n} other processes of the same program have it"),
        };
        Some(Evidence::new(format!(
            "{others} as well; what follows is of the one whose requests lost most by it"
        )))
    }
}

/// Takes together what processes of one program met in calls to one peer, if `alike` is the same.
/// In order of the first process.
pub(crate) fn of_programs<'t, 'm, T, K: Ord>(
    model: &Model,
    found: impl IntoIterator<Item = OfProcess<'t, 'm, T>>,
    alike: impl Fn(&T) -> K,
) -> Vec<OfProgram<'t, 'm, T>> {
    let mut programs: BTreeMap<_, Vec<OfProcess<'t, 'm, T>>> = BTreeMap::new();
    for one in found {
        let program = model.program(one.traffic.tgid);
        let key = (program, one.traffic.peer.address(), alike(&one.what));
        programs.entry(key).or_default().push(one);
    }
    programs
        .into_values()
        .filter_map(|mut found| {
            found.sort_by_key(|one| std::cmp::Reverse(one.shares.ns));
            let threads = found.iter().flat_map(|one| one.traffic.threads()).collect();
            let mut found = found.into_iter();
            let OfProcess {
                traffic,
                shares,
                what,
            } = found.next()?;
            let (rest, others): (Vec<Shares>, Vec<T>) =
                found.map(|one| (one.shares, one.what)).unzip();
            Some(OfProgram {
                traffic,
                what,
                others,
                shares: Shares::together(std::iter::once(shares).chain(rest)),
                threads,
            })
        })
        .collect()
}
