//! `whywait gate`: checks recordings against a budget.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context;
use whywait_compare::gate::{
    self, Baseline, Budget, Date, Judgement, baseline, github, init, junit,
};
use whywait_compare::{Run, Side, json};
use whywait_words::{Charset, escape};

use crate::args::{Format, GateArgs};
use crate::commands::diff::progress;
use crate::commands::repeat;
use crate::commands::report::printable_json;
use crate::errors::{FOUND, Usage, eprintln_quietly};
use crate::output::{self, Destination};

/// How long what a first budget finds is allowed.
const ALLOWED_DAYS: u64 = 90;

pub(crate) fn run(args: GateArgs) -> anyhow::Result<u8> {
    if args.recordings.is_empty() && args.command.is_empty() {
        return Err(Usage::new(
            "nothing to check against the budget",
            "name recordings, or a command after --: whywait gate budget.toml runs/",
        )
        .into());
    }
    if args.init {
        return init_budget(&args);
    }
    // Before minutes of runs: an error in the budget is reported at once.
    let budget = read_budget(&args.budget)?;
    let base = read_baseline(&args, &budget)?;
    let runs = runs(&args, budget.is_of_routes())?;
    let judgement = gate::judge(&budget, &runs, base.as_ref(), today());
    let name = args.budget.display().to_string();
    if let Some(path) = &args.junit {
        let xml = junit::render(&judgement, &name, budget.fail_when_undecided);
        output::write(&xml, Some(path))?;
    }
    output::write(
        &rendered(&args, &budget, &judgement, &name)?,
        args.output.as_ref(),
    )?;
    if args.github {
        add_summary(&github::summary(&judgement, &name))?;
    }
    if let Some(path) = &args.save_baseline {
        let text = json::to_json(&Baseline::new(runs))?;
        output::write(&text, Some(path))?;
    }
    Ok(if judgement.failed { FOUND } else { 0 })
}

fn rendered(
    args: &GateArgs,
    budget: &Budget,
    judgement: &Judgement,
    name: &str,
) -> anyhow::Result<String> {
    let mut text = match args.format {
        Format::Text => {
            gate::text::render(judgement, name, output::text_options(args.output.is_some()))
        }
        Format::Json => printable_json(&json::to_json(judgement)?),
    };
    if args.github {
        text.push_str(&github::render(judgement, name, budget.fail_when_undecided));
    }
    Ok(text)
}

/// Adds to the summary of a GitHub job, where there is one.
fn add_summary(text: &str) -> anyhow::Result<()> {
    let Some(path) = std::env::var_os("GITHUB_STEP_SUMMARY").filter(|path| !path.is_empty()) else {
        return Ok(());
    };
    let path = PathBuf::from(path);
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(&path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write the job's summary {}", path.display()))
}

/// The measures of the recordings, which are made first if a command was named.
/// `routes`: those that are recorded now are to have names of routes.
fn runs(args: &GateArgs, routes: bool) -> anyhow::Result<Vec<Run>> {
    if args.command.is_empty() {
        return Ok(Side::read(&args.recordings, &mut progress)?.runs);
    }
    let recorded = repeat::record(args, routes)?;
    let runs = recorded
        .recordings
        .iter()
        .map(|recording| Ok(Run::read(recording)?))
        .collect::<anyhow::Result<Vec<Run>>>()?;
    Ok(runs)
}

fn read_budget(path: &Path) -> anyhow::Result<Budget> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(2 << 20).read_to_string(&mut text));
    match read {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(Usage::new(
                format!("there is no budget {}", path.display()),
                "whywait gate --init BUDGET.toml DIR... writes a first one from recordings",
            )
            .into());
        }
        read => read.with_context(|| format!("cannot read the budget {}", path.display()))?,
    };
    Budget::parse(&text, path).map_err(|error| {
        Usage::new(
            error.to_string(),
            "docs/ci.md describes what a budget may contain",
        )
        .into()
    })
}

/// What the budget's regressions are compared with. This run may be about to write it.
fn read_baseline(args: &GateArgs, budget: &Budget) -> anyhow::Result<Option<Baseline>> {
    let Some(regressions) = &budget.regressions else {
        return Ok(None);
    };
    let folder = args.budget.parent().unwrap_or(Path::new(""));
    let path: PathBuf = folder.join(&regressions.what.baseline);
    if !path.exists() && args.save_baseline.is_some() {
        return Ok(None);
    }
    Ok(Some(baseline::load(&path)?))
}

fn init_budget(args: &GateArgs) -> anyhow::Result<u8> {
    if args.budget.exists() {
        return Err(Usage::new(
            format!("{} is there already", args.budget.display()),
            "a budget is never overwritten: name a new file, or remove this one",
        )
        .into());
    }
    let file = Destination::new(args.budget.clone());
    let text = init::render(
        &runs(args, false)?,
        Date::of_unix(now() + ALLOWED_DAYS * 86_400),
    );
    // If this cannot be read back, whywait is at fault: better reported here than by the next gate.
    Budget::parse(&text, &args.budget)
        .context("the new budget cannot be read back: this is a bug, please report it")?;
    output::write(&text, Some(&file))?;
    let name = escape(&args.budget.to_string_lossy(), Charset::Unicode, 4_096);
    eprintln_quietly(&format!(
        "whywait: wrote {name}; to check recordings against it: whywait gate {name} DIR..."
    ));
    Ok(0)
}

fn today() -> Date {
    Date::of_unix(now())
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}
