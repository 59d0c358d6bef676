//! The names that are kept apart.

use std::collections::BTreeSet;

/// So many different ones are kept apart: as many as a person would look through. Who asks for what
/// does not exist makes any number.
const MOST: usize = 200;

/// The name of all that came after those.
pub const OTHERS: &str = "all others";

/// The names that are kept apart: those that came first.
#[derive(Debug, Clone, Default)]
pub struct KeptNames(BTreeSet<String>);

impl KeptNames {
    /// The name under which this one is kept.
    pub fn keep(&mut self, name: String) -> String {
        if self.0.contains(&name) {
            return name;
        }
        if self.0.len() >= MOST {
            return OTHERS.to_owned();
        }
        self.0.insert(name.clone());
        name
    }
}
