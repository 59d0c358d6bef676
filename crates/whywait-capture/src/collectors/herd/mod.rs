//! How many threads a connection wakes, by port.

use libbpf_rs::{MapCore, MapFlags};

use crate::core::collector::{Collector, Keeper};
use crate::core::programs::Programs;
use crate::core::records::view;
use crate::core::skel::types;

/// The hooks of others call its functions.
pub(crate) const COLLECTOR: Collector = Collector {
    keeper: |_| Box::new(Herds),
    ..Collector::NONE
};

struct Herds;

impl Keeper for Herds {
    fn counters(&mut self, programs: &Programs) -> Vec<(String, u64)> {
        counters(programs)
    }
}

fn counters(programs: &Programs) -> Vec<(String, u64)> {
    let herds = &programs.skel.maps.herds;
    herds
        .keys()
        .filter_map(|key| {
            let value = herds.lookup(&key, MapFlags::ANY).ok()??;
            Some((view::<u32>(&key)?, view::<types::herd_sum>(&value)?))
        })
        .flat_map(|(port, sum)| {
            [
                ("connections", sum.events),
                ("extra-wakes", sum.extra_wakes),
                ("most-woken", sum.most_woken),
                ("dry-wakes", sum.dry_wakes),
                ("dry-cpu-ns", sum.dry_cpu_ns),
                ("reuseport", sum.reuseport),
            ]
            .map(|(name, value)| (format!("herd.{port}.{name}"), value))
        })
        .collect()
}
