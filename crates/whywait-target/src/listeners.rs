//! Who listens: sockets from `/proc/PID/net`, and the processes that have them open.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv6Addr};
use std::thread;

use rustix::fs::{Mode, OFlags, RawDir, readlinkat};

/// The state of a listening socket in /proc/net/tcp (`TCP_LISTEN`).
const LISTENS: &str = "0A";
/// The flag of a listening socket in /proc/net/unix (`__SO_ACCEPTCON`).
const ACCEPTS: u32 = 0x10000;

/// A TCP socket that listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListeningSocket {
    /// Where: an IPv6 one at `::` takes IPv4, too, unless it was told not to.
    pub ip: IpAddr,
    /// The port.
    pub port: u16,
    /// The socket, in links of `/proc/PID/fd`.
    pub inode: u64,
    /// Whose it is.
    pub uid: u32,
}

/// The TCP sockets that listen in the network namespace of a process: its number, or `self`.
pub fn listeners(of: impl std::fmt::Display) -> Vec<ListeningSocket> {
    let mut found = Vec::new();
    for table in ["tcp", "tcp6"] {
        let Ok(file) = File::open(format!("/proc/{of}/net/{table}")) else {
            continue;
        };
        // Those that listen come first. There may be very many connections, which the kernel only
        // walks as far as somebody reads.
        let lines = BufReader::new(file).lines().map_while(Result::ok).skip(1);
        found.extend(lines.map_while(|line| listener(&line)));
    }
    found
}

/// From a line of /proc/net/tcp or tcp6; `None`: it does not listen.
fn listener(line: &str) -> Option<ListeningSocket> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (address, port) = fields.next()?.split_once(':')?;
    if fields.nth(1)? != LISTENS {
        return None;
    }
    let uid = fields.nth(3)?.parse().ok()?;
    let inode = fields.nth(1)?.parse().ok()?;
    Some(ListeningSocket {
        ip: ip_of(address)?,
        port: u16::from_str_radix(port, 16).ok()?,
        inode,
        uid,
    })
}

/// An address, as these tables have it: words of 32 bits, as the machine has them.
fn ip_of(digits: &str) -> Option<IpAddr> {
    let mut bytes = Vec::new();
    for at in (0..digits.len()).step_by(8) {
        let word = u32::from_str_radix(digits.get(at..at + 8)?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    match bytes.len() {
        4 => Some(<[u8; 4]>::try_from(bytes).ok()?.into()),
        16 => {
            let ip = Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?);
            // What listens at all addresses of both kinds has IPv6's.
            Some(if ip.is_unspecified() {
                ip.into()
            } else {
                ip.to_canonical()
            })
        }
        _ => None,
    }
}

/// The unix sockets that listen in the network namespace of a process.
pub(crate) fn unix_listeners(of: u32) -> Vec<u64> {
    let text = fs::read(format!("/proc/{of}/net/unix")).unwrap_or_default();
    // A path at the end of a line may hold anything.
    let text = String::from_utf8_lossy(&text);
    let inode = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let flags = u32::from_str_radix(fields.nth(3)?, 16).ok()?;
        (flags & ACCEPTS != 0).then_some(())?;
        fields.nth(2)?.parse().ok()
    };
    text.lines().filter_map(inode).collect()
}

/// The sockets that a process has open.
pub(crate) fn sockets_of(pid: u32) -> std::io::Result<Vec<u64>> {
    // Links are read from the open folder: to walk to each from the root takes as long again.
    let folder = rustix::fs::open(
        format!("/proc/{pid}/fd"),
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let (mut names, mut link) = ([MaybeUninit::uninit(); 4096], Vec::new());
    let mut files = RawDir::new(&folder, &mut names);
    let mut found = Vec::new();
    while let Some(file) = files.next() {
        let read = readlinkat(&folder, file?.file_name(), link);
        link = read.map_or_else(|_| Vec::new(), CString::into_bytes);
        found.extend(socket(&link));
    }
    Ok(found)
}

/// The number in `socket:[4711]`.
fn socket(link: &[u8]) -> Option<u64> {
    let inode = link.strip_prefix(b"socket:[")?.strip_suffix(b"]")?;
    std::str::from_utf8(inode).ok()?.parse().ok()
}

/// Of the sockets that are asked for, the processes that have each open, in the order of their
/// numbers.
pub fn who_has(wanted: &[u64], pids: &[u32]) -> BTreeMap<u64, Vec<u32>> {
    let look = |pids: &[u32]| -> Vec<(u64, u32)> {
        let open = pids.iter().flat_map(|pid| {
            // One that ended, or whose files are not to be seen, has none.
            let sockets = sockets_of(*pid).unwrap_or_default();
            sockets.into_iter().map(|inode| (inode, *pid))
        });
        open.filter(|(inode, _)| wanted.contains(inode)).collect()
    };
    // Of thousands of processes this is most of the time that is needed.
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let mut found: Vec<(u64, u32)> = thread::scope(|scope| {
        let parts = pids.chunks(pids.len().div_ceil(cpus).max(1));
        let looks: Vec<_> = parts.map(|part| scope.spawn(move || look(part))).collect();
        let looks = looks.into_iter().flat_map(|look| look.join());
        looks.flatten().collect()
    });
    found.sort_unstable();
    found.dedup();
    let mut holders: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for (inode, pid) in found {
        holders.entry(inode).or_default().push(pid);
    }
    holders
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn lines_of_listeners_are_read() {
        let line = "   0: 0100007F:1B59 00000000:0000 0A 00000000:00000000 00:00000000 00000000 \
                    33        0 4711 1 0000000000000000 100 0 0 10 0";
        let expected = ListeningSocket {
            ip: Ipv4Addr::LOCALHOST.into(),
            port: 7001,
            inode: 4711,
            uid: 33,
        };
        assert_eq!(listener(line), Some(expected));
        assert_eq!(listener(&line.replace(" 0A ", " 01 ")), None);
        assert_eq!(listener(&line.replace("0100007F", "éé00007F")), None);
        let six = line.replace("0100007F", "00000000000000000000000001000000");
        let six = listener(&six).expect("it listens");
        assert_eq!(six.ip, Ipv6Addr::LOCALHOST);
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt";
        assert_eq!(listener(head), None);
    }

    #[test]
    fn who_listens_is_found() {
        let socket = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
        let port = socket.local_addr().expect("an address").port();
        let all = listeners("self");
        let found = all.iter().find(|it| it.port == port).expect("it listens");
        let own = std::process::id();
        let holders = who_has(&[found.inode], &crate::processes::all());
        assert_eq!(holders.get(&found.inode), Some(&vec![own]));
    }

    #[test]
    fn a_unix_socket_listens_only_once_it_does() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let before = unix_listeners(std::process::id());
        let path = dir.path().join("a b\n00000000");
        let _socket = UnixListener::bind(path).expect("a path");
        let after = unix_listeners(std::process::id());
        let new: Vec<&u64> = after.iter().filter(|it| !before.contains(it)).collect();
        let own = sockets_of(std::process::id()).expect("one's own");
        assert!(new.iter().any(|it| own.contains(it)), "{new:?} {own:?}");
    }
}
