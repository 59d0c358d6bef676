//! From names to processes.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use whywait_words::{Charset, KEPT_NAME_BYTES, counted_as, escape, list, list_by, without_secrets};

use crate::cgroups::{self, Hierarchy};
use crate::containers::{self, Container};
use crate::error::{OwnPidNamespace, Unresolved};
use crate::found::{self, FoundServers, Server};
use crate::listeners::{self, ListeningSocket, listeners};
use crate::{processes, server};

/// Each has its requests counted apart in the kernel, 15 kB a CPU.
const MAX_SERVERS: usize = 64;

/// What was named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// The number of a process.
    Pid(u32),
    /// Whoever listens on this TCP port.
    Port(u16),
    /// Processes of this name, or that run a file of this base name.
    Name(OsString),
    /// A unit of systemd, by its cgroup.
    Unit(OsString),
    /// A container, by its id, the beginning of that, or its name.
    Container(String),
    /// A cgroup, by its path.
    Cgroup(PathBuf),
    /// Whoever listens on any TCP port.
    All,
}

/// Finds the processes that are meant by all of these together.
///
/// # Errors
/// When one of the names means nothing, or it is open what it means; in a PID namespace of one's
/// own.
pub fn resolve(named: &[Named]) -> Result<FoundServers, Unresolved> {
    if processes::in_own_pid_namespace() == Some(true) {
        return Err(OwnPidNamespace.into());
    }
    let mut found = FoundServers::default();
    for one in named {
        let (servers, said) = match one {
            Named::Pid(pid) => of_pid(*pid)?,
            Named::Port(port) => of_port(*port)?,
            Named::Name(name) => of_name(name)?,
            Named::Unit(unit) => of_unit(unit)?,
            Named::Container(name) => of_container(name)?,
            Named::Cgroup(path) => of_cgroup(path)?,
            Named::All => of_all()?,
        };
        found.said.extend(said);
        for server in servers {
            if !found.servers.contains(&server) {
                found.servers.push(server);
            }
        }
    }
    Ok(found)
}

type Resolved = Result<(Vec<Server>, Option<String>), Unresolved>;

fn shown(text: impl AsRef<OsStr>) -> String {
    escape(&text.as_ref().to_string_lossy(), Charset::Unicode, 200)
}

/// Several, each with what selects it alone.
fn choice(candidates: &[(String, String)]) -> String {
    let each: Vec<String> = candidates
        .iter()
        .map(|(what, flag)| format!("{flag} for {what}"))
        .collect();
    list_by(&each, "; ")
}

fn of_processes(pids: &[u32]) -> Vec<(String, String)> {
    let of = |pid: &u32| (processes::shown(*pid), format!("-p {pid}"));
    pids.iter().map(of).collect()
}

/// Processes that descend from none of the others.
fn not_below(pids: &BTreeSet<u32>) -> Vec<u32> {
    let below = |pid: u32| {
        let above = processes::ancestors(pid);
        above.iter().any(|ancestor| pids.contains(ancestor))
    };
    pids.iter().copied().filter(|pid| !below(*pid)).collect()
}

fn of_pid(pid: u32) -> Resolved {
    if pid == std::process::id() {
        return Err(Unresolved::new(
            "whywait cannot watch itself",
            "name another process with -p",
        ));
    }
    match processes::process_of(pid) {
        None => return Err(no_process(pid)),
        // /proc knows threads under their own number too.
        Some(process) if process != pid => {
            return Err(Unresolved::new(
                format!("{pid} is a thread of process {process}"),
                format!("use -p {process}: all its threads are watched"),
            ));
        }
        Some(_) => (),
    }
    if processes::is_kernel_thread(pid) {
        return Err(Unresolved::new(
            format!("{} is a thread of the kernel", processes::shown(pid)),
            "name a process that runs a program",
        ));
    }
    if !processes::alive(pid) {
        return Err(no_process(pid));
    }
    let top = server::top(pid);
    let whole = Server {
        pids: vec![top],
        ..Server::default()
    };
    let said = if top != pid {
        Some(format!(
            "{} is a worker: watching the whole server, {}",
            processes::shown(pid),
            found::shown(&whole.pids)
        ))
    } else if server::has_workers(pid) {
        Some(format!(
            "watching the whole server, {}",
            found::shown(&whole.pids)
        ))
    } else {
        None
    };
    Ok((vec![whole], said))
}

fn no_process(pid: u32) -> Unresolved {
    // In its container a process has another number.
    let inner: Vec<u32> = processes::all()
        .into_iter()
        .filter(|outer| {
            let numbers = processes::numbers(*outer);
            numbers.len() > 1 && numbers.last() == Some(&pid)
        })
        .collect();
    let hint = if inner.is_empty() {
        "pidof NAME or pgrep NAME finds the number of a process; --name NAME watches it by name"
            .to_owned()
    } else {
        format!(
            "in a PID namespace of its own that number has another process: {}",
            choice(&of_processes(&inner))
        )
    };
    Unresolved::new(format!("there is no process {pid}"), hint)
}

/// Sockets that listen in one network namespace, and who has them open.
struct Network {
    sockets: Vec<ListeningSocket>,
    holders: BTreeMap<u64, Vec<u32>>,
}

impl Network {
    fn of(sockets: Vec<ListeningSocket>, pids: &[u32]) -> Self {
        let wanted: Vec<u64> = sockets.iter().map(|socket| socket.inode).collect();
        Self {
            holders: listeners::who_has(&wanted, pids),
            sockets,
        }
    }

    fn pids(&self) -> Vec<u32> {
        let all: BTreeSet<u32> = self.holders.values().flatten().copied().collect();
        all.into_iter()
            .filter(|pid| *pid != std::process::id())
            .collect()
    }
}

fn user_processes() -> Vec<u32> {
    let own = std::process::id();
    let mut pids = processes::all();
    pids.retain(|pid| *pid != own);
    pids
}

fn of_port(port: u16) -> Resolved {
    let on_port = |of: &str| -> Vec<ListeningSocket> {
        let all = listeners(of).into_iter();
        all.filter(|it| it.port == port).collect()
    };
    let pids = user_processes();
    let own = on_port("self");
    if !own.is_empty() {
        return on(port, &Network::of(own, &pids), "");
    }
    // Containers have networks of their own.
    let mut elsewhere = Vec::new();
    for (network, member) in other_networks(&pids) {
        let sockets = on_port(&member.to_string());
        if !sockets.is_empty() {
            elsewhere.push((network, Network::of(sockets, &pids)));
        }
    }
    match &elsewhere[..] {
        [] => Err(nobody_on(port, &pids)),
        [(_, network)] => on(port, network, " in a network namespace of its own"),
        several => {
            let heads = several
                .iter()
                .flat_map(|(_, network)| server::tops(&network.pids()));
            Err(Unresolved::new(
                format!("several network namespaces have a listener on port {port}"),
                format!(
                    "name one: {}",
                    choice(&of_processes(&heads.collect::<Vec<_>>()))
                ),
            ))
        }
    }
}

/// The network namespaces but one's own, each with a process in it.
fn other_networks(pids: &[u32]) -> BTreeMap<u64, u32> {
    let own = processes::namespace("self", "net");
    let mut found = BTreeMap::new();
    for pid in pids {
        if let Some(network) = processes::namespace(pid, "net")
            && Some(network) != own
        {
            found.entry(network).or_insert(*pid);
        }
    }
    found
}

fn on(port: u16, network: &Network, place: &str) -> Resolved {
    let holders = network.pids();
    if holders.is_empty() {
        let users: BTreeSet<u32> = network.sockets.iter().map(|socket| socket.uid).collect();
        let users: Vec<String> = users.iter().map(u32::to_string).collect();
        return Err(Unresolved::new(
            format!(
                "a process of user {} listens on port {port}, and which one cannot be seen",
                list(&users)
            ),
            "run whywait with sudo, or with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH",
        ));
    }
    let pids = server::tops(&holders);
    if pids == [1] && holders == [1] {
        return Err(Unresolved::new(
            format!("{} listens on port {port} for another", processes::shown(1)),
            "it starts the service at the first connection: make one, or name the unit with --unit",
        ));
    }
    let said = format!("port {port} is{place} {}", found::shown(&pids));
    let server = Server {
        pids,
        ports: vec![port],
        ..Server::default()
    };
    Ok((vec![server], Some(said)))
}

fn nobody_on(port: u16, pids: &[u32]) -> Unresolved {
    let own = listeners("self");
    let inodes: Vec<u64> = own.iter().map(|it| it.inode).collect();
    let holders = listeners::who_has(&inodes, pids);
    let mut seen = BTreeSet::new();
    let mut others: Vec<(String, String)> = Vec::new();
    for socket in &own {
        if seen.insert(socket.port) {
            let who = holders.get(&socket.inode).and_then(|pids| pids.first());
            let who = who.map_or_else(|| "another user's".to_owned(), |pid| processes::shown(*pid));
            others.push((who, format!(":{}", socket.port)));
        }
    }
    let hint = match others.is_empty() {
        true => {
            "start the server first, or name it with -p, --name, --unit or --container".to_owned()
        }
        false => format!("these ports have a listener: {}", choice(&others)),
    };
    Unresolved::new(format!("nobody listens on TCP port {port}"), hint)
}

fn of_name(name: &OsStr) -> Resolved {
    let wanted = name.as_encoded_bytes();
    let pids = user_processes();
    let matches: BTreeSet<u32> = pids
        .iter()
        .copied()
        .filter(|pid| has_name(*pid, wanted) && !processes::is_kernel_thread(*pid))
        .collect();
    let heads = not_below(&matches);
    let servers = server::servers(&heads);
    match &servers[..] {
        [] => Err(no_name(name, &pids)),
        [one] => {
            let server = Server {
                pids: one.clone(),
                ..Server::default()
            };
            let said = format!("{} is {}", shown(name), found::shown(one));
            Ok((vec![server], Some(said)))
        }
        several => {
            let each = several.iter().map(|pids| {
                let numbers: Vec<String> = pids.iter().map(u32::to_string).collect();
                (with_words(pids[0]), format!("-p {}", numbers.join(",")))
            });
            let each: Vec<_> = each.collect();
            let count = counted_as(each.len() as u64, "server", "servers");
            Err(Unresolved::new(
                format!("{} are called {}", count, shown(name)),
                format!(
                    "name one: {}; or several, separated by commas",
                    choice(&each)
                ),
            ))
        }
    }
}

/// The kernel keeps only so much of a name: of a longer one the first words of the command line
/// must have all.
fn has_name(pid: u32, wanted: &[u8]) -> bool {
    let Some(name) = processes::name(pid) else {
        return false;
    };
    if name == wanted {
        return true;
    }
    if name.len() == KEPT_NAME_BYTES
        && wanted.starts_with(&name)
        && processes::first_words(pid).iter().any(|it| it == wanted)
    {
        return true;
    }
    processes::executable_name(pid).is_some_and(|it| it.as_encoded_bytes() == wanted)
}

/// A process, with the beginning of its command line: what tells two of one name apart.
fn with_words(pid: u32) -> String {
    let words = without_secrets(&processes::command_line(pid));
    let words = words.get(1..).unwrap_or_default().join(" ");
    let words = escape(&words, Charset::Unicode, 40);
    match words.is_empty() {
        true => processes::shown(pid),
        false => format!("{} {words}", processes::shown(pid)),
    }
}

fn no_name(name: &OsStr, pids: &[u32]) -> Unresolved {
    let wanted = name.to_string_lossy().to_lowercase();
    let alike = pids.iter().copied().filter(|pid| {
        let mut names: Vec<Vec<u8>> = processes::name(*pid).into_iter().collect();
        names.extend(processes::first_words(*pid));
        names.iter().any(|it| {
            !it.is_empty() && String::from_utf8_lossy(it).to_lowercase().contains(&wanted)
        })
    });
    let alike: BTreeSet<u32> = alike.collect();
    let alike: Vec<(String, String)> = not_below(&alike)
        .into_iter()
        .filter(|_| !wanted.is_empty())
        .map(|pid| (with_words(pid), format!("-p {pid}")))
        .collect();
    let hint = match alike.is_empty() {
        true => "ps -e lists names; a name must be the whole of one".to_owned(),
        false => format!("a name must be the whole of one; alike: {}", choice(&alike)),
    };
    Unresolved::new(format!("no process is called {}", shown(name)), hint)
}

fn of_unit(unit: &OsStr) -> Resolved {
    let mut name = unit.to_owned();
    // As systemctl has it.
    const KINDS: [&str; 3] = [".service", ".scope", ".slice"];
    if !KINDS.iter().any(|kind| ends_with(unit, kind)) {
        name.push(".service");
    }
    let hierarchies = cgroups::mounted();
    let is_it = |dir: &Path| dir.file_name() == Some(&name);
    let found = in_first(&hierarchies, &mut |point| {
        cgroups::find(point, &mut |dir| is_it(dir))
    });
    match &found[..] {
        [] => {
            let bare = unit.to_string_lossy().to_lowercase();
            let bare = bare.trim_end_matches(".service");
            let alike = in_first(&hierarchies, &mut |point| {
                cgroups::find(point, &mut |dir| {
                    let dir = dir.file_name().unwrap_or_default();
                    let is_unit = ends_with(dir, ".service") || ends_with(dir, ".scope");
                    is_unit && dir.to_string_lossy().to_lowercase().contains(bare)
                })
            });
            let alike: Vec<String> = alike
                .iter()
                .filter_map(|dir| Some(format!("--unit {}", shown(dir.file_name()?))))
                .collect();
            let hint = match alike.is_empty() {
                true => {
                    "a unit has a cgroup while it runs: systemctl status says whether it does; \
                         systemd-cgls lists them"
                        .to_owned()
                }
                false => format!("these run: {}", list_by(&alike, "; ")),
            };
            Err(Unresolved::new(
                format!("no unit {} runs", shown(&name)),
                hint,
            ))
        }
        [dir] => in_cgroup(dir, &shown(&name)),
        several => Err(several_cgroups(
            &format!("units are called {}", shown(&name)),
            several,
        )),
    }
}

fn ends_with(name: &OsStr, end: &str) -> bool {
    name.as_encoded_bytes().ends_with(end.as_bytes())
}

/// What is found in the first hierarchy that has any.
fn in_first(
    hierarchies: &[Hierarchy],
    find: &mut dyn FnMut(&Path) -> Vec<PathBuf>,
) -> Vec<PathBuf> {
    let mut each = hierarchies.iter().map(|hierarchy| find(&hierarchy.point));
    each.find(|found| !found.is_empty()).unwrap_or_default()
}

fn several_cgroups(what: &str, dirs: &[PathBuf]) -> Unresolved {
    let each: Vec<String> = dirs
        .iter()
        .map(|dir| format!("--cgroup {}", shown(dir)))
        .collect();
    Unresolved::new(
        format!("{} {what}", dirs.len()),
        format!("name one: {}", list_by(&each, "; ")),
    )
}

fn of_cgroup(path: &Path) -> Resolved {
    let hierarchies = cgroups::mounted();
    let found = cgroups::named(path, &hierarchies);
    // One path may be in several hierarchies of version 1, with the same processes in each.
    let with_processes = found
        .iter()
        .find(|dir| !cgroups::processes_in(dir).is_empty());
    match with_processes.or(found.first()) {
        Some(dir) => in_cgroup(dir, &format!("cgroup {}", shown(path))),
        None => Err(Unresolved::new(
            format!("there is no cgroup {}", shown(path)),
            nearest(path, &hierarchies),
        )),
    }
}

/// What lies where a path stops to be one.
fn nearest(path: &Path, hierarchies: &[Hierarchy]) -> String {
    for above in path.ancestors().skip(1) {
        for dir in cgroups::named(above, hierarchies) {
            let below: Vec<String> = std::fs::read_dir(&dir)
                .into_iter()
                .flatten()
                .flatten()
                .filter(|entry| cgroups::is_cgroup(&entry.path()))
                .map(|entry| shown(entry.file_name()))
                .collect();
            if !below.is_empty() {
                return format!("{} has {}", shown(&dir), list(&below));
            }
        }
    }
    "a path is as in /proc/PID/cgroup, or a folder below /sys/fs/cgroup; systemd-cgls lists them"
        .to_owned()
}

fn of_container(name: &str) -> Resolved {
    let hierarchies = cgroups::mounted();
    let all = containers::all(&hierarchies, Path::new("/"));
    let exact = all.iter().filter(|it| it.names.contains(name));
    let mut found: Vec<&Container> = exact.collect();
    if found.is_empty() && !name.is_empty() {
        found = all.iter().filter(|it| it.id.starts_with(name)).collect();
    }
    let candidates = |some: &[&Container]| {
        let each: Vec<(String, String)> = some
            .iter()
            .map(|it| (called(it), format!("--container {}", it.short())))
            .collect();
        choice(&each)
    };
    match &found[..] {
        [] => {
            let all: Vec<&Container> = all.iter().collect();
            let hint = if all.is_empty() {
                "no cgroup here is a container's: run whywait on the host, as root".to_owned()
            } else {
                format!(
                    "use the beginning of its id, as docker ps, podman ps or crictl ps show it; \
                     these run: {}",
                    candidates(&all)
                )
            };
            Err(Unresolved::new(
                format!("no container {} runs, as far as files tell", shown(name)),
                hint,
            ))
        }
        [one] => in_cgroup(&one.cgroup, &format!("container {}", called(one))),
        several => Err(Unresolved::new(
            format!("{} containers are called {}", several.len(), shown(name)),
            format!("name one: {}", candidates(several)),
        )),
    }
}

/// `0123456789ab (web)`.
fn called(container: &Container) -> String {
    let names: Vec<String> = container.names.iter().map(shown).collect();
    match names.is_empty() {
        true => container.short().to_owned(),
        false => format!("{} ({})", container.short(), names.join(", ")),
    }
}

fn in_cgroup(dir: &Path, what: &str) -> Resolved {
    let pids = cgroups::processes_in(dir);
    let pids: BTreeSet<u32> = pids
        .into_iter()
        .filter(|pid| processes::alive(*pid))
        .collect();
    let heads = not_below(&pids);
    if heads.is_empty() {
        return Err(Unresolved::new(
            format!("{what} has no process"),
            "start it first; if it runs, its processes are in another PID namespace: run whywait \
             on the host",
        ));
    }
    let names: Vec<String> = heads.iter().map(|pid| processes::shown(*pid)).collect();
    let more = match pids.len() - heads.len() {
        0 => String::new(),
        n => format!(
            ", with {}",
            counted_as(n as u64, "child process", "child processes")
        ),
    };
    let server = Server {
        pids: heads,
        cgroups: vec![dir.to_owned()],
        ..Server::default()
    };
    Ok((
        vec![server],
        Some(format!("{what} is {}{more}", list(&names))),
    ))
}

fn of_all() -> Resolved {
    let pids = user_processes();
    let mut sockets: Vec<ListeningSocket> = listeners("self");
    for member in other_networks(&pids).values() {
        sockets.extend(listeners(member));
    }
    let network = Network::of(sockets, &pids);
    let heads = server::tops(&network.pids());
    let heads: Vec<u32> = heads.into_iter().filter(|pid| *pid != 1).collect();
    if heads.is_empty() {
        return Err(Unresolved::new(
            "nobody whose sockets can be seen listens on a TCP port",
            "run whywait with sudo, or name a process with -p",
        ));
    }
    let ports = |pids: &[u32]| -> Vec<u16> {
        let below = processes::with_descendants(pids);
        let theirs = network.sockets.iter().filter(|socket| {
            let holders = network.holders.get(&socket.inode);
            holders.is_some_and(|holders| holders.iter().any(|pid| below.contains(pid)))
        });
        let ports: BTreeSet<u16> = theirs.map(|socket| socket.port).collect();
        ports.into_iter().collect()
    };
    let servers: Vec<Server> = server::servers(&heads)
        .into_iter()
        .map(|pids| Server {
            ports: ports(&pids),
            pids,
            cgroups: Vec::new(),
        })
        .collect();
    if servers.len() > MAX_SERVERS {
        return Err(Unresolved::new(
            format!("{} servers listen: more than {MAX_SERVERS}", servers.len()),
            "name those that matter, with -p 12,34 or :80,443",
        ));
    }
    let each: Vec<String> = servers
        .iter()
        .map(|server| {
            let ports: Vec<String> = server.ports.iter().map(|port| format!(":{port}")).collect();
            format!("{} on {}", found::shown(&server.pids[..1]), list(&ports))
        })
        .collect();
    let count = counted_as(servers.len() as u64, "server", "servers");
    let said = format!("{count}: {}", list_by(&each, "; "));
    Ok((servers, Some(said)))
}
