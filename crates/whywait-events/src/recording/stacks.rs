//! All stacks of a recording, in memory, with their names.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::{Frame, Module, StackId, StackRow, Symbol};

/// Bounds for forged recordings. Real ones have some 10,000 stacks of 40 frames, and names of some
/// megabytes.
const MAX_FRAMES: usize = 1 << 25;
const MAX_ENTRIES: usize = 1 << 22;
const MAX_NAME_BYTES: usize = 1 << 29;

/// The stacks, modules and symbols of a recording.
#[derive(Debug, Default)]
pub struct Stacks {
    stacks: BTreeMap<StackId, StackEntry>,
    frames: Vec<Frame>,
    modules: HashMap<u32, Module>,
    names: HashMap<Frame, Vec<FrameName>>,
}

#[derive(Debug)]
struct StackEntry {
    start: usize,
    length: usize,
    truncated: bool,
}

/// The name of a frame, or of a function inlined into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameName {
    /// 0: the innermost function at the address; 1: the function it was inlined into; and so on.
    pub depth: u16,
    /// Demangled function name. Hostile.
    pub name: Arc<str>,
    /// Source file, empty when unknown. Hostile.
    pub file: Arc<str>,
    /// Line, 0 when unknown.
    pub line: u32,
}

/// A frame with what is known of it.
#[derive(Debug, Clone, Copy)]
pub struct NamedFrame<'a> {
    /// The frame.
    pub frame: Frame,
    /// Its module; `None` when the recording does not have it.
    pub module: Option<&'a Module>,
    /// Its names, the innermost inlined function first; empty when it was not symbolised.
    pub names: &'a [FrameName],
}

impl Stacks {
    /// The ids of all stacks, ascending.
    pub fn ids(&self) -> impl Iterator<Item = StackId> + '_ {
        self.stacks.keys().copied()
    }

    /// How many stacks there are.
    pub fn len(&self) -> usize {
        self.stacks.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }

    /// A stack's frames, innermost first; `None` when the recording does not have the stack.
    pub fn frames(&self, id: StackId) -> Option<&[Frame]> {
        let entry = self.stacks.get(&id)?;
        self.frames.get(entry.start..entry.start + entry.length)
    }

    /// Whether unwinding ended before the thread's start; `None` when the recording does not have
    /// the stack.
    pub fn truncated(&self, id: StackId) -> Option<bool> {
        self.stacks.get(&id).map(|entry| entry.truncated)
    }

    /// A stack's frames with their names, innermost first. Empty when the recording does not have
    /// the stack.
    pub fn named(&self, id: StackId) -> impl Iterator<Item = NamedFrame<'_>> {
        self.frames(id)
            .unwrap_or_default()
            .iter()
            .map(|frame| NamedFrame {
                frame: *frame,
                module: self.module(frame.module),
                names: self.names(*frame),
            })
    }

    /// A module; `None` when the recording does not have it.
    pub fn module(&self, id: u32) -> Option<&Module> {
        self.modules.get(&id)
    }

    /// All modules, in no particular order.
    pub fn modules(&self) -> impl Iterator<Item = &Module> {
        self.modules.values()
    }

    /// A frame's names, the innermost inlined function first; empty when it was not symbolised.
    pub fn names(&self, frame: Frame) -> &[FrameName] {
        self.names.get(&frame).map_or(&[], Vec::as_slice)
    }
}

/// Puts the tables' rows together.
#[derive(Default)]
pub(crate) struct StacksBuilder {
    stacks: Stacks,
    /// The stack whose rows are being read.
    open: Option<StackEntry>,
    open_id: StackId,
    texts: HashSet<Arc<str>>,
    text_bytes: usize,
    overflowed: bool,
}

impl StacksBuilder {
    pub(crate) fn frame(&mut self, row: &StackRow) {
        // A stack's rows follow each other; a depth of 0 begins one.
        if row.depth == 0 || self.open.is_none() || row.stack != self.open_id {
            self.close();
            self.open_id = row.stack;
            let start = self.stacks.frames.len();
            self.open = Some(StackEntry {
                start,
                length: 0,
                truncated: row.truncated,
            });
        }
        if self.stacks.frames.len() >= MAX_FRAMES {
            self.overflowed = true;
        } else if let (Some(frame), Some(open)) = (row.frame, &mut self.open) {
            self.stacks.frames.push(frame);
            open.length += 1;
        }
    }

    fn close(&mut self) {
        let Some(entry) = self.open.take() else {
            return;
        };
        // A flight recorder repeats stacks: the first one stands.
        if self.stacks.stacks.contains_key(&self.open_id) {
            self.stacks.frames.truncate(entry.start);
        } else if self.stacks.stacks.len() >= MAX_ENTRIES {
            self.stacks.frames.truncate(entry.start);
            self.overflowed = true;
        } else {
            self.stacks.stacks.insert(self.open_id, entry);
        }
    }

    pub(crate) fn module(&mut self, module: &Module) {
        let bytes = module.path.len() + module.build_id.len();
        if self.stacks.modules.len() >= MAX_ENTRIES || self.text_bytes + bytes > MAX_NAME_BYTES {
            self.overflowed = true;
            return;
        }
        // Repeated by a flight recorder, it is the same again.
        if self
            .stacks
            .modules
            .insert(module.id, module.clone())
            .is_none()
        {
            self.text_bytes += bytes;
        }
    }

    pub(crate) fn symbol(&mut self, symbol: &Symbol) {
        let (Some(name), Some(file)) = (self.text(&symbol.name), self.text(&symbol.file)) else {
            self.overflowed = true;
            return;
        };
        if self.stacks.names.len() >= MAX_ENTRIES && !self.stacks.names.contains_key(&symbol.frame)
        {
            self.overflowed = true;
            return;
        }
        let names = self.stacks.names.entry(symbol.frame).or_default();
        let name = FrameName {
            depth: symbol.depth,
            name,
            file,
            line: symbol.line,
        };
        match names.binary_search_by_key(&symbol.depth, |name| name.depth) {
            Ok(known) => names[known] = name,
            Err(place) => names.insert(place, name),
        }
    }

    /// A shared copy of a text: the same few names come at many addresses.
    fn text(&mut self, text: &str) -> Option<Arc<str>> {
        if let Some(known) = self.texts.get(text) {
            return Some(known.clone());
        }
        self.text_bytes += text.len();
        if self.text_bytes > MAX_NAME_BYTES {
            return None;
        }
        let shared: Arc<str> = text.into();
        self.texts.insert(shared.clone());
        Some(shared)
    }

    pub(crate) fn overflowed(&self) -> bool {
        self.overflowed
    }

    pub(crate) fn finish(mut self) -> Stacks {
        self.close();
        self.stacks
    }
}
