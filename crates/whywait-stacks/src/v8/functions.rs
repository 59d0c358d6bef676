//! A function's name, script and line.

use super::heap::{Characters, Reference, V8Heap, small_integer};
use super::layout::V8Layout;
use super::lines::Lines;
use crate::elf::u64_at;

/// A function of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScriptFunction {
    pub(super) name: String,
    /// Path or URL of the script, empty when it has none.
    pub(super) file: String,
    /// Where the function begins; 0 when unknown.
    pub(super) line: u32,
}

/// What all closures of a function share, as far as its name depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shared {
    /// Its bytecode, or what leads to it.
    pub(super) data: u64,
    name_or_scope: u64,
    script: u64,
}

/// How modules are called that are files.
const FILE_URL: &str = "file://";
/// A script's own code, as CPython calls it.
const TOP_LEVEL: &str = "<module>";
/// More variables than a scope has.
const MAX_VARIABLES: i64 = 1 << 14;
/// Names of so many variables and more are in a table of their own
/// (`kScopeInfoMaxInlinedLocalNamesSize` in src/common/globals.h).
const INLINE_NAMES: u64 = 75;
/// Flags of a scope (`ScopeFlags` in src/objects/scope-info.tq; the same from 10.2 to 14.6).
const HAS_CLASS_VARIABLE: u32 = 1 << 10;
const FUNCTION_VARIABLE: u32 = 3 << 12;
const HAS_INFERRED_NAME: u32 = 1 << 14;
/// No script is longer: strings are not.
const MAX_POSITION: i64 = 1 << 30;

impl V8Heap<'_> {
    /// What a function's closures share; `None`: it is no such object, or not any more.
    pub(super) fn shared(&mut self, at: Reference) -> Option<Shared> {
        let words: [u64; 8] = self.words(at)?;
        if self.kind_by_map(words[0])? != self.layout.types.shared {
            return None;
        }
        let word = |offset: u64| words.get((offset / V8Layout::WORD) as usize).copied();
        Some(Shared {
            data: words[1],
            name_or_scope: word(self.layout.name_or_scope)?,
            script: word(self.layout.script)?,
        })
    }

    /// Whether a function runs this bytecode: what its closures share leads to it.
    pub(super) fn runs(&mut self, shared: Shared, bytecode: Reference) -> bool {
        if shared.data == bytecode.word() {
            return true;
        }
        // Compiled from the bytecode as it is, or with data for a profiler.
        let Some(data) = Reference::of(shared.data) else {
            return false;
        };
        let types = &self.layout.types;
        let leads = [types.code, types.interpreter_data];
        self.kind(data).is_some_and(|kind| leads.contains(&kind))
            && self
                .words::<5>(data)
                .is_some_and(|words| words[1..].contains(&bytecode.word()))
    }

    /// The function whose closures share this.
    pub(super) fn function(
        &mut self,
        at: Reference,
        shared: Shared,
        lines: &mut Lines,
    ) -> Option<ScriptFunction> {
        let scope = Reference::of(shared.name_or_scope)?;
        if self.kind(scope)? != self.layout.types.scope {
            // A function that runs was compiled, and has a scope.
            return None;
        }
        let JsScope {
            names,
            begin,
            length,
        } = self.scope(scope)?;
        let mut file = String::new();
        let mut line = 0;
        if let Some(script) = Reference::of(shared.script)
            && self.kind(script)? == self.layout.types.script
        {
            let name = self.word(script.field(self.layout.script_name))?;
            let text = self.text_if_string(Reference::of(name))?;
            file = text.strip_prefix(FILE_URL).unwrap_or(&text).to_owned();
            line = self.line(script, begin, length, lines).unwrap_or(0);
        }
        let mut name = String::new();
        for reference in names {
            if name.is_empty() {
                name = self.text_if_string(reference)?;
            }
        }
        if begin == 0 {
            TOP_LEVEL.clone_into(&mut name);
        } else if name.is_empty() {
            name = anonymous(&file, line);
        }
        // What was read may have moved meanwhile: then this refers to where it is now.
        (self.shared(at)? == shared).then_some(ScriptFunction { name, file, line })
    }

    /// The text of a string, empty for what is none: code that was made from a string has no
    /// script's name. `None`: what it is cannot be told, as when it is being moved. (A part of
    /// node taken for a script without a name would be the application's.)
    fn text_if_string(&mut self, at: Option<Reference>) -> Option<String> {
        let Some(at) = at else {
            return Some(String::new());
        };
        match self.kind(at)? < self.layout.types.first_non_string {
            true => self.text(at),
            false => Some(String::new()),
        }
    }

    fn scope(&mut self, at: Reference) -> Option<JsScope> {
        let slots = &self.layout.scope;
        let (locals_at, first) = (slots.context_locals, slots.first_variable);
        let word_at = |at: u64| (1 + at) * V8Layout::WORD;
        let flags = self.word(at.field(word_at(0)))?;
        // A small integer until V8 13.
        let flags = match small_integer(flags) {
            Some(flags) => flags as u32,
            None => flags as u32,
        };
        let locals = self.word(at.field(word_at(locals_at)))?;
        let locals = small_integer(locals).filter(|count| (0..MAX_VARIABLES).contains(count))?;
        let locals = locals as u64;
        let names = if locals < INLINE_NAMES { locals } else { 1 };
        let class_variable = u64::from(flags & HAS_CLASS_VARIABLE != 0);
        let own_name = first + names + locals + class_variable;
        let has_own_name = flags & FUNCTION_VARIABLE != 0;
        let inferred = own_name + if has_own_name { 2 } else { 0 };
        let has_inferred = flags & HAS_INFERRED_NAME != 0;
        // Before the variables where there is room (from V8 13), or behind the names.
        let position = match first.saturating_sub(locals_at) {
            3.. => locals_at + 1,
            _ => inferred + u64::from(has_inferred),
        };
        let mut bytes = [0; 16];
        self.bytes(at.field(word_at(position)), &mut bytes)?;
        let position = |at| {
            small_integer(u64_at(&bytes, at)?)
                .filter(|position| (0..MAX_POSITION).contains(position))
        };
        let (begin, end) = (position(0)?, position(8)?);
        let mut name = |has: bool, slot: u64| {
            let word = has.then(|| self.word(at.field(word_at(slot))))?;
            Reference::of(word?)
        };
        Some(JsScope {
            names: [name(has_own_name, own_name), name(has_inferred, inferred)],
            begin: begin as u64,
            length: u64::try_from(end - begin).ok()?,
        })
    }

    /// The line on which a function begins.
    fn line(
        &mut self,
        script: Reference,
        begin: u64,
        length: u64,
        lines: &mut Lines,
    ) -> Option<u32> {
        let source = Reference::of(self.word(script.field(self.layout.source))?)?;
        let text = self.characters(source)?;
        if begin.checked_add(length)? > text.length {
            return None;
        }
        // Where the script lies within its file: as a rule 0.
        let before = self.word(script.field(self.layout.script_name + V8Layout::WORD))?;
        let before = small_integer(before).and_then(|lines| u32::try_from(lines).ok())?;
        let line = self.line_in(source, text, begin, lines)?;
        before.checked_add(line)
    }

    fn line_in(
        &mut self,
        source: Reference,
        text: Characters,
        position: u64,
        lines: &mut Lines,
    ) -> Option<u32> {
        if let Some(line) = lines.known(source.word(), text, position) {
            return Some(line);
        }
        lines.read(source.word(), text, |address, buffer| {
            self.bytes(address, buffer).is_some()
        })?;
        lines.known(source.word(), text, position)
    }
}

/// What a function without a name is called: there are many, so where it is is its name.
fn anonymous(file: &str, line: u32) -> String {
    let file = file.rsplit('/').next().unwrap_or_default();
    match (file, line) {
        ("", _) => "(anonymous)".to_owned(),
        (file, 0) => format!("function in {file}"),
        (file, line) => format!("function at {file}:{line}"),
    }
}

/// Of a function's scope.
struct JsScope {
    /// Its own name, and what it is called after where it was assigned to.
    names: [Option<Reference>; 2],
    begin: u64,
    /// Of its text.
    length: u64,
}
