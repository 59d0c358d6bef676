//! A request of the model, addressed.

use std::ops::Deref;

use whywait_events::Exchange;

use crate::calls::links::{Link, TaskTime, time};
use crate::model::{Accounted, Model};
use crate::path::Path;
use crate::requests::account::Account;
use crate::requests::lives::Life;

/// A request that is looked at one by one. It knows its model, and so its account, its critical
/// path and its pool; the fields are those of its row.
#[derive(Debug, Clone, Copy)]
pub struct RequestRef<'m> {
    model: &'m Model,
    life: Life<'m>,
}

impl<'m> Deref for RequestRef<'m> {
    type Target = Life<'m>;

    fn deref(&self) -> &Life<'m> {
        &self.life
    }
}

impl<'m> RequestRef<'m> {
    pub(crate) fn model(self) -> &'m Model {
        self.model
    }

    fn accounted(self) -> &'m Accounted {
        self.model.accounted(self.life)
    }

    /// Where its time went.
    pub fn account(self) -> &'m Account {
        &self.accounted().account
    }

    /// Its critical path; while it is open, that of its thread up to the recording's end.
    pub fn path(self) -> Path<'m> {
        self.model.path(self.life)
    }

    /// How its time splits by its calls; `None` where its process made none, or it was not read.
    pub fn task_time(self) -> Option<TaskTime> {
        time::of(self.model, self.life)
    }

    /// Whether there are slow calls that are certainly this one's.
    pub fn has_certain_calls(self) -> bool {
        !self.model.links.of_request(self.index()).is_empty()
    }

    /// Whether a slow call is certainly this one's.
    pub fn made(self, call: &Exchange) -> bool {
        let link = self.model.link_of(call);
        matches!(link, Link::Certain(request, _) if request == self.index())
    }
}

impl Model {
    /// The requests that are looked at one by one, by when they came.
    pub fn requests(&self) -> impl ExactSizeIterator<Item = RequestRef<'_>> + Clone {
        self.lives().map(|life| RequestRef { model: self, life })
    }

    /// A request by its name, `SOCKET:SEQ`; `None` when it is not one that is looked at one by one.
    pub fn request(&self, id: &str) -> Option<RequestRef<'_>> {
        self.requests().find(|request| request.id() == id)
    }
}
