//! A recording, put together.

use std::ops::Deref;

use crate::calls::linked::Linked;
use crate::input::Input;
use crate::joined::Joined;
use crate::path::{Path, PathStep, kept};
use crate::requests::account::{self, Account};
use crate::requests::lives::{Life, Lives};
use crate::waits::locks::Locks;

/// A recording, put together: what threads, pools and rings did, and where the time of requests
/// went. It is the last of the layers, and has all that those below it have.
#[derive(Debug, Clone)]
pub struct Model {
    linked: Linked,
    /// The steps of the requests' critical paths, each once.
    path_steps: Vec<PathStep>,
    /// Of each request that is looked at one by one, in their order.
    accounts: Vec<Accounted>,
}

/// Where the time of a request went.
#[derive(Debug, Clone)]
pub(crate) struct Accounted {
    pub(crate) account: Account,
    path: kept::Kept,
    /// What of its time is unknown as it was spent in sleeps whose wake was not seen.
    unmatched_wakes_ns: u64,
}

impl Deref for Model {
    type Target = Linked;

    fn deref(&self) -> &Linked {
        &self.linked
    }
}

impl Model {
    /// Puts it together, layer by layer.
    pub fn new(mut input: Input) -> Self {
        let requests = std::mem::take(&mut input.requests);
        let joined = Joined::new(input, &requests);
        let linked = Linked::of(Lives::of(Locks::of(joined), requests));
        let (path_steps, paths) = kept::all(&linked);
        let accounts = linked.lives().zip(paths).map(|(life, kept)| {
            let path = kept.path(&path_steps);
            Accounted {
                account: account::account(life, &path),
                unmatched_wakes_ns: account::unmatched_wakes_ns(&linked, &path),
                path: kept,
            }
        });
        Self {
            accounts: accounts.collect(),
            path_steps,
            linked,
        }
    }

    pub(crate) fn path(&self, life: Life<'_>) -> Path<'_> {
        self.accounted(life).path.path(&self.path_steps)
    }

    /// Each step that is on paths of requests, and on how many.
    pub(crate) fn steps_on_paths(&self) -> impl Iterator<Item = (&PathStep, u64)> {
        let mut paths = vec![0_u64; self.path_steps.len()];
        let places = self.accounts.iter().flat_map(|one| one.path.places());
        for at in places {
            paths[*at as usize] += 1;
        }
        self.path_steps.iter().zip(paths)
    }

    pub(crate) fn accounted(&self, life: Life<'_>) -> &Accounted {
        &self.accounts[life.index() as usize]
    }

    /// What of the requests' time is unknown as the kernel did not show the wakes that ended it, of
    /// those requests that count.
    pub(crate) fn unmatched_wakes_ns(&self) -> u64 {
        self.lives()
            .filter(|life| life.counts())
            .map(|life| self.accounted(life).unmatched_wakes_ns)
            .fold(0, u64::saturating_add)
    }

    /// Critical paths that were too long to be followed to their beginning.
    pub(crate) fn truncated_paths(&self) -> u64 {
        self.accounts
            .iter()
            .filter(|one| one.path.is_truncated())
            .count() as u64
    }
}
