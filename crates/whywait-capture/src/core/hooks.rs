//! The programs at tracepoints and functions are loaded by two threads: most of a start is the
//! verifier, and the kernel verifies programs of one process on as many CPUs as there are.
//!
//! libbpf loads the programs of an object one by one. So these are loaded here, from what libbpf
//! has made of them by then: with the places of fields in this kernel, and with the object's maps.
//!
//! On a machine with two CPUs the target would have none meanwhile: its requests took up to 10 ms
//! then, where they take up to 5 beside one thread. So there are two only where there are more
//! CPUs, or the target waits to begin.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null;
use std::slice;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{io, iter};

use libbpf_rs::btf::{Btf, types};
use libbpf_rs::{AsRawLibbpf, OpenObject};

use super::error::{CaptureError, one_line};
use super::options::Options;
use super::perf;
use super::refused::{self, Refused};

/// The object's licence.
const LICENSE: &CStr = c"Dual BSD/GPL";

/// The CPUs that two threads leave nothing of.
const CPUS: usize = 2;

/// Room for what the verifier says of a program that it refuses.
const LOG_BYTES: usize = 16 << 20;

/// Whether two threads are to load programs.
pub(crate) fn are_loaded_by_two(options: &Options) -> bool {
    options.target_waits || perf::online_cpus().len() > CPUS
}

/// Has libbpf do all but load the programs: it makes the maps, and puts the places of fields in
/// this kernel into the instructions.
pub(crate) fn prepare(object: &mut OpenObject) -> libbpf_rs::Result<()> {
    // SAFETY: the object is open, and nobody else has it.
    let failed = unsafe { libbpf_sys::bpf_object__prepare(object.as_libbpf_object().as_ptr()) };
    match failed {
        0 => Ok(()),
        error => Err(libbpf_rs::Error::from_raw_os_error(-error)),
    }
}

/// A program as the kernel takes it.
#[derive(Debug)]
struct Ready {
    name: CString,
    attach_type: u32,
    /// The tracepoint or the function, in the kernel's BTF.
    attach_to: u32,
    /// The object's BTF, which lives as long as the object.
    btf_fd: u32,
    instructions: Vec<libbpf_sys::bpf_insn>,
    functions: Vec<libbpf_sys::bpf_func_info>,
    lines: Vec<libbpf_sys::bpf_line_info>,
}

/// A program that was loaded.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) name: String,
    attach_type: u32,
    pub(crate) fd: OwnedFd,
}

impl Loaded {
    /// Has it run at its tracepoint or function for as long as the result lives.
    pub(crate) fn attach(&self) -> io::Result<OwnedFd> {
        // SAFETY: the program's descriptor lives; the one that the call returns is nobody else's.
        unsafe {
            let fd = self.fd.as_raw_fd();
            match libbpf_sys::bpf_link_create(fd, 0, self.attach_type, null()) {
                link @ 0.. => Ok(OwnedFd::from_raw_fd(link)),
                error => Err(io::Error::from_raw_os_error(-error)),
            }
        }
    }
}

/// Takes the programs that are loaded here out of an object that is prepared.
pub(crate) fn take(object: &mut OpenObject, kernel: &Btf<'_>) -> Queue {
    // SAFETY: the object lives, and has its BTF since it was prepared.
    let btf_fd = unsafe { libbpf_sys::bpf_object__btf_fd(object.as_libbpf_object().as_ptr()) };
    let mut waiting = Vec::new();
    for mut program in object.progs_mut().filter(|program| program.autoload()) {
        let section = program.section().to_string_lossy();
        // Where the place is missing, libbpf says so.
        let Some((attach_type, attach_to)) = place(&section, kernel) else {
            continue;
        };
        let raw = program.as_libbpf_object().as_ptr();
        // SAFETY: the program lives as long as the object; libbpf says how many there are of each.
        let (functions, lines) = unsafe {
            (
                copy(
                    libbpf_sys::bpf_program__func_info(raw),
                    libbpf_sys::bpf_program__func_info_cnt(raw),
                ),
                copy(
                    libbpf_sys::bpf_program__line_info(raw),
                    libbpf_sys::bpf_program__line_info_cnt(raw),
                ),
            )
        };
        let name = program.name().to_string_lossy().into_owned();
        waiting.push(Ready {
            name: CString::new(name).unwrap_or_default(),
            attach_type,
            attach_to,
            btf_fd: btf_fd.cast_unsigned(),
            instructions: program.insns().to_vec(),
            functions,
            lines,
        });
        program.set_autoload(false);
    }
    // The longest first, so that both threads are done at the same time.
    waiting.sort_by_key(|program| program.instructions.len());
    Queue(Mutex::new(waiting))
}

/// Programs that are to be loaded, the longest last.
#[derive(Debug)]
pub(crate) struct Queue(Mutex<Vec<Ready>>);

impl Queue {
    /// Loads those that nobody has begun with.
    pub(crate) fn load(&self) -> Result<Vec<Loaded>, CaptureError> {
        let loaded = iter::from_fn(|| self.waiting().pop()).map(|program| program.load());
        loaded
            .collect::<Result<_, _>>()
            .inspect_err(|_| self.forget())
    }

    /// Has nobody begin with one more.
    pub(crate) fn forget(&self) {
        self.waiting().clear();
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Ready>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// # Safety
///
/// There are so many at `first`, or it is null.
unsafe fn copy<T: Clone>(first: *const T, count: u32) -> Vec<T> {
    if first.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller says so.
    unsafe { slice::from_raw_parts(first, count as usize) }.to_vec()
}

/// Where programs of this section run: how they are attached, and to what of the kernel's BTF.
fn place(section: &str, kernel: &Btf<'_>) -> Option<(u32, u32)> {
    let (kind, to) = section.split_once('/')?;
    let function = || kernel.type_by_name::<types::Func<'_>>(to);
    let (attach_type, id) = match kind {
        "tp_btf" => {
            let to = format!("btf_trace_{to}");
            let tracepoint = kernel.type_by_name::<types::Typedef<'_>>(&to)?;
            (libbpf_sys::BPF_TRACE_RAW_TP, tracepoint.type_id())
        }
        "fentry" => (libbpf_sys::BPF_TRACE_FENTRY, function()?.type_id()),
        "fexit" => (libbpf_sys::BPF_TRACE_FEXIT, function()?.type_id()),
        _ => return None,
    };
    Some((attach_type, id.into()))
}

impl Ready {
    fn load(&self) -> Result<Loaded, CaptureError> {
        let fd = self.try_to_load(None).or_else(|_| {
            // Once more for the reason, as libbpf does.
            let mut log = vec![0; LOG_BYTES];
            self.try_to_load(Some(&mut log)).map_err(|reason| {
                let said = CStr::from_bytes_until_nul(&log).unwrap_or_default();
                let said = said.to_string_lossy();
                let error = libbpf_rs::Error::from(reason);
                CaptureError::of_limits(&error).unwrap_or_else(|| CaptureError::Load {
                    reason: one_line(&error),
                    refused: Some(Refused {
                        program: self.name.to_string_lossy().into_owned(),
                        why: refused::last_line(&said)
                            .map_or_else(|| one_line(&error), str::to_owned),
                    }),
                })
            })
        })?;
        Ok(Loaded {
            name: self.name.to_string_lossy().into_owned(),
            attach_type: self.attach_type,
            fd,
        })
    }

    fn try_to_load(&self, log: Option<&mut [u8]>) -> io::Result<OwnedFd> {
        let mut options = libbpf_sys::bpf_prog_load_opts {
            sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as libbpf_sys::size_t,
            expected_attach_type: self.attach_type,
            attach_btf_id: self.attach_to,
            prog_btf_fd: self.btf_fd,
            func_info: self.functions.as_ptr().cast(),
            func_info_cnt: self.functions.len() as u32,
            func_info_rec_size: size_of::<libbpf_sys::bpf_func_info>() as u32,
            line_info: self.lines.as_ptr().cast(),
            line_info_cnt: self.lines.len() as u32,
            line_info_rec_size: size_of::<libbpf_sys::bpf_line_info>() as u32,
            ..Default::default()
        };
        if let Some(log) = log {
            options.log_level = 1;
            options.log_size = log.len() as u32;
            options.log_buf = log.as_mut_ptr().cast();
        }
        // SAFETY: all that the options point to lives until the call returns; the descriptor that
        // it returns is nobody else's.
        unsafe {
            let fd = libbpf_sys::bpf_prog_load(
                libbpf_sys::BPF_PROG_TYPE_TRACING,
                self.name.as_ptr(),
                LICENSE.as_ptr(),
                self.instructions.as_ptr(),
                self.instructions.len() as libbpf_sys::size_t,
                &raw mut options,
            );
            match fd {
                0.. => Ok(OwnedFd::from_raw_fd(fd)),
                error => Err(io::Error::from_raw_os_error(-error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_have_the_objects_licence() {
        let source = include_str!("whywait.bpf.c");
        let license = LICENSE.to_string_lossy();
        let says = format!("SEC(\"license\") = \"{license}\";");
        assert!(
            source.contains(&says),
            "whywait.bpf.c has another licence than {license}"
        );
    }
}
