//! A slow request's critical path, drawn: a lane for each thread, the steps in them, and who woke
//! whom.

use std::collections::BTreeMap;

use maud::{Markup, html};
use whywait_model::path::Step;
use whywait_model::requests::Slow;
use whywait_report::text::sentences::{self, Frame, Steps};
use whywait_report::text::words;
use whywait_words::{capitalised, counted, duration};

use super::svg::{
    figures, fits, fitting, inside, label, legend, name, picture, px, time_axis, whole,
};
use crate::palette::{self, Paint};

/// Room for the names of lanes, in a wide picture: beside them. In a narrow one they are above.
const LEFT: f64 = 190.0;
const RIGHT: f64 = 12.0;
const LANE: f64 = 30.0;
const NARROW_LANE: f64 = 46.0;
/// Steps that are drawn: the longest. What is shorter would not be seen.
const MAX_STEPS: usize = 300;
/// Steps that are listed with their stacks.
const MAX_LISTED: usize = 25;
/// Threads beyond these share a lane.
const MAX_LANES: usize = 24;
/// So many calls are drawn.
const MAX_CALLS: usize = 40;
/// What a holder's holder did is drawn too, and so on to this depth.
const MAX_DEPTH: usize = 3;

/// A path, laid out: times since the request's arrival.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    names: Vec<String>,
    boxes: Vec<PathPiece>,
    /// When, from which lane, to which one.
    wakes: Vec<(u64, usize, usize)>,
    total_ns: u64,
    /// Why it was unread for most of the time that it was.
    unread: &'static str,
}

#[derive(Debug)]
struct PathPiece {
    lane: usize,
    from_ns: u64,
    ns: u64,
    state: String,
    /// What is written on it where there is room: what happened.
    text: String,
    title: String,
    /// Not on the path itself: what a holder did meanwhile.
    meanwhile: bool,
}

/// What has a lane of its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Whose {
    Arrival,
    Thread(u32),
    Peer(String),
}

/// The lanes by whose they are, in the order of their first appearance.
#[derive(Debug, Default)]
struct Index(BTreeMap<Whose, usize>);

impl Lanes {
    pub(crate) fn new(slow: &Slow) -> Self {
        let steps = Steps::of(&slow.path);
        let mut lanes = Lanes {
            total_ns: slow.latency_ns,
            unread: palette::unread(&slow.time.ready_unserved),
            ..Lanes::default()
        };
        let mut index = Index::default();
        lanes.add(&mut index, &steps, &slow.path, 0, 0);
        if let Some(calls) = &slow.calls {
            for call in calls.longest.iter().take(MAX_CALLS) {
                let lane = lanes.lane(&mut index, Whose::Peer(call.peer.clone()), || {
                    format!("→ {}", name(&call.peer, 60))
                });
                let whose = match calls.own || call.link.is_some() {
                    true => "call",
                    false => "call of this request or another",
                };
                lanes.boxes.push(PathPiece {
                    lane,
                    from_ns: call.at_ns,
                    ns: call.ns,
                    state: "network".to_owned(),
                    text: whose.to_owned(),
                    title: format!(
                        "{whose} to {}: {}, {} until the reply was there",
                        name(&call.peer, 60),
                        duration(call.ns),
                        duration(call.with_peer_ns)
                    ),
                    meanwhile: true,
                });
            }
        }
        lanes.boxes.sort_by_key(|one| std::cmp::Reverse(one.ns));
        lanes.boxes.truncate(MAX_STEPS);
        lanes
    }

    fn add(
        &mut self,
        index: &mut Index,
        steps: &Steps<'_>,
        path: &[Step],
        mut at_ns: u64,
        depth: usize,
    ) {
        for step in path {
            let whose = match step.tid {
                _ if step.state == "ready-unserved" => Whose::Arrival,
                tid => Whose::Thread(tid),
            };
            let lane = self.lane(index, whose.clone(), || match whose {
                Whose::Thread(tid) => steps.who(tid),
                _ => words::UNREAD.to_owned(),
            });
            self.boxes.push(PathPiece {
                lane,
                from_ns: at_ns,
                ns: step.ns,
                state: step.state.clone(),
                text: format!("{} {}", words::name_of(&step.state), steps.what(step)),
                title: format!(
                    "{} {} {}",
                    duration(step.ns),
                    words::name_of(&step.state),
                    steps.what(step)
                ),
                meanwhile: depth > 0,
            });
            if depth < MAX_DEPTH && !step.meanwhile.is_empty() {
                self.add(index, steps, &step.meanwhile, at_ns, depth + 1);
            }
            at_ns = at_ns.saturating_add(step.ns);
            if let Some(waker) = step.woken_by.filter(|waker| *waker != step.tid) {
                let from = self.lane(index, Whose::Thread(waker), || steps.who(waker));
                let to = match step.state.as_str() {
                    "ready-unserved" => {
                        self.lane(index, Whose::Thread(step.tid), || steps.who(step.tid))
                    }
                    _ => lane,
                };
                if from != to {
                    self.wakes.push((at_ns, from, to));
                }
            }
        }
    }

    fn lane(&mut self, index: &mut Index, whose: Whose, called: impl FnOnce() -> String) -> usize {
        if let Some(lane) = index.0.get(&whose) {
            return *lane;
        }
        let lane = self.names.len();
        if lane >= MAX_LANES {
            return MAX_LANES - 1;
        }
        self.names.push(match lane + 1 == MAX_LANES {
            true => "others".to_owned(),
            false => called(),
        });
        index.0.insert(whose, lane);
        lane
    }

    /// Whether another box that is drawn later lies on it, as calls at a time do.
    fn is_covered(&self, one: &PathPiece) -> bool {
        let later = self
            .boxes
            .iter()
            .skip_while(|other| !std::ptr::eq(*other, one));
        later.skip(1).any(|other| {
            other.lane == one.lane
                && other.from_ns < one.from_ns.saturating_add(one.ns)
                && one.from_ns < other.from_ns.saturating_add(other.ns)
        })
    }

    /// The name and the colour of a box.
    fn part<'a>(&self, one: &'a PathPiece) -> (&'a str, Paint) {
        match one.state.as_str() {
            "ready-unserved" => (self.unread, palette::of_part(self.unread)),
            state => (words::name_of(state), palette::of_state(state)),
        }
    }

    /// The names and colours of what can be seen, the one that takes most of the time first.
    fn parts(&self) -> Vec<(Paint, &str)> {
        /// Less than this part of the time is not seen.
        const SEEN: u64 = 500;
        let mut parts: Vec<(u64, Paint, &str)> = Vec::new();
        for one in self
            .boxes
            .iter()
            .filter(|one| one.ns >= self.total_ns / SEEN)
        {
            let (name, paint) = self.part(one);
            match parts.iter_mut().find(|(_, _, other)| *other == name) {
                Some((ns, ..)) => *ns = ns.saturating_add(one.ns),
                None => parts.push((one.ns, paint, name)),
            }
        }
        parts.sort_by_key(|(ns, ..)| std::cmp::Reverse(*ns));
        parts
            .into_iter()
            .map(|(_, paint, name)| (paint, name))
            .collect()
    }

    /// Where a time lies, from 0 to 1.
    fn at(&self, ns: u64) -> f64 {
        (ns as f64 / self.total_ns.max(1) as f64).clamp(0.0, 1.0)
    }
}

/// The section.
pub(crate) fn section(slowest: &[Slow], what: &str) -> Markup {
    html! {
        @if !slowest.is_empty() {
            section id="slowest" {
                h2 { "The slowest " (what) "s, and what they waited for" }
                @for (index, slow) in slowest.iter().enumerate() {
                    (request(slow, index))
                }
            }
        }
    }
}

fn request(slow: &Slow, index: usize) -> Markup {
    let number = index + 1;
    let title = format!(
        "{number}. {} [{}]",
        name(&sentences::when(slow), 160),
        name(&slow.id, 40)
    );
    html! {
        details class="request" open[index == 0] {
            summary { strong { (title) } }
            @if slow.path.is_empty() {
                p {
                    (capitalised(&sentences::began(slow))) "; its response was not seen, so there \
                     is no critical path to show."
                }
            } @else {
                @let lanes = Lanes::new(slow);
                (draw(&lanes, &format!("path-{number}"), &title))
                (legend(lanes.parts()))
                (besides(slow))
                details {
                    summary { "Step by step, with stacks" }
                    (listed(&slow.path))
                }
            }
        }
    }
}

/// What became of its response, and its time by its calls, as the text has it.
fn besides(slow: &Slow) -> Markup {
    let besides = sentences::besides(slow);
    let calls = slow.calls.as_ref();
    html! {
        @if !besides.is_empty() {
            dl class="facts" {
                @for (name, text) in besides {
                    div { dt { (name) } dd { (figures(&text)) } }
                }
            }
        }
        @if let Some(calls) = calls.filter(|calls| !calls.longest.is_empty()) {
            details {
                summary {
                    @match calls.own {
                        true => "Its calls to others",
                        false => "Calls to others while it was under way that may be its own",
                    }
                }
                ol class="steps" {
                    @for call in &calls.longest {
                        li {
                            span class="n" { "+" (duration(call.at_ns)) }
                            " " strong { (duration(call.ns)) } " "
                            (name(&call.peer, 60)) ", "
                            (duration(call.with_peer_ns)) " until the reply was there"
                            @if call.link.is_some() && !calls.own { "; certainly its own" }
                        }
                    }
                }
                @if calls.count > calls.longest.len() as u64 {
                    p class="hint" {
                        "and "
                        (counted(calls.count - calls.longest.len() as u64, "shorter one"))
                    }
                }
            }
        }
    }
}

fn draw(lanes: &Lanes, id: &str, title: &str) -> Markup {
    let alt = format!("Critical path of request {title}: a lane for each thread");
    picture(id, &alt, |canvas| {
        let (left, right) = (canvas.pick(LEFT, 0.0), canvas.width - RIGHT);
        let lane = canvas.pick(LANE, NARROW_LANE);
        let bottom = lane * lanes.names.len() as f64 + 4.0;
        let middle = |index: usize| lane * (index + 1) as f64 - LANE / 2.0;
        let x = |ns: u64| left + lanes.at(ns) * (right - left);
        let drawn = html! {
            (time_axis(left, right - left, 0.0, bottom, lanes.total_ns))
            @for index in 0..lanes.names.len() {
                line class="lane" x1=(px(left)) x2=(px(right)) y1=(px(middle(index)))
                    y2=(px(middle(index))) stroke="#d9dde3" {}
            }
            @for one in &lanes.boxes {
                @let (x, end) = (x(one.from_ns), x(one.from_ns.saturating_add(one.ns)));
                @let (part, paint) = lanes.part(one);
                @let height = if one.meanwhile { 14.0 } else { 22.0 };
                @let y = middle(one.lane) - height / 2.0;
                g {
                    title { (one.title) }
                    rect x=(px(x)) y=(px(y)) width=(px((end - x).max(0.8))) height=(px(height))
                        rx="2" fill=(paint.fill)
                        fill-opacity=[one.meanwhile.then_some("0.8")] {}
                    @if !lanes.is_covered(one) {
                        @let texts = [one.text.as_str(), part, words::name_of(&one.state)];
                        @let text = texts.into_iter().find(|text| fits(text, end - x));
                        @if let Some(text) = text {
                            (inside(x, middle(one.lane) + 4.0, end - x, paint, text))
                        }
                    }
                }
            }
            @for (at_ns, from, to) in &lanes.wakes {
                (arrow(x(*at_ns), middle(*from), middle(*to)))
            }
            // Over the arrows: names that these would cross stay readable.
            @for (index, who) in lanes.names.iter().enumerate() {
                g class="who" {
                    title { (who) }
                    @if canvas.narrow {
                        @let y = middle(index) - LANE / 2.0 - 1.0;
                        (label(0.0, y, "start", &fitting(who, canvas.width)))
                    } @else {
                        @let text = fitting(who, left - 12.0);
                        (label(left - 10.0, middle(index) + 4.0, "end", &text))
                    }
                }
            }
        };
        (bottom + 22.0, drawn)
    })
}

/// A wake, from one lane to another.
fn arrow(x: f64, from: f64, to: f64) -> Markup {
    let down = if to > from { 1.0 } else { -1.0 };
    let (from, tip) = (from + 8.0 * down, to - 11.0 * down);
    let path = format!(
        "M{x} {from}V{tip}M{left} {wing}L{x} {tip}L{right} {wing}",
        x = px(x),
        from = px(from),
        tip = px(tip),
        left = px(x - 3.5),
        right = px(x + 3.5),
        wing = px(tip - 5.0 * down)
    );
    html! {
        path class="wake" d=(path) fill="none" stroke="#1f2430" stroke-width="1.4" {
            title { "woken" }
        }
    }
}

/// The longest steps, in order, with their stacks.
fn listed(path: &[Step]) -> Markup {
    let steps = Steps::of(path);
    let mut longest: Vec<usize> = (0..path.len()).collect();
    longest.sort_by_key(|index| std::cmp::Reverse(path[*index].ns));
    longest.truncate(MAX_LISTED);
    longest.sort_unstable();
    let starts: Vec<u64> = path
        .iter()
        .scan(0u64, |at, step| {
            let start = *at;
            *at = at.saturating_add(step.ns);
            Some(start)
        })
        .collect();
    html! {
        ol class="steps" {
            @for index in &longest {
                @let step = &path[*index];
                li {
                    span class="n" { "+" (duration(starts[*index])) }
                    " "
                    strong { (duration(step.ns)) " " (words::name_of(&step.state)) }
                    " "
                    @if step.tid != 0 { (steps.who(step.tid)) " " }
                    (steps.what(step))
                    (stack(step))
                    (meanwhile(step, &steps, 1))
                }
            }
        }
        @if path.len() > longest.len() {
            p class="hint" {
                "and " (counted(path.len() - longest.len(), "shorter step"))
            }
        }
    }
}

/// What the holder of a lock did meanwhile.
fn meanwhile(step: &Step, steps: &Steps<'_>, depth: usize) -> Markup {
    html! {
        @if !step.meanwhile.is_empty() && depth <= MAX_DEPTH {
            details {
                summary { (sentences::held_by(step).unwrap_or_else(|| "meanwhile".to_owned())) }
                ol class="steps" {
                    @for inner in step.meanwhile.iter().take(MAX_LISTED) {
                        li {
                            strong { (duration(inner.ns)) " " (words::name_of(&inner.state)) }
                            " " (steps.who(inner.tid)) " " (steps.what(inner))
                            (stack(inner))
                            (meanwhile(inner, steps, depth + 1))
                        }
                    }
                }
            }
        }
    }
}

fn stack(step: &Step) -> Markup {
    const MAX_KERNEL: usize = 8;
    let (kernel, _) = sentences::telling_kernel(&step.kernel, MAX_KERNEL);
    let own = step.stack != step.kernel;
    html! {
        @if own && !step.stack.is_empty() || !kernel.is_empty() {
            details {
                summary { "stack" }
                @if own { (frames(&sentences::folded(&step.stack, &[]))) }
                @if !kernel.is_empty() {
                    p class="kernel" { "kernel: " (name(&kernel.join(", "), 400)) }
                }
            }
        }
    }
}

/// A folded stack, innermost function first.
pub(crate) fn frames(frames: &[Frame]) -> Markup {
    html! {
        ol class="stack" {
            @for frame in frames {
                @match frame {
                    Frame::Own(text) => li class="own" { strong { (whole(text)) } },
                    Frame::Runtime(text) => li { (whole(text)) },
                    Frame::Folded(text) => li class="folded" { (whole(text)) },
                }
            }
        }
    }
}
