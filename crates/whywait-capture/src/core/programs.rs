//! The BPF programs: configured as the collectors want them, loaded, attached, taken off.

use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::Path;

use libbpf_rs::btf::Btf;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Link, MapHandle, MapType, Object, OpenMapMut};

use super::collector::{Collector, Configuration, Hook};
use super::error::{CaptureError, one_line};
use super::functions::Functions;
use super::options::Options;
use super::skel::{WhywaitSkel, WhywaitSkelBuilder, types};
use super::target::Target;
use super::{kernel, limits, refused};
use crate::collectors;

/// The loaded programs.
pub(crate) struct Programs {
    pub(crate) skel: WhywaitSkel<'static>,
    attached: Vec<Link>,
    /// Programs that this kernel has no tracepoint for.
    left_out: BTreeSet<&'static str>,
    /// A thread can leave its stack whatever it slept in.
    pub(crate) user_stacks_exact: bool,
    /// The target's processes, as they were when their threads were looked for.
    pub(crate) found: BTreeSet<u32>,
    /// So many servers are kept apart.
    pub(crate) servers: u32,
    /// The kernel's functions that are called.
    pub(crate) functions: Functions,
    /// What this kernel could not give, for the recording's notes.
    pub(crate) notes: Vec<String>,
}

impl Programs {
    /// Loads the programs, which keep so many servers apart; nothing runs yet.
    pub(crate) fn load(options: &Options, servers: usize) -> Result<Self, CaptureError> {
        refused::listen();
        if !Path::new("/sys/kernel/btf/vmlinux").exists() {
            return Err(CaptureError::NoBtf);
        }
        limits::take_memory()?;
        let btf = Btf::from_vmlinux().map_err(|error| load_error(&error))?;
        Functions::of(&btf, &options.refused_functions)
            .load(|functions| Self::load_with(options, servers as u32, &btf, functions))
    }

    fn load_with(
        options: &Options,
        servers: u32,
        btf: &Btf<'_>,
        functions: &Functions,
    ) -> Result<Self, CaptureError> {
        let mut notes = functions.notes();
        // One object for the life of the process: the skeleton borrows from it.
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let builder = WhywaitSkelBuilder {
            data: functions.object(),
            ..WhywaitSkelBuilder::default()
        };
        let mut open = builder.open(storage).map_err(|error| load_error(&error))?;
        let mut user_stacks_exact = false;
        if let Some(variables) = open.maps.rodata_data.as_deref_mut() {
            variables.threshold_ns = options.threshold_ns;
            variables.stack_bytes = options.stack_bytes;
            variables.hooks_do_nothing = options.hooks_do_nothing;
            variables.servers_apart = servers > 0;
            for collector in collectors::ALL {
                (collector.configure)(&mut Configuration {
                    kernel: btf,
                    functions,
                    options,
                    variables,
                    notes: &mut notes,
                });
            }
            user_stacks_exact = variables.user_stacks_exact;
        }
        let has = |hook: &Hook| {
            !options.absent_tracepoints.contains(&hook.tracepoint)
                && kernel::has_tracepoint(btf, hook.tracepoint)
        };
        let left_out = left_out(has, &mut notes);
        for mut program in open.open_object_mut().progs_mut() {
            if left_out.contains(&*program.name().to_string_lossy()) {
                program.set_autoload(false);
            }
        }
        for map in [
            &mut open.maps.bss_threads,
            &mut open.maps.bss_sockets,
            &mut open.maps.bss_arrivals,
        ] {
            make_zeroed(map).map_err(|error| load_error(&error))?;
        }
        // For each server two places, and two for what is of none.
        let totals = open.maps.totals.set_max_entries(2 * (servers + 1));
        totals.map_err(|error| load_error(&error))?;
        let object = open.open_object();
        let (programs, maps) = (object.progs().count(), object.maps().count());
        limits::take_descriptors(programs, maps)?;
        let skel = open.load().map_err(|error| load_error(&error))?;
        Ok(Self {
            skel,
            attached: Vec::new(),
            left_out,
            user_stacks_exact,
            found: BTreeSet::new(),
            functions: functions.clone(),
            servers,
            notes,
        })
    }

    /// Takes in what is there already, and has the hooks of all collectors run from now on.
    pub(crate) fn begin(&mut self, target: &Target) -> Result<(), CaptureError> {
        for collector in collectors::ALL {
            (collector.before)(self, target)?;
            self.attach_for_good(collector)?;
            (collector.after)(self, target)?;
        }
        Ok(())
    }

    /// Has the hooks of all collectors run again.
    pub(crate) fn attach_all(&mut self) -> Result<(), CaptureError> {
        collectors::ALL
            .into_iter()
            .try_for_each(|collector| self.attach_for_good(collector))
    }

    fn attach_for_good(&mut self, collector: &Collector) -> Result<(), CaptureError> {
        if !collector.on_demand {
            let links = self.attach(collector)?;
            self.attached.extend(links);
        }
        Ok(())
    }

    /// Has the hooks of a collector run for as long as the links live, but for those that were left
    /// out.
    pub(crate) fn attach(&mut self, collector: &Collector) -> Result<Vec<Link>, CaptureError> {
        let left_out = &self.left_out;
        collector
            .hooks
            .iter()
            .filter(|hook| !left_out.contains(hook.program))
            .map(|hook| {
                let program = hook.tracepoint;
                let error = |reason: String| CaptureError::Attach { program, reason };
                let failed = |reason: &libbpf_rs::Error| {
                    CaptureError::of_limits(reason).unwrap_or_else(|| error(one_line(reason)))
                };
                let mut programs = self.skel.object_mut().progs_mut();
                let program = programs
                    .find(|program| program.name() == hook.program)
                    .ok_or_else(|| error("no such program".to_owned()))?;
                program.attach().map_err(|reason| failed(&reason))
            })
            .collect()
    }

    /// Whether this kernel has all that a collector's hooks need.
    pub(crate) fn has_all(&self, collector: &Collector) -> bool {
        let left_out = |hook: &Hook| self.left_out.contains(hook.program);
        !collector.hooks.iter().any(left_out)
    }

    /// Takes everything off.
    pub(crate) fn detach(&mut self) {
        self.attached.clear();
    }

    /// The variables that programs and user space share.
    pub(crate) fn variables(&self) -> Option<&types::bss> {
        self.skel.maps.bss_data.as_deref()
    }

    /// The same, to set them.
    pub(crate) fn variables_mut(&mut self) -> Option<&mut types::bss> {
        self.skel.maps.bss_data.as_deref_mut()
    }

    /// Whether the sampling clock ticks less often for now.
    pub(crate) fn clock_is_sparse(&self) -> bool {
        self.variables()
            .is_some_and(|variables| variables.clock_is_sparse)
    }

    /// Whether user space sleeps, and is to be woken for what cannot wait.
    pub(crate) fn wake_for_what_is_urgent(&mut self, sleeps: bool) {
        if let Some(variables) = self.variables_mut() {
            variables.user_space_sleeps = sleeps;
        }
    }

    pub(crate) fn object(&mut self) -> &mut Object {
        self.skel.object_mut()
    }
}

/// The programs that this kernel has no tracepoint for, with a note of what is missing without.
fn left_out(has: impl Fn(&Hook) -> bool, notes: &mut Vec<String>) -> BTreeSet<&'static str> {
    let mut left_out = BTreeSet::new();
    for collector in collectors::ALL {
        let lacking = collector.hooks.iter().filter(|hook| !has(hook));
        let lacking: Vec<(&Hook, &str)> = lacking
            .filter_map(|hook| Some((hook, hook.without?)))
            .collect();
        let said = if collector.all_or_none {
            1
        } else {
            lacking.len()
        };
        for (hook, without) in lacking.iter().take(said) {
            let tracepoint = hook.tracepoint;
            notes.push(format!(
                "this kernel has no tracepoint {tracepoint}: {without}"
            ));
        }
        if collector.all_or_none && !lacking.is_empty() {
            left_out.extend(collector.hooks.iter().map(|hook| hook.program));
        }
        left_out.extend(lacking.iter().map(|(hook, _)| hook.program));
    }
    left_out
}

/// Makes the map of a section of variables that begin as zero, as it comes from the kernel: libbpf
/// would fill it with zeros once more, which takes 40 ms for the states of threads and sockets.
fn make_zeroed(map: &mut OpenMapMut<'_>) -> libbpf_rs::Result<()> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        map_flags: libbpf_sys::BPF_F_MMAPABLE,
        ..Default::default()
    };
    let made = MapHandle::create(
        MapType::Array,
        Some(map.name()),
        size_of::<u32>() as u32,
        map.value_size(),
        1,
        &options,
    )?;
    map.reuse_fd(made.as_fd())
}

pub(crate) fn load_error(error: &libbpf_rs::Error) -> CaptureError {
    CaptureError::of_limits(error).unwrap_or_else(|| CaptureError::Load {
        reason: one_line(error),
        refused: refused::last(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_at_a_tracepoint_is_a_collectors() {
        let mut storage = MaybeUninit::uninit();
        let open = WhywaitSkelBuilder::default()
            .open(&mut storage)
            .expect("an object");
        let is_hook = |section: &str| section.starts_with("tp_btf/");
        let programs: BTreeSet<(String, String)> = open
            .open_object()
            .progs()
            .map(|program| (program.section(), program.name()))
            .map(|(section, name)| (section.to_string_lossy(), name.to_string_lossy()))
            .filter(|(section, _)| is_hook(section))
            .map(|(section, name)| (section.into_owned(), name.into_owned()))
            .collect();
        let hooks = collectors::ALL.iter().flat_map(|collector| collector.hooks);
        let hooks: BTreeSet<(String, String)> = hooks
            .map(|hook| {
                (
                    format!("tp_btf/{}", hook.tracepoint),
                    hook.program.to_owned(),
                )
            })
            .collect();
        assert_eq!(programs, hooks);
    }

    #[test]
    fn without_its_tracepoint_a_program_is_left_out_with_a_note() {
        let mut notes = Vec::new();
        assert!(left_out(|_| true, &mut notes).is_empty() && notes.is_empty());
        let out = left_out(|hook| hook.tracepoint != "io_uring_create", &mut notes);
        assert_eq!(out, BTreeSet::from(["io_uring_create"]));
        assert_eq!(notes.len(), 1);
        notes.clear();
        let out = left_out(|hook| !hook.tracepoint.starts_with("sock_"), &mut notes);
        assert!(
            out.contains("sk_data_ready"),
            "requests need all four: {out:?}"
        );
        assert_eq!(
            notes
                .iter()
                .filter(|note| note.contains("requests"))
                .count(),
            1
        );
    }
}
