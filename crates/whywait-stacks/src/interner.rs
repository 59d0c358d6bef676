//! Names of frames that are no addresses: each (module, name, file, line) gets a number.

use std::collections::HashMap;

use whywait_events::{Frame, Symbol};

/// Gives numbers to names. Numbers are of no meaning; they start from 1 in each module.
#[derive(Debug, Default)]
pub(crate) struct Interner {
    known: HashMap<(u32, String, String, u32), u64>,
    last: u64,
    new: Vec<Symbol>,
}

/// Beyond this many names all further ones of a module become one, so that a program that generates
/// code for ever cannot fill the memory.
const MAX_NAMES: usize = 1 << 20;
const MAX_LENGTH: usize = 4096;

impl Interner {
    /// The frame of that name.
    pub(crate) fn frame(&mut self, module: u32, name: &str, file: &str, line: u32) -> Frame {
        let (mut name, mut file, mut line) = (cut(name), cut(file), line);
        if self.known.len() >= MAX_NAMES {
            let key = (module, name.to_owned(), file.to_owned(), line);
            if let Some(&address) = self.known.get(&key) {
                return Frame { module, address };
            }
            (name, file, line) = ("[too many names]", "", 0);
        }
        let key = (module, name.to_owned(), file.to_owned(), line);
        let address = *self.known.entry(key).or_insert_with(|| {
            self.last += 1;
            let frame = Frame {
                module,
                address: self.last,
            };
            self.new.push(Symbol {
                frame,
                depth: 0,
                name: name.to_owned(),
                file: file.to_owned(),
                line,
            });
            self.last
        });
        Frame { module, address }
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
        let mut names = Interner::default();
        let a = names.frame(1, "f", "a.py", 3);
        assert_eq!(names.frame(1, "f", "a.py", 3), a);
        assert_ne!(names.frame(1, "f", "a.py", 4), a);
        assert_ne!(names.frame(2, "f", "a.py", 3), a);
        assert_eq!(names.take_new().len(), 3);
        assert!(names.take_new().is_empty());
        assert_eq!(cut(&"é".repeat(4000)).len(), 4096);
    }
}
