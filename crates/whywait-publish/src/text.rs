//! Text for tables that are shown in terminals, and names that hold from build to build.

use whywait_model::{FrameOrigin, Model, StackText, stable_name};
use whywait_words::shows;

/// A function's name beyond this is cut: the templates of C++ know no bounds.
const MAX_NAME: usize = 200;
/// Frames of a stack beyond this are left out, the outermost first.
const MAX_FRAMES: usize = 96;

/// The text without characters that act on a terminal, hide in it or turn the direction of writing.
pub(crate) fn clean(text: &str) -> String {
    let harmless = |c: char| if shows(c) { c } else { '\u{fffd}' };
    text.chars().map(harmless).collect()
}

/// A name without what changes from build to build, of a length that a table can bear.
pub(crate) fn name(name: &str) -> String {
    let name = stable_name(name);
    match name.char_indices().nth(MAX_NAME) {
        Some((at, _)) => format!("{}…", &name[..at]),
        None => name,
    }
}

/// Several texts as one.
pub(crate) fn joined<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let texts: Vec<&str> = texts.into_iter().collect();
    texts.join(" | ")
}

/// Stacks as text: folded, outermost first, as flame graphs take them.
pub(crate) fn folded<'a>(innermost_first: impl DoubleEndedIterator<Item = &'a str>) -> String {
    let frames: Vec<String> = innermost_first
        .take(MAX_FRAMES)
        .map(|frame| name(frame).replace(';', ":"))
        .collect();
    let frames: Vec<&str> = frames.iter().rev().map(String::as_str).collect();
    frames.join(";")
}

/// A user stack and the kernel's beneath it, folded; the kernel's functions end with `_[k]`.
pub(crate) fn folded_stacks(model: &Model, user: u32, kernel: u32) -> String {
    let of = |stack: u32| -> Vec<(String, FrameOrigin)> {
        model
            .stacks
            .get(stack)
            .map(StackText::names)
            .unwrap_or_default()
    };
    let (user, kernel) = (of(user), of(kernel));
    let kernel: Vec<String> = kernel
        .into_iter()
        .map(|(name, _)| format!("{name}_[k]"))
        .collect();
    let names = kernel.iter().map(String::as_str);
    folded(names.chain(user.iter().map(|(name, _)| name.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_on_a_terminal_is_replaced() {
        assert_eq!(clean("a\u{1b}[31mb\n\u{202e}é"), "a�[31mb��é");
    }

    #[test]
    fn stacks_are_folded_outermost_first() {
        let frames = ["Lfoo;bar", "handler", "main"];
        assert_eq!(folded(frames.into_iter()), "main;handler;Lfoo:bar");
        let long = "x".repeat(300);
        assert_eq!(name(&long).chars().count(), 201);
        let deep: Vec<&str> = std::iter::repeat_n("f", 500).collect();
        assert_eq!(folded(deep.into_iter()).split(';').count(), 96);
    }
}
