//! The sampling clock, and how often it ticks.
//!
//! Each tick is an interrupt, which in a virtual machine costs 20 us and more, and most targets are
//! sound most of the time. So there are two clocks on each CPU, of which one ticks: the dense one
//! at first, while requests are slow or threads compute for long, and for a while after; else the
//! sparse one, for there is nothing then that more samples would explain. BPF adds up what is slow
//! (`was_slow` in state.bpf.h); a sample says for how many periods of the dense clock it stands, so
//! that shares and sums of samples mean the same at either rate.

use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};

use libbpf_rs::{Link, PerfEventOpts, ProgramMut};
use whywait_events::Ns;

use crate::core::error::one_line;
use crate::core::perf;

/// For so long the dense clock goes on when nothing wants it any more: what is slow comes again, as
/// a rule.
const DENSE_FOR_NS: u64 = 5_000_000_000;
/// It is wanted when so much was slow within so long.
pub(crate) const DENSE_CLOCK_NS: u64 = 5_000_000;
const WITHIN_NS: u64 = 1_000_000_000;
/// Periods of the dense clock to one of the sparse one.
const PERIODS: u64 = 4;

/// Of the dense clock.
pub(crate) fn period_ns(hz: u32) -> u64 {
    1_000_000_000 / u64::from(hz.max(1))
}

/// The clocks of all CPUs. Dropping it stops them.
#[derive(Default)]
pub(crate) struct Clock {
    links: Vec<Link>,
    /// Of each CPU the dense and the sparse one.
    clocks: Vec<(OwnedFd, OwnedFd)>,
    is_sparse: bool,
    rates: Rates,
}

impl Clock {
    /// Has `program` run with each tick, `hz` times a second and CPU or as seldom as is wanted. The
    /// CPUs on which it cannot are recorded, with why.
    pub(crate) fn start(&mut self, program: &ProgramMut<'_>, hz: u32) -> Vec<(u32, String)> {
        let mut without = Vec::new();
        let period_ns = period_ns(hz);
        for cpu in perf::online_cpus() {
            if let Err(reason) = self.add(program, cpu, period_ns) {
                without.push((cpu, reason));
            }
        }
        without
    }

    /// Takes the clocks away; what is known of the target stays.
    pub(crate) fn stop(&mut self) {
        self.links.clear();
        self.clocks.clear();
    }

    fn add(&mut self, program: &ProgramMut<'_>, cpu: u32, period_ns: u64) -> Result<(), String> {
        let (sparse_link, sparse) = attach(program, cpu, period_ns, PERIODS)?;
        perf::set_ticking(sparse.as_fd(), self.is_sparse);
        let (dense_link, dense) = attach(program, cpu, period_ns, 1)?;
        perf::set_ticking(dense.as_fd(), !self.is_sparse);
        self.links.extend([dense_link, sparse_link]);
        self.clocks.push((dense, sparse));
        Ok(())
    }

    /// Whether the sparse clock ticks.
    pub(crate) fn is_sparse(&self) -> bool {
        self.is_sparse
    }

    /// Has the dense clock tick if `slow_ns`, the time for which anything was slow so far, has
    /// grown enough within a second not long before `now_ns`, or if `dense`; and the sparse one
    /// otherwise.
    ///
    /// `between` is called while none ticks.
    pub(crate) fn set(&mut self, slow_ns: u64, dense: bool, now_ns: Ns, between: impl FnOnce()) {
        if self.rates.wants_sparse(slow_ns, dense, now_ns) != self.is_sparse {
            for (dense, sparse) in &self.clocks {
                perf::set_ticking(sparse.as_fd(), false);
                perf::set_ticking(dense.as_fd(), false);
            }
            self.is_sparse = !self.is_sparse;
            between();
            for (dense, sparse) in &self.clocks {
                let wanted = if self.is_sparse { sparse } else { dense };
                perf::set_ticking(wanted.as_fd(), true);
            }
        }
    }
}

/// Which rate is wanted.
#[derive(Default)]
struct Rates {
    /// The second that is looked at: since when, and what was slow before.
    since_ns: Ns,
    slow_before_ns: u64,
    /// What was slow at the last look.
    slow_seen_ns: u64,
    /// When the dense clock was wanted last, or first could be.
    wanted_ns: Option<Ns>,
}

impl Rates {
    fn wants_sparse(&mut self, slow_ns: u64, dense: bool, now_ns: Ns) -> bool {
        if now_ns.saturating_sub(self.since_ns) > WITHIN_NS {
            self.since_ns = now_ns;
            self.slow_before_ns = self.slow_seen_ns;
        }
        self.slow_seen_ns = slow_ns;
        if dense || slow_ns.saturating_sub(self.slow_before_ns) >= DENSE_CLOCK_NS {
            self.wanted_ns = Some(now_ns);
        }
        now_ns.saturating_sub(*self.wanted_ns.get_or_insert(now_ns)) > DENSE_FOR_NS
    }
}

/// A clock that ticks, and `program` on it, which finds in its cookie for how many periods of the
/// dense clock a tick stands.
fn attach(
    program: &ProgramMut<'_>,
    cpu: u32,
    period_ns: u64,
    periods: u64,
) -> Result<(Link, OwnedFd), String> {
    let clock = perf::cpu_clock(cpu, period_ns * periods).map_err(|error| error.to_string())?;
    // libbpf closes the descriptor that it is given with the link.
    let kept = clock.try_clone().map_err(|error| error.to_string())?;
    let options = PerfEventOpts {
        cookie: periods,
        ..PerfEventOpts::default()
    };
    let link = program
        .attach_perf_event_with_opts(clock.as_raw_fd(), options)
        .map_err(|error| one_line(&error))?;
    let _ = clock.into_raw_fd();
    Ok((link, kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Whether the clock ticks less often at each of these times (milliseconds) if so much
    /// (milliseconds) had been slow by then.
    fn sparse_at(looks: &[(u64, u64)]) -> Vec<bool> {
        let mut rates = Rates::default();
        let wants = |(at, slow): &(u64, u64)| rates.wants_sparse(slow * MS, false, at * MS);
        looks.iter().map(wants).collect()
    }

    #[test]
    fn it_ticks_less_often_once_nothing_was_slow_for_five_seconds() {
        let looks = [(0, 0), (40, 0), (5_000, 0), (5_040, 0)];
        assert_eq!(sparse_at(&looks), [false, false, false, true]);
    }

    #[test]
    fn what_was_slow_for_long_has_it_tick_more_often_at_once_and_for_five_seconds() {
        let looks = [(0, 0), (6_000, 0), (6_040, 20), (11_000, 20), (12_080, 20)];
        assert_eq!(sparse_at(&looks), [false, true, false, false, true]);
    }

    #[test]
    fn a_millisecond_every_second_is_nothing_that_samples_could_tell_apart() {
        let looks: Vec<(u64, u64)> = (0..=600).map(|tick| (tick * 40, tick / 25)).collect();
        assert!(sparse_at(&looks).ends_with(&[true; 400]));
    }

    #[test]
    fn many_milliseconds_within_a_second_add_up() {
        let looks: Vec<(u64, u64)> = (0..=600).map(|tick| (tick * 40, tick / 3)).collect();
        assert_eq!(sparse_at(&looks), [false; 601]);
    }
}
