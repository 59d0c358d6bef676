//! What a kind of finding is: declared once, in its room.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use whywait_words::capitalised;

use crate::catalogue::CATALOGUE;
use crate::facts::Facts;
use crate::finding::{Finding, Severity};

/// A kind of finding.
pub(crate) struct Declaration {
    /// Its code, as reports print it and `whywait explain` takes it.
    pub(crate) code: &'static str,
    /// What it means: one line without a full stop.
    pub(crate) meaning: &'static str,
    /// The severities that it may have, the worst first, each with when: `from 100 ms on`. A kind
    /// with only one needs no condition.
    pub(crate) severities: &'static [(Severity, &'static str)],
    /// What holds in a program without the fault: one line without a full stop.
    pub(crate) invariant: &'static str,
    /// The rest of what `whywait explain` says: markdown, from the heading "What it means" on.
    pub(crate) explain: &'static str,
    /// Who waits in it, and for what; `None`: nobody does.
    pub(crate) waits: Option<Waits>,
    /// Finds it.
    pub(crate) detect: fn(&Facts<'_>) -> Vec<Finding>,
}

/// Who waits in a finding, and for what. In braces stand keys of its subject.
pub(crate) struct Waits {
    /// Who: `requests`.
    pub(crate) who: &'static str,
    /// For what, with its preposition: `for a worker`.
    pub(crate) what: &'static str,
    /// Who has it.
    pub(crate) has: Has,
}

/// Who has what is waited for.
pub(crate) enum Has {
    /// The thread that is the finding's cause.
    Cause,
    /// The same, or else this.
    CauseOr(&'static str),
    /// This: its cause is one that waits.
    Said(&'static str),
}

/// Which kind a finding is of. Ordered as the catalogue is.
#[derive(Clone, Copy)]
pub struct Code(&'static Declaration);

impl Code {
    /// What was the code of a finding about the recording, and not about the target: budgets and
    /// readers of older reports may name it. Coverage says it now.
    pub const RECORDING_INCOMPLETE: &str = "recording-incomplete";

    pub(crate) const fn of(declaration: &'static Declaration) -> Self {
        Self(declaration)
    }

    /// All codes, in the order of the catalogue.
    pub fn all() -> impl Iterator<Item = Code> {
        CATALOGUE.iter().map(|declaration| Code(declaration))
    }

    /// The code of that name.
    pub fn from_name(name: &str) -> Option<Code> {
        Code::all().find(|code| code.name() == name)
    }

    /// The name that reports use and `whywait explain` takes.
    pub const fn name(self) -> &'static str {
        self.0.code
    }

    /// What the finding means: one line without a full stop.
    pub const fn meaning(self) -> &'static str {
        self.0.meaning
    }

    /// The severities that it may have: `error from 100 ms on, warning otherwise`.
    pub fn severities(self) -> String {
        let severities = self.0.severities.iter();
        let texts: Vec<String> = severities
            .map(|(severity, when)| format!("{} {when}", severity.name()).trim_end().to_owned())
            .collect();
        texts.join(", ")
    }

    /// What holds in a program without the fault: one line without a full stop.
    pub const fn invariant(self) -> &'static str {
        self.0.invariant
    }

    /// What the finding means, how it is measured and how to fix it: markdown with short
    /// paragraphs.
    pub fn explain(self) -> String {
        format!(
            "# {}\n\n{}\n{}{}\n{}",
            self.name(),
            wrapped(&format!("{}.", capitalised(self.meaning())), ""),
            wrapped(&format!("- Severity: {}.", self.severities()), "  "),
            wrapped(&format!("- Invariant: {}.", self.invariant()), "  "),
            self.0.explain
        )
    }

    /// Who waits in it, and for what.
    pub(crate) const fn waits(self) -> Option<&'static Waits> {
        self.0.waits.as_ref()
    }

    /// Whether the finding may have that severity.
    pub(crate) fn may_be(self, severity: Severity) -> bool {
        let mut severities = self.0.severities.iter();
        severities.any(|(declared, _)| *declared == severity)
    }

    /// Whether it is this one.
    pub(crate) fn is(self, declaration: &'static Declaration) -> bool {
        self == Self::of(declaration)
    }

    fn position(self) -> usize {
        let same = |declaration: &&Declaration| std::ptr::eq(*declaration, self.0);
        CATALOGUE.iter().position(same).unwrap_or(CATALOGUE.len())
    }
}

/// The text in lines of at most 100 columns, all but the first behind `hang`.
fn wrapped(text: &str, hang: &str) -> String {
    const WIDTH: usize = 100;
    let mut lines = String::new();
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push_str(&line);
            lines.push('\n');
            line = hang.to_owned();
        } else if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    format!("{lines}{line}\n")
}

impl PartialEq for Code {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Code {}

impl PartialOrd for Code {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Code {
    fn cmp(&self, other: &Self) -> Ordering {
        self.position().cmp(&other.position())
    }
}

impl Hash for Code {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl JsonSchema for Code {
    fn schema_name() -> Cow<'static, str> {
        "Code".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<&str> = Code::all().map(Code::name).collect();
        json_schema!({
            "description": "Which kind of finding. Later versions may have more.",
            "type": "string",
            "examples": names,
        })
    }
}
