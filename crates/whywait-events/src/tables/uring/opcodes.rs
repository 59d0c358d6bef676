//! The names of operations.

/// The names of opcodes, by number.
const OPCODES: [&str; 63] = [
    "nop",
    "readv",
    "writev",
    "fsync",
    "read_fixed",
    "write_fixed",
    "poll_add",
    "poll_remove",
    "sync_file_range",
    "sendmsg",
    "recvmsg",
    "timeout",
    "timeout_remove",
    "accept",
    "async_cancel",
    "link_timeout",
    "connect",
    "fallocate",
    "openat",
    "close",
    "files_update",
    "statx",
    "read",
    "write",
    "fadvise",
    "madvise",
    "send",
    "recv",
    "openat2",
    "epoll_ctl",
    "splice",
    "provide_buffers",
    "remove_buffers",
    "tee",
    "shutdown",
    "renameat",
    "unlinkat",
    "mkdirat",
    "symlinkat",
    "linkat",
    "msg_ring",
    "fsetxattr",
    "setxattr",
    "fgetxattr",
    "getxattr",
    "socket",
    "uring_cmd",
    "send_zc",
    "sendmsg_zc",
    "read_multishot",
    "waitid",
    "futex_wait",
    "futex_wake",
    "futex_waitv",
    "fixed_fd_install",
    "ftruncate",
    "bind",
    "listen",
    "recv_zc",
    "epoll_wait",
    "readv_fixed",
    "writev_fixed",
    "pipe",
];

/// The opcode under which completions are counted that belong to an operation with several.
pub const OPCODE_MULTISHOT: u32 = 63;

/// The name of an opcode, as in `IORING_OP_…`, in small letters.
pub fn opcode_name(opcode: u32) -> &'static str {
    match opcode {
        OPCODE_MULTISHOT => "multishot",
        _ => OPCODES.get(opcode as usize).copied().unwrap_or("?"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_have_their_numbers() {
        // include/uapi/linux/io_uring.h
        for (opcode, name) in [
            (0, "nop"),
            (13, "accept"),
            (22, "read"),
            (27, "recv"),
            (40, "msg_ring"),
            (47, "send_zc"),
            (51, "futex_wait"),
            (55, "ftruncate"),
            (58, "recv_zc"),
        ] {
            assert_eq!(opcode_name(opcode), name);
        }
        assert_eq!(opcode_name(OPCODE_MULTISHOT), "multishot");
        assert_eq!(opcode_name(1000), "?");
    }
}
