//! One slow request's critical path, step by step.

use std::collections::HashMap;

use whywait_model::calls::CallsWithin;
use whywait_model::path::Step;
use whywait_model::requests::{Sent, Slow};
use whywait_words::{counted, duration};

use super::page::{Page, Style};
use super::requests;
use super::stack::{self, telling_kernel};
use super::step::{Names, holder, kind, longest, place, state, thread, woken_by};
use super::{task_waits, tasks};

/// So many steps are shown one by one; runs of shorter ones between them are summed up.
const MAX_STEPS: usize = 40;
/// Steps of a smaller share of the request's time are shown in a line, without their stacks.
const STACK_PERMILLE: u64 = 10;
/// So many functions of the kernel's stack are shown.
const MAX_KERNEL: usize = 5;
/// What a holder's holder did is shown too, and so on to this depth.
const MAX_DEPTH: usize = 2;
/// Stacks of so many rows are shown again rather than referred to.
const REPEATED: usize = 2;

/// When and where it was is cut to that width.
const MAX_WHEN: usize = 160;

pub(super) fn render(page: &mut Page, slow: &Slow) {
    let title = format!("request {}: ", page.cut(&slow.id, 40));
    if slow.path.is_empty() {
        let text = format!(
            "{}; its response was not seen, so there is no critical path to show",
            requests::began(slow.at_ns)
        );
        page.paragraph("", "  ", &[(Style::Strong, &title), (Style::Plain, &text)]);
        return;
    }
    let when = page.cut(&requests::when(slow), MAX_WHEN);
    page.paragraph("", "  ", &[(Style::Strong, &title), (Style::Plain, &when)]);
    requests::time(page, &slow.time, "where its time went", None);
    if let Some(sent) = &slow.sending {
        sending(page, sent);
    }
    page.gap();
    page.paragraph(
        "",
        "  ",
        &[
            (Style::Strong, "its critical path, from arrival to response"),
            (
                Style::Plain,
                " (time since arrival; duration; what happened)",
            ),
        ],
    );
    let mut view = PathView {
        page,
        names: Names::of(&slow.path),
        latency_ns: slow.latency_ns,
        stacks: HashMap::new(),
    };
    view.steps(&slow.path, 0, 0);
    if let Some(calls) = &slow.calls {
        render_calls(page, calls);
    }
    if let Some(time) = &slow.tasks {
        tasks::of_request(page, time, slow.latency_ns);
    }
    task_waits::of_request(page, slow.task_waits.as_ref());
}

/// What is said besides its path.
pub(super) fn besides(page: &mut Page, slow: &Slow) {
    if let Some(sent) = &slow.sending {
        sending(page, sent);
    }
    if let Some(time) = &slow.tasks {
        tasks::of_request(page, time, slow.latency_ns);
    }
    task_waits::of_request(page, slow.task_waits.as_ref());
}

/// What became of its response after it was written.
fn sending(page: &mut Page, sent: &Sent) {
    let mut said = Vec::new();
    let why = match sent.reason {
        Some("nagle") => ": Nagle's algorithm held it back",
        Some("window") => ": the client had no room for it",
        Some("lost") => ": it was lost, and sent again",
        Some("network") => ": the network's congestion window held it back",
        _ => "",
    };
    if sent.ns > 0 {
        let late = if sent.unacknowledged {
            format!(
                "the client did not have all of it {} later",
                duration(sent.ns)
            )
        } else {
            format!("its end went out {} later", duration(sent.ns))
        };
        said.push(format!("{late}{why}"));
    }
    if sent.retransmits > 0 {
        let packets = counted(sent.retransmits, "packet");
        said.push(format!("{packets} sent again"));
    }
    for (ns, what) in [
        (sent.window_ns, "for want of room at the client"),
        (sent.buffer_ns, "for want of room in the send buffer"),
    ] {
        if ns > 0 {
            said.push(format!(
                "the connection stood still for {} {what}",
                duration(ns)
            ));
        }
    }
    page.paragraph(
        "",
        "  ",
        &[
            (Style::Strong, "after its response was written: "),
            (Style::Plain, &said.join("; ")),
        ],
    );
}

/// The calls that were made while it was under way.
fn render_calls(page: &mut Page, calls: &CallsWithin) {
    let whose = if calls.own {
        "its calls to others"
    } else {
        "calls to others while it was under way that may be its own"
    };
    page.gap();
    page.paragraph(
        "",
        "  ",
        &[
            (Style::Strong, whose),
            (Style::Plain, " (time since arrival; duration; whom)"),
        ],
    );
    for call in &calls.longest {
        let waited = format!(
            "{}, {} until the reply was there{}",
            page.cut(&call.peer, 60),
            duration(call.with_peer_ns),
            match call.link {
                Some(_) if !calls.own => "; certainly its own",
                _ => "",
            }
        );
        let when = figures(call.at_ns, call.ns);
        let hang = format!("{:25}", "");
        page.paragraph("", &hang, &[(Style::Plain, &when), (Style::Plain, &waited)]);
    }
    let shown = calls.longest.len() as u64;
    if calls.count > shown {
        let text = format!("and {}", counted(calls.count - shown, "shorter one"));
        page.paragraph("  ", "  ", &[(Style::Dim, &text)]);
    }
}

/// What is needed to show a path's steps.
struct PathView<'a, 'b> {
    page: &'b mut Page,
    names: Names<'a>,
    latency_ns: u64,
    /// The stacks that were shown, and at which time.
    stacks: HashMap<&'a [String], u64>,
}

impl<'a> PathView<'a, '_> {
    /// Steps that follow each other from `at_ns` on.
    fn steps(&mut self, path: &'a [Step], mut at_ns: u64, depth: usize) {
        let (kept, _) = longest(path, MAX_STEPS);
        let mut kept = kept.into_iter().peekable();
        let mut short = Short::default();
        for (index, step) in path.iter().enumerate() {
            if kept.next_if_eq(&index).is_some() {
                self.short(std::mem::take(&mut short), depth);
                self.step(step, at_ns, depth);
            } else {
                short.add(step, at_ns);
            }
            at_ns = at_ns.saturating_add(step.ns);
        }
        self.short(short, depth);
    }

    fn step(&mut self, step: &'a Step, at_ns: u64, depth: usize) {
        let with_stack =
            u128::from(step.ns) * 1_000 >= u128::from(self.latency_ns) * u128::from(STACK_PERMILLE);
        let who = thread(self.page, step);
        // A stack shows the function better than a line does.
        let place = if with_stack && !step.stack.is_empty() {
            kind(self.page, step)
        } else {
            place(self.page, step)
        };
        let rest = format!("{who}{place}{}", woken_by(self.page, step, &self.names));
        let rest = rest.trim_start_matches([',', ':', ' ']);
        let when = figures(at_ns, step.ns);
        let state = format!("{:<14}", state(self.page, step));
        let text = format!("  {rest}");
        let indent = " ".repeat(4 * depth);
        let hang = format!("{indent}{:25}", "");
        self.page.paragraph(
            &indent,
            &hang,
            &[
                (Style::Plain, &when),
                (
                    Style::Strong,
                    if rest.is_empty() {
                        state.trim_end()
                    } else {
                        &state
                    },
                ),
                (Style::Plain, if rest.is_empty() { "" } else { &text }),
            ],
        );
        if with_stack {
            self.stack(step, at_ns, &indent);
        }
        self.meanwhile(step, at_ns, depth);
    }

    /// The application's side of a step, then the kernel's.
    fn stack(&mut self, step: &'a Step, at_ns: u64, indent: &str) {
        let gutter = format!("{indent}{:>21}  ", "|");
        // Without a user stack the model gives the kernel's in its place.
        if !step.stack.is_empty() && step.stack != step.kernel {
            match self.stacks.get(step.stack.as_slice()) {
                Some(at) if step.stack.len() > REPEATED => {
                    let text = format!("the same stack as at +{}", duration(*at));
                    self.page
                        .paragraph(&gutter, &gutter, &[(Style::Dim, &text)]);
                }
                _ => {
                    stack::render(self.page, &gutter, &step.stack, &[]);
                    self.stacks.insert(&step.stack, at_ns);
                }
            }
        }
        let (kernel, left_out) = telling_kernel(&step.kernel, MAX_KERNEL);
        if kernel.is_empty() {
            return;
        }
        let more = if left_out > 0 { ", …" } else { "" };
        let names: Vec<String> = kernel.iter().map(|name| self.page.cut(name, 60)).collect();
        let text = format!("{}{more}", names.join(", "));
        self.page.paragraph(
            &gutter,
            &gutter,
            &[(Style::Dim, "kernel: "), (Style::Dim, &text)],
        );
    }

    /// For a wait for a lock: what the thread that held it did.
    fn meanwhile(&mut self, step: &'a Step, at_ns: u64, depth: usize) {
        if step.meanwhile.is_empty() || depth >= MAX_DEPTH {
            return;
        }
        let who = holder(self.page, step).unwrap_or_else(|| "another thread".to_owned());
        let indent = " ".repeat(4 * (depth + 1));
        let text = format!("meanwhile {who} held the lock:");
        self.page
            .paragraph(&indent, &indent, &[(Style::Strong, &text)]);
        self.steps(&step.meanwhile, at_ns, depth + 1);
    }

    fn short(&mut self, short: Short, depth: usize) {
        if short.count == 0 {
            return;
        }
        let indent = " ".repeat(4 * depth);
        let text = format!(
            "{}{}",
            figures(short.at_ns, short.ns),
            counted(short.count, "shorter step")
        );
        let hang = format!("{indent}{:25}", "");
        self.page.paragraph(&indent, &hang, &[(Style::Dim, &text)]);
    }
}

/// A run of steps that are not shown one by one.
#[derive(Default)]
struct Short {
    count: u64,
    at_ns: u64,
    ns: u64,
}

impl Short {
    fn add(&mut self, step: &Step, at_ns: u64) {
        if self.count == 0 {
            self.at_ns = at_ns;
        }
        self.count += 1;
        self.ns = self.ns.saturating_add(step.ns);
    }
}

/// `  +1.998 s       2 s  `.
fn figures(at_ns: u64, ns: u64) -> String {
    format!(
        "{:>10}  {:>8}  ",
        format!("+{}", duration(at_ns)),
        duration(ns)
    )
}
