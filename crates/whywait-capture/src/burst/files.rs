//! Which of a process's files are registered with epoll, as what; and what a descriptor is.

use std::collections::HashMap;
use std::fs;

use crate::iterate::{self, Scope};
use crate::programs::Programs;
use crate::records::{Record, decode};
use crate::skel::types;

/// `S_IFMT` and its values of `linux/stat.h`.
const TYPE: u32 = 0o170_000;
const SOCKET: u32 = 0o140_000;
const FIFO: u32 = 0o010_000;
const REGULAR: u32 = 0o100_000;
const CHARACTER: u32 = 0o020_000;
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
            // It has ended: what its calls told remains.
            return files;
        }
        let mut rest = buffer.as_slice();
        while let Some((record, size)) = decode(rest) {
            if let Record::File(file) = record {
                files.add(file);
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
        if fd < 0 || self.tgid == 0 {
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
