//! Folded stacks: a line each, `outermost;…;innermost nanoseconds`. Read by flamegraph.pl, inferno,
//! speedscope and others.

use whywait_model::Model;
use whywait_words::{Charset, escape};

use crate::stacks::{self, Of};

/// Longer names are cut in their middle.
const MAX_NAME: usize = 1_000;

/// The stacks with their time in nanoseconds, in a fixed order.
pub fn folded(model: &Model, of: Of) -> String {
    let tree = stacks::tree(model, of);
    let names: Vec<String> = tree.frames().iter().map(|f| frame(&f.name)).collect();
    let mut text = String::new();
    for (stack, ns) in tree.stacks() {
        for (index, number) in stack.iter().enumerate() {
            if index > 0 {
                text.push(';');
            }
            text.push_str(&names[*number as usize]);
        }
        text.push_str(&format!(" {ns}\n"));
    }
    text
}

/// A name without what separates names.
fn frame(name: &str) -> String {
    let name = escape(name, Charset::Unicode, MAX_NAME).replace(';', ":");
    match name.trim() {
        "" => "?".to_owned(),
        name => name.to_owned(),
    }
}
