//! Stacks with names.

use std::sync::{Arc, OnceLock};

use whywait_events::recording::Stacks;
use whywait_events::{ModuleKind, StackId, UNNAMED_JIT};

use crate::maps::{HashMap, HashSet};
use crate::waits::futex;

mod origin;
mod telling;

use origin::of_interpreter;

pub use origin::{FrameOrigin, origin};
pub use telling::{Hidden, app_frame, app_frames, generic_frame, hidden};

/// A function in a stack. Inlined functions have labels of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The function's name, or `file+0xaddress` when it has none. Hostile.
    pub name: Arc<str>,
    /// Whether `name` is a function's.
    pub named: bool,
    /// Source file, empty when unknown. Hostile.
    pub file: Arc<str>,
    /// Line, 0 when unknown.
    pub line: u32,
    /// Path of the module. Hostile.
    pub module: Arc<str>,
    /// What the module is.
    pub kind: ModuleKind,
}

/// A stack with names, innermost first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StackText {
    /// Innermost first.
    pub labels: Vec<Label>,
    /// Unwinding ended before the thread's start.
    pub truncated: bool,
}

impl StackText {
    /// For reports: function names, interpreted functions and those compiled at run time with their
    /// line, and whose code each is. From the innermost interpreted function outwards the
    /// interpreter's own frames say nothing more, and are left out.
    pub fn names(&self) -> Vec<(String, FrameOrigin)> {
        self.shown()
            .map(|label| (label.shown(), origin(label)))
            .collect()
    }

    /// The functions that [`StackText::names`] names, innermost first.
    pub fn shown(&self) -> impl Iterator<Item = &Label> {
        let interpreted = self
            .labels
            .iter()
            .position(|label| label.kind.is_interpreted())
            .unwrap_or(usize::MAX);
        self.labels
            .iter()
            .enumerate()
            .filter(move |(at, label)| *at < interpreted || !of_interpreter(label))
            .map(|(_, label)| label)
    }
}

impl Label {
    /// The function as reports show it. Hostile.
    pub fn shown(&self) -> String {
        match self.kind {
            kind if (kind.is_interpreted() || kind == ModuleKind::Jit) && !self.file.is_empty() => {
                let file = self.file.rsplit('/').next().unwrap_or_default();
                let place = match self.line {
                    0 => file.to_owned(),
                    line => format!("{file}:{line}"),
                };
                // A function without a name may be called after its place.
                match self.name.ends_with(&place) {
                    true => self.name.to_string(),
                    false => format!("{} ({place})", self.name),
                }
            }
            _ => self.name.to_string(),
        }
    }
}

/// All stacks of a recording, with names.
#[derive(Debug, Clone, Default)]
pub struct StackNames {
    stacks: HashMap<StackId, Known>,
    /// Frames within which a Ruby whose functions have no names takes its lock.
    gvl_frames: HashSet<Arc<str>>,
    frames: u64,
    named_frames: u64,
}

/// A stack, and where in it the labels are that were asked for. Many sleeps and samples have the
/// same one.
#[derive(Debug, Clone, Default)]
struct Known {
    text: StackText,
    app_frame: OnceLock<Option<usize>>,
    telling: OnceLock<Option<usize>>,
}

impl Known {
    fn new(text: StackText) -> Self {
        Self {
            text,
            ..Self::default()
        }
    }

    fn label<'a>(
        &'a self,
        place: &OnceLock<Option<usize>>,
        find: impl FnOnce(&'a StackText) -> Option<&'a Label>,
    ) -> Option<&'a Label> {
        let labels = &self.text.labels;
        let place = place.get_or_init(|| {
            let found = find(&self.text)?;
            labels.iter().position(|label| std::ptr::eq(label, found))
        });
        place.map(|at| &labels[at])
    }
}

impl StackNames {
    /// Those of a recording.
    pub fn read(stacks: &Stacks) -> Self {
        let mut frames = HashMap::default();
        let mut all = HashMap::default();
        for id in stacks.ids() {
            let mut labels = Vec::new();
            for named in stacks.named(id) {
                frames.insert(named.frame, !named.names.is_empty());
                let path: Arc<str> = named
                    .module
                    .map_or("", |module| module.path.as_str())
                    .into();
                let kind = named
                    .module
                    .map_or(ModuleKind::Unknown, |module| module.kind);
                if named.names.is_empty() {
                    let file = path
                        .rsplit('/')
                        .next()
                        .filter(|file| !file.is_empty())
                        .unwrap_or("?");
                    labels.push(Label {
                        name: format!("{file}+{:#x}", named.frame.address).into(),
                        named: false,
                        file: "".into(),
                        line: 0,
                        module: path,
                        kind,
                    });
                    continue;
                }
                labels.extend(named.names.iter().map(|name| Label {
                    name: short_name(kind, &name.name),
                    named: names_a_function(kind, &name.name),
                    file: name.file.clone(),
                    line: name.line,
                    module: path.clone(),
                    kind,
                }));
            }
            all.insert(
                id,
                Known::new(StackText {
                    labels,
                    truncated: stacks.truncated(id).unwrap_or(false),
                }),
            );
        }
        let named_frames = frames.values().filter(|named| **named).count() as u64;
        Self {
            gvl_frames: futex::gvl_frames(all.values().map(|known: &Known| &known.text)),
            stacks: all,
            frames: frames.len() as u64,
            named_frames,
        }
    }

    /// A stack; `None` for 0 and for one that the recording does not have.
    pub fn get(&self, id: StackId) -> Option<&StackText> {
        self.stacks.get(&id).map(|known| &known.text)
    }

    /// Function names of a stack for reports, innermost first; empty when there is none.
    pub fn names(&self, id: StackId) -> Vec<String> {
        self.get(id)
            .map(StackText::names)
            .unwrap_or_default()
            .into_iter()
            .map(|(name, _)| name)
            .collect()
    }

    /// The name of what a stack is in: see `telling.rs`.
    pub fn telling(&self, id: StackId) -> Option<String> {
        let known = self.stacks.get(&id)?;
        let label = known.label(&known.telling, telling::telling);
        label.map(|label| label.name.to_string())
    }

    /// The innermost function of the application's own in a stack: see [`app_frame`].
    pub fn app_frame(&self, id: StackId) -> Option<&Label> {
        let known = self.stacks.get(&id)?;
        known.label(&known.app_frame, telling::app_frame)
    }

    /// Frames within which a Ruby whose functions have no names takes its lock.
    pub(crate) fn gvl_frames(&self) -> &HashSet<Arc<str>> {
        &self.gvl_frames
    }

    /// Share of the distinct frames that have a name; `None` without frames.
    pub fn named_share(&self) -> Option<f64> {
        (self.frames > 0).then(|| self.named_frames as f64 / self.frames as f64)
    }

    /// Stacks whose unwinding ended before the thread's start.
    pub fn truncated(&self) -> u64 {
        let truncated = self.stacks.values().filter(|known| known.text.truncated);
        truncated.count() as u64
    }

    /// Adds a stack; for scripts of events.
    pub fn insert(&mut self, id: StackId, stack: StackText) {
        self.frames += stack.labels.len() as u64;
        self.named_frames += stack.labels.iter().filter(|label| label.named).count() as u64;
        self.stacks.insert(id, Known::new(stack));
        self.gvl_frames = futex::gvl_frames(self.stacks.values().map(|known| &known.text));
    }
}

/// Whether a frame's name says which function it is. Compiled code that has no name of its own has
/// one for all of it.
fn names_a_function(kind: ModuleKind, name: &str) -> bool {
    kind != ModuleKind::Jit || name != UNNAMED_JIT
}

/// A function's name as readers say it: that of a C++ function without its parameters.
fn short_name(kind: ModuleKind, name: &Arc<str>) -> Arc<str> {
    match without_parameters(name) {
        short if kind == ModuleKind::Elf && short.len() < name.len() => short.into(),
        _ => Arc::clone(name),
    }
}

/// `ns::f` of `ns::f(int) const`.
fn without_parameters(name: &str) -> &str {
    let signature = name.strip_suffix(" const").unwrap_or(name);
    let mut depth = 0_usize;
    let open = signature.char_indices().rev().find(|(_, c)| {
        match c {
            ')' => depth += 1,
            '(' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0
    });
    match open.map(|(at, c)| (&signature[..at], c)) {
        // What stands in parentheses there is a part of the name.
        Some((before, '(')) if !before.ends_with([' ', '.', ':']) => match before {
            "" => name,
            before if before.ends_with("operator") => name,
            before => before,
        },
        _ => name,
    }
}

/// The file of code without a name: `file+0xaddress`.
pub fn file_of_address(name: &str) -> Option<&str> {
    let (file, address) = name.rsplit_once("+0x")?;
    let is_address = address.chars().all(|c| c.is_ascii_hexdigit());
    is_address.then_some(file)
}

/// A function's name without what changes from build to build: the compiler's hash, and addresses
/// of code without names.
pub fn stable_name(name: &str) -> String {
    if let Some(file) = file_of_address(name) {
        return format!("{file} (no name)");
    }
    if let Some((function, hash)) = name.rsplit_once("::h")
        && hash.len() == 16
        && hash.chars().all(|c| c.is_ascii_hexdigit())
    {
        return function.to_owned();
    }
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_hold_from_build_to_build() {
        assert_eq!(stable_name("libfoo.so+0x12af"), "libfoo.so (no name)");
        assert_eq!(stable_name("a::b::h0123456789abcdef"), "a::b");
        assert_eq!(stable_name("a::handler"), "a::handler");
    }

    #[test]
    fn parameters_are_no_part_of_a_name() {
        for (name, expected) in [
            ("os::PlatformEvent::park(long)", "os::PlatformEvent::park"),
            ("a::F::operator()(int, char*) const", "a::F::operator()"),
            ("a::f<void (*)(int)>(b::g(int))", "a::f<void (*)(int)>"),
            ("a::F::operator()", "a::F::operator()"),
            ("v8::(anonymous namespace)", "v8::(anonymous namespace)"),
            ("main.(*Server)", "main.(*Server)"),
            ("serve (app.py:7)", "serve (app.py:7)"),
            ("<fn(A) -> B as Call>::call", "<fn(A) -> B as Call>::call"),
            ("write", "write"),
            ("(int)", "(int)"),
            (")", ")"),
            ("", ""),
        ] {
            assert_eq!(without_parameters(name), expected);
        }
        let name: Arc<str> = "void Server.main(String[])".into();
        assert_eq!(short_name(ModuleKind::Jit, &name), name, "Java's have more");
    }

    #[test]
    fn the_name_of_all_compiled_code_names_no_function() {
        assert!(!names_a_function(ModuleKind::Jit, "[jit]"));
        assert!(names_a_function(ModuleKind::Jit, "LazyCompile:*render"));
        assert!(names_a_function(ModuleKind::Elf, "[jit]"));
    }

    #[test]
    fn what_called_code_without_a_name_is_not_the_functions_in_which_it_is() {
        let label = |name: &str, module: &str, kind| Label {
            name: name.into(),
            named: kind != ModuleKind::Jit,
            file: "".into(),
            line: 0,
            module: module.into(),
            kind,
        };
        let compiled = label("[jit]", "[jit]", ModuleKind::Jit);
        let launcher = label("JavaMain", "/usr/lib/jvm/libjli.so", ModuleKind::Elf);
        let native = label("compress", "/usr/lib/libnative.so", ModuleKind::Elf);
        let frame = |labels: &[&Label]| {
            let stack = StackText {
                labels: labels.iter().copied().cloned().collect(),
                truncated: false,
            };
            app_frame(&stack).map(|label| label.name.to_string())
        };
        assert_eq!(frame(&[&compiled, &launcher]), None);
        assert_eq!(
            frame(&[&native, &compiled, &launcher]).as_deref(),
            Some("compress")
        );
        let named = Label {
            name: "Handler.render".into(),
            named: true,
            ..compiled.clone()
        };
        assert_eq!(
            frame(&[&named, &launcher]).as_deref(),
            Some("Handler.render")
        );
    }
}
