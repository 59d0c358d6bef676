//! BPF iterators: programs that walk the kernel's tasks, files and sockets when read.
#![allow(unsafe_code)]

use std::io::{self, Read};
use std::ptr::NonNull;

use libbpf_rs::{AsRawLibbpf, Iter, Link, ProgramMut};

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

/// Walks once and returns what the program wrote.
pub(crate) fn read(link: &Link, output: &mut Vec<u8>) -> io::Result<()> {
    output.clear();
    let mut iter =
        Iter::new(link).map_err(|error| io::Error::new(error_kind(&error), error.to_string()))?;
    let mut buffer = [0u8; 64 * 1024];
    loop {
        match iter.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => output.extend_from_slice(&buffer[..n]),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                ) => {}
            Err(error) => return Err(error),
        }
    }
}

fn error_kind(error: &libbpf_rs::Error) -> io::ErrorKind {
    match error.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
        libbpf_rs::ErrorKind::NotFound => io::ErrorKind::NotFound,
        _ => io::ErrorKind::Other,
    }
}
