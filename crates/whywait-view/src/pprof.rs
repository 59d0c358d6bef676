//! A profile as `go tool pprof` and most others read it: a gzip'd `perftools.profiles.Profile`.
//!
//! Field numbers are those of `profile.proto` in github.com/google/pprof.

use std::collections::HashMap;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use whywait_model::Model;
use whywait_words::{Charset, escape};

use crate::protobuf::Message;
use crate::stacks::{self, Of, StackedFrame};

/// Longer names are cut in their middle.
const MAX_NAME: usize = 1_000;

/// Fields of `Profile`.
const SAMPLE_TYPE: u32 = 1;
const SAMPLE: u32 = 2;
const LOCATION: u32 = 4;
const FUNCTION: u32 = 5;
const STRING_TABLE: u32 = 6;
const TIME_NANOS: u32 = 9;
const DURATION_NANOS: u32 = 10;
const COMMENT: u32 = 13;

/// The stacks with their time: of type `wall`, or `cpu`, in nanoseconds. Frames that are no
/// functions (a role of threads, what a wait was for) are functions in it, too.
///
/// # Errors
/// Fails only if compressing in memory does.
pub fn pprof(model: &Model, of: Of) -> std::io::Result<Vec<u8>> {
    let mut zip = GzEncoder::new(Vec::new(), Compression::default());
    zip.write_all(&profile(model, of).into_bytes())?;
    zip.finish()
}

fn profile(model: &Model, of: Of) -> Message {
    let tree = stacks::tree(model, of);
    let mut strings = Strings::default();
    strings.number("");
    let mut profile = Message::default();
    let kind = match of {
        Of::Critical | Of::Waits => "wall",
        Of::Cpu => "cpu",
    };
    let (kind, unit) = (strings.number(kind), strings.number("nanoseconds"));
    let mut value_type = Message::default();
    value_type.number(1, kind).number(2, unit);
    profile.message(SAMPLE_TYPE, &value_type);
    for (stack, ns) in tree.stacks() {
        // Innermost first. Numbers of locations are not 0.
        let locations: Vec<u64> = stack.iter().rev().map(|n| u64::from(*n) + 1).collect();
        let mut sample = Message::default();
        sample.numbers(1, &locations).numbers(2, &[ns]);
        profile.message(SAMPLE, &sample);
    }
    for (index, frame) in tree.frames().iter().enumerate() {
        let id = index as u64 + 1;
        let mut line = Message::default();
        line.number(1, id).number(2, frame.line.into());
        let mut location = Message::default();
        location.number(1, id).message(4, &line);
        profile.message(LOCATION, &location);
        profile.message(FUNCTION, &function(id, frame, &mut strings));
    }
    let comment = strings.number(&format!("whywait: {}", of.title()));
    for text in strings.in_order() {
        profile.text(STRING_TABLE, &text);
    }
    profile.number(TIME_NANOS, model.meta.started_wall_unix_ns);
    let duration_ns = model.end_ns.saturating_sub(model.meta.started_ns);
    profile.number(DURATION_NANOS, duration_ns);
    profile.numbers(COMMENT, &[comment]);
    profile
}

fn function(id: u64, frame: &StackedFrame, strings: &mut Strings) -> Message {
    let name = strings.number(&escape(&frame.name, Charset::Unicode, MAX_NAME));
    let file = strings.number(&escape(&frame.file, Charset::Unicode, MAX_NAME));
    let mut function = Message::default();
    function
        .number(1, id)
        .number(2, name)
        .number(3, name)
        .number(4, file);
    function
}

/// The table of texts.
#[derive(Debug, Default)]
struct Strings(HashMap<String, u64>);

impl Strings {
    fn number(&mut self, text: &str) -> u64 {
        let next = self.0.len() as u64;
        *self.0.entry(text.to_owned()).or_insert(next)
    }

    fn in_order(self) -> Vec<String> {
        let mut texts: Vec<(String, u64)> = self.0.into_iter().collect();
        texts.sort_by_key(|(_, number)| *number);
        texts.into_iter().map(|(text, _)| text).collect()
    }
}
