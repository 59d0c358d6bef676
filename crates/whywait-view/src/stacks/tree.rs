//! Stacks with common beginnings, put together.

use std::collections::HashMap;

use super::{FrameKind, StackedFrame};

/// Frames beyond these are cut off, the innermost ones: forged stacks may be deep.
const MAX_FRAMES: usize = 512;
/// Nodes that are kept; what would need more counts for its caller.
const MAX_NODES: usize = 500_000;
/// What stands for several frames.
const FOLDED: &str = "… of libraries";
/// The node from which all stacks start.
pub(crate) const ROOT: u32 = 0;

/// Stacks with common beginnings.
#[derive(Debug, Clone)]
pub struct Tree {
    frames: Vec<StackedFrame>,
    numbers: HashMap<StackedFrame, u32>,
    nodes: Vec<Node>,
    children: HashMap<(u32, u32), u32>,
}

/// A frame, called from those above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    frame: u32,
    parent: u32,
    /// Time in this very frame.
    pub own_ns: u64,
    /// Time in it and in those that it called.
    pub total_ns: u64,
}

impl Default for Tree {
    fn default() -> Self {
        let root = Node {
            frame: u32::MAX,
            parent: ROOT,
            own_ns: 0,
            total_ns: 0,
        };
        Self {
            frames: Vec::new(),
            numbers: HashMap::new(),
            nodes: vec![root],
            children: HashMap::new(),
        }
    }
}

impl Tree {
    /// The number of a frame.
    pub fn number(&mut self, frame: &StackedFrame) -> u32 {
        if let Some(number) = self.numbers.get(frame) {
            return *number;
        }
        let number = self.frames.len() as u32;
        self.frames.push(frame.clone());
        self.numbers.insert(frame.clone(), number);
        number
    }

    /// Adds time in a stack: the numbers of its frames, outermost first.
    pub fn add(&mut self, stack: &[u32], ns: u64) {
        if ns == 0 {
            return;
        }
        let mut at = ROOT;
        self.count(at, ns);
        for frame in stack.iter().take(MAX_FRAMES) {
            let Some(child) = self.child(at, *frame) else {
                break;
            };
            at = child;
            self.count(at, ns);
        }
        let node = &mut self.nodes[at as usize];
        node.own_ns = node.own_ns.saturating_add(ns);
    }

    fn count(&mut self, node: u32, ns: u64) {
        let node = &mut self.nodes[node as usize];
        node.total_ns = node.total_ns.saturating_add(ns);
    }

    fn child(&mut self, parent: u32, number: u32) -> Option<u32> {
        if let Some(child) = self.children.get(&(parent, number)) {
            return Some(*child);
        }
        if self.nodes.len() >= MAX_NODES {
            return None;
        }
        let child = self.nodes.len() as u32;
        self.nodes.push(Node {
            frame: number,
            parent,
            own_ns: 0,
            total_ns: 0,
        });
        self.children.insert((parent, number), child);
        Some(child)
    }

    /// All of the time, nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.nodes[ROOT as usize].total_ns
    }

    /// The different frames, by their number.
    pub fn frames(&self) -> &[StackedFrame] {
        &self.frames
    }

    /// A node's frame; `None` for the root.
    pub(crate) fn frame(&self, node: u32) -> Option<&StackedFrame> {
        self.frames.get(self.nodes[node as usize].frame as usize)
    }

    pub(crate) fn node(&self, node: u32) -> &Node {
        &self.nodes[node as usize]
    }

    /// For each node those that it called, the one with most time first.
    pub(crate) fn called(&self) -> Vec<Vec<u32>> {
        let mut called = vec![Vec::new(); self.nodes.len()];
        for (number, node) in self.nodes.iter().enumerate().skip(1) {
            called[node.parent as usize].push(number as u32);
        }
        for children in &mut called {
            children.sort_by(|a, b| {
                let total = |node: u32| self.node(node).total_ns;
                total(*b)
                    .cmp(&total(*a))
                    .then_with(|| self.frame(*a).cmp(&self.frame(*b)))
            });
        }
        called
    }

    /// The stacks with their own time: the numbers of their frames, outermost first, in a fixed
    /// order.
    pub fn stacks(&self) -> Vec<(Vec<u32>, u64)> {
        let mut stacks: Vec<(Vec<u32>, u64)> = self
            .nodes
            .iter()
            .filter(|node| node.own_ns > 0)
            .map(|node| (self.path(node), node.own_ns))
            .collect();
        let frames = &self.frames;
        stacks.sort_by(|(a, _), (b, _)| {
            let names = |stack: &Vec<u32>| {
                let numbers = stack.clone().into_iter();
                numbers.map(|number| &frames[number as usize])
            };
            names(a).cmp(names(b))
        });
        stacks
    }

    /// The same for readers of the program: a stack begins at its first function, and frames of
    /// runtimes and libraries are folded, but for those that it called.
    pub(crate) fn of_the_program(&self) -> Self {
        let mut tree = Self::default();
        let folded = tree.number(&StackedFrame::new(FrameKind::Runtime, FOLDED));
        let numbers: Vec<u32> = self.frames.iter().map(|frame| tree.number(frame)).collect();
        for node in self.nodes.iter().filter(|node| node.own_ns > 0) {
            let path = self.path(node);
            let kept = self.program(&path).into_iter();
            let stack: Vec<u32> = kept
                .map(|number| number.map_or(folded, |number| numbers[number as usize]))
                .collect();
            tree.add(&stack, node.own_ns);
        }
        tree
    }

    /// The frames of a stack that are shown; `None` stands for several that are folded.
    fn program(&self, path: &[u32]) -> Vec<Option<u32>> {
        /// So many are shown of a stack without any frame of the program.
        const FEW: usize = 4;
        let kind = |number: &u32| self.frames[*number as usize].kind;
        let is_library =
            |number: &u32| matches!(kind(number), FrameKind::Runtime | FrameKind::System);
        let any_own = path.iter().any(|number| kind(number) == FrameKind::App);
        let mut shown: Vec<Option<u32>> = Vec::new();
        let mut own_before = false;
        let mut runs = path
            .chunk_by(|a, b| is_library(a) == is_library(b))
            .peekable();
        while let Some(run) = runs.next() {
            if !is_library(&run[0]) {
                own_before |= run.iter().any(|number| kind(number) == FrameKind::App);
                shown.extend(run.iter().copied().map(Some));
                continue;
            }
            let own_after = runs
                .peek()
                .is_some_and(|next| next.iter().any(|number| kind(number) == FrameKind::App));
            let (before, folded, after) = match (any_own, own_before) {
                // What leads to the program's first function.
                (true, false) if own_after => continue,
                // What the program called says what it waits for.
                (true, _) if !own_after => (&run[..1], &run[1..], &[][..]),
                (true, _) => (&[][..], run, &[][..]),
                (false, _) => {
                    let (folded, few) = run.split_at(run.len().saturating_sub(FEW));
                    (&[][..], folded, few)
                }
            };
            shown.extend(before.iter().copied().map(Some));
            match folded {
                [] => {}
                [one] => shown.push(Some(*one)),
                _ => shown.push(None),
            }
            shown.extend(after.iter().copied().map(Some));
        }
        shown
    }

    fn path(&self, node: &Node) -> Vec<u32> {
        let mut path = Vec::new();
        let mut at = *node;
        while at.frame != u32::MAX {
            path.push(at.frame);
            at = self.nodes[at.parent as usize];
        }
        path.reverse();
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_begins_at_the_programs_first_function() {
        let mut tree = Tree::default();
        let frame = |tree: &mut Tree, kind, name: &str| tree.number(&StackedFrame::new(kind, name));
        let role = frame(&mut tree, FrameKind::Thread, "worker");
        let start = frame(&mut tree, FrameKind::System, "clone3");
        let run = frame(&mut tree, FrameKind::Runtime, "runtime::run");
        let handle = frame(&mut tree, FrameKind::App, "handle");
        let call = frame(&mut tree, FrameKind::Runtime, "map::for_each");
        let inner = frame(&mut tree, FrameKind::App, "handle::inner");
        let sleep = frame(&mut tree, FrameKind::Runtime, "thread::sleep");
        let nanosleep = frame(&mut tree, FrameKind::System, "nanosleep");
        let timer = frame(&mut tree, FrameKind::State("timer"), "[timer]");
        let names = |path: &[u32]| -> Vec<String> {
            let shown = tree.program(path).into_iter();
            let name = |number: u32| tree.frames[number as usize].name.clone();
            shown
                .map(|number| number.map_or("…".to_owned(), name))
                .collect()
        };
        assert_eq!(
            names(&[
                role, start, run, handle, call, run, inner, sleep, run, nanosleep, timer
            ]),
            [
                "worker",
                "handle",
                "…",
                "handle::inner",
                "thread::sleep",
                "…",
                "[timer]"
            ]
        );
        assert_eq!(
            names(&[role, start, run, call, run, sleep, nanosleep, timer]),
            [
                "worker",
                "…",
                "map::for_each",
                "runtime::run",
                "thread::sleep",
                "nanosleep",
                "[timer]"
            ]
        );
        let shown = tree.of_the_program();
        assert_eq!(shown.total_ns(), tree.total_ns());
    }

    #[test]
    fn time_is_in_the_frame_and_its_callers() {
        let mut tree = Tree::default();
        let [main, read, write, deep] = ["main", "read", "write", "deep"]
            .map(|name| tree.number(&StackedFrame::new(FrameKind::App, name)));
        tree.add(&[main, read], 5);
        tree.add(&[main, write], 7);
        tree.add(&[main], 1);
        tree.add(&[main, read], 10);
        tree.add(&[deep], 0);
        assert_eq!(tree.total_ns(), 23);
        assert_eq!(
            tree.stacks(),
            [
                (vec![main], 1),
                (vec![main, read], 15),
                (vec![main, write], 7)
            ]
        );
        let called = tree.called();
        assert_eq!(called[ROOT as usize], [1]);
        assert_eq!(called[1], [2, 3]);
        tree.add(&[deep; MAX_FRAMES * 2], 1);
        assert_eq!(tree.total_ns(), 24);
    }
}
