//! `labs/run --list`: what there is, and what must be said of it.

use anyhow::Result;
use serde::Serialize;

use crate::spec::{Lab, Labels, Severity, Variant};

/// One line of the list, as `--format json` gives it.
#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    variant: &'a str,
    case: Option<u32>,
    requests: bool,
    lab: &'a str,
    description: &'a str,
    #[serde(flatten)]
    labels: &'a Labels,
    needs: Vec<&'a str>,
    build: Option<&'a str>,
    beside: bool,
    live: Option<&'a str>,
}

pub(crate) fn print(labs: &[Lab], json: bool) -> Result<()> {
    let rows: Vec<_> = labs
        .iter()
        .flat_map(|lab| lab.variants.values().map(move |variant| (lab, variant)))
        .collect();
    if json {
        let rows: Vec<_> = rows
            .into_iter()
            .map(|(lab, variant)| row(lab, variant))
            .collect();
        println!("{}", serde_json::to_string_pretty(&rows)?);
        return Ok(());
    }
    for (lab, variant) in rows {
        println!(
            "{:40} {}",
            format!("{} {}", lab.name, variant.name),
            labels(&variant.labels)
        );
    }
    Ok(())
}

fn row<'a>(lab: &'a Lab, variant: &'a Variant) -> Row<'a> {
    Row {
        name: &lab.name,
        variant: &variant.name,
        case: lab.case,
        requests: lab.requests,
        lab: &lab.description,
        description: &variant.description,
        labels: &variant.labels,
        needs: variant.needs.iter().map(String::as_str).collect(),
        build: variant.build.as_deref(),
        beside: variant.beside,
        live: variant.live.as_deref(),
    }
}

fn labels(labels: &Labels) -> String {
    let mut parts = Vec::new();
    if !labels.must.is_empty() {
        parts.push(format!("must: {}", labels.must.join(" ")));
    }
    if !labels.must_not.is_empty() {
        parts.push(format!("must not: {}", labels.must_not.join(" ")));
    }
    match labels.max_severity {
        Some(Severity::Note) => parts.push("nothing above note".to_owned()),
        Some(Severity::Warning) => parts.push("nothing above warning".to_owned()),
        Some(Severity::Error) | None => {}
    }
    if !labels.justified.is_empty() {
        let codes: Vec<_> = labels.justified.keys().map(String::as_str).collect();
        parts.push(format!("justified: {}", codes.join(" ")));
    }
    if !labels.report.is_empty() {
        parts.push(format!("{} of the report", labels.report.len()));
    }
    parts.join("; ")
}
