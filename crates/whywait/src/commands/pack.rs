//! `whywait pack`: a recording as one file.

use std::fs;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use anyhow::Context;
use whywait_events::recording::{Meta, Recording};
use whywait_words::without_secrets;

use crate::args::PackArgs;
use crate::errors;
use crate::output::{self, Destination};

/// How the name of a packed recording ends.
const PACKED: &str = ".tar.zst";
/// What an archive has a recording as whose own name is none that every tar takes.
const ANY_NAME: &str = "recording";
/// As long as the format allows with a table's name behind it.
const MAX_NAME: usize = 60;

pub(crate) fn run(args: &PackArgs) -> anyhow::Result<u8> {
    let recording = Recording::open(&args.recording)?;
    let damaged = recording.damaged();
    let file = match &args.output {
        Some(file) => file.clone(),
        None => Destination::new(output::beside(&args.recording, PACKED)),
    };
    let what = || format!("cannot write {}", file.name().display());
    let to = match args.output {
        Some(_) => output::create(&file).with_context(what)?,
        None => output::replaced(file.name())?,
    };
    let name = folder_name(&args.recording);
    recording
        .pack(&name, &for_others(recording.meta()), BufWriter::new(to))
        .with_context(what)?;
    let bytes = fs::metadata(file.name()).map_or(0, |found| found.len());
    let shown = errors::line(&file.name().display().to_string());
    output::write(
        &format!("wrote {shown} ({bytes} bytes); to read it: whywait report {shown}\n"),
        None,
    )?;
    for damage in damaged {
        errors::complain(&format!("what is packed is not whole: {damage}"));
    }
    Ok(0)
}

/// The same without what looks like a secret: whoever unpacks it can read all of it.
fn for_others(meta: &Meta) -> Meta {
    let mut meta = meta.clone();
    meta.command = without_secrets(&meta.command);
    for server in &mut meta.servers {
        server.command = without_secrets(&server.command);
    }
    meta
}

/// What unpacking it gives: a folder with the recording's name.
fn folder_name(recording: &Path) -> String {
    let full: Option<PathBuf> = recording.canonicalize().ok();
    let name = full.as_deref().unwrap_or(recording).file_name();
    let name = name.and_then(|name| name.to_str()).unwrap_or_default();
    let name = name.strip_suffix(PACKED).unwrap_or(name);
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match name.chars().all(plain) && !name.starts_with('.') && name.len() <= MAX_NAME {
        true if !name.is_empty() => name.to_owned(),
        _ => ANY_NAME.to_owned(),
    }
}
