//! The slowest request in a few lines: its critical path in pieces, equal steps as one.

use std::collections::HashMap;

use whywait_model::path::Step;
use whywait_model::requests::Slow;
use whywait_words::{counted, duration};

use super::page::{Page, Style};
use super::requests::when;
use super::step::{Names, held_by, place, thread, woken_by};

/// So many pieces are shown.
const MAX_PIECES: usize = 10;
/// Pieces of a smaller share of its time are summed up.
const SMALL_PERMILLE: u64 = 10;
const HANG: &str = "            ";

/// What happened once or several times in the same place, in the order of the first time.
struct Piece<'a> {
    /// How often.
    count: u64,
    /// All of it.
    ns: u64,
    /// The longest single time.
    longest_ns: u64,
    what: What<'a>,
}

enum What<'a> {
    /// Steps of the path. This is the longest of them.
    Steps { longest: &'a Step, threads: u64 },
    /// Calls that are certainly its own, to this peer.
    Calls(&'a str),
}

/// What makes two of them the same.
#[derive(PartialEq, Eq, Hash)]
enum Same<'a> {
    Steps(&'a str, String, Option<u32>),
    Calls(&'a str),
}

/// `by_calls`: whether calls say more of where it was than what the threads did meanwhile.
pub(super) fn render(page: &mut Page, slow: &Slow, by_calls: bool) {
    let mut text = when(slow);
    if !slow.id.is_empty() {
        text.push_str(&format!(" [{}]", page.cut(&slow.id, 40)));
    }
    let title = (Style::Strong, "slowest: ");
    page.paragraph("", "  ", &[title, (Style::Plain, &text)]);
    let names = Names::of(&slow.path);
    let pieces = pieces(page, slow, by_calls);
    let shown = shown(&pieces, slow.latency_ns);
    let (mut rest, mut rest_ns) = (0_u64, 0_u64);
    for (piece, shown) in pieces.iter().zip(shown) {
        if shown {
            render_piece(page, piece, &names);
        } else {
            rest += piece.count;
            rest_ns = rest_ns.saturating_add(piece.ns);
        }
    }
    if rest > 0 {
        let steps = counted(rest, "other step");
        let text = format!("  {:>8}  {steps}", duration(rest_ns));
        page.paragraph("", "    ", &[(Style::Dim, &text)]);
    }
}

/// Which of them are shown: the longest, as far as they matter.
fn shown(pieces: &[Piece], latency_ns: u64) -> Vec<bool> {
    let mut by_size: Vec<usize> = (0..pieces.len()).collect();
    by_size.sort_by_key(|at| std::cmp::Reverse(pieces[*at].ns));
    let matters = |at: &&usize| {
        u128::from(pieces[**at].ns) * 1_000 >= u128::from(latency_ns) * u128::from(SMALL_PERMILLE)
    };
    let mut shown = vec![false; pieces.len()];
    for at in by_size.iter().take(MAX_PIECES).take_while(matters) {
        shown[*at] = true;
    }
    // A single one takes the line that would say that it was left out.
    let mut left = (0..pieces.len()).filter(|at| !shown[*at]);
    if let (Some(at), None) = (left.next(), left.next()) {
        shown[at] = true;
    }
    shown
}

fn render_piece(page: &mut Page, piece: &Piece, names: &Names) {
    let ns = duration(piece.ns);
    let times = match piece.count {
        1 => String::new(),
        _ => format!(", up to {}", duration(piece.longest_ns)),
    };
    match piece.what {
        What::Calls(peer) => {
            let peer = page.cut(peer, 60);
            let calls = match piece.count {
                1 => String::new(),
                n => format!(", {}", counted(n, "call")),
            };
            let text = format!("  {ns:>8}  with {peer}{calls}{times}");
            page.paragraph("", HANG, &[(Style::Plain, &text)]);
        }
        What::Steps { longest, threads } => {
            let mut state = page.cut(&longest.state, 20);
            if piece.count > 1 {
                state = format!("{} x {state}", piece.count);
            }
            let mut text = format!("  {ns:>8}  {state:<14}");
            match (threads, thread(page, longest)) {
                (1, who) if who.is_empty() => {}
                (1, who) => text.push_str(&format!("  {who}")),
                (n, _) => text.push_str(&format!("  {}", counted(n, "thread"))),
            }
            text.push_str(&place(page, longest));
            match piece.count {
                1 => text.push_str(&woken_by(page, longest, names)),
                _ => text.push_str(&times),
            }
            page.paragraph("", HANG, &[(Style::Plain, text.trim_end())]);
            if let Some(held_by) = held_by(page, longest) {
                page.paragraph(HANG, HANG, &[(Style::Plain, &held_by)]);
            }
        }
    }
}

/// Its pieces, in the order in which they began.
fn pieces<'a>(page: &Page, slow: &'a Slow, by_calls: bool) -> Vec<Piece<'a>> {
    let calls = if by_calls { calls(slow) } else { Vec::new() };
    let mut pieces = Pieces::default();
    let mut calls_left = calls.as_slice();
    let mut at_ns = 0_u64;
    for step in &slow.path {
        let end_ns = at_ns.saturating_add(step.ns);
        while let [call, rest @ ..] = calls_left
            && call.from_ns < end_ns
        {
            pieces.add(Same::Calls(call.peer), call.to_ns - call.from_ns, || {
                What::Calls(call.peer)
            });
            calls_left = rest;
        }
        let within = calls.iter().map(|call| {
            let (from, to) = (call.from_ns.max(at_ns), call.to_ns.min(end_ns));
            to.saturating_sub(from)
        });
        let left_ns = step.ns.saturating_sub(within.fold(0, u64::saturating_add));
        // A step without a length is shown where it is all that there is to say.
        if left_ns > 0 || step.ns == 0 {
            pieces.add_step(page, step, left_ns);
        }
        at_ns = end_ns;
    }
    pieces.all
}

/// A time in which it certainly was with a peer, from its arrival.
struct WithPeer<'a> {
    from_ns: u64,
    to_ns: u64,
    peer: &'a str,
}

/// Its certain calls until the reply was there, none over another one.
fn calls(slow: &Slow) -> Vec<WithPeer<'_>> {
    let Some(calls) = &slow.calls else {
        return Vec::new();
    };
    let certain = calls.longest.iter();
    let mut spans: Vec<WithPeer> = certain
        .filter(|call| calls.own || call.link.is_some())
        .map(|call| WithPeer {
            from_ns: call.at_ns,
            to_ns: call
                .at_ns
                .saturating_add(call.with_peer_ns)
                .min(slow.latency_ns),
            peer: &call.peer,
        })
        .collect();
    spans.sort_by_key(|span| (span.from_ns, span.to_ns));
    let mut until_ns = 0;
    for span in &mut spans {
        span.from_ns = span.from_ns.max(until_ns);
        until_ns = until_ns.max(span.to_ns);
    }
    spans.retain(|span| span.from_ns < span.to_ns);
    spans
}

#[derive(Default)]
struct Pieces<'a> {
    all: Vec<Piece<'a>>,
    places: HashMap<Same<'a>, usize>,
    threads: HashMap<usize, Vec<u32>>,
}

impl<'a> Pieces<'a> {
    fn add(&mut self, same: Same<'a>, ns: u64, what: impl FnOnce() -> What<'a>) -> usize {
        let new = self.all.len();
        let at = *self.places.entry(same).or_insert(new);
        if at == new {
            self.all.push(Piece {
                count: 0,
                ns: 0,
                longest_ns: 0,
                what: what(),
            });
        }
        let piece = &mut self.all[at];
        piece.count += 1;
        piece.ns = piece.ns.saturating_add(ns);
        piece.longest_ns = piece.longest_ns.max(ns);
        at
    }

    fn add_step(&mut self, page: &Page, step: &'a Step, ns: u64) {
        // Who held a lock is a thing of its own.
        let holder = step
            .meanwhile
            .last()
            .map(|held| step.woken_by.unwrap_or(held.tid));
        let same = Same::Steps(&step.state, place(page, step), holder);
        let what = || What::Steps {
            longest: step,
            threads: 0,
        };
        let at = self.add(same, ns, what);
        let known = self.threads.entry(at).or_default();
        if !known.contains(&step.tid) {
            known.push(step.tid);
        }
        let count = known.len() as u64;
        if let What::Steps { longest, threads } = &mut self.all[at].what {
            *threads = count;
            if step.ns > longest.ns {
                *longest = step;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use whywait_model::calls::{CallWithin, CallsWithin};

    use super::super::{TextOptions, page};
    use super::*;

    const MS: u64 = 1_000_000;

    fn step(state: &str, tid: u32, ms: u64) -> Step {
        Step {
            state: state.to_owned(),
            tid,
            thread: "worker".to_owned(),
            ns: ms * MS,
            ..Step::default()
        }
    }

    fn call(at_ms: u64, ms: u64) -> CallWithin {
        CallWithin {
            peer: "10.0.0.7:5432".to_owned(),
            at_ns: at_ms * MS,
            ns: (ms + 1) * MS,
            with_peer_ns: ms * MS,
            ..CallWithin::default()
        }
    }

    fn text(slow: &Slow, by_calls: bool) -> String {
        let mut page = page(TextOptions::default());
        render(&mut page, slow, by_calls);
        page.into_text()
    }

    fn slow() -> Slow {
        let mut path = vec![step("ready-unserved", 0, 100)];
        for _ in 0..40 {
            path.push(step("network", 7, 20));
            path.push(step("on-cpu", 7, 1));
        }
        path.push(step("on-cpu", 8, 60));
        Slow {
            latency_ns: path.iter().map(|step| step.ns).sum(),
            path,
            ..Slow::default()
        }
    }

    #[test]
    fn equal_steps_are_one_piece() {
        let text = text(&slow(), false);
        assert_eq!(
            text.lines().skip(1).collect::<Vec<_>>(),
            [
                "    100 ms  ready-unserved",
                "    800 ms  40 x network    worker (7), up to 20 ms",
                "    100 ms  41 x on-cpu     2 threads, up to 60 ms",
            ]
        );
    }

    #[test]
    fn a_certain_call_is_one_piece_and_the_sum_stays() {
        let mut slow = slow();
        slow.calls = Some(CallsWithin {
            own: true,
            count: 2,
            longest: vec![call(100, 410), call(300, 400)],
        });
        let page = page(TextOptions::default());
        let pieces = pieces(&page, &slow, true);
        let sum: u64 = pieces.iter().map(|piece| piece.ns).sum();
        assert_eq!(sum, slow.latency_ns);
        let text = text(&slow, true);
        assert!(
            text.contains("    600 ms  with 10.0.0.7:5432, 2 calls, up to 410 ms\n"),
            "{text}"
        );
    }

    #[test]
    fn ten_pieces_are_shown_and_the_rest_is_summed() {
        let path = (0..30).map(|n| step(&format!("state-{n}"), 1, 10 + n));
        let path: Vec<Step> = path.collect();
        let slow = Slow {
            latency_ns: path.iter().map(|step| step.ns).sum(),
            path,
            ..Slow::default()
        };
        let text = text(&slow, false);
        assert_eq!(text.lines().count(), 1 + MAX_PIECES + 1, "{text}");
        assert!(text.ends_with("    390 ms  20 other steps\n"), "{text}");
    }
}
