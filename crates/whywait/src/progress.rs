//! What is said on a terminal while whywait watches: one line, written over again. It is none where
//! nobody reads it: in a pipe, a file or with `-q`.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use whywait_capture::SoFar;
use whywait_words::{counted, duration, ratio_percent};

/// Between two looks at what the requests came to.
const EVERY: Duration = Duration::from_secs(1);

/// The line. It is gone when this is dropped.
pub(crate) struct Progress {
    on: bool,
    said: Option<Instant>,
}

impl Progress {
    pub(crate) fn new(quiet: bool) -> Self {
        Self {
            on: !quiet && io::stderr().is_terminal(),
            said: None,
        }
    }

    /// Programs are being loaded, which takes a moment.
    pub(crate) fn attaching(&mut self) {
        self.say("attaching…");
    }

    /// Says what the requests came to, unless it did a moment ago.
    pub(crate) fn watching(&mut self, so_far: impl FnOnce() -> SoFar, left: Option<Duration>) {
        if self.on && self.said.is_none_or(|said| said.elapsed() >= EVERY) {
            self.say(&line(&so_far(), left));
        }
    }

    /// Takes the line away, so that others can write there.
    pub(crate) fn clear(&mut self) {
        if self.said.take().is_some() {
            self.write("\r\x1b[K");
        }
    }

    fn say(&mut self, text: &str) {
        if self.on {
            self.said = Some(Instant::now());
            // No wider than most terminals: a line that wraps is not written over.
            self.write(&format!("\r\x1b[Kwhywait: {text:.70}"));
        }
    }

    fn write(&self, text: &str) {
        let mut to = io::stderr();
        // Nobody may be there to read it.
        let _ = to.write_all(text.as_bytes()).and_then(|()| to.flush());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

fn line(so_far: &SoFar, left: Option<Duration>) -> String {
    let mut said = match so_far.requests {
        0 => "no requests yet".to_owned(),
        n => counted(n, "request"),
    };
    if so_far.requests > 0 {
        said.push_str(&format!(", p99 {}", duration(so_far.p99_ns)));
    }
    if let Some((part, share)) = so_far.most {
        let part = part.map_or("waiting unread", |part| part.name());
        said.push_str(&format!(", {part} {}", ratio_percent(share)));
    }
    match left {
        Some(left) => said.push_str(&format!("; {} s left", left.as_secs_f64().ceil())),
        None => said.push_str("; Ctrl-C ends it"),
    }
    said
}

#[cfg(test)]
mod tests {
    use whywait_events::Part;

    use super::*;

    #[test]
    fn the_line_has_requests_their_p99_and_what_they_are_for() {
        let mut so_far = SoFar {
            requests: 12_345,
            p99_ns: 3_210_000,
            most: Some((Some(Part::Lock), 0.614)),
        };
        assert_eq!(
            line(&so_far, Some(Duration::from_millis(4_200))),
            "12,345 requests, p99 3.21 ms, lock 61 %; 5 s left"
        );
        so_far.most = Some((None, 1.0));
        assert!(line(&so_far, None).contains("waiting unread 100 %; Ctrl-C"));
        so_far = SoFar {
            requests: 0,
            p99_ns: 0,
            most: None,
        };
        assert_eq!(line(&so_far, None), "no requests yet; Ctrl-C ends it");
    }
}
