//! `lab.toml`: what a lab is. Unknown keys are errors, so that no label is lost to a typing
//! mistake.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::claim::Claim;

/// The pages of the findings, `CODE.md` each: they are generated from the catalogue.
const PAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/findings");

/// One lab: a program with a known fault, its fixed twins, and what must be said of each.
#[derive(Debug)]
pub(crate) struct Lab {
    pub(crate) name: String,
    pub(crate) dir: PathBuf,
    pub(crate) description: String,
    /// The founding case that the lab rebuilds, if it is one of them.
    pub(crate) case: Option<u32>,
    /// Whether its variants serve requests, of which a report then must tell.
    pub(crate) requests: bool,
    pub(crate) busy_cpu: BusyCpu,
    pub(crate) builds: BTreeMap<String, Build>,
    pub(crate) variants: BTreeMap<String, Variant>,
}

/// A lab's program in one of its forms.
#[derive(Debug)]
pub(crate) struct Variant {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) labels: Labels,
    pub(crate) build: Option<String>,
    pub(crate) needs: BTreeSet<String>,
    /// A program that the server talks to: it runs before the server, and is not watched.
    pub(crate) peer: Option<Vec<String>>,
    pub(crate) server: Vec<String>,
    pub(crate) load: Vec<String>,
    pub(crate) ready: Ready,
    /// whywait attaches to the server when the load asks for it, instead of starting it.
    pub(crate) attach: bool,
    /// What `whywait record` is told besides.
    pub(crate) record: Vec<String>,
    /// Server and load wait and hardly work: others like it may run at the same time.
    pub(crate) beside: bool,
    /// What the capture does here that it does in no other variant that `make test` runs: so this
    /// one is run, too. The others' recordings are kept in `tests/corpus`.
    pub(crate) live: Option<String>,
    pub(crate) env: BTreeMap<String, String>,
}

/// What a report on the variant must find. It may find nothing else but what is justified, and
/// notes of [`is_note`].
#[derive(Debug, Serialize)]
pub(crate) struct Labels {
    pub(crate) must: Vec<String>,
    /// Of those notes: not these either.
    pub(crate) must_not: Vec<String>,
    /// No finding may be worse than this.
    pub(crate) max_severity: Option<Severity>,
    /// Codes that may be found besides, or be worse, with the reason: what the finding says is true
    /// of this program.
    pub(crate) justified: BTreeMap<String, String>,
    /// What must hold of other fields of the report.
    pub(crate) report: Vec<Claim>,
}

impl Labels {
    /// Whether this may be found.
    pub(crate) fn expect(&self, code: &str, severity: Severity) -> bool {
        self.must.iter().any(|must| must == code)
            || self.justified.contains_key(code)
            || (severity == Severity::Note && is_note(code))
    }
}

/// How bad a finding is, from harmless to bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    Note,
    Warning,
    Error,
}

/// How a server says that it is ready.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Ready {
    /// It writes `PID ADDRESS` and a newline to the file that READY_FILE names.
    #[default]
    File,
    /// It listens on the port that it was given as `{port}`, and writes its pid to `{pidfile}`.
    Pidfile,
}

/// Which CPU another program wants meanwhile, where `labs/run` is told `--busy`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum BusyCpu {
    #[default]
    First,
    /// For labs whose threads have CPUs of their own, and those that matter the last one.
    Last,
}

/// How a lab's program is made.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Build {
    /// The lab's folder `server` is a crate of this workspace, of the lab's name.
    Cargo {
        #[serde(default)]
        features: Vec<String>,
        #[serde(default)]
        rustflags: String,
    },
    /// A command, run in the lab's folder, that writes its results to `{out}`.
    Command { command: Vec<String> },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LabFile {
    description: String,
    case: Option<u32>,
    #[serde(default = "yes")]
    requests: bool,
    #[serde(default)]
    busy_cpu: BusyCpu,
    #[serde(default)]
    build: BTreeMap<String, Build>,
    #[serde(default)]
    common: CommonFile,
    variant: BTreeMap<String, VariantFile>,
}

/// What every variant has that does not say otherwise.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct CommonFile {
    build: Option<String>,
    #[serde(default)]
    needs: BTreeSet<String>,
    peer: Option<Vec<String>>,
    server: Option<Vec<String>>,
    load: Option<Vec<String>>,
    ready: Option<Ready>,
    attach: Option<bool>,
    beside: Option<bool>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct VariantFile {
    /// Another variant, which has what this one does not say.
    like: Option<String>,
    description: Option<String>,
    must: Option<Vec<String>>,
    must_not: Option<Vec<String>>,
    max_severity: Option<Severity>,
    justified: Option<BTreeMap<String, String>>,
    report: Option<Vec<String>>,
    build: Option<String>,
    #[serde(default)]
    needs: BTreeSet<String>,
    peer: Option<Vec<String>>,
    server: Option<Vec<String>>,
    load: Option<Vec<String>>,
    ready: Option<Ready>,
    attach: Option<bool>,
    record: Option<Vec<String>>,
    beside: Option<bool>,
    live: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

fn yes() -> bool {
    true
}

impl VariantFile {
    /// Takes what it does not say from the variant that it is like.
    fn resolved(mut self, all: &BTreeMap<String, VariantFile>) -> Result<Self> {
        let Some(name) = self.like.take() else {
            return Ok(self);
        };
        let other = all
            .get(&name)
            .with_context(|| format!("it is like {name}, which is no variant"))?
            .clone();
        ensure!(other.like.is_none(), "{name} is like another one itself");
        let mut env = other.env;
        env.extend(self.env);
        Ok(Self {
            like: None,
            description: self.description.or(other.description),
            must: self.must.or(other.must),
            must_not: self.must_not.or(other.must_not),
            max_severity: self.max_severity.or(other.max_severity),
            justified: self.justified.or(other.justified),
            report: self.report.or(other.report),
            build: self.build.or(other.build),
            needs: if self.needs.is_empty() {
                other.needs
            } else {
                self.needs
            },
            peer: self.peer.or(other.peer),
            server: self.server.or(other.server),
            load: self.load.or(other.load),
            ready: self.ready.or(other.ready),
            attach: self.attach.or(other.attach),
            record: self.record.or(other.record),
            beside: self.beside.or(other.beside),
            live: self.live,
            env,
        })
    }
}

impl Lab {
    pub(crate) fn load(labs: &Path, name: &str) -> Result<Self> {
        let dir = labs.join(name);
        let file = dir.join("lab.toml");
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("no lab {name}: cannot read {}", file.display()))?;
        Self::parse(name, dir, &text).with_context(|| format!("in {}", file.display()))
    }

    fn parse(name: &str, dir: PathBuf, text: &str) -> Result<Self> {
        let file: LabFile = toml::from_str(text)?;
        ensure!(!file.variant.is_empty(), "a lab needs a variant");
        let common = &file.common;
        let variants = file
            .variant
            .iter()
            .map(|(name, own)| {
                let own = own.clone().resolved(&file.variant);
                let own = own.with_context(|| name.clone())?;
                Ok((name.clone(), variant(name.clone(), common, own)?))
            })
            .collect::<Result<BTreeMap<_, _>>>()?;
        for variant in variants.values() {
            if let Some(build) = &variant.build {
                ensure!(
                    file.build.contains_key(build),
                    "{}: there is no build {build}",
                    variant.name
                );
            }
        }
        Ok(Self {
            name: name.to_owned(),
            dir,
            description: file.description,
            case: file.case,
            requests: file.requests,
            busy_cpu: file.busy_cpu,
            builds: file.build,
            variants,
        })
    }

    pub(crate) fn variant(&self, name: &str) -> Result<&Variant> {
        self.variants.get(name).with_context(|| {
            let known: Vec<_> = self.variants.keys().map(String::as_str).collect();
            format!(
                "lab {} has no variant {name}; it has {}",
                self.name,
                known.join(", ")
            )
        })
    }
}

fn variant(name: String, common: &CommonFile, own: VariantFile) -> Result<Variant> {
    let report = own
        .report
        .iter()
        .flatten()
        .map(|text| Claim::parse(text))
        .collect::<Result<_>>();
    let labels = Labels {
        must: own.must.unwrap_or_default(),
        must_not: own.must_not.unwrap_or_default(),
        max_severity: own.max_severity,
        justified: own.justified.unwrap_or_default(),
        report: report.with_context(|| name.clone())?,
    };
    check_labels(&labels).with_context(|| name.clone())?;
    let mut env = common.env.clone();
    env.extend(own.env);
    Ok(Variant {
        description: own
            .description
            .with_context(|| format!("{name}: no description"))?,
        labels,
        build: own.build.or_else(|| common.build.clone()),
        needs: own.needs.union(&common.needs).cloned().collect(),
        peer: own.peer.or_else(|| common.peer.clone()),
        server: own
            .server
            .or_else(|| common.server.clone())
            .with_context(|| format!("{name}: no server"))?,
        load: own
            .load
            .or_else(|| common.load.clone())
            .with_context(|| format!("{name}: no load"))?,
        ready: own.ready.or(common.ready).unwrap_or_default(),
        attach: own.attach.or(common.attach).unwrap_or_default(),
        record: own.record.unwrap_or_default(),
        beside: own.beside.or(common.beside).unwrap_or_default(),
        live: own.live,
        env,
        name,
    })
}

/// Findings that are no faults as notes: they say where a request's time is, and must be somewhere.
fn is_note(code: &str) -> bool {
    static NOTES: LazyLock<BTreeSet<String>> =
        LazyLock::new(|| serde_json::from_str(include_str!("../../notes.json")).expect("codes"));
    NOTES.contains(code)
}

/// Whether it is a finding's code. A label with a mistyped code in `must_not` would always hold.
fn is_code(code: &str) -> bool {
    Path::new(PAGES).join(format!("{code}.md")).is_file()
}

fn check_labels(labels: &Labels) -> Result<()> {
    let codes = labels.must.iter().chain(&labels.must_not);
    for code in codes.chain(labels.justified.keys()) {
        ensure!(is_code(code), "{code} is no finding code");
    }
    if let Some(both) = labels
        .must
        .iter()
        .find(|code| labels.must_not.contains(code))
    {
        bail!("{both} is in must and in must_not");
    }
    for code in &labels.must_not {
        ensure!(
            is_note(code),
            "{code} needs no must_not: nothing is found but what must be, or is justified"
        );
    }
    for (code, reason) in &labels.justified {
        ensure!(
            !labels.must_not.contains(code) && !reason.is_empty(),
            "{code} can be justified only with a reason, and where it is not forbidden"
        );
    }
    Ok(())
}

/// All labs, by name.
pub(crate) fn load_all(labs: &Path) -> Result<Vec<Lab>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(labs)? {
        let entry = entry?;
        if entry.path().join("lab.toml").is_file() {
            names.push(
                entry
                    .file_name()
                    .into_string()
                    .ok()
                    .context("a lab's name is not UTF-8")?,
            );
        }
    }
    names.sort();
    names.iter().map(|name| Lab::load(labs, name)).collect()
}

/// Fills in `{name}`s. An unknown one is an error: it would reach the program as it stands.
pub(crate) fn expand(template: &str, values: &[(&str, &str)]) -> Result<String> {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after
            .split_once('}')
            .with_context(|| format!("unclosed brace in {template:?}"))?;
        let (_, value) = values
            .iter()
            .find(|(known, _)| *known == name)
            .with_context(|| format!("{{{name}}} in {template:?} means nothing here"))?;
        text.push_str(before);
        text.push_str(value);
        rest = after;
    }
    text.push_str(rest);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Lab> {
        Lab::parse("lab", PathBuf::new(), text)
    }

    const MINIMAL: &str = r#"
        description = "a lab"
        [common]
        server = ["server"]
        load = ["load", "{addr}"]
        env = { A = "1", B = "1" }
        [variant.broken]
        description = "broken"
        must = ["blocked-loop"]
        env = { B = "2" }
    "#;

    #[test]
    fn a_variant_overrides_what_is_common() {
        let lab = parse(MINIMAL).unwrap();
        let broken = lab.variant("broken").unwrap();
        assert_eq!(broken.server, ["server"]);
        assert_eq!(broken.ready, Ready::File);
        assert_eq!(
            broken
                .env
                .iter()
                .map(|(k, v)| format!("{k}{v}"))
                .collect::<Vec<_>>(),
            ["A1", "B2"]
        );
        assert!(lab.variant("fixed").is_err());
        assert!(lab.requests);
        assert!(
            !parse(&format!("requests = false\n{MINIMAL}"))
                .unwrap()
                .requests
        );
    }

    #[test]
    fn a_variant_has_what_the_one_that_it_is_like_has() {
        let more = "[variant.other]\nlike = \"broken\"\nserver = [\"other\"]\nenv = { C = \"3\" }";
        let lab = parse(&format!("{MINIMAL}\n{more}")).unwrap();
        let other = lab.variant("other").unwrap();
        assert_eq!(other.server, ["other"]);
        assert_eq!(other.labels.must, ["blocked-loop"]);
        assert_eq!(other.description, "broken");
        assert_eq!(other.env.values().cloned().collect::<String>(), "123");
        let own = parse(&format!(
            "{MINIMAL}\n{more}\nmust = []\nmax_severity = \"note\""
        ));
        assert!(
            own.unwrap()
                .variant("other")
                .unwrap()
                .labels
                .must
                .is_empty()
        );
        for mistake in [
            format!("{MINIMAL}\n[variant.other]\nlike = \"brokn\""),
            format!("{MINIMAL}\n{more}\n[variant.third]\nlike = \"other\""),
        ] {
            assert!(parse(&mistake).is_err(), "{mistake} was taken");
        }
    }

    #[test]
    fn mistakes_are_refused() {
        for mistake in [
            "mustnt = []",
            "must_not = [\"slow-upstraem\"]",
            "must_not = [\"stranded-readiness\"]",
            "justified = { \"slow-upstream\" = \"\" }",
            "must_not = [\"slow-upstream\"]\njustified = { slow-upstream = \"it is\" }",
            "max_severity = \"notes\"",
            "max_severity = \"note\"\njustified = { \"serial-work\" = \"\" }",
            "report = [\"requests.count > 1\"]",
            "max_severity = \"note\"\njustified = { \"serial-wrok\" = \"no such code\" }",
            "build = \"missing\"",
        ] {
            assert!(
                parse(&format!("{MINIMAL}\n{mistake}")).is_err(),
                "{mistake} was taken"
            );
        }
        assert!(
            parse(&format!(
                "{MINIMAL}\n[build.x]\nkind = \"cargo\"\nfeature = []"
            ))
            .is_err()
        );
    }

    #[test]
    fn every_lab_here_is_well_formed() {
        let labs = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let labs = load_all(labs).unwrap();
        assert!(!labs.is_empty());
        for lab in labs {
            let live = lab.variants.values().filter(|one| one.live.is_some());
            assert!(live.count() > 0, "{}: no variant is live", lab.name);
            for variant in lab.variants.values() {
                let common = ["lab", "out", "tmp", "python"];
                let check = |parts: &[String], more: &[&str]| {
                    let names = common.iter().chain(more);
                    let values: Vec<_> = names.map(|name| (*name, "")).collect();
                    for part in parts {
                        expand(part, &values).unwrap();
                    }
                };
                check(variant.peer.as_deref().unwrap_or_default(), &[]);
                check(&variant.server, &["disk", "shm", "port", "pidfile", "peer"]);
                check(&variant.load, &["addr", "load", "pid", "peer"]);
            }
        }
    }

    #[test]
    fn only_known_names_expand() {
        assert_eq!(
            expand("{out}/x:{port}", &[("out", "o"), ("port", "1")]).unwrap(),
            "o/x:1"
        );
        assert!(expand("{what}", &[("out", "o")]).is_err());
        assert!(expand("{out", &[("out", "o")]).is_err());
    }
}
