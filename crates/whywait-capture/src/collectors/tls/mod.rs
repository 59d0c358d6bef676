//! HTTP/2 in TLS, where that is wanted: probes at the functions by which the target's TLS libraries
//! take clear text and give it. They are set for its processes, not for all that use the library.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use libbpf_rs::{Link, MapCore, MapFlags, UprobeMultiOpts, UprobeOpts};
use whywait_stacks::{TlsCall, TlsFile, TlsLibraries};

use crate::core::collector::{Collector, Keeper};
use crate::core::error::CaptureError;
use crate::core::kernel;
use crate::core::limits;
use crate::core::options::Options;
use crate::core::programs::Programs;
use crate::core::shared::{Shared, Stage};

/// The program at the probes of a library, where the kernel sets all of them at once…
pub(crate) const AT_ALL: &str = "tls_probes";
/// … and else at each of them.
pub(crate) const AT_EACH: &str = "tls_probe_alone";

/// Its other programs are the hooks of sockets.
pub(crate) const COLLECTOR: Collector = Collector {
    configure: |configuration| {
        configuration.variables.tls_wanted = configuration.options.tls;
        configuration.variables.tls_disables_preemption =
            kernel::calls_without_preemption(configuration.kernel);
    },
    keeper: |_| Box::new(TlsProbes::default()),
    ..Collector::NONE
};

/// As often a process is asked which libraries it has loaded: one may come later…
const AGAIN: Duration = Duration::from_secs(1);
/// … and as often as long as it is young: it may be about to run another program, or to load them.
const YOUNG_AGAIN: Duration = Duration::from_millis(20);
/// So long it is young.
const YOUNG: Duration = Duration::from_secs(3);

/// As state.bpf.h has them.
const WRITES: u64 = 1;
const COUNTS: u64 = 2;
const GO: u64 = 4;
const RETURNS: u64 = 8;
const PROBES_NONE: u8 = 0;
const PROBES_SET: u8 = 1;

fn cookie(call: TlsCall) -> u64 {
    match call {
        TlsCall::Read => 0,
        TlsCall::ReadEx => COUNTS,
        TlsCall::Write => WRITES,
        TlsCall::WriteEx => WRITES | COUNTS,
        TlsCall::GoRead => GO,
        TlsCall::GoWrite => GO | WRITES,
    }
}

/// What is known of a process of the target.
struct TlsProcess {
    /// It was seen first.
    seen: Instant,
    looked: Option<Instant>,
    /// The files that have their probes, or cannot have them.
    files: BTreeSet<(u64, u64)>,
    links: Vec<Link>,
    /// That is said of it to the programs.
    told: Option<u8>,
}

impl TlsProcess {
    /// Whether it has probes, as far as that can be said.
    fn probes(&self, was_there: bool) -> Option<u8> {
        if !self.links.is_empty() {
            Some(PROBES_SET)
        } else if was_there || self.seen.elapsed() >= YOUNG {
            Some(PROBES_NONE)
        } else {
            None
        }
    }

    fn is_due(&self) -> bool {
        let again = match self.seen.elapsed() < YOUNG {
            true => YOUNG_AGAIN,
            false => AGAIN,
        };
        self.looked.is_none_or(|looked| looked.elapsed() >= again)
    }
}

#[derive(Default)]
struct TlsProbes {
    /// Clear text was asked for, …
    asked: bool,
    /// … and is still to be looked for.
    wanted: bool,
    target_waits: bool,
    libraries: TlsLibraries,
    processes: BTreeMap<u32, TlsProcess>,
    set: u64,
    refused: u64,
}

impl Keeper for TlsProbes {
    fn start(&mut self, _: &mut Programs, options: &Options) -> Result<(), CaptureError> {
        self.asked = options.tls;
        self.wanted = options.tls;
        self.target_waits = options.target_waits;
        Ok(())
    }

    fn look(&mut self, programs: &mut Programs, shared: &mut Shared) -> Result<(), CaptureError> {
        let were_there = shared.stage == Stage::Begins && !self.target_waits;
        self.set_probes(programs, shared, were_there);
        Ok(())
    }

    fn turn(&mut self, programs: &mut Programs, shared: &mut Shared) -> Result<(), CaptureError> {
        self.set_probes(programs, shared, false);
        Ok(())
    }

    fn stop(&mut self) {
        self.wanted = false;
        self.processes.clear();
    }

    fn counters(&mut self, _: &Programs) -> Vec<(String, u64)> {
        match self.asked {
            true => vec![
                ("tls.libraries".to_owned(), self.set),
                ("tls.libraries-refused".to_owned(), self.refused),
            ],
            false => Vec::new(),
        }
    }
}

impl TlsProbes {
    /// In processes that are new, and now and then in all of them.
    /// `were_there`: they are none that are just being started.
    fn set_probes(&mut self, programs: &mut Programs, shared: &Shared, were_there: bool) {
        if !self.wanted {
            return;
        }
        let all = shared.processes.all();
        self.processes
            .retain(|tgid, _| all.binary_search(tgid).is_ok());
        for tgid in all {
            let process = self.processes.entry(tgid).or_insert_with(|| TlsProcess {
                seen: Instant::now(),
                looked: None,
                files: BTreeSet::new(),
                links: Vec::new(),
                told: None,
            });
            if process.is_due() {
                process.looked = Some(Instant::now());
                self.set_in(programs, tgid, were_there);
            }
        }
    }

    fn set_in(&mut self, programs: &mut Programs, tgid: u32, was_there: bool) {
        let files = self.libraries.of(tgid);
        let Some(process) = self.processes.get_mut(&tgid) else {
            return;
        };
        for file in files {
            if !process.files.insert(file.key) {
                continue;
            }
            match attach(programs, tgid, &file) {
                Ok(links) => {
                    self.set += 1;
                    process.links.extend(links);
                }
                Err(error) => {
                    if self.refused == 0 {
                        programs.notes.push(format!(
                            "what process {tgid} sends and receives in TLS cannot be looked at: \
                             the kernel takes no probe: {error}"
                        ));
                    }
                    self.refused += 1;
                }
            }
        }
        let probes = process.probes(was_there);
        if let Some(probes) = probes.filter(|_| process.told != probes) {
            process.told = Some(probes);
            let map = &programs.skel.maps.tls_processes;
            // Without it nothing is seen of its connections in TLS.
            let _ = map.update(&tgid.to_ne_bytes(), &[probes], MapFlags::ANY);
        }
    }
}

/// Sets the probes of a library in a process: all of them, or none.
fn attach(programs: &mut Programs, tgid: u32, file: &TlsFile) -> Result<Vec<Link>, String> {
    let mut places = Vec::new();
    // First where calls end: of what is under way nothing is known then, and nothing is missed.
    for function in &*file.functions {
        let does = cookie(function.call);
        places.extend(
            function
                .returns
                .iter()
                .map(|at| (*at as usize, does | RETURNS)),
        );
        places.push((function.begins as usize, does));
    }
    let progs = &programs.skel.progs;
    let links = if programs.runs(AT_ALL) {
        let (offsets, cookies) = places.into_iter().unzip();
        let options = UprobeMultiOpts {
            offsets,
            cookies,
            ..UprobeMultiOpts::default()
        };
        let program = &progs.tls_probes;
        let link = program.attach_uprobe_multi_with_opts(tgid as i32, &file.path, "", options);
        link.map(|link| vec![link])
    } else {
        limits::take_descriptors(places.len()).map_err(|error| error.to_string())?;
        let attach = |(at, cookie)| {
            let options = UprobeOpts {
                cookie,
                ..UprobeOpts::default()
            };
            let program = &progs.tls_probe_alone;
            program.attach_uprobe_with_opts(tgid as i32, &file.path, at, options)
        };
        places.into_iter().map(attach).collect()
    };
    links.map_err(|error| format!("{error:#}"))
}
