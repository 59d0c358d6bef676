//! Which goroutine works for which stream of HTTP/2.
//!
//! The goroutine that reads a connection begins another one for each stream, or what began both
//! does. Which of these it is for which stream nothing says. But it is there for as long as its
//! stream is open: one that was first seen when a stream was, and was gone when that was answered,
//! has worked for it. Where that holds for several at once, they came and went together, and what
//! they did is theirs in any order. Of what is left nothing is said.

use std::collections::{BTreeMap, BTreeSet};

use whywait_events::TaskLook;

/// A connection, by its process and its number.
pub(super) type ConnectionKey = (u32, u64);
/// A stream, as `requests` has it: its own number of a connection, and of a request on that.
pub(super) type StreamKey = (u64, u32);

/// So many looks wait for it to show whose they are; more are dropped, and counted.
const MAX_WAITING: usize = 1 << 16;
/// In rounds of looks: a stream and its goroutine need not come and go in the same one.
const APART: u64 = 1;

/// What is known of connections.
#[derive(Default)]
pub(super) struct StreamTasks {
    connections: BTreeMap<ConnectionKey, Connection>,
    round: u64,
    waiting: usize,
    /// Looks of which it did not show whose they are.
    pub(super) nobodys: u64,
}

#[derive(Default)]
struct Connection {
    streams: BTreeMap<StreamKey, Rounds>,
    /// By their ids.
    goroutines: BTreeMap<u64, Looked>,
}

/// When something was there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rounds {
    first: u64,
    last: u64,
}

/// A goroutine that may work for a stream, and the looks at it.
struct Looked {
    rounds: Rounds,
    looks: Vec<TaskLook>,
}

impl StreamTasks {
    /// A round of looks: of each connection its slow streams, and the goroutines that may work for
    /// these. Gives the looks of which it shows by now whose they are.
    pub(super) fn round(
        &mut self,
        now: &BTreeMap<ConnectionKey, (BTreeSet<StreamKey>, BTreeSet<u64>)>,
    ) -> Vec<TaskLook> {
        self.round += 1;
        let round = self.round;
        for (key, (streams, goroutines)) in now {
            let connection = self.connections.entry(*key).or_default();
            let rounds = Rounds {
                first: round,
                last: round,
            };
            for stream in streams {
                connection.streams.entry(*stream).or_insert(rounds).last = round;
            }
            for id in goroutines {
                let looked = connection.goroutines.entry(*id).or_insert(Looked {
                    rounds,
                    looks: Vec::new(),
                });
                looked.rounds.last = round;
            }
        }
        self.settle(|rounds| rounds.last < round)
    }

    /// Whether a goroutine of the last round may work for a stream that is open: what goes on after
    /// its answer began, or was there long before, is looked at in vain.
    pub(super) fn may_serve(&self, key: ConnectionKey, id: u64) -> bool {
        self.connections.get(&key).is_some_and(|connection| {
            let looked = connection.goroutines.get(&id);
            looked.is_some_and(|looked| connection.has_stream_of(looked.rounds))
        })
    }

    /// A look at a goroutine, of the last round.
    pub(super) fn look(&mut self, key: ConnectionKey, id: u64, look: TaskLook) {
        let connection = self.connections.get_mut(&key);
        let looked = connection.and_then(|connection| connection.goroutines.get_mut(&id));
        match looked.filter(|_| self.waiting < MAX_WAITING) {
            Some(looked) => {
                looked.looks.push(look);
                self.waiting += 1;
            }
            None => self.nobodys += 1,
        }
    }

    /// The looks at those that are still there, as far as it shows whose they are.
    pub(super) fn so_far(&mut self) -> Vec<TaskLook> {
        let round = self.round;
        self.settle(|rounds| rounds.last == round)
    }

    /// Gives the looks at goroutines and streams that are to be settled. What is gone for longer is
    /// forgotten.
    fn settle(&mut self, is_due: impl Fn(&Rounds) -> bool) -> Vec<TaskLook> {
        let mut settled = Vec::new();
        let (mut nobodys, round) = (0, self.round);
        self.connections.retain(|_, connection| {
            for (stream, id) in connection.pairs(&is_due) {
                if let Some(looked) = connection.goroutines.get_mut(&id) {
                    let looks = looked.looks.drain(..);
                    settled.extend(looks.map(|look| TaskLook {
                        socket: stream.0,
                        seq: stream.1,
                        ..look
                    }));
                    if looked.rounds.last < round {
                        connection.goroutines.remove(&id);
                        connection.streams.remove(&stream);
                    }
                }
            }
            let is_gone = |rounds: &Rounds| rounds.last + APART < round;
            connection.streams.retain(|_, rounds| !is_gone(rounds));
            let mut goroutines = std::mem::take(&mut connection.goroutines);
            goroutines.retain(|_, looked| {
                if !connection.has_stream_of(looked.rounds) {
                    nobodys += std::mem::take(&mut looked.looks).len();
                }
                !is_gone(&looked.rounds)
            });
            connection.goroutines = goroutines;
            !connection.streams.is_empty() || !connection.goroutines.is_empty()
        });
        self.waiting -= nobodys + settled.len();
        self.nobodys += nobodys as u64;
        settled
    }
}

impl Connection {
    /// Whether a stream came when this goroutine did.
    fn has_stream_of(&self, goroutine: Rounds) -> bool {
        let mut streams = self.streams.values();
        streams.any(|stream| stream.first.abs_diff(goroutine.first) <= APART)
    }

    /// Streams and goroutines that came and went together. A stream may do so with several
    /// goroutines, and these with other streams: all of them belong together, and are paired if
    /// they are as many.
    fn pairs(&self, is_due: impl Fn(&Rounds) -> bool) -> Vec<(StreamKey, u64)> {
        let streams = self.streams.iter().map(|(key, rounds)| (*rounds, *key));
        let mut streams: Vec<(Rounds, StreamKey)> =
            streams.filter(|(rounds, _)| is_due(rounds)).collect();
        let goroutines = self.goroutines.iter();
        let goroutines = goroutines.map(|(id, looked)| (looked.rounds, *id));
        let mut goroutines: Vec<(Rounds, u64)> =
            goroutines.filter(|(rounds, _)| is_due(rounds)).collect();
        let mut pairs = Vec::new();
        while let Some(stream) = streams.pop() {
            let mut together = (vec![stream], Vec::new());
            loop {
                let of_streams = |goroutine: &mut (Rounds, u64)| {
                    let mut streams = together.0.iter();
                    streams.any(|(rounds, _)| rounds.is_with(goroutine.0))
                };
                let more: Vec<_> = goroutines.extract_if(.., of_streams).collect();
                together.1.extend(more);
                let of_goroutines = |stream: &mut (Rounds, StreamKey)| {
                    let mut goroutines = together.1.iter();
                    goroutines.any(|(rounds, _)| rounds.is_with(stream.0))
                };
                let more: Vec<_> = streams.extract_if(.., of_goroutines).collect();
                if more.is_empty() {
                    break;
                }
                together.0.extend(more);
            }
            let (mut streams, mut goroutines) = together;
            if streams.len() == goroutines.len() {
                streams.sort_unstable();
                goroutines.sort_unstable();
                let both = streams.iter().zip(&goroutines);
                let fit = both
                    .clone()
                    .all(|((stream, _), (goroutine, _))| stream.is_with(*goroutine));
                if fit {
                    pairs.extend(both.map(|((_, stream), (_, id))| (*stream, *id)));
                }
            }
        }
        pairs
    }
}

impl Rounds {
    /// Whether both came and went at the same time, as far as looks tell.
    fn is_with(self, other: Self) -> bool {
        self.first.abs_diff(other.first) <= APART && self.last.abs_diff(other.last) <= APART
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONNECTION: ConnectionKey = (1, 7);

    /// Rounds of looks at one connection: the streams and goroutines of each.
    fn looked_at(rounds: &[(&[u64], &[u64])]) -> (StreamTasks, Vec<(u64, u64)>) {
        let mut tasks = StreamTasks::default();
        let mut found = Vec::new();
        for (at, (streams, goroutines)) in rounds.iter().enumerate() {
            let streams: BTreeSet<StreamKey> = streams.iter().map(|one| (*one, 1)).collect();
            let ids = BTreeSet::from_iter(goroutines.iter().copied());
            let now = BTreeMap::from([(CONNECTION, (streams, ids))]);
            found.extend(tasks.round(&now));
            let may_serve = |id: &&u64| tasks.may_serve(CONNECTION, **id);
            for id in Vec::from_iter(goroutines.iter().filter(may_serve)) {
                let look = TaskLook {
                    at_ns: at as u64,
                    task: u32::try_from(*id).expect("small"),
                    ..TaskLook::default()
                };
                tasks.look(CONNECTION, *id, look);
            }
        }
        let of = |look: &TaskLook| (look.socket, u64::from(look.task));
        let mut found: Vec<_> = found.iter().map(of).collect();
        found.dedup();
        (tasks, found)
    }

    #[test]
    fn what_comes_and_goes_with_a_stream_works_for_it() {
        // Each is past a lock in turn; another one stays all the time.
        let (tasks, found) = looked_at(&[
            (&[1, 2, 3], &[11, 12, 13, 99]),
            (&[1, 2, 3], &[11, 12, 13, 99]),
            (&[1, 2, 3], &[11, 12, 13, 99]),
            (&[2, 3], &[12, 13, 99]),
            (&[2, 3], &[12, 13, 99]),
            (&[2, 3], &[12, 13, 99]),
            (&[3], &[13, 99]),
            (&[3], &[13, 99]),
            (&[3], &[13, 99]),
            (&[], &[99]),
            (&[], &[99]),
        ]);
        assert_eq!(found, [(1, 11), (2, 12), (3, 13)]);
        assert_eq!(tasks.waiting, 0);
        assert_eq!(
            tasks.nobodys, 9,
            "whose the one is that stays does not show"
        );
    }

    #[test]
    fn those_that_come_and_go_together_are_as_many_or_nobodys() {
        let (tasks, found) = looked_at(&[
            (&[1, 2], &[11, 12]),
            (&[1, 2], &[11, 12]),
            (&[], &[]),
            (&[], &[]),
            (&[], &[]),
            (&[3, 4], &[13, 14, 15]),
            (&[3, 4], &[13, 14, 15]),
            (&[], &[]),
            (&[], &[]),
            (&[], &[]),
        ]);
        assert_eq!(found, [(1, 11), (2, 12)]);
        assert_eq!((tasks.waiting, tasks.nobodys), (0, 6));
        assert!(tasks.connections.is_empty(), "and they are forgotten");
    }

    #[test]
    fn what_is_still_there_is_known_as_far_as_it_came_together() {
        let (mut tasks, found) = looked_at(&[(&[1], &[11]), (&[1], &[11]), (&[1, 2], &[11, 12])]);
        assert!(found.is_empty());
        let so_far = tasks.so_far();
        let of: BTreeSet<_> = so_far.iter().map(|look| (look.socket, look.task)).collect();
        assert_eq!(of, BTreeSet::from([(1, 11), (2, 12)]), "{so_far:?}");
        assert_eq!(tasks.waiting, 0);
        assert!(tasks.so_far().is_empty(), "and is not told twice");
    }
}
