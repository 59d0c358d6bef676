//! Programs that are loaded in a second thread: most of a start is the verifier, and the kernel
//! verifies programs of one process on as many CPUs as there are.
//!
//! libbpf loads the programs of an object one by one. So the object is opened twice, with one set
//! of maps, and each of the two loads its part of the programs.
//!
//! On a machine with two CPUs the target would have none meanwhile: its requests took up to 10 ms
//! then, where they take up to 5 beside one thread. So that is done only where there are more, or
//! the target waits to begin.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;

use libbpf_rs::{AsRawLibbpf, ObjectBuilder, OpenObject};

use super::options::Options;
use super::perf;

/// Those programs. They take the verifier as long as all others together: what is read from sockets
/// and written to them ends in the same functions, which are verified once for each program. Where
/// functions take the place of tracepoints, there are four of each.
const PROGRAMS: [&str; 6] = [
    "sock_recv_length",
    "sock_send_length",
    "inet_recvmsg",
    "inet6_recvmsg",
    "unix_stream_recvmsg",
    "unix_dgram_recvmsg",
];

/// The CPUs that two threads leave nothing of.
const CPUS: usize = 2;

/// Whether there is to be a second object.
pub(crate) fn is_wanted(options: &Options) -> bool {
    options.target_waits || perf::online_cpus().len() > CPUS
}

/// Whether the second object loads this program, where there is one.
pub(crate) fn is_beside(program: &str) -> bool {
    PROGRAMS.contains(&program)
}

/// Opens an object again. Its maps must have the first one's names.
pub(crate) fn open(data: &[u8], name: &str) -> libbpf_rs::Result<OpenObject> {
    ObjectBuilder::default().name(name)?.open_memory(data)
}

/// Makes an object's maps, and loads no program yet.
pub(crate) fn make_maps(object: &mut OpenObject) -> libbpf_rs::Result<()> {
    // SAFETY: the object is open, and nobody else has it.
    let failed = unsafe { libbpf_sys::bpf_object__prepare(object.as_libbpf_object().as_ptr()) };
    match failed {
        0 => Ok(()),
        error => Err(libbpf_rs::Error::from_raw_os_error(-error)),
    }
}

/// Has the second object use the maps that the first one made.
pub(crate) fn share_maps(first: &OpenObject, second: &mut OpenObject) -> libbpf_rs::Result<()> {
    // They come from the same file: the same maps in the same order.
    for (made, mut map) in first.maps().zip(second.maps_mut()) {
        // SAFETY: the map is made, and its descriptor is the first object's, which lives.
        let made = unsafe {
            let fd = libbpf_sys::bpf_map__fd(made.as_libbpf_object().as_ptr());
            BorrowedFd::borrow_raw(fd)
        };
        map.reuse_fd(made)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::skel::DATA;

    #[test]
    fn they_are_programs_of_the_object() {
        let object = open(&DATA, "whywait").expect("an object");
        for name in PROGRAMS {
            let has = object.progs().any(|program| program.name() == name);
            assert!(has, "the object has no program {name}");
        }
    }
}
