//! `report = ["requests.multiplexed.http2 == 4"]`: what must hold of a report beside its findings.

use anyhow::{Context, Result, bail};
use serde::{Serialize, Serializer};
use serde_json::Value;

/// A field of the JSON report, and what it must be: `slowest.0` is the first of a list. A field
/// that is not there is null.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Claim {
    text: String,
    path: Vec<String>,
    relation: Relation,
    value: Value,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Relation {
    Is,
    IsNot,
    AtLeast,
    AtMost,
}

impl Claim {
    /// `PATH RELATION VALUE`: the relation is `==`, `!=`, `>=` or `<=`; the value a number, `null`,
    /// `true`, `false`, or else a word.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let &[path, relation, value] = words.as_slice() else {
            bail!("{text:?} is not PATH RELATION VALUE");
        };
        let value: Value =
            serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        let relation = match relation {
            "==" => Relation::Is,
            "!=" => Relation::IsNot,
            ">=" => Relation::AtLeast,
            "<=" => Relation::AtMost,
            other => bail!("{other} is no relation: {text:?}"),
        };
        if matches!(relation, Relation::AtLeast | Relation::AtMost) {
            value
                .as_f64()
                .with_context(|| format!("{text:?} compares with something that is no number"))?;
        }
        Ok(Self {
            text: text.to_owned(),
            path: path.split('.').map(str::to_owned).collect(),
            relation,
            value,
        })
    }

    /// What is wrong with the report, if something is.
    pub(crate) fn violation(&self, report: &Value) -> Option<String> {
        let found = self
            .path
            .iter()
            .try_fold(report, |value, key| match value {
                Value::Array(values) => values.get(key.parse::<usize>().ok()?),
                value => value.get(key),
            })
            .unwrap_or(&Value::Null);
        let number = |least: fn(f64, f64) -> bool| {
            let (found, wanted) = (found.as_f64(), self.value.as_f64());
            found
                .zip(wanted)
                .is_some_and(|(found, wanted)| least(found, wanted))
        };
        let holds = match self.relation {
            Relation::Is => same(found, &self.value),
            Relation::IsNot => !same(found, &self.value),
            Relation::AtLeast => number(|found, wanted| found >= wanted),
            Relation::AtMost => number(|found, wanted| found <= wanted),
        };
        (!holds).then(|| format!("not {}: it is {found}", self.text))
    }
}

/// Numbers are the same however they are written.
fn same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

impl Serialize for Claim {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_hold_or_not() {
        let report = serde_json::json!({
            "a": { "n": 4, "yes": true, "none": null }, "verdict": { "kind": "findings" },
            "list": [{ "n": 1 }, { "n": 2 }],
        });
        for (claim, holds) in [
            ("a.n == 4", true),
            ("a.n == 4.0", true),
            ("a.n != 4", false),
            ("a.n >= 5", false),
            ("a.n <= 5", true),
            ("a.yes == true", true),
            ("a.none == null", true),
            ("b.c == null", true),
            ("b.c >= 0", false),
            ("verdict.kind != nothing-wrong", true),
            ("list.1.n == 2", true),
            ("list.2.n == null", true),
        ] {
            let violation = Claim::parse(claim).unwrap().violation(&report);
            assert_eq!(violation.is_none(), holds, "{claim}: {violation:?}");
        }
    }

    #[test]
    fn mistakes_are_refused() {
        for mistake in ["a", "a = 1", "a >= true", "a == 1 2"] {
            assert!(Claim::parse(mistake).is_err(), "{mistake} was taken");
        }
    }
}
