//! The slowest request in a few lines: its critical path in pieces, equal steps as one.

use std::collections::HashMap;

use whywait_model::calls::links::{Range, TaskTime};
use whywait_model::path::Step;
use whywait_model::requests::Slow;
use whywait_words::{columns, counted, duration, duration_range};

use super::by_calls::{self, NamedTime};
use super::page::{Page, Style};
use super::requests::when;
use super::step::{Names, held_by, place, state, thread, woken_by};
use super::words;

/// So many pieces are shown.
const MAX_PIECES: usize = 10;
/// The same, where only what most readers need is shown.
const FEW_PIECES: usize = 5;
/// Pieces of a smaller share of its time are summed up.
const SMALL_PERMILLE: u64 = 10;
/// Names of what its time was have at least that width.
const LEAST_WHAT: usize = 14;
/// When and where it was is cut to that width.
const MAX_WHEN: usize = 160;
const HANG: &str = "            ";

/// What happened once or several times in the same place, in the order of the first time.
struct Piece<'a> {
    /// How often.
    count: u64,
    /// All of it.
    ns: u64,
    /// The longest step of them.
    longest: &'a Step,
    /// Threads that were in it.
    threads: Vec<u32>,
}

/// `of_calls`: whether calls say more of where it was than what the threads did meanwhile.
pub(super) fn render(page: &mut Page, slow: &Slow, of_calls: bool) {
    let mut text = page.cut(&when(slow), MAX_WHEN);
    if !slow.id.is_empty() {
        text.push_str(&format!(" [{}]", page.cut(&slow.id, 40)));
    }
    let title = (Style::Strong, "slowest: ");
    page.paragraph("", "  ", &[title, (Style::Plain, &text)]);
    if let Some(time) = slow.tasks.as_ref().filter(|_| of_calls) {
        by_calls(page, time, slow.latency_ns);
        return;
    }
    let names = Names::of(&slow.path);
    let pieces = pieces(page, &slow.path);
    let max = if page.verbose() {
        MAX_PIECES
    } else {
        FEW_PIECES
    };
    let shown = shown(&pieces, max, slow.latency_ns);
    let longest_ns = pieces.iter().map(|piece| piece.ns).max();
    let kept = pieces.iter().zip(&shown).filter(|(_, shown)| **shown);
    let widths = kept.map(|(piece, _)| columns(&what(page, piece)));
    let width = widths.max().unwrap_or(0).max(LEAST_WHAT);
    let (mut rest, mut rest_ns) = (0_u64, 0_u64);
    for (piece, shown) in pieces.iter().zip(shown) {
        if shown {
            let with_holder = page.verbose() || Some(piece.ns) == longest_ns;
            render_piece(page, piece, &names, (width, with_holder));
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
fn shown(pieces: &[Piece], max: usize, latency_ns: u64) -> Vec<bool> {
    let mut by_size: Vec<usize> = (0..pieces.len()).collect();
    by_size.sort_by_key(|at| std::cmp::Reverse(pieces[*at].ns));
    let matters = |at: &&usize| {
        u128::from(pieces[**at].ns) * 1_000 >= u128::from(latency_ns) * u128::from(SMALL_PERMILLE)
    };
    let mut shown = vec![false; pieces.len()];
    for at in by_size.iter().take(max).take_while(matters) {
        shown[*at] = true;
    }
    // A single one takes the line that would say that it was left out.
    let mut left = (0..pieces.len()).filter(|at| !shown[*at]);
    if let (Some(at), None) = (left.next(), left.next()) {
        shown[at] = true;
    }
    shown
}

/// What its time was, and how often: `18 x without a CPU`.
fn what(page: &Page, piece: &Piece) -> String {
    let state = state(page, piece.longest);
    match piece.count {
        1 => state,
        count => format!("{count} x {state}"),
    }
}

fn render_piece(
    page: &mut Page,
    piece: &Piece,
    names: &Names,
    (width, with_holder): (usize, bool),
) {
    let longest = piece.longest;
    let mut text = format!("  {:>8}  {:<width$}", duration(piece.ns), what(page, piece));
    match (piece.threads.len(), thread(page, longest)) {
        (1, who) if who.is_empty() => {}
        (1, who) => text.push_str(&format!("  {who}")),
        (n, _) => text.push_str(&format!("  {}", counted(n, "thread"))),
    }
    text.push_str(&place(page, longest));
    match piece.count {
        1 => text.push_str(&woken_by(page, longest, names)),
        _ => text.push_str(&format!(", up to {}", duration(longest.ns))),
    }
    page.paragraph("", HANG, &[(Style::Plain, text.trim_end())]);
    if let Some(held_by) = held_by(page, longest).filter(|_| with_holder) {
        page.paragraph(HANG, HANG, &[(Style::Plain, &held_by)]);
    }
}

/// Its pieces, in the order in which they began.
fn pieces<'a>(page: &Page, path: &'a [Step]) -> Vec<Piece<'a>> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut places: HashMap<(&str, String, Option<u32>), usize> = HashMap::new();
    for step in path {
        // Who held a lock is a thing of its own.
        let held = step.meanwhile.last();
        let holder = held.map(|held| step.woken_by.unwrap_or(held.tid));
        let at = *places
            .entry((&step.state, place(page, step), holder))
            .or_insert(pieces.len());
        if at == pieces.len() {
            pieces.push(Piece {
                count: 0,
                ns: 0,
                longest: step,
                threads: Vec::new(),
            });
        }
        let piece = &mut pieces[at];
        piece.count += 1;
        piece.ns = piece.ns.saturating_add(step.ns);
        if step.ns > piece.longest.ns {
            piece.longest = step;
        }
        if !piece.threads.contains(&step.tid) {
            piece.threads.push(step.tid);
        }
    }
    pieces
}

/// Where it was by its calls, the longest first.
fn by_calls(page: &mut Page, time: &TaskTime, latency_ns: u64) {
    let mut rows = by_calls::once_read(page, time);
    rows.push((
        words::UNREAD.to_owned(),
        by_calls::exactly(time.unserved_ns),
    ));
    let least = if page.verbose() { 0 } else { SMALL_PERMILLE };
    let matters = |ns: u64| u128::from(ns) * 1_000 >= u128::from(latency_ns) * u128::from(least);
    rows.retain(|(_, ns)| ns.at_most > 0 && matters(ns.at_most));
    let (unknown, mut rows): (Vec<NamedTime>, Vec<NamedTime>) = rows
        .into_iter()
        .partition(|(_, ns)| by_calls::says_nothing(*ns, latency_ns));
    rows.sort_by_key(|(_, ns)| std::cmp::Reverse((ns.at_least.midpoint(ns.at_most), ns.at_most)));
    let rows: Vec<(String, &str)> = rows
        .iter()
        .take(MAX_PIECES)
        .map(|(what, ns)| (how_long(*ns), what.as_str()))
        .collect();
    let width = rows
        .iter()
        .map(|(ns, _)| ns.len())
        .max()
        .unwrap_or(0)
        .max(8);
    for (ns, what) in rows {
        page.paragraph(
            "",
            HANG,
            &[(Style::Plain, &format!("  {ns:>width$}  {what}"))],
        );
    }
    if let Some(text) = by_calls::not_known(&unknown) {
        page.paragraph("  ", "    ", &[(Style::Dim, &text)]);
    }
}

/// `59.5 to 306 ms`, `up to 77 ms`.
fn how_long(ns: Range) -> String {
    match ns.at_least {
        0 => format!("up to {}", duration(ns.at_most)),
        _ => duration_range(ns.at_least, ns.at_most),
    }
}

#[cfg(test)]
mod tests {
    use whywait_model::calls::links::PeerTime;

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

    fn text(slow: &Slow, of_calls: bool) -> String {
        let mut page = page(TextOptions {
            verbose: true,
            ..TextOptions::default()
        });
        render(&mut page, slow, of_calls);
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
                "    100 ms  waiting unread",
                "    800 ms  40 x network    worker (7), up to 20 ms",
                "    100 ms  41 x on CPU     2 threads, up to 60 ms",
            ]
        );
    }

    #[test]
    fn what_calls_say_stands_in_place_of_what_threads_did() {
        let mut slow = slow();
        slow.tasks = Some(TaskTime {
            peers: vec![PeerTime {
                number: 0,
                peer: "10.0.0.7:5432".to_owned(),
                ns: by_calls::exactly(600 * MS),
            }],
            queued_ns: Range {
                at_least: 100 * MS,
                at_most: 300 * MS,
            },
            unserved_ns: 100 * MS,
            ..TaskTime::default()
        });
        assert_eq!(
            text(&slow, true).lines().skip(1).collect::<Vec<_>>(),
            [
                "         600 ms  with 10.0.0.7:5432",
                "  100 to 300 ms  queued inside",
                "         100 ms  waiting unread",
            ]
        );
        assert!(text(&slow, false).contains("40 x network"));
    }

    #[test]
    fn what_may_be_nothing_or_most_of_it_is_not_known() {
        let between = |at_least, at_most| Range {
            at_least: at_least * MS,
            at_most: at_most * MS,
        };
        let peer = PeerTime {
            number: 0,
            peer: "10.0.0.7:5432".to_owned(),
            ns: between(0, 900),
        };
        let slow = Slow {
            latency_ns: 1_000 * MS,
            tasks: Some(TaskTime {
                peers: vec![peer],
                queued_ns: between(0, 950),
                own_ns: between(0, 77),
                unserved_ns: 50 * MS,
                ..TaskTime::default()
            }),
            ..Slow::default()
        };
        assert_eq!(
            text(&slow, true).lines().skip(1).collect::<Vec<_>>(),
            [
                "        50 ms  waiting unread",
                "  up to 77 ms  at work",
                "  not known: how much of it was with 10.0.0.7:5432, how much queued inside",
            ]
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
