//! What was recorded and joined, with whose each slow call is.

use std::ops::Deref;

use whywait_events::Exchange;

use crate::calls::links::{Link, Links};
use crate::requests::lives::Lives;

/// What was recorded and joined and how far each request got, with whose each slow call is.
#[derive(Debug, Clone)]
pub struct Linked {
    lives: Lives,
    /// Which calls are which request's.
    pub(crate) links: Links,
}

impl Deref for Linked {
    type Target = Lives;

    fn deref(&self) -> &Lives {
        &self.lives
    }
}

impl Linked {
    /// Links them.
    pub(crate) fn of(lives: Lives) -> Self {
        Self {
            links: Links::of(&lives),
            lives,
        }
    }

    /// Whether it is certain for which request a slow call was made.
    pub fn is_linked(&self, call: &Exchange) -> bool {
        matches!(self.link_of(call), Link::Certain(..))
    }

    /// Whether a call went over a connection that carries several at a time: then it stands for
    /// several, of as many requests.
    pub fn is_shared(&self, call: &Exchange) -> bool {
        self.links.is_shared(call.socket)
    }

    /// Whether HTTP/2 is spoken on a call's connection: what is recorded as a call there is none.
    pub fn speaks_http2(&self, call: &Exchange) -> bool {
        self.links.speaks_http2(call.socket)
    }

    /// Whose a slow call is.
    pub(crate) fn link_of(&self, call: &Exchange) -> Link {
        let all = self.exchanges();
        let first = all.partition_point(|other| other.first_send_ns < call.first_send_ns);
        let mut same_time = all[first..]
            .iter()
            .take_while(|other| other.first_send_ns == call.first_send_ns);
        let at = same_time.position(|other| (other.socket, other.seq) == (call.socket, call.seq));
        at.map_or(Link::Undecided, |at| self.links.of_call(first + at))
    }
}
