//! Containers: their ids from the names of cgroups, their names from files that engines leave.
//!
//! Engines name a container's cgroup by its id, of 64 hexadecimal digits: `docker-ID.scope`,
//! `libpod-ID.scope`, `cri-containerd-ID.scope`, `crio-ID.scope`, `nerdctl-ID.scope` where systemd
//! makes cgroups, and `docker/ID`, `kubepods/…/ID` where the engine does.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::cgroups::{self, Hierarchy};
use crate::processes;

const ID_DIGITS: usize = 64;
/// A container's configuration beyond this is none.
const MAX_FILE: u64 = 4 << 20;

/// A container that has a cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Container {
    pub(crate) id: String,
    pub(crate) cgroup: PathBuf,
    /// As people call it: the engine's name for it; in Kubernetes that of the container, and
    /// `POD/CONTAINER`. Hostile.
    pub(crate) names: BTreeSet<String>,
}

impl Container {
    /// The id as engines show it.
    pub(crate) fn short(&self) -> &str {
        &self.id[..12]
    }
}

/// The container of a cgroup, by the folder's name.
fn id_of(folder: &str) -> Option<&str> {
    let name = folder.strip_suffix(".scope").unwrap_or(folder);
    let (kind, id) = match name.rfind(['-', ':']) {
        Some(at) => (&name[..at], &name[at + 1..]),
        None => ("", name),
    };
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    // The monitor of a container has a cgroup of its own, which is not the container's.
    (id.len() == ID_DIGITS && id.bytes().all(is_hex) && !kind.ends_with("conmon")).then_some(id)
}

/// All containers, each with its cgroup in the first hierarchy that has it. `files` is where the
/// engines' files are: `/`.
pub(crate) fn all(hierarchies: &[Hierarchy], files: &Path) -> Vec<Container> {
    let mut found: BTreeMap<String, PathBuf> = BTreeMap::new();
    for hierarchy in hierarchies {
        for dir in every(&hierarchy.point) {
            let name = dir.file_name().and_then(|name| name.to_str());
            if let Some(id) = name.and_then(id_of) {
                found.entry(id.to_owned()).or_insert(dir);
            }
        }
    }
    let mut names = names(found.keys(), files);
    found
        .into_iter()
        .map(|(id, cgroup)| Container {
            names: names.remove(&id).unwrap_or_default(),
            id,
            cgroup,
        })
        .collect()
}

/// Containers may lie within containers.
fn every(top: &Path) -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    cgroups::find(top, &mut |dir| {
        dirs.push(dir.to_owned());
        false
    });
    dirs
}

/// The names of containers, by id.
fn names<'a>(
    ids: impl Iterator<Item = &'a String>,
    files: &Path,
) -> BTreeMap<String, BTreeSet<String>> {
    let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for id in ids {
        let of_engines = docker(id, files).into_iter().chain(containerd(id, files));
        names.entry(id.clone()).or_default().extend(of_engines);
    }
    for (id, name) in kubelet(files).into_iter().chain(conmon()) {
        if let Some(known) = names.get_mut(&id) {
            known.extend(name);
        }
    }
    names
}

fn json(path: &Path) -> Option<Value> {
    let fits = fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() <= MAX_FILE);
    fits.then(|| serde_json::from_slice(&fs::read(path).ok()?).ok())?
}

/// Docker's own description of a container.
fn docker(id: &str, files: &Path) -> Option<String> {
    let folder = files.join("var/lib/docker/containers").join(id);
    let config = json(&folder.join("config.v2.json"))?;
    let name = config.get("Name")?.as_str()?;
    Some(name.trim_start_matches('/').to_owned())
}

/// What nerdctl and Kubernetes have containerd keep with a container.
fn containerd(id: &str, files: &Path) -> Vec<String> {
    let tasks = files.join("run/containerd/io.containerd.runtime.v2.task");
    let namespaces = fs::read_dir(tasks).into_iter().flatten().flatten();
    let configs =
        namespaces.filter_map(|namespace| json(&namespace.path().join(id).join("config.json")));
    let mut names = Vec::new();
    for config in configs {
        let of = |key: &str| {
            let value = config.get("annotations")?.get(key)?.as_str()?;
            Some(value.to_owned())
        };
        let pod = of("io.kubernetes.cri.sandbox-name");
        names.extend(in_pod(pod, of("io.kubernetes.cri.container-name")));
        names.extend(of("nerdctl/name"));
    }
    names
}

fn in_pod(pod: Option<String>, container: Option<String>) -> Vec<String> {
    match (pod, container) {
        (Some(pod), Some(container)) => vec![format!("{pod}/{container}"), container],
        (_, container) => container.into_iter().collect(),
    }
}

/// The links to logs that Kubernetes keeps: POD_NAMESPACE_CONTAINER-ID.log.
fn kubelet(files: &Path) -> Vec<(String, Vec<String>)> {
    let logs = fs::read_dir(files.join("var/log/containers"));
    let named = |name: &str| {
        let (rest, id) = name.strip_suffix(".log")?.rsplit_once('-')?;
        let mut parts = rest.splitn(3, '_');
        let (pod, _namespace, container) = (parts.next()?, parts.next()?, parts.next()?);
        let names = in_pod(Some(pod.to_owned()), Some(container.to_owned()));
        Some((id.to_owned(), names))
    };
    let logs = logs.into_iter().flatten().flatten();
    logs.filter_map(|log| named(log.file_name().to_str()?))
        .collect()
}

/// Podman and CRI-O give each container a monitor, whose command line has its id and name.
fn conmon() -> Vec<(String, Vec<String>)> {
    let monitors = processes::all()
        .into_iter()
        .filter(|pid| processes::name(*pid).is_some_and(|name| name == b"conmon"));
    monitors
        .filter_map(|pid| {
            let words = processes::command_line(pid);
            let after = |flags: [&str; 2]| {
                let at = words
                    .iter()
                    .position(|word| flags.contains(&word.as_str()))?;
                words.get(at + 1).cloned()
            };
            Some((after(["-c", "--cid"])?, vec![after(["-n", "--name"])?]))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn each_engines_cgroups_have_the_id() {
        for folder in [
            format!("docker-{ID}.scope"),
            format!("libpod-{ID}.scope"),
            format!("cri-containerd-{ID}.scope"),
            format!("crio-{ID}.scope"),
            format!("nerdctl-{ID}.scope"),
            format!("kubepods-burstable-pod1.slice:cri-containerd:{ID}"),
            ID.to_owned(),
        ] {
            assert_eq!(id_of(&folder), Some(ID), "{folder}");
        }
        for folder in [
            format!("libpod-conmon-{ID}.scope"),
            format!("crio-conmon-{ID}.scope"),
            format!("docker-{}.scope", &ID[1..]),
            format!("docker-{}.scope", ID.to_uppercase()),
            "nginx.service".to_owned(),
            String::new(),
        ] {
            assert_eq!(id_of(&folder), None, "{folder}");
        }
    }

    #[test]
    fn names_come_from_what_engines_leave() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        };
        let others: Vec<String> = (1..=4).map(|n| ID.replace('0', &n.to_string())).collect();
        write(
            &format!("var/lib/docker/containers/{}/config.v2.json", others[0]),
            r#"{"ID":"x","Name":"/web"}"#,
        );
        let task = "run/containerd/io.containerd.runtime.v2.task";
        write(
            &format!("{task}/k8s.io/{}/config.json", others[1]),
            r#"{"annotations":{"io.kubernetes.cri.container-name":"app",
                "io.kubernetes.cri.sandbox-name":"shop-7d9"}}"#,
        );
        write(
            &format!("{task}/default/{}/config.json", others[2]),
            r#"{"annotations":{"nerdctl/name":"job"}}"#,
        );
        write(
            &format!(
                "var/log/containers/shop-7d9_prod_side-car-{}.log",
                others[3]
            ),
            "",
        );
        write(
            &format!("var/lib/docker/containers/{ID}/config.v2.json"),
            "{",
        );
        let mut ids = others.clone();
        ids.push(ID.to_owned());
        let names = names(ids.iter(), dir.path());
        let of = |id: &str| names[id].iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(of(&others[0]), ["web"]);
        assert_eq!(of(&others[1]), ["app", "shop-7d9/app"]);
        assert_eq!(of(&others[2]), ["job"]);
        assert_eq!(of(&others[3]), ["shop-7d9/side-car", "side-car"]);
        assert!(of(ID).is_empty());
    }
}
