//! Files that other processes had locked while threads slept for a time, again and again: what
//! these try for may be such a lock.

use std::collections::BTreeSet;

use whywait_model::{LockedFile, Model};
use whywait_words::{counted, list, percent};

use super::intervals::{Covered, Interval, merged, sum};
use crate::finding::Evidence;
use crate::numbers::{MOST, SHOWN, Share};

/// A file that others had locked during most of these sleeps.
pub(crate) struct LockedMeanwhile<'a> {
    file: LockedFile<'a>,
    all_looks: u64,
    slept_ns: u64,
    meanwhile_ns: u64,
}

impl<'a> LockedMeanwhile<'a> {
    /// Of all such files the one that was locked for most of the time. `sleeps`: by process.
    pub(crate) fn of(model: &'a Model, sleeps: &[(u32, Interval)]) -> Option<Self> {
        let processes: BTreeSet<u32> = sleeps.iter().map(|(tgid, _)| *tgid).collect();
        let slept = |(_, (from_ns, to_ns)): &(u32, Interval)| to_ns.saturating_sub(*from_ns);
        let slept_ns = sum(sleeps.iter().map(slept));
        let all_looks = model.file_locks.looks(model);
        let ended_ns = model.meta.ended_ns.unwrap_or(model.meta.started_ns);
        let lasts_ns = ended_ns.saturating_sub(model.meta.started_ns);
        // A look stands for the time halfway to the next one.
        let half_ns = lasts_ns.checked_div(all_looks)? / 2;
        let files = model.file_locks.tried_by(&processes, all_looks);
        let during = files.into_iter().map(|file| {
            let at = file.at.iter();
            let at = at.map(|(from_ns, to_ns)| {
                let from_ns = from_ns.saturating_sub(half_ns);
                (from_ns, to_ns.saturating_add(half_ns))
            });
            let locked = Covered::new(merged(at.collect()));
            let meanwhile = sleeps.iter().map(|(_, sleep)| locked.within(*sleep));
            Self {
                file,
                all_looks,
                slept_ns,
                meanwhile_ns: sum(meanwhile),
            }
        });
        during
            .max_by_key(|locked| locked.meanwhile_ns)
            .filter(|locked| Share::new(locked.meanwhile_ns, slept_ns).is_at_least(*MOST))
    }

    /// `shop.db`.
    pub(crate) fn name(&self) -> &str {
        self.file.path.rsplit('/').next().unwrap_or_default()
    }

    /// `; importer (pid 4711) had shop.db locked during 75 % of these sleeps`.
    pub(crate) fn title(&self) -> String {
        let by = match self.file.holders.as_slice() {
            [one] => one.to_string(),
            several => counted(several.len(), "process"),
        };
        let during = percent(self.meanwhile_ns, self.slept_ns);
        let name = self.name();
        format!("; {by} had {name} locked during {during} of these sleeps")
    }

    pub(crate) fn evidence(&self) -> Evidence {
        let holders = self.file.holders.iter().take(*SHOWN);
        let holders: Vec<String> = holders
            .map(|holder| format!("{holder} in {}", counted(holder.looks, "look")))
            .collect();
        let waiters = match self.file.waiters {
            0 => String::new(),
            waiters => format!(
                "; up to {} slept until it is free",
                counted(waiters, "thread")
            ),
        };
        let text = format!(
            "in {} of {} at the kernel's list of locks, others had {} locked, which was open here: \
             {}; during {} of these sleeps{waiters}",
            self.file.looks,
            counted(self.all_looks, "look"),
            self.file.path,
            list(&holders),
            percent(self.meanwhile_ns, self.slept_ns),
        );
        Evidence::of_ns(self.meanwhile_ns, text)
    }
}
