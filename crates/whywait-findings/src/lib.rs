//! whywait's detectors. Each is one file with its invariant, its evidence, its cost formula and its guards against
//! false alarms. No detector reads BPF or prints.

mod finding;

pub use finding::{Cause, Code, Confidence, Evidence, Finding, Saving, SavingKind, Severity};
