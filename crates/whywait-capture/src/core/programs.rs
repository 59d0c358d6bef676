//! The BPF programs: configured as the collectors want them, loaded, attached, taken off.
#![allow(unsafe_code)]

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::panic::resume_unwind;
use std::path::Path;
use std::thread;

use libbpf_rs::btf::Btf;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{MapHandle, MapType, OpenMapMut};

use super::collector::{Collector, Configuration};
use super::error::{CaptureError, one_line};
use super::functions::Functions;
use super::options::Options;
use super::refused::Refused;
use super::skel::{OpenWhywaitSkel, WhywaitSkel, WhywaitSkelBuilder, types};
use super::target::Target;
use super::tier::{Chosen, KernelHas, Tier};
use super::{hooks, kernel, limits, refused};
use crate::collectors;

/// The loaded programs.
pub(crate) struct Programs {
    pub(crate) skel: WhywaitSkel<'static>,
    /// Those at tracepoints and functions.
    at_hooks: Vec<hooks::Loaded>,
    attached: Vec<OwnedFd>,
    /// Those at functions.
    attached_to_functions: Vec<OwnedFd>,
    /// Which of them this kernel runs.
    chosen: Chosen,
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
        if !kernel::walks_one_process(&btf) {
            return Err(CaptureError::TooOld);
        }
        let load = |refuses_functions| {
            Functions::of(&btf, &options.refused_functions).load(|functions| {
                let chosen = choose(&btf, options, refuses_functions);
                Self::load_with(options, servers as u32, &btf, functions, chosen)
            })
        };
        match load(None) {
            Err(error) if !choose(&btf, options, None).at_functions.is_empty() => {
                match refusal(&error) {
                    Some(why) => load(Some(&why)),
                    None => Err(error),
                }
            }
            other => other,
        }
    }

    fn load_with(
        options: &Options,
        servers: u32,
        btf: &Btf<'_>,
        functions: &Functions,
        chosen: Chosen,
    ) -> Result<Self, CaptureError> {
        let mut notes = functions.notes();
        // One object for the life of the process: the skeleton borrows from it.
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let data = functions.object();
        let builder = WhywaitSkelBuilder {
            data,
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
        notes.extend_from_slice(&chosen.notes);
        for mut map in open.open_object_mut().maps_mut() {
            if is_zeroed(map.name()) {
                make_zeroed(&mut map).map_err(|error| load_error(&error))?;
            }
        }
        // For each server, and for what is of none.
        let places = types::whose::WHOSE_COUNT.0 * (servers + 1);
        let totals = open.maps.totals.set_max_entries(places);
        totals.map_err(|error| load_error(&error))?;
        if !options.names.any() {
            let names = open.maps.names.set_max_entries(1);
            names.map_err(|error| load_error(&error))?;
        }
        if !options.tls {
            for map in [&mut open.maps.tls_calls, &mut open.maps.tls_sessions] {
                let made = map.set_max_entries(1);
                made.map_err(|error| load_error(&error))?;
            }
        }
        let (skel, at_hooks) = load(open, btf, hooks::are_loaded_by_two(options), &chosen)?;
        let mut programs = Self {
            skel,
            at_hooks,
            attached: Vec::new(),
            attached_to_functions: Vec::new(),
            chosen,
            user_stacks_exact,
            found: BTreeSet::new(),
            functions: functions.clone(),
            servers,
            notes,
        };
        // Only to try it tells whether the kernel takes them. They do nothing until all of the
        // sockets' programs run: to attach one takes milliseconds.
        programs.attach_to_functions()?;
        Ok(programs)
    }

    fn attach_to_functions(&mut self) -> Result<(), CaptureError> {
        if self.attached_to_functions.is_empty() {
            let functions = self.chosen.at_functions.iter();
            let links = functions.map(|function| self.attach_program(function, function));
            self.attached_to_functions = links.collect::<Result<_, _>>()?;
        }
        Ok(())
    }

    /// Attaches a program to where it belongs; `to`: what that is called, for errors.
    fn attach_program(
        &self,
        program: &'static str,
        to: &'static str,
    ) -> Result<OwnedFd, CaptureError> {
        let error = |reason: String| CaptureError::Attach {
            program: to,
            reason,
        };
        let program = self
            .at_hooks
            .iter()
            .find(|found| found.name == program)
            .ok_or_else(|| error("no such program".to_owned()))?;
        program.attach().map_err(|reason| {
            let reason = reason.into();
            CaptureError::of_limits(&reason).unwrap_or_else(|| error(one_line(&reason)))
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
        self.attach_to_functions()?;
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
    pub(crate) fn attach(&mut self, collector: &Collector) -> Result<Vec<OwnedFd>, CaptureError> {
        let hooks = collector.hooks.iter();
        let hooks: Vec<_> = hooks
            .filter(|hook| !self.chosen.left_out.contains(hook.program))
            .collect();
        hooks
            .into_iter()
            .map(|hook| self.attach_program(hook.program, hook.tracepoint))
            .collect()
    }

    /// Whether this kernel has all that a collector's hooks need.
    pub(crate) fn has_all(&self, collector: &Collector) -> bool {
        self.chosen.has_all(collector)
    }

    /// Whether this program was loaded, of those at no tracepoint.
    pub(crate) fn runs(&self, program: &str) -> bool {
        !self.chosen.left_out.contains(program)
    }

    /// By which means it is watched.
    pub(crate) fn tier(&self) -> Tier {
        self.chosen.tier
    }

    /// Takes everything off.
    pub(crate) fn detach(&mut self) {
        self.attached.clear();
        self.attached_to_functions.clear();
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

    /// The programs that were loaded: names and descriptors.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Cow<'_, str>, BorrowedFd<'_>)> {
        let programs = self.skel.object().progs_mut();
        let by_libbpf = programs
            .filter(|program| program.autoload())
            .map(|program| {
                let name = program.name().to_string_lossy().into_owned();
                // SAFETY: it is loaded, and is so for as long as the object lives.
                let fd = unsafe { BorrowedFd::borrow_raw(program.as_fd().as_raw_fd()) };
                (Cow::Owned(name), fd)
            });
        let at_hooks = self.at_hooks.iter();
        by_libbpf.chain(at_hooks.map(|it| (Cow::Borrowed(&*it.name), it.fd.as_fd())))
    }
}

/// Loads what was chosen of the programs, in one thread or in two: also those at
/// tracepoints and functions, which are nobody else's.
fn load(
    mut open: OpenWhywaitSkel<'static>,
    kernel: &Btf<'_>,
    in_two: bool,
    chosen: &Chosen,
) -> Result<(WhywaitSkel<'static>, Vec<hooks::Loaded>), CaptureError> {
    let error = |error: libbpf_rs::Error| load_error(&error);
    let object = open.open_object_mut();
    let mut programs = 0;
    for mut program in object.progs_mut() {
        let name = program.name().to_string_lossy();
        let is_chosen = match is_at_function(&program.section().to_string_lossy()) {
            true => chosen.at_functions.contains(&*name),
            false => !chosen.left_out.contains(&*name),
        };
        programs += usize::from(is_chosen);
        program.set_autoload(is_chosen);
    }
    // Its maps have theirs since it is open.
    limits::take_descriptors(programs)?;
    hooks::prepare(object).map_err(error)?;
    let queue = hooks::take(object, kernel);
    thread::scope(|scope| {
        let second = in_two
            .then(|| thread::Builder::new().spawn_scoped(scope, || queue.load()))
            .transpose()
            .map_err(|reason| CaptureError::Load {
                reason: format!("no thread can be started: {reason}"),
                refused: None,
            })?;
        let skel = open.load().inspect_err(|_| queue.forget()).map_err(error)?;
        let mut loaded = queue.load()?;
        if let Some(second) = second {
            loaded.extend(second.join().unwrap_or_else(|panic| resume_unwind(panic))?);
        }
        Ok((skel, loaded))
    })
}

/// What of the programs this kernel runs.
fn choose(btf: &Btf<'_>, options: &Options, refuses_functions: Option<&str>) -> Chosen {
    let has_tracepoint = |tracepoint: &str| {
        !options.absent_tracepoints.contains(&tracepoint) && kernel::has_tracepoint(btf, tracepoint)
    };
    let mut chosen = Chosen::of(
        &collectors::ALL,
        &KernelHas {
            has_tracepoint: &has_tracepoint,
            has_function: &|function| kernel::has_function(btf, function),
            refuses_functions,
        },
    );
    let [other, at_probes] = match kernel::sets_probes_at_once(btf) {
        true => [collectors::tls::AT_EACH, collectors::tls::AT_ALL],
        false => [collectors::tls::AT_ALL, collectors::tls::AT_EACH],
    };
    chosen.left_out.insert(other);
    if !options.tls {
        chosen.left_out.insert(at_probes);
    }
    chosen
}

/// Why the kernel does not take programs at functions, if that may be what it did not take.
fn refusal(error: &CaptureError) -> Option<String> {
    match error {
        CaptureError::Load { refused, reason } => {
            Some(refused.as_ref().map_or(reason.clone(), Refused::to_string))
        }
        CaptureError::Attach { program, reason } => Some(format!("{program}: {reason}")),
        CaptureError::NotPermitted(_) => Some("not permitted".to_owned()),
        _ => None,
    }
}

/// Whether programs of this section run at functions.
fn is_at_function(section: &str) -> bool {
    section.starts_with("fentry/") || section.starts_with("fexit/")
}

/// Whether this is the map of a section of variables that begin as zero, but for the one that
/// everything is in that has no section of its own.
fn is_zeroed(map: &OsStr) -> bool {
    map.as_encoded_bytes().starts_with(b".bss.")
}

/// Makes such a map, as it comes from the kernel: libbpf would fill it with zeros once more, which
/// takes 70 ms for all of them.
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
    fn every_program_at_a_tracepoint_or_a_function_is_a_collectors() {
        let mut storage = MaybeUninit::uninit();
        let open = WhywaitSkelBuilder::default()
            .open(&mut storage)
            .expect("an object");
        let is_hook = |section: &str| section.starts_with("tp_btf/") || is_at_function(section);
        let programs: BTreeSet<(String, String)> = open
            .open_object()
            .progs()
            .map(|program| (program.section(), program.name()))
            .map(|(section, name)| (section.to_string_lossy(), name.to_string_lossy()))
            .filter(|(section, _)| is_hook(section))
            .map(|(section, name)| (section.into_owned(), name.into_owned()))
            .collect();
        let hooks = collectors::ALL.iter().flat_map(|collector| collector.hooks);
        let at_tracepoints = hooks.clone().map(|hook| {
            (
                format!("tp_btf/{}", hook.tracepoint),
                hook.program.to_owned(),
            )
        });
        let functions = hooks.flat_map(|hook| hook.functions);
        let at_functions = functions.map(|function| {
            let kind = match function.name {
                "sock_def_readable" => "fentry",
                _ => "fexit",
            };
            (
                format!("{kind}/{}", function.name),
                function.name.to_owned(),
            )
        });
        let hooks = at_tracepoints.chain(at_functions).collect();
        assert_eq!(programs, hooks);
    }
}
