//! Flame graphs, drawn from the caller down to the callee.

use maud::{Markup, html};
use whywait_report::text::words;
use whywait_words::{duration, percent};

use super::svg::{Canvas, figures, fitting, legend, picture_of, px, whole};
use crate::palette::{self, Paint};
use crate::stacks::{FrameKind, Of, Tree};

const ROW: f64 = 18.0;
/// What is narrower is not drawn.
const MIN_WIDTH: f64 = 0.7;
/// Boxes of a graph; the narrowest are left out.
const MAX_TILES: usize = 2_500;
/// Deeper functions are left out: a graph is no taller than a window, as a rule.
const MAX_DEPTH: usize = 32;
/// Below so many rows what takes less than this part of the time is left out, too: a few of its
/// boxes would make a graph that is tall and empty.
const ALL_SEEN: usize = 10;
const MIN_DEEP: f64 = 0.02;
/// Stacks that the table lists.
const LISTED: usize = 15;

/// A flame graph.
pub(crate) struct Flame {
    of: Of,
    /// From the program's own functions on.
    tree: Tree,
    total_ns: u64,
    hottest: Vec<Hottest>,
    /// Why requests were unread for most of the time that they were.
    unread: &'static str,
}

struct Tile {
    node: u32,
    x: f64,
    width: f64,
    depth: usize,
    ns: u64,
    name: String,
    kind: FrameKind,
    paint: Paint,
}

/// Where most time was: for those who read rather than look.
struct Hottest {
    ns: u64,
    function: String,
    state: String,
}

impl Flame {
    pub(crate) fn new(of: Of, tree: &Tree, unread: &'static str) -> Self {
        Self {
            of,
            tree: tree.of_the_program(),
            total_ns: tree.total_ns(),
            hottest: hottest(tree),
            unread,
        }
    }

    /// Its boxes in a picture of that width.
    fn tiles(&self, width: f64) -> Vec<Tile> {
        let mut tiles = layout(&self.tree, width, self.unread);
        if tiles.len() > MAX_TILES {
            tiles.sort_by(|a, b| b.width.total_cmp(&a.width));
            tiles.truncate(MAX_TILES);
            tiles.sort_by_key(|one| one.node);
        }
        tiles
    }
}

fn layout(tree: &Tree, whole_width: f64, unread: &'static str) -> Vec<Tile> {
    let total = tree.total_ns().max(1) as f64;
    let called = tree.called();
    let mut tiles = Vec::new();
    let mut todo: Vec<(u32, f64, usize)> = vec![(crate::stacks::ROOT, 0.0, 0)];
    while let Some((node, x, depth)) = todo.pop() {
        let mut at = x;
        for child in &called[node as usize] {
            let ns = tree.node(*child).total_ns;
            let width = ns as f64 / total * whole_width;
            // Those that follow are narrower still.
            let least = if depth < ALL_SEEN {
                MIN_WIDTH
            } else {
                whole_width * MIN_DEEP
            };
            if width < least || depth >= MAX_DEPTH {
                break;
            }
            if let Some(frame) = tree.frame(*child) {
                tiles.push(Tile {
                    node: *child,
                    x: at,
                    width,
                    depth,
                    ns,
                    name: whole(&frame.name),
                    kind: frame.kind,
                    paint: paint(frame.kind, unread),
                });
            }
            todo.push((*child, at, depth + 1));
            at += width;
        }
    }
    tiles
}

fn paint(kind: FrameKind, unread: &str) -> Paint {
    match kind {
        FrameKind::State("ready-unserved") => palette::of_part(unread),
        FrameKind::Thread => palette::ROLE,
        FrameKind::App => palette::APP,
        FrameKind::Runtime | FrameKind::System => palette::RUNTIME,
        FrameKind::Kernel => palette::KERNEL,
        FrameKind::State(state) => palette::of_state(state),
        FrameKind::Holder => palette::HOLDER,
    }
}

/// The stacks with most time of their own, by the innermost function of the application.
fn hottest(tree: &Tree) -> Vec<Hottest> {
    let frames = tree.frames();
    let mut hottest: Vec<Hottest> = Vec::new();
    let mut index = std::collections::HashMap::new();
    for (stack, ns) in tree.stacks() {
        let kinds = |wanted: fn(FrameKind) -> bool| {
            let found = stack.iter().rev().map(|number| &frames[*number as usize]);
            found.clone().find(|frame| wanted(frame.kind)).cloned()
        };
        let state = kinds(|kind| matches!(kind, FrameKind::State(_)));
        let function = kinds(|kind| kind == FrameKind::App)
            .or_else(|| kinds(|kind| !matches!(kind, FrameKind::State(_) | FrameKind::Thread)))
            .or_else(|| kinds(|kind| kind == FrameKind::Thread));
        let name =
            |frame: Option<crate::stacks::StackedFrame>| frame.map_or(String::new(), |f| f.name);
        let key = (name(function), name(state));
        let at = *index.entry(key.clone()).or_insert_with(|| {
            hottest.push(Hottest {
                ns: 0,
                function: key.0,
                state: key.1,
            });
            hottest.len() - 1
        });
        hottest[at].ns = hottest[at].ns.saturating_add(ns);
    }
    hottest.sort_by(|a, b| (b.ns, &a.function).cmp(&(a.ns, &b.function)));
    hottest.truncate(LISTED);
    hottest
}

/// The section: one graph is open, and opening another closes it.
pub(crate) fn section(flames: &[Flame]) -> Markup {
    let mut flames: Vec<&Flame> = flames.iter().filter(|flame| flame.total_ns > 0).collect();
    flames.sort_by_key(|flame| flame.of != Of::Critical);
    html! {
        @if !flames.is_empty() {
            section id="flames" {
                h2 { "Where in the code" }
                @for (index, flame) in flames.iter().enumerate() {
                    details class="graph" name="graph" open[index == 0] {
                        summary {
                            strong { (flame.of.title()) ", " (duration(flame.total_ns)) }
                        }
                        p class="hint" { (figures(hint(flame.of))) }
                        (graph(flame))
                        (table(flame))
                    }
                }
            }
        }
    }
}

const fn hint(of: Of) -> &'static str {
    match of {
        Of::Critical => {
            "Width is time of slow requests, their waits and their work alike; callers are above \
             what they call. The last box says what the time was; below a lock is who held it. \
             Frames of runtimes and libraries are folded (…): --format folded has them."
        }
        Of::Waits => {
            "Width is time asleep, of all threads and over the whole recording. Most of it is \
             idle: the graph of critical paths shows which waits matter."
        }
        Of::Cpu => {
            "Width is CPU time of all threads over the whole recording, by samples; callers are \
             above what they call."
        }
    }
}

/// What the colours of these boxes mean.
fn kinds(tiles: &[Tile], unread: &'static str) -> Vec<(Paint, &'static str)> {
    let mut kinds: Vec<(FrameKind, Paint, &str)> = Vec::new();
    for one in tiles {
        let text = match one.kind {
            FrameKind::Thread => "threads of a role",
            FrameKind::App => "the program",
            FrameKind::Runtime | FrameKind::System => "runtimes and libraries",
            FrameKind::Kernel => "kernel",
            FrameKind::Holder => "who held the lock",
            FrameKind::State("ready-unserved") => unread,
            FrameKind::State(state) => words::name_of(state),
        };
        if !kinds.iter().any(|(.., other)| *other == text) {
            kinds.push((one.kind, one.paint, text));
        }
    }
    // What the time was after whose it was.
    kinds.sort_by_key(|(kind, ..)| (matches!(kind, FrameKind::State(_)), *kind));
    kinds
        .into_iter()
        .map(|(_, paint, text)| (paint, text))
        .collect()
}

fn graph(flame: &Flame) -> Markup {
    let id = format!("flame-{}", flame.of.name());
    let title = format!("Flame graph: {}", flame.of.title());
    html! {
        div class="tools" hidden {
            label { "Find " input type="search" spellcheck="false"; }
            " "
            button type="button" { "Whole graph" }
            " "
            span class="found" aria-live="polite" {}
        }
        (picture_of("flame", &id, &title, |canvas| {
            let tiles = flame.tiles(canvas.width);
            let depth = tiles.iter().map(|one| one.depth + 1).max().unwrap_or(0);
            (ROW * depth as f64, html! {
                @for one in &tiles { (self::one(one, flame.total_ns)) }
            })
        }))
        (legend(kinds(&flame.tiles(Canvas::WIDE.width), flame.unread)))
        p class="detail" aria-live="polite" {}
    }
}

fn one(one: &Tile, total_ns: u64) -> Markup {
    let y = ROW * one.depth as f64;
    let text = fitting(&one.name, one.width);
    html! {
        g class="b" {
            title {
                (one.name) "\n" (duration(one.ns)) ", " (percent(one.ns, total_ns))
            }
            rect x=(px(one.x)) y=(px(y)) width=(px((one.width - 0.5).max(0.3))) height="17"
                fill=(one.paint.fill) {}
            @if !text.is_empty() {
                text x=(px(one.x + 3.0)) y=(px(y + 12.5)) fill=(one.paint.ink) { (text) }
            }
        }
    }
}

fn table(flame: &Flame) -> Markup {
    html! {
        details {
            summary { "The same as a table" }
            div class="scroll" {
                table {
                    thead {
                        tr {
                            th scope="col" class="n" { "share" }
                            th scope="col" class="n" { "time" }
                            th scope="col" { "function" }
                            th scope="col" { "what it was" }
                        }
                    }
                    tbody {
                        @for row in &flame.hottest {
                            tr {
                                td class="n" { (percent(row.ns, flame.total_ns)) }
                                td class="n" { (duration(row.ns)) }
                                td class="code" { (whole(&row.function)) }
                                td { (whole(&row.state)) }
                            }
                        }
                    }
                }
            }
        }
    }
}
