//! Names of frames that are no addresses: each (module, name, file, line) gets a number.

use std::collections::HashMap;

use whywait_events::{Frame, Symbol};

use crate::budget::{Budget, Charge};

/// Gives numbers to names. Numbers are of no meaning; they start from 1 in each module.
#[derive(Debug)]
pub(crate) struct Interner {
    known: HashMap<(u32, String, String, u32), u64>,
    last: u64,
    new: Vec<Symbol>,
    charge: Charge,
    /// There was no more room.
    full: bool,
}

/// What a name takes beside its text.
const NAME: usize = 2 * size_of::<((u32, String, String, u32), u64)>();
const MAX_LENGTH: usize = 4096;

impl Interner {
    pub(crate) fn new(budget: &Budget) -> Self {
        Self {
            known: HashMap::new(),
            last: 0,
            new: Vec::new(),
            charge: budget.nothing(),
            full: false,
        }
    }

    /// Takes room for something else that is known for as long as names are.
    pub(crate) fn charge(&mut self, bytes: usize) -> bool {
        self.charge.grow(bytes)
    }

    /// The frame of that name.
    pub(crate) fn frame(&mut self, module: u32, name: &str, file: &str, line: u32) -> Frame {
        let key = (module, cut(name).to_owned(), cut(file).to_owned(), line);
        if let Some(&address) = self.known.get(&key) {
            return Frame { module, address };
        }
        // Once there is no room all further names of a module become one, so that a program that
        // generates code for ever cannot fill the memory. Its own room is some 100 bytes a module.
        let bytes = NAME + key.1.len() + key.2.len();
        if self.full || !self.charge.grow(bytes) {
            self.full = true;
            let key = (module, "[too many names]".to_owned(), String::new(), 0);
            let address = self.known.get(&key).copied();
            let address = address.unwrap_or_else(|| self.add(key));
            return Frame { module, address };
        }
        let address = self.add(key);
        Frame { module, address }
    }

    fn add(&mut self, key: (u32, String, String, u32)) -> u64 {
        self.last += 1;
        self.new.push(Symbol {
            frame: Frame {
                module: key.0,
                address: self.last,
            },
            depth: 0,
            name: key.1.clone(),
            file: key.2.clone(),
            line: key.3,
        });
        self.known.insert(key, self.last);
        self.last
    }

    /// Names an address of an ELF module.
    pub(crate) fn name_address(&mut self, frame: Frame, name: &str) {
        self.new.push(Symbol {
            frame,
            depth: 0,
            name: cut(name).to_owned(),
            file: String::new(),
            line: 0,
        });
    }

    /// Symbols since the last call.
    pub(crate) fn take_new(&mut self) -> Vec<Symbol> {
        std::mem::take(&mut self.new)
    }
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(MAX_LENGTH);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_name_same_frame() {
        let mut names = Interner::new(&Budget::default());
        let a = names.frame(1, "f", "a.py", 3);
        assert_eq!(names.frame(1, "f", "a.py", 3), a);
        assert_ne!(names.frame(1, "f", "a.py", 4), a);
        assert_ne!(names.frame(2, "f", "a.py", 3), a);
        assert_eq!(names.take_new().len(), 3);
        assert!(names.take_new().is_empty());
        assert_eq!(cut(&"é".repeat(4000)).len(), 4096);
    }

    #[test]
    fn what_there_is_no_room_for_has_one_name() {
        let budget = Budget::of(3 * NAME);
        let mut names = Interner::new(&budget);
        let first = names.frame(1, "first", "", 0);
        let others: Vec<_> = (0..1000)
            .map(|line| names.frame(1, "other", "other.py", line))
            .collect();
        assert_eq!(names.frame(1, "first", "", 0), first);
        assert_eq!(others[998], others[999]);
        assert_eq!(budget.refused(), 1);
        let symbols = names.take_new();
        assert!(symbols.len() <= 4, "{symbols:?}");
        assert!(symbols.iter().any(|it| it.name == "[too many names]"));
    }
}
