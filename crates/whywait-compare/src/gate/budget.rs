//! A budget: what a server may cost, and which findings it may have. A TOML file; an error in it is
//! reported with its line and column.

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;
use toml::Spanned;
use whywait_findings::{Code, Severity};

use super::date::Date;
use super::limit::{self, Limit};
use crate::changes::ChangeOptions;
use crate::measures::catalogue;

/// The version of the budget's shape that this version knows.
pub const SCHEMA: i64 = 1;
/// A longer file is not a budget.
const MAX_BYTES: usize = 1 << 20;

/// What a server may cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Budget {
    /// Whether what cannot be decided fails the gate.
    pub fail_when_undecided: bool,
    /// The worst severity of findings that need no permission; `None`: findings are not judged.
    pub max_severity: Option<At<Severity>>,
    /// Whether a finding counts when it is in any run, rather than in most.
    pub in_any_run: bool,
    /// Findings that are permitted.
    pub allow: Vec<At<Allow>>,
    /// What measures have to keep to.
    pub limits: Vec<At<Limit>>,
    /// What must not get worse.
    pub regressions: Option<At<Regressions>>,
}

/// Something with the line of the budget that says it.
#[derive(Debug, Clone, PartialEq)]
pub struct At<T> {
    /// From 1.
    pub line: usize,
    /// What it says.
    pub what: T,
}

/// A finding that is permitted.
#[derive(Debug, Clone, PartialEq)]
pub struct Allow {
    /// Its code.
    pub code: String,
    /// Why.
    pub reason: String,
    /// The last day on which it is.
    pub until: Option<Date>,
    /// Only of threads of this role (their name, with each number in it as `N`).
    pub thread: Option<String>,
    /// Only up to this severity.
    pub max_severity: Severity,
}

/// What must not get worse.
#[derive(Debug, Clone, PartialEq)]
pub struct Regressions {
    /// The file that `--save-baseline` wrote, as the budget names it: from the budget's own folder
    /// on.
    pub baseline: PathBuf,
    /// How differences are judged.
    pub options: ChangeOptions,
}

/// What is wrong with a budget.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}:{line}:{column}: {message}", .path.display())]
pub struct BudgetError {
    /// The file.
    pub path: PathBuf,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// What is wrong.
    pub message: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    schema: Spanned<i64>,
    #[serde(default)]
    fail_when_undecided: bool,
    #[serde(default)]
    limits: Vec<Spanned<String>>,
    findings: Option<FindingsTable>,
    regressions: Option<Spanned<RegressionsTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FindingsTable {
    max_severity: Spanned<String>,
    in_runs: Option<Spanned<String>>,
    #[serde(default)]
    allow: Vec<Spanned<AllowTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct AllowTable {
    code: Spanned<String>,
    reason: Spanned<String>,
    until: Option<Spanned<toml::Value>>,
    thread: Option<String>,
    max_severity: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RegressionsTable {
    baseline: Spanned<String>,
    alpha: Option<Spanned<f64>>,
    min_effect: Option<Spanned<String>>,
}

impl Budget {
    /// Whether a limit is of a route: recordings need names then.
    pub fn is_of_routes(&self) -> bool {
        let of = format!("{} ", catalogue::ROUTE);
        let mut limits = self.limits.iter();
        limits.any(|limit| limit.what.measure.starts_with(&of))
    }

    /// Reads a budget. `path` is only named in errors.
    ///
    /// # Errors
    /// When it is no TOML, or says something that is not understood: with line and column.
    pub fn parse(text: &str, path: &Path) -> Result<Self, BudgetError> {
        let reader = BudgetReader { text, path };
        if text.len() > MAX_BYTES {
            return Err(reader.error(
                0..0,
                "a budget is at most 1 MiB long: is this another file?",
            ));
        }
        let file: File = toml::from_str(text).map_err(|error| {
            let message = error.message().lines().collect::<Vec<_>>().join("; ");
            reader.error(error.span().unwrap_or(0..0), &message)
        })?;
        if *file.schema.get_ref() != SCHEMA {
            let message = format!(
                "schema {} is not known; this version knows {SCHEMA}",
                file.schema.get_ref()
            );
            return Err(reader.error(file.schema.span(), &message));
        }
        let mut budget = Budget {
            fail_when_undecided: file.fail_when_undecided,
            max_severity: None,
            in_any_run: true,
            allow: Vec::new(),
            limits: Vec::new(),
            regressions: None,
        };
        for limit in &file.limits {
            budget.limits.push(reader.limit(limit)?);
        }
        if let Some(table) = &file.findings {
            budget.max_severity = Some(At {
                line: reader.line(table.max_severity.span()),
                what: reader.severity(&table.max_severity)?,
            });
            if let Some(in_runs) = &table.in_runs {
                budget.in_any_run = match in_runs.get_ref().as_str() {
                    "any" => true,
                    "most" => false,
                    _ => return Err(reader.error(in_runs.span(), "must be \"any\" or \"most\"")),
                };
            }
            for allow in &table.allow {
                budget.allow.push(reader.allow(allow)?);
            }
        }
        if let Some(table) = &file.regressions {
            budget.regressions = Some(At {
                line: reader.line(table.get_ref().baseline.span()),
                what: reader.regressions(table.get_ref())?,
            });
        }
        Ok(budget)
    }
}

struct BudgetReader<'a> {
    text: &'a str,
    path: &'a Path,
}

impl BudgetReader<'_> {
    fn error(&self, span: Range<usize>, message: &str) -> BudgetError {
        let before = self.before(span.start);
        let column = before
            .rsplit('\n')
            .next()
            .unwrap_or_default()
            .chars()
            .count()
            + 1;
        BudgetError {
            path: self.path.to_path_buf(),
            line: self.line(span),
            column,
            message: message.to_owned(),
        }
    }

    fn line(&self, span: Range<usize>) -> usize {
        self.before(span.start).matches('\n').count() + 1
    }

    fn before(&self, at: usize) -> &str {
        let mut at = at.min(self.text.len());
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        &self.text[..at]
    }

    fn limit(&self, text: &Spanned<String>) -> Result<At<Limit>, BudgetError> {
        let span = text.span();
        let limit = limit::parse(text.get_ref()).map_err(|error| {
            // Where the string is written as it is, the place in it is known.
            let written = self.text.get(span.start + 1..).unwrap_or_default();
            let at = if written.starts_with(text.get_ref().as_str()) {
                span.start + 1 + error.at
            } else {
                span.start
            };
            self.error(at..at, &error.message)
        })?;
        Ok(At {
            line: self.line(span),
            what: limit,
        })
    }

    fn severity(&self, text: &Spanned<String>) -> Result<Severity, BudgetError> {
        match text.get_ref().as_str() {
            "note" => Ok(Severity::Note),
            "warning" => Ok(Severity::Warning),
            "error" => Ok(Severity::Error),
            _ => Err(self.error(text.span(), "must be \"note\", \"warning\" or \"error\"")),
        }
    }

    fn allow(&self, table: &Spanned<AllowTable>) -> Result<At<Allow>, BudgetError> {
        let span = table.span();
        let table = table.get_ref();
        let code = table.code.get_ref();
        // Budgets may still permit what is no finding any more.
        if Code::from_name(code).is_none() && code != Code::RECORDING_INCOMPLETE {
            let message = format!("there is no finding {code}; whywait explain --list lists them");
            return Err(self.error(table.code.span(), &message));
        }
        if table.reason.get_ref().trim().is_empty() {
            return Err(self.error(table.reason.span(), "say why it is allowed"));
        }
        let until = table
            .until
            .as_ref()
            .map(|until| {
                let text = match until.get_ref() {
                    toml::Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                Date::parse(&text)
                    .ok_or_else(|| self.error(until.span(), "must be a day, such as 2027-01-31"))
            })
            .transpose()?;
        let max_severity = table
            .max_severity
            .as_ref()
            .map_or(Ok(Severity::Error), |text| self.severity(text))?;
        Ok(At {
            line: self.line(span),
            what: Allow {
                code: code.clone(),
                reason: table.reason.get_ref().trim().to_owned(),
                until,
                thread: table.thread.clone(),
                max_severity,
            },
        })
    }

    fn regressions(&self, table: &RegressionsTable) -> Result<Regressions, BudgetError> {
        let mut options = ChangeOptions::default();
        if table.baseline.get_ref().is_empty() {
            return Err(self.error(
                table.baseline.span(),
                "name a file that --save-baseline wrote",
            ));
        }
        if let Some(alpha) = &table.alpha {
            options.alpha = *alpha.get_ref();
            if !(options.alpha > 0.0 && options.alpha < 1.0) {
                return Err(self.error(alpha.span(), "must be between 0 and 1, such as 0.05"));
            }
        }
        if let Some(text) = &table.min_effect {
            let percent = text.get_ref().strip_suffix('%').map(str::trim);
            let share = percent.and_then(|text| text.parse::<f64>().ok());
            options.min_effect = share
                .filter(|share| (0.0..=1000.0).contains(share))
                .ok_or_else(|| self.error(text.span(), "must be a share, such as \"5%\""))?
                / 100.0;
        }
        Ok(Regressions {
            baseline: PathBuf::from(table.baseline.get_ref()),
            options,
        })
    }
}
