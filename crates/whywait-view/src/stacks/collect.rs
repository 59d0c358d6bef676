//! Where the time comes from.

use std::collections::HashMap;
use std::rc::Rc;

use whywait_events::{Part, StackId};
use whywait_model::{Model, PathStep};
use whywait_report::text::words;

use super::{FrameKind, StackedFrame, Tree, functions, kernel_functions};

/// A lock's holder may wait for a lock itself: so deep its own steps are shown.
const MAX_DEPTH: usize = 3;

/// Puts stacks into a tree. Each stack's names are looked up once.
pub(super) struct TreeBuilder<'m> {
    model: &'m Model,
    tree: Tree,
    user: HashMap<StackId, Rc<[u32]>>,
    kernel: HashMap<StackId, Rc<[u32]>>,
    roles: HashMap<u32, u32>,
}

impl<'m> TreeBuilder<'m> {
    pub(super) fn new(model: &'m Model) -> Self {
        Self {
            model,
            tree: Tree::default(),
            user: HashMap::new(),
            kernel: HashMap::new(),
            roles: HashMap::new(),
        }
    }

    pub(super) fn into_tree(self) -> Tree {
        self.tree
    }

    fn user(&mut self, stack: StackId) -> Rc<[u32]> {
        let (model, tree) = (self.model, &mut self.tree);
        let numbers = self.user.entry(stack).or_insert_with(|| {
            let frames = functions(model, stack);
            frames.iter().map(|frame| tree.number(frame)).collect()
        });
        Rc::clone(numbers)
    }

    fn kernel(&mut self, stack: StackId) -> Rc<[u32]> {
        let (model, tree) = (self.model, &mut self.tree);
        let numbers = self.kernel.entry(stack).or_insert_with(|| {
            let frames = kernel_functions(model, stack);
            frames.iter().map(|frame| tree.number(frame)).collect()
        });
        Rc::clone(numbers)
    }

    fn role(&mut self, tid: u32) -> u32 {
        let (model, tree) = (self.model, &mut self.tree);
        *self.roles.entry(tid).or_insert_with(|| {
            tree.number(&StackedFrame::new(FrameKind::Thread, model.role_name(tid)))
        })
    }

    fn state(&mut self, state: &'static str, text: impl Into<String>) -> u32 {
        self.tree
            .number(&StackedFrame::new(FrameKind::State(state), text))
    }

    /// The steps of slow requests' critical paths. Who had the lock is below who waited for it.
    pub(super) fn critical(&mut self) {
        let model = self.model;
        for request in model.requests().filter(|request| request.counts()) {
            for step in request.path().steps {
                self.step(&mut Vec::new(), step, step.ns(), MAX_DEPTH);
            }
        }
    }

    /// A step within what is on the stack already. `ns`: how much of it counts.
    fn step(&mut self, stack: &mut Vec<u32>, step: &PathStep, ns: u64, depth: usize) {
        let outermost = stack.is_empty();
        let Some(part) = step.part else {
            let text = "[waiting unread]";
            stack.push(self.state("ready-unserved", text));
            self.tree.add(stack, ns);
            return;
        };
        if outermost {
            stack.push(self.role(step.tid));
        }
        if part == Part::OnCpu {
            self.running(stack, step, ns);
            return;
        }
        stack.extend(self.user(step.stack).iter());
        if step.stack != step.kernel_stack {
            stack.extend(self.kernel(step.kernel_stack).iter());
        }
        let text = state(self.model, step, part);
        stack.push(self.state(part.name(), text));
        let held_ns = self.meanwhile(stack, step, ns, depth);
        self.tree.add(stack, ns - held_ns);
    }

    /// What the holders of a lock did while a step waited for it; gives how much of the wait that
    /// is.
    fn meanwhile(&mut self, stack: &[u32], step: &PathStep, ns: u64, depth: usize) -> u64 {
        if depth == 0 {
            return 0;
        }
        let mut held_ns = 0u64;
        for inner in &step.meanwhile {
            let inner_ns = inner.ns().min(ns - held_ns);
            if inner_ns == 0 {
                continue;
            }
            held_ns += inner_ns;
            let holder = format!("held by {}", self.model.role_name(inner.tid));
            let mut below = stack.to_vec();
            below.push(
                self.tree
                    .number(&StackedFrame::new(FrameKind::Holder, holder)),
            );
            self.step(&mut below, inner, inner_ns, depth - 1);
        }
        held_ns
    }

    /// On the CPU: by the samples of that time, or else in the step's stack.
    fn running(&mut self, stack: &[u32], step: &PathStep, ns: u64) {
        let model = self.model;
        let running = self.state("on-cpu", "[on CPU]");
        let samples = model.threads.get(&step.tid).map_or(&[][..], |thread| {
            thread.samples_within(step.from_ns, step.to_ns)
        });
        let all: u128 = samples
            .iter()
            .map(|sample| u128::from(sample.weight()))
            .sum();
        let mut left_ns = ns;
        for sample in samples {
            let share_ns = (u128::from(ns) * u128::from(sample.weight()) / all.max(1)) as u64;
            let share_ns = share_ns.min(left_ns);
            left_ns -= share_ns;
            let mut stack = stack.to_vec();
            stack.extend(self.user(sample.user_stack).iter());
            stack.extend(self.kernel(sample.kernel_stack).iter());
            stack.push(running);
            self.tree.add(&stack, share_ns);
        }
        let mut stack = stack.to_vec();
        stack.extend(self.user(step.stack).iter());
        stack.push(running);
        self.tree.add(&stack, left_ns);
    }

    /// All waits, short ones too, by what they were for.
    pub(super) fn waits(&mut self) {
        let model = self.model;
        for (key, sums) in model.objects.iter() {
            let class = sums.class.map_or("wait", |class| class.name());
            let wait = self.state(class, format!("[{class}] {}", key.object.name()));
            let longest = sums.seen.waiters.iter().max_by_key(|(_, (_, ns))| *ns);
            let tid = longest.map(|(tid, _)| *tid);
            let role = self.role(tid.or(sums.unfinished.first().copied()).unwrap_or(0));
            let mut left_ns = sums.total_ns;
            for (stack, ns) in &sums.seen.stacks {
                let ns = (*ns).min(left_ns);
                left_ns -= ns;
                let mut frames = vec![role];
                frames.extend(self.user(*stack).iter());
                frames.push(wait);
                self.tree.add(&frames, ns);
            }
            self.tree.add(&[role, wait], left_ns);
            let short = self.state("short", "[too short for a stack]");
            self.tree.add(&[role, wait, short], sums.short_ns);
        }
    }

    /// CPU time, as often as the clock found a thread on a CPU.
    pub(super) fn cpu(&mut self) {
        let model = self.model;
        let hz = u64::from(model.meta.options.sample_hz);
        let Some(period_ns) = 1_000_000_000_u64.checked_div(hz) else {
            return;
        };
        for (place, periods) in model.sampled.places() {
            let mut frames = vec![self.role(place.tid)];
            frames.extend(self.user(place.user_stack).iter());
            frames.extend(self.kernel(place.kernel_stack).iter());
            self.tree.add(&frames, periods.saturating_mul(period_ns));
        }
    }
}

/// `[disk] fsync (journal commit)`, `[network] 127.0.0.1:5432 (postgres)`.
fn state(model: &Model, step: &PathStep, part: Part) -> String {
    let kind = step.kind.map(|kind| kind.name.to_owned());
    let what = model.peer_of_step(step).map(|peer| peer.to_string());
    match what.or(kind) {
        Some(what) => format!("[{}] {what}", words::name_of(part.name())),
        None => format!("[{}]", words::name_of(part.name())),
    }
}
