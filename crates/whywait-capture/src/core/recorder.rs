//! Hands each record to the collector that takes it, and has collectors do what is due. It knows
//! them by what they declare (`collector.rs`), and none by name.

use std::collections::BTreeMap;
use std::time::Instant;

use whywait_events::recording::{WriteError, Writer};
use whywait_stacks::Unwinder;

use super::collector::{Asking, Collector, Keeper};
use super::error::CaptureError;
use super::incoming::Incoming;
use super::options::Options;
use super::programs::Programs;
use super::records::Record;
use super::shared::{Shared, Stage};
use super::target::Target;
use super::thread_table::ThreadTable;

/// Writes events in the order in which the records come.
pub(crate) struct Recorder {
    pub(crate) shared: Shared,
    keepers: Vec<Box<dyn Keeper>>,
    /// By a record's tag: which of them takes it.
    takers: BTreeMap<u32, usize>,
}

impl Recorder {
    /// Of these collectors, and the target that was asked for.
    pub(crate) fn new(
        collectors: &[&Collector],
        target: &Target,
        writer: Box<Writer>,
        unwinder: Box<Unwinder>,
    ) -> Self {
        let takes = (0..).zip(collectors);
        let takers = takes.flat_map(|(at, collector)| {
            let tags = collector.takes.iter();
            tags.map(move |tag| (tag.0, at))
        });
        Self {
            shared: Shared::new(writer, unwinder),
            takers: takers.collect(),
            keepers: collectors.iter().map(|it| (it.keeper)(target)).collect(),
        }
    }

    pub(crate) fn take(&mut self, record: Record) -> Result<(), WriteError> {
        match self.takers.get(&record.tag().0) {
            Some(at) => self.keepers[*at].take(record, &mut self.shared),
            None => {
                self.shared.refuse();
                Ok(())
            }
        }
    }

    /// The hooks were attached.
    pub(crate) fn start(
        &mut self,
        programs: &mut Programs,
        options: &Options,
    ) -> Result<(), CaptureError> {
        for keeper in &mut self.keepers {
            keeper.start(programs, options)?;
        }
        Ok(())
    }

    /// Nothing more is to be seen.
    pub(crate) fn stop(&mut self) {
        for keeper in &mut self.keepers {
            keeper.stop();
        }
    }

    /// A turn begins: the rings are not emptied yet.
    pub(crate) fn before_turn(&mut self, programs: &mut Programs) {
        for keeper in &mut self.keepers {
            keeper.before_turn(programs);
        }
    }

    /// A turn begins, and samples are wanted as often as there can be, or not.
    pub(crate) fn pace(&mut self, programs: &mut Programs, dense: bool) {
        for keeper in &mut self.keepers {
            keeper.pace(programs, dense);
        }
    }

    /// What came was taken.
    pub(crate) fn turn(&mut self, programs: &mut Programs) -> Result<(), CaptureError> {
        self.shared.turn(Instant::now())?;
        for keeper in &mut self.keepers {
            keeper.turn(programs, &mut self.shared)?;
        }
        Ok(())
    }

    /// Has collectors ask the kernel, as far as that is due; all of them when it is the last time.
    /// Says whether one took so long that more has come.
    pub(crate) fn ask(
        &mut self,
        programs: &mut Programs,
        threads: &ThreadTable,
        incoming: &Incoming,
        last: bool,
    ) -> Result<bool, CaptureError> {
        let mut long = false;
        for keeper in &mut self.keepers {
            let mut asking = Asking {
                shared: &mut self.shared,
                threads,
                incoming,
                last,
            };
            long |= keeper.ask(programs, &mut asking)?;
        }
        Ok(long)
    }

    /// Has collectors look at what no record tells.
    pub(crate) fn look(
        &mut self,
        programs: &mut Programs,
        stage: Stage,
    ) -> Result<(), CaptureError> {
        self.shared.stage = stage;
        for keeper in &mut self.keepers {
            keeper.look(programs, &mut self.shared)?;
        }
        Ok(())
    }

    /// The recording ends, and hooks still run.
    pub(crate) fn close(&mut self, programs: &mut Programs) -> Result<(), CaptureError> {
        for keeper in &mut self.keepers {
            keeper.close(programs)?;
        }
        Ok(())
    }

    /// Nothing more is to come.
    pub(crate) fn finish(
        &mut self,
        programs: &mut Programs,
        threads: &ThreadTable,
    ) -> Result<(), CaptureError> {
        self.shared.settle()?;
        for keeper in &mut self.keepers {
            keeper.finish(programs, threads, &mut self.shared)?;
        }
        Ok(())
    }

    /// Whether a collector wants frequent samples and no long pauses.
    pub(crate) fn is_urgent(&self, programs: &Programs) -> bool {
        self.keepers.iter().any(|keeper| keeper.is_urgent(programs))
    }

    /// Passes on the counters of the kernel side and of this side. Those of one name are summed.
    pub(crate) fn count(&mut self, kernel: Vec<(String, u64)>, programs: &Programs) {
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        let of_keepers = self
            .keepers
            .iter_mut()
            .flat_map(|keeper| keeper.counters(programs));
        let all = kernel.into_iter().chain(self.shared.counters());
        for (name, value) in all.chain(of_keepers) {
            let sum = sums.entry(name).or_default();
            *sum = sum.saturating_add(value);
        }
        for (name, value) in sums {
            self.shared.output.writer.counter(&name, value);
        }
        self.shared.output.count();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::records::ALL_TAGS;
    use super::super::skel::types::record_type;
    use crate::collectors;

    #[test]
    fn each_record_has_one_collector_that_takes_it() {
        // The rings of bursts, and iterators that nobody but their collector reads.
        let read_elsewhere = [
            record_type::RECORD_CALL,
            record_type::RECORD_FILE,
            record_type::RECORD_ACCEPT_QUEUE,
            record_type::RECORD_SLEEPER,
            record_type::RECORD_CONNECTION,
            record_type::RECORD_RESPONSE,
            record_type::RECORD_SLOW_TASK,
        ];
        let mut taken: Vec<u32> = collectors::ALL
            .iter()
            .flat_map(|collector| collector.takes)
            .chain(&read_elsewhere)
            .map(|tag| tag.0)
            .collect();
        taken.sort_unstable();
        let all: BTreeSet<u32> = ALL_TAGS.iter().map(|tag| tag.0).collect();
        assert_eq!(
            taken,
            Vec::from_iter(all),
            "left: what collectors take, and `read_elsewhere`; right: all of RECORDS in \
             core/records.h, numbered from 1 on"
        );
    }
}
