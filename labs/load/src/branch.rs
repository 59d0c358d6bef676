//! The client of a VMM's API: it asks for one snapshot after another and takes what the server says
//! of each.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lexopt::prelude::*;
use serde_json::{Value as Json, json};

use crate::promise::{self, Outcome, Rule, ms, print_ground_truth, summary};

/// No episode takes longer; a server that hangs becomes an error instead of a hung lab.
const DEADLINE: Duration = Duration::from_secs(20);
/// How far a thread's waits may be from the work that it waited for.
const TOLERANCE: f64 = 0.1;

pub(crate) fn run(mut parser: lexopt::Parser) -> Result<Outcome> {
    let mut socket = None;
    let mut episodes: u64 = 10;
    let mut waits_equal_work = false;
    let mut pings: u64 = 0;
    let mut anew = false;
    let mut rules = Vec::new();
    while let Some(arg) = parser.next()? {
        match arg {
            Value(value) if socket.is_none() => socket = Some(value.string()?),
            Long("episodes") => episodes = parser.value()?.parse()?,
            Long("pings") => pings = parser.value()?.parse()?,
            Long("anew") => anew = true,
            Long("waits-equal-work") => waits_equal_work = true,
            Long("expect") => rules.push(Rule::parse(&parser.value()?.string()?)?),
            _ => return Err(arg.unexpected().into()),
        }
    }
    let socket = socket.context("no socket given")?;
    let mut api = Api::connect(&socket)?;
    let about = api.ask("ABOUT")?;

    let mut latencies = Vec::new();
    let mut answers = Vec::new();
    for episode in 1..=episodes {
        let start = Instant::now();
        let answer = api.ask(&format!("BRANCH {episode}"))?;
        latencies.push(start.elapsed());
        // Work that goes on behind the answer would hold up the next request, which is not about
        // it.
        if let Some(rest) = answer["background_ms"].as_f64() {
            thread::sleep(Duration::from_secs_f64(rest / 1e3));
        }
        answers.push(answer);
        for ping in 0..pings {
            if anew {
                api = Api::connect(&socket)?;
            }
            api.ask(if ping % 2 == 0 {
                "PING api"
            } else {
                "PING worker"
            })?;
        }
    }

    let waits = waits(&answers)?;
    let work = sum(answers.iter().map(|answer| &answer["work_ms"]))?;
    let truth = json!({
        "latency_ms": latencies.iter().copied().map(ms).collect::<Vec<_>>(),
        "latency": summary(latencies),
        "waits_ms": waits,
        "work_ms": work,
        "episodes": answers,
        "server": about,
        "requests": 1 + episodes * (1 + pings),
    });
    print_ground_truth(&truth);
    if waits_equal_work && let Some(unequal) = unequal(&waits, work) {
        return Ok(Outcome::NotReproduced(unequal));
    }
    promise::check(&rules, &truth)
}

struct Api {
    stream: BufReader<UnixStream>,
}

impl Api {
    fn connect(socket: &str) -> Result<Self> {
        let stream =
            UnixStream::connect(socket).with_context(|| format!("cannot connect to {socket}"))?;
        stream.set_read_timeout(Some(DEADLINE))?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// One line there, one line of JSON back.
    fn ask(&mut self, request: &str) -> Result<Json> {
        self.stream
            .get_mut()
            .write_all(format!("{request}\n").as_bytes())?;
        let mut line = String::new();
        let read = self.stream.read_line(&mut line);
        read.with_context(|| format!("no answer to {request}"))?;
        ensure!(
            line.ends_with('\n'),
            "the server closed the connection on {request}"
        );
        serde_json::from_str(&line)
            .with_context(|| format!("the answer to {request} is not JSON: {line}"))
    }
}

/// The sum of each thread's waits over all episodes.
fn waits(answers: &[Json]) -> Result<serde_json::Map<String, Json>> {
    let threads = answers
        .first()
        .and_then(|first| first["waits_ms"].as_object());
    let threads = threads.context("the server said nothing of its threads' waits")?;
    threads
        .keys()
        .map(|thread| {
            let total = sum(answers.iter().map(|answer| &answer["waits_ms"][thread]))?;
            Ok((thread.clone(), json!(total)))
        })
        .collect()
}

fn sum<'a>(numbers: impl Iterator<Item = &'a Json>) -> Result<f64> {
    let mut total = 0.0;
    for number in numbers {
        total += number.as_f64().context("an answer lacks a number")?;
    }
    Ok((total * 10.0).round() / 10.0)
}

/// Says which thread did not wait as long as the work took.
fn unequal(waits: &serde_json::Map<String, Json>, work: f64) -> Option<String> {
    waits.iter().find_map(|(thread, waited)| {
        let waited = waited.as_f64()?;
        ((waited - work).abs() > TOLERANCE * work)
            .then(|| format!("{thread} waited {waited} ms for {work} ms of work"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_summed_for_each_thread() {
        let answers = [
            json!({"waits_ms": {"api": 10.0, "vcpu-0": 10.5}}),
            json!({"waits_ms": {"api": 20.0, "vcpu-0": 40.0}}),
        ];
        let waits = waits(&answers).unwrap();
        assert_eq!(
            Json::Object(waits.clone()),
            json!({"api": 30.0, "vcpu-0": 50.5})
        );
        assert!(unequal(&waits, 30.0).unwrap().contains("vcpu-0"));
        assert!(super::waits(&[json!({})]).is_err());
        assert!(super::waits(&[answers[0].clone(), json!({})]).is_err());
    }
}
