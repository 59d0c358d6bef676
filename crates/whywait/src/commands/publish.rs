//! `whywait publish`: what many machines' recordings are asked about, as tables.

use std::fs;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use whywait_events::recording::{ReadError, Recording, is_growing, is_recording};
use whywait_model::{Input, Model};
use whywait_publish::{Folder, Identity, Labels, Place, Selection, Source, TABLES};
use whywait_report::Report;
use whywait_words::{Charset, counted, escape};

use crate::args::{PublishArgs, PublishFormat};
use crate::closed;
use crate::errors::{FAILED, Usage, complain, eprintln_quietly, with_causes};

pub(crate) fn run(args: PublishArgs) -> anyhow::Result<u8> {
    let mut paths = args.paths;
    let (Some(dest), false) = (paths.pop(), paths.is_empty()) else {
        return Err(Usage::new(
            "nowhere to publish to",
            "name recordings, then where their tables go: whywait publish run1.whywait /srv/fleet",
        )
        .into());
    };
    let options = PublishOptions {
        labels: Labels {
            host: args.host,
            service: args.service,
            release: args.release,
        },
        selection: selection(&args.tables)?,
        new: args.new,
    };
    let recordings = recordings(&paths)?;
    if dest.as_os_str() == "-" {
        if args.format == Some(PublishFormat::Parquet) {
            return Err(Usage::new(
                "Parquet files do not go to standard output",
                "name a folder, or use --format jsonl",
            )
            .into());
        }
        return to_stdout(&recordings, &options);
    }
    if args.format == Some(PublishFormat::Jsonl) {
        return Err(Usage::new(
            "JSON Lines go to standard output",
            "use - as DEST: whywait publish run1.whywait --format jsonl -",
        )
        .into());
    }
    to_place(&recordings, &options, place(&dest)?.as_ref())
}

struct PublishOptions {
    labels: Labels,
    selection: Selection,
    new: bool,
}

fn selection(names: &[String]) -> anyhow::Result<Selection> {
    if names.is_empty() {
        return Ok(Selection::default());
    }
    Selection::of(names.iter().map(String::as_str)).ok_or_else(|| {
        let known: Vec<&str> = TABLES.iter().map(|table| table.name).collect();
        Usage::new(
            format!("there is no such table in {}", names.join(",")),
            format!("the tables are {}", known.join(", ")),
        )
        .into()
    })
}

fn place(dest: &Path) -> anyhow::Result<Box<dyn Place>> {
    let shown = dest.to_string_lossy();
    if shown.starts_with("s3://") {
        return bucket(&shown);
    }
    if shown.contains("://") {
        let hint = "name a folder, or s3://BUCKET/PREFIX";
        return Err(Usage::new(format!("cannot publish to {shown}"), hint).into());
    }
    Ok(Box::new(Folder::new(dest)))
}

#[cfg(feature = "s3")]
fn bucket(url: &str) -> anyhow::Result<Box<dyn Place>> {
    Ok(Box::new(whywait_publish::S3Bucket::new(url)?))
}

#[cfg(not(feature = "s3"))]
fn bucket(url: &str) -> anyhow::Result<Box<dyn Place>> {
    let problem = format!("cannot publish to {url}: this whywait was built without S3");
    let hint = "name a folder, or build it with S3: make FEATURES=s3";
    Err(Usage::new(problem, hint).into())
}

/// The recordings at these paths, each itself or those in it, in the order of their names.
fn recordings(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for path in paths {
        let mut within: Vec<PathBuf> = match is_recording(path) {
            true => Vec::new(),
            false => fs::read_dir(path)
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.path())
                .filter(|path| is_recording(path))
                .collect(),
        };
        within.sort();
        match within.is_empty() {
            // The reader of recordings knows best what is wrong with it, if anything.
            true => all.push(path.clone()),
            false => all.extend(within),
        }
    }
    Ok(all)
}

/// A recording, analysed.
struct Analysed {
    recording: Recording,
    model: Model,
    report: Report,
    identity: Identity,
}

impl Analysed {
    fn new(recording: Recording, identity: Identity) -> anyhow::Result<Self> {
        let model = Model::new(Input::read(&recording)?);
        let report = Report::of(&model);
        Ok(Self {
            recording,
            model,
            report,
            identity,
        })
    }

    /// Calls `with` with all that is published of it.
    fn source<T>(&self, with: impl FnOnce(&Source<'_>) -> T) -> T {
        let waits = self.model.waits();
        with(&Source {
            recording: &self.recording,
            model: &self.model,
            report: &self.report,
            waits: &waits,
            identity: &self.identity,
        })
    }
}

/// One recording that cannot be read keeps no other from being published: it is named, and the exit
/// code says so. Where nothing can be written, nothing goes on.
fn to_place(
    recordings: &[PathBuf],
    options: &PublishOptions,
    place: &dyn Place,
) -> anyhow::Result<u8> {
    let (mut published, mut there, mut going_on, mut failed) = (0_u64, 0, 0, false);
    let (mut files, mut rows, mut bytes) = (0, 0, 0);
    for path in recordings {
        let recording = match Recording::open(path) {
            Ok(recording) => recording,
            Err(error) => {
                complain(&error.to_string());
                failed = true;
                continue;
            }
        };
        let identity = Identity::of(&recording, &options.labels);
        if options.new && is_growing(path) {
            going_on += 1;
            continue;
        }
        if options.new && whywait_publish::is_published(&identity, place)? {
            there += 1;
            continue;
        }
        let analysed = match Analysed::new(recording, identity) {
            Ok(analysed) => analysed,
            Err(error) => {
                complain(&with_causes(&error));
                failed = true;
                continue;
            }
        };
        let done = analysed
            .source(|source| whywait_publish::publish(source, &options.selection, place))?;
        published += 1;
        files += done.files - done.unchanged;
        rows += done.rows;
        bytes += done.bytes;
    }
    let mut line = format!(
        "whywait: published {} ({}, {}, {bytes} bytes)",
        counted(published, "recording"),
        counted(files, "new file"),
        counted(rows, "row"),
    );
    if there > 0 {
        line.push_str(&format!("; {there} were there already"));
    }
    if going_on > 0 {
        line.push_str(&format!("; {going_on} still being recorded"));
    }
    eprintln_quietly(&line);
    Ok(if failed { FAILED } else { 0 })
}

/// What JSON Lines fail with.
#[derive(Debug, thiserror::Error)]
enum LineError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("cannot write to standard output: {0}")]
    Write(#[from] io::Error),
}

fn to_stdout(recordings: &[PathBuf], options: &PublishOptions) -> anyhow::Result<u8> {
    if closed::stdout() {
        bail!("standard output is closed: there is nowhere to write to");
    }
    let mut failed = false;
    let mut out = BufWriter::new(io::stdout().lock());
    for path in recordings {
        let analysed = Recording::open(path)
            .map_err(anyhow::Error::from)
            .and_then(|recording| {
                let identity = Identity::of(&recording, &options.labels);
                Analysed::new(recording, identity)
            })
            .with_context(|| shown(path));
        let analysed = match analysed {
            Ok(analysed) => analysed,
            Err(error) => {
                complain(&with_causes(&error));
                failed = true;
                continue;
            }
        };
        let written = analysed.source(|source| {
            whywait_publish::json_lines::<LineError>(source, &options.selection, &mut |line| {
                writeln!(out, "{line}").map_err(LineError::from)
            })
        });
        match written {
            // Who closed the pipe has seen enough.
            Err(LineError::Write(error)) if error.kind() == ErrorKind::BrokenPipe => return Ok(0),
            written => written?,
        }
    }
    match out.flush() {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(LineError::from(error).into()),
        _ => Ok(if failed { FAILED } else { 0 }),
    }
}

fn shown(path: &Path) -> String {
    escape(&path.to_string_lossy(), Charset::Unicode, 4_096)
}
