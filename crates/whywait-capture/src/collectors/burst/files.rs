//! Which of a process's files are registered with epoll, as what; and what a descriptor is.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;

use crate::core::iterate::{self, Scope};
use crate::core::programs::Programs;
use crate::core::records::{Record, decode};
use crate::core::skel::types;

/// `S_IFMT` and its values of `linux/stat.h`.
const TYPE: u32 = 0o170_000;
const SOCKET: u32 = 0o140_000;
const FIFO: u32 = 0o010_000;
const REGULAR: u32 = 0o100_000;
const CHARACTER: u32 = 0o020_000;
/// `AF_PACKET` and `AF_XDP`: sockets whose packets may lie in shared memory.
const PACKET: u32 = 17;
const XDP: u32 = 44;
/// Files of which the same holds, or that are polled for.
const SHARED: [&str; 5] = [
    "perf_event",
    "bpf-map",
    "io_uring",
    "userfaultfd",
    "eventpoll",
];
/// `TCP_LISTEN` of `net/tcp_states.h`.
const LISTEN: u16 = 10;

/// What is known of a process's files.
#[derive(Default)]
pub(crate) struct Files {
    pub(crate) tgid: u32,
    /// All that are open are known.
    pub(crate) complete: bool,
    /// By the number that the program gave them.
    by_data: HashMap<u64, types::file_record>,
    by_fd: HashMap<i32, types::file_record>,
    /// The kernel's names of files that are none on a disk, as far as they were looked up.
    names: RefCell<HashMap<i32, String>>,
}

impl Files {
    pub(crate) fn read(programs: &Programs, tgid: u32) -> Self {
        let mut files = Self {
            tgid,
            ..Self::default()
        };
        let mut buffer = Vec::new();
        let walked = iterate::attach(&programs.skel.progs.burst_files, Scope::Process(tgid))
            .and_then(|link| iterate::read(&link, &mut buffer));
        if walked.is_err() {
            // It has ended: what its calls showed remains.
            return files;
        }
        let mut rest = buffer.as_slice();
        while let Some((record, size)) = decode(rest) {
            if let Record::File(file) = record {
                files.add(*file);
            }
            rest = &rest[size..];
        }
        files.complete = true;
        files
    }

    pub(crate) fn add(&mut self, file: types::file_record) {
        if file.registered != 0 {
            self.by_data.insert(file.data, file);
        }
        self.by_fd.insert(file.fd, file);
    }

    /// The file that epoll calls `data`.
    pub(crate) fn named(&self, data: u64) -> Option<&types::file_record> {
        self.by_data.get(&data)
    }

    /// The file under this descriptor, if it is a socket or registered with epoll.
    pub(crate) fn under(&self, fd: i32) -> Option<&types::file_record> {
        self.by_fd.get(&fd)
    }

    /// What a file is.
    pub(crate) fn kind(&self, fd: i32, mode: u32, state: u16, local_port: u16) -> String {
        let name = match mode & TYPE {
            SOCKET if state == LISTEN => "listener",
            SOCKET if local_port != 0 => "tcp",
            SOCKET => "socket",
            FIFO => "pipe",
            REGULAR => "file",
            CHARACTER => "device",
            _ => return self.anonymous(fd),
        };
        name.to_owned()
    }

    /// The kernel's name of a file that is none on a disk: `anon_inode:[eventfd]`.
    fn anonymous(&self, fd: i32) -> String {
        if fd < 0 {
            return String::new();
        }
        let known = self.names.borrow().get(&fd).cloned();
        known.unwrap_or_else(|| {
            let name = self.look_up(fd);
            self.names.borrow_mut().insert(fd, name.clone());
            name
        })
    }

    /// Of this descriptor it is known that it has a name of the kernel's.
    #[cfg(test)]
    pub(crate) fn is_called(&self, fd: i32, name: &str) {
        self.names.borrow_mut().insert(fd, name.to_owned());
    }

    /// Whether what makes a descriptor ready may be taken without a system call on it: out of
    /// memory that is shared with the kernel, or by a poll of its own. Nothing is known of devices.
    pub(crate) fn taken_unseen(&self, fd: i32, mode: u32, family: u32) -> bool {
        match mode & TYPE {
            SOCKET => matches!(family, PACKET | XDP),
            CHARACTER => true,
            0 => {
                let name = self.anonymous(fd);
                SHARED.contains(&name.as_str()) || name.starts_with("kvm")
            }
            _ => false,
        }
    }

    fn look_up(&self, fd: i32) -> String {
        if self.tgid == 0 {
            return String::new();
        }
        fs::read_link(format!("/proc/{}/fd/{fd}", self.tgid))
            .ok()
            .and_then(|path| {
                let path = path.to_string_lossy();
                let name = path.strip_prefix("anon_inode:")?;
                Some(name.trim_matches(['[', ']']).to_owned())
            })
            .unwrap_or_default()
    }
}
