//! BPF iterators: programs that walk the kernel's tasks, files and sockets when read.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use libbpf_rs::{AsRawLibbpf, Link, ProgramMut};

use crate::core::error::{CaptureError, one_line};

/// Which tasks an iterator walks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All of the machine.
    All,
    /// The threads of one process (since Linux 6.1, the oldest kernel that is supported).
    Process(u32),
}

/// Attaches an iterator program to the tasks of `scope`.
pub(crate) fn attach(program: &ProgramMut<'_>, scope: Scope) -> io::Result<Link> {
    let mut info = libbpf_sys::bpf_iter_link_info::default();
    let mut options = libbpf_sys::bpf_iter_attach_opts {
        sz: size_of::<libbpf_sys::bpf_iter_attach_opts>() as _,
        ..Default::default()
    };
    if let Scope::Process(tgid) = scope {
        info.task.pid = tgid;
        options.link_info = &raw mut info;
        options.link_info_len = size_of::<libbpf_sys::bpf_iter_link_info>() as _;
    }
    // SAFETY: the program is loaded; the options and what they point to outlive the call.
    let link = unsafe {
        libbpf_sys::bpf_program__attach_iter(
            program.as_libbpf_object().as_ptr(),
            &raw const options,
        )
    };
    match NonNull::new(link) {
        // SAFETY: libbpf made the link and nobody else has it.
        Some(link) => Ok(unsafe { Link::from_ptr(link) }),
        None => Err(io::Error::last_os_error()),
    }
}

/// Attaches an iterator program to a storage of sockets. `what`: its name, for errors.
pub(crate) fn attach_to_sockets(
    program: &ProgramMut<'_>,
    storage: BorrowedFd<'_>,
    what: &'static str,
) -> Result<Link, CaptureError> {
    program.attach_iter(storage).map_err(|error| {
        CaptureError::of_limits(&error).unwrap_or_else(|| CaptureError::Attach {
            program: what,
            reason: one_line(&error),
        })
    })
}

/// The same, walks once and returns what the program wrote.
pub(crate) fn over_sockets(
    program: &ProgramMut<'_>,
    storage: BorrowedFd<'_>,
    what: &'static str,
) -> Result<Vec<u8>, CaptureError> {
    let link = attach_to_sockets(program, storage, what)?;
    let mut output = Vec::new();
    read(&link, &mut output).map_err(|source| CaptureError::Iterate { what, source })?;
    Ok(output)
}

/// So much is read at once: what one call of the kernel's gives at most.
const READ_BYTES: usize = 64 * 1024;

/// Walks once and returns what the program wrote, in a buffer that is meant to be used again.
pub(crate) fn read(link: &Link, output: &mut Vec<u8>) -> io::Result<()> {
    output.clear();
    // SAFETY: the link lives; the call returns a new descriptor, or an error.
    let fd = unsafe { libbpf_sys::bpf_iter_create(link.as_fd().as_raw_fd()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: nobody else has it.
    let walk = unsafe { OwnedFd::from_raw_fd(fd) };
    loop {
        // What is not read into is not written to either: a sweep that finds nothing is made a
        // hundred times a second.
        output.reserve(READ_BYTES);
        let room = output.spare_capacity_mut();
        // SAFETY: there is as much room as is said.
        let read = unsafe { libc::read(walk.as_raw_fd(), room.as_mut_ptr().cast(), room.len()) };
        match usize::try_from(read) {
            Ok(0) => return Ok(()),
            // SAFETY: the kernel has filled that many bytes of the room.
            Ok(read) => unsafe { output.set_len(output.len() + read) },
            Err(_) => {
                let error = io::Error::last_os_error();
                if !matches!(
                    error.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                ) {
                    return Err(error);
                }
            }
        }
    }
}
