//! `whywait report`: reports what a recording shows.

use std::fmt::Write as _;
use std::path::Path;

use whywait_events::recording::{RecordedServer, Recording};
use whywait_model::requests::{RouteRow, Slow};
use whywait_model::{Model, RequestRef};
use whywait_report::text::{self, TextOptions};
use whywait_report::{
    Report, brief_schema, brief_to_json, calls_to_json, cpu_to_json, fails, json_schema,
    request_list_to_json, request_to_json, rings_to_json, route_to_json, to_json, waits_to_json,
};
use whywait_words::{Charset, duration, escape, list, list_by, program_name};

use crate::analyse;
use crate::args::{ReportArgs, ReportFormat};
use crate::config::{ReportConfig, View};
use crate::errors::{self, FOUND, Usage};
use crate::output::{self, Destination};

/// So many routes are named where there is no such one.
const MAX_OFFERED: usize = 5;

pub(crate) fn run(mut args: ReportArgs) -> anyhow::Result<u8> {
    let view = View::of(&args);
    let opened = args.open;
    let mut page = None;
    if opened {
        args.output.format = match args.output.format {
            // The default, if none was named.
            ReportFormat::Text | ReportFormat::Html => ReportFormat::Html,
            _ => {
                return Err(Usage::new(
                    "--open is for pages",
                    "leave --format out, or say --format html",
                )
                .into());
            }
        };
        if args.output.output.is_none() {
            page = args
                .recording
                .as_deref()
                .map(|recording| output::beside(recording, ".html"));
        }
    }
    let config = ReportConfig::new(args.output, page.is_some())?;
    if config.format == ReportFormat::JsonSchema {
        output::write(&schema(&config)?, config.output.as_ref())?;
        return Ok(0);
    }
    let Some(recording) = args.recording else {
        return Err(Usage::new(
            "no recording was named",
            "name the folder that whywait record wrote: whywait report DIR",
        )
        .into());
    };
    let model = match &args.server {
        Some(name) => analyse::model_of_server(&recording, server(&recording, name)?)?,
        None if view == View::Report && lists_servers(&recording, &config)? => {
            return Ok(if write_verdicts(&recording, &config)? {
                FOUND
            } else {
                0
            });
        }
        None => analyse::model(&recording)?,
    };
    let text = match view {
        View::Report => {
            let failed = write_report(&model, &config, page.as_deref())?;
            let named = config.output.as_ref().map(Destination::name);
            if opened && let Some(page) = page.as_deref().or(named) {
                output::write(&how_to_open(page), None)?;
            }
            return Ok(if failed { FOUND } else { 0 });
        }
        View::Waits => {
            let waits = model.waits();
            render(
                &config,
                |options| text::waits(&waits, options),
                || Ok(waits_to_json(&waits)?),
            )?
        }
        View::Rings => {
            let rings = model.rings();
            render(
                &config,
                |options| text::rings(&rings, options),
                || Ok(rings_to_json(&rings)?),
            )?
        }
        View::Cpu => {
            let cpu = model.cpu_summary();
            render(
                &config,
                |options| text::cpu(cpu.as_ref(), options),
                || Ok(cpu_to_json(cpu.as_ref())?),
            )?
        }
        View::Calls => {
            let calls = model.calls();
            render(
                &config,
                |options| text::calls(&calls, options),
                || Ok(calls_to_json(&calls)?),
            )?
        }
        View::Requests(route) => {
            let mut rows = model.request_rows();
            if let Some(name) = route {
                let name = self::route(&model, &name)?.name;
                rows.retain(|row| row.name.as_ref() == Some(&name));
            }
            render(
                &config,
                |options| text::request_list(&rows, options),
                || Ok(request_list_to_json(&rows)?),
            )?
        }
        View::Route(name) => {
            let row = route(&model, &name)?;
            render(
                &config,
                |options| text::route(&row, options),
                || Ok(route_to_json(&row)?),
            )?
        }
        View::Request(id) => {
            let slow = slow_request(&model, &id)?;
            render(
                &config,
                |options| text::request(&slow, options),
                || Ok(request_to_json(&slow)?),
            )?
        }
    };
    output::write(&text, config.output.as_ref())?;
    Ok(0)
}

/// Whether there are several servers, of which each has a verdict.
fn lists_servers(recording: &Path, config: &ReportConfig) -> anyhow::Result<bool> {
    let several = !Recording::open(recording)?.meta().servers.is_empty();
    Ok(several && config.format == ReportFormat::Text)
}

/// The verdict of each server. Gives whether one has a finding that fails the run.
fn write_verdicts(recording: &Path, config: &ReportConfig) -> anyhow::Result<bool> {
    let servers = Recording::open(recording)?.meta().servers.clone();
    let options = output::text_options(config.output.is_some());
    let mut text = String::new();
    let mut failed = false;
    for (number, server) in servers.iter().enumerate() {
        let report = Report::of(&analyse::model_of_server(recording, number)?);
        failed |= config
            .fail_on
            .is_some_and(|fail_on| fails(&report, fail_on));
        let _ = writeln!(text, "{}", shown(server));
        for line in text::verdict(&report, options).lines() {
            let _ = writeln!(text, "  {line}");
        }
    }
    output::write(&text, config.output.as_ref())?;
    Ok(failed)
}

/// `nginx (pid 12) on :80 and :443`, of a container `nginx (pid 12, 1 in its PID namespace) on …`.
fn shown(server: &RecordedServer) -> String {
    let name = escape(program_name(&server.command), Charset::Unicode, 40);
    let ports: Vec<String> = server.ports.iter().map(|port| format!(":{port}")).collect();
    let number = whywait_words::pid(server.pid, server.inner_pid);
    format!("{name} (pid {number}) on {}", list(&ports))
}

/// The server of this number of a process or port, or of this name.
fn server(recording: &Path, name: &str) -> anyhow::Result<usize> {
    let servers = Recording::open(recording)?.meta().servers.clone();
    let is_it = |server: &&RecordedServer| {
        server.pid.to_string() == name
            || server.ports.iter().any(|port| format!(":{port}") == name)
            || program_name(&server.command) == name
    };
    let found: Vec<&RecordedServer> = servers.iter().filter(is_it).collect();
    let [one] = found[..] else {
        let of = if found.is_empty() {
            servers.iter().collect()
        } else {
            found
        };
        let each: Vec<String> = of
            .iter()
            .map(|server| format!("--server {} for {}", server.pid, shown(server)))
            .collect();
        let hint = match each.is_empty() {
            true => "it is a recording of one: leave out --server".to_owned(),
            false => list_by(&each, "; "),
        };
        return Err(Usage::new(format!("which server {name} is, is not clear"), hint).into());
    };
    let number = servers.iter().position(|server| server == one);
    Ok(number.unwrap_or_default())
}
/// Nothing is served and nothing is sent: whoever wants to look at the page opens it.
fn how_to_open(page: &Path) -> String {
    let shown = page.display().to_string();
    let full = page.canonicalize();
    let full = full.map_or_else(|_| shown.clone(), |full| full.display().to_string());
    format!(
        "wrote {}; to look at it: xdg-open {}, or copy it to where a browser is\n",
        errors::line(&shown),
        errors::line(&full)
    )
}

/// Analyses a recording and writes the report. Gives whether it has a finding that fails the run.
///
/// # Errors
/// Fails when the recording cannot be read, or the report cannot be written.
pub(crate) fn report(recording: &Path, config: &ReportConfig) -> anyhow::Result<bool> {
    if lists_servers(recording, config)? {
        return write_verdicts(recording, config);
    }
    write_report(&analyse::model(recording)?, config, None)
}

/// `page`: where it goes by whywait's choice.
fn write_report(model: &Model, config: &ReportConfig, page: Option<&Path>) -> anyhow::Result<bool> {
    let report = Report::of(model);
    let bytes = match config.format {
        ReportFormat::Text => {
            let options = TextOptions {
                verbose: config.verbose,
                ..output::text_options(config.output.is_some())
            };
            text::render(&report, options).into_bytes()
        }
        ReportFormat::Json if config.brief => brief_to_json(&report)?.into_bytes(),
        ReportFormat::Json => printable_json(&to_json(&report)?).into_bytes(),
        ReportFormat::JsonSchema => schema(config)?.into_bytes(),
        ReportFormat::Html => whywait_view::html(model, &report).into_bytes(),
        ReportFormat::Markdown => whywait_view::markdown(model, &report).into_bytes(),
        ReportFormat::Folded => whywait_view::folded(model, config.of).into_bytes(),
        ReportFormat::Pprof => whywait_view::pprof(model, config.of)?,
        ReportFormat::Perfetto => whywait_view::perfetto(model),
        ReportFormat::Otlp => printable_json(&whywait_view::otlp(model)?).into_bytes(),
    };
    match page {
        Some(page) => output::replace(page, &bytes)?,
        None => output::write_bytes(&bytes, config.output.as_ref())?,
    }
    Ok(config
        .fail_on
        .is_some_and(|fail_on| fails(&report, fail_on)))
}

fn schema(config: &ReportConfig) -> anyhow::Result<String> {
    Ok(match config.brief {
        true => brief_schema()?,
        false => json_schema()?,
    })
}

/// A view in the format that was asked for.
fn render(
    config: &ReportConfig,
    text: impl FnOnce(TextOptions) -> String,
    json: impl FnOnce() -> anyhow::Result<String>,
) -> anyhow::Result<String> {
    Ok(match config.format {
        ReportFormat::Text => text(output::text_options(config.output.is_some())),
        ReportFormat::Json => printable_json(&json()?),
        _ => {
            return Err(Usage::new(
                "this view is text or JSON",
                "leave out --format, or use --format json; the other formats show a report",
            )
            .into());
        }
    })
}

/// The request of that name. A wrong name gets those that there are.
/// The requests of this name.
fn route(model: &Model, name: &str) -> anyhow::Result<RouteRow> {
    let Some(routes) = model.routes() else {
        return Err(Usage::new(
            "the recording has no names",
            "record with --names routes: whywait record --names routes -p PID",
        )
        .into());
    };
    if let Some(row) = routes.rows.iter().find(|row| row.name == name) {
        return Ok(row.clone());
    }
    let names: Vec<String> = routes
        .rows
        .iter()
        .take(MAX_OFFERED)
        .map(|row| escape(&row.name, Charset::Unicode, 80))
        .collect();
    Err(Usage::new(
        "the recording has no such route",
        format!(
            "those with the most time are {}; JSON has all, as requests.routes.rows[].name",
            list_by(&names, "; ")
        ),
    )
    .into())
}

fn slow_request(model: &Model, id: &str) -> anyhow::Result<Slow> {
    if let Some(slow) = model.request(id).map(RequestRef::slow) {
        return Ok(slow);
    }
    let slowest = model.requests_summary().slowest;
    let ids: Vec<&str> = slowest.iter().map(|slow| slow.id.as_str()).collect();
    let error = if ids.is_empty() {
        Usage::new(
            "the recording has no slow request",
            format!(
                "only requests of {} or longer are recorded one by one; record with a lower \
                 --threshold",
                duration(model.threshold_ns())
            ),
        )
    } else {
        Usage::new(
            format!("the recording has no slow request {id}"),
            format!(
                "the slowest are {}; a report has the ID in brackets in its line \"slowest:\", and \
                 in JSON as requests.slowest[].id",
                ids.join(", ")
            ),
        )
    };
    Err(error.into())
}

/// JSON leaves most control characters as they are: those of Latin-1's upper half, which some
/// terminals act on, and those that turn the direction of writing. They can only be within strings,
/// where an escape means the same.
pub(crate) fn printable_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\n' => text.push(c),
            '\u{061c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' => {
                let _ = write!(text, "\\u{:04x}", u32::from(c));
            }
            c if c.is_control() => {
                let _ = write!(text, "\\u{:04x}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_says_the_same_in_printable_characters() {
        let value = "a\nb\u{9b}31m\u{7f}\u{202e}é";
        let json = serde_json::to_string_pretty(&[value]).expect("a string");
        let printable = printable_json(&json);
        assert!(
            !printable.contains(|c: char| c.is_control() && c != '\n'),
            "{printable:?}"
        );
        assert!(!printable.contains('\u{202e}') && printable.contains('é'));
        let back: Vec<String> = serde_json::from_str(&printable).expect("JSON");
        assert_eq!(back, [value]);
    }
}
