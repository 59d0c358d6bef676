//! What a method is called, and its lines.

use std::collections::HashMap;
use std::time::Instant;

use whywait_events::{Frame, ModuleKind};

use super::STAYS_FOR;
use super::layout::{MethodLayout, SourceName};
use super::memory::{bytes, bytes_up_to, word};
use super::scopes::Compressed;
use crate::budget::{Budget, Charge};
use crate::elf::ReadAt;
use crate::modules::Modules;

/// Names of methods and classes are shorter, or cut.
const MAX_NAME: usize = 512;
/// Of a method of 64 KiB.
const MAX_LINES: usize = 32 << 10;
const MAX_METHODS: usize = 1 << 16;
/// In words: a `ConstMethod` with its bytecodes and tables.
const MAX_WORDS: u64 = 1 << 20;
/// What a method takes beside its texts and lines.
const METHOD: usize = 2 * size_of::<(u64, MethodNames)>();
const LINE: usize = 4 * size_of::<(Option<u16>, Frame)>();

/// The methods that were met.
#[derive(Debug)]
pub(super) struct Methods {
    known: HashMap<u64, MethodNames>,
    budget: Budget,
}

#[derive(Debug)]
struct MethodNames {
    /// What it was read from: another method may come to lie there.
    constant: u64,
    head: Vec<u8>,
    /// When it was seen that it is still there.
    seen: Instant,
    name: String,
    file: String,
    lines: Vec<u8>,
    frames: HashMap<Option<u16>, Frame>,
    charge: Charge,
}

impl Methods {
    pub(super) fn new(budget: &Budget) -> Self {
        Self {
            known: HashMap::new(),
            budget: budget.clone(),
        }
    }

    /// The frame of a method at one of its bytecodes; `None`: it is none, or there is no room.
    pub(super) fn frame(
        &mut self,
        layout: &MethodLayout,
        excludes_zero: bool,
        memory: &dyn ReadAt,
        (method, bytecode): (u64, Option<u16>),
        modules: &mut Modules,
    ) -> Option<Frame> {
        let found = self.method(layout, memory, method)?;
        if let Some(frame) = found.frames.get(&bytecode) {
            return Some(*frame);
        }
        found.charge.grow(LINE).then_some(())?;
        let line = bytecode.map(|it| line(&found.lines, excludes_zero, it));
        let module = modules.special(ModuleKind::Jit);
        let symbols = &mut modules.symbols;
        let frame = symbols.frame(module, &found.name, &found.file, line.unwrap_or(0));
        found.frames.insert(bytecode, frame);
        Some(frame)
    }

    /// As [`frame`](Self::frame), with the address of the bytecode, which must be the method's: a
    /// native one has none.
    pub(super) fn interpreted(
        &mut self,
        layout: &MethodLayout,
        excludes_zero: bool,
        memory: &dyn ReadAt,
        (method, bytecode): (u64, u64),
        modules: &mut Modules,
    ) -> Option<Frame> {
        let found = self.method(layout, memory, method)?;
        let size = layout.code_size.of(&found.head)?;
        let begin = found.constant.checked_add(layout.head as u64)?;
        let at = bytecode.wrapping_sub(begin);
        let bytecode = match size {
            0 => None,
            _ if at < size => Some(u16::try_from(at).ok()?),
            _ => return None,
        };
        let place = (method, bytecode);
        self.frame(layout, excludes_zero, memory, place, modules)
    }

    fn method(
        &mut self,
        layout: &MethodLayout,
        memory: &dyn ReadAt,
        method: u64,
    ) -> Option<&mut MethodNames> {
        method.is_multiple_of(8).then_some(())?;
        let is_fresh = |it: &MethodNames| it.seen.elapsed() < STAYS_FOR;
        if self.known.get(&method).is_some_and(is_fresh) {
            return self.known.get_mut(&method);
        }
        let constant = layout.constant.at(memory, method)?;
        let head = bytes(memory, constant, layout.head)?;
        let same = |it: &MethodNames| it.constant == constant && it.head == head;
        if let Some(known) = self.known.get_mut(&method).filter(|it| same(it)) {
            known.seen = Instant::now();
        } else {
            if self.known.len() >= MAX_METHODS {
                self.known.clear();
            }
            let read = MethodNames::read(layout, memory, (constant, head), &self.budget);
            self.known.remove(&method);
            self.known.insert(method, read?);
        }
        self.known.get_mut(&method)
    }
}

impl MethodNames {
    fn read(
        layout: &MethodLayout,
        memory: &dyn ReadAt,
        (constant, head): (u64, Vec<u8>),
        budget: &Budget,
    ) -> Option<Self> {
        let of_head = |field: super::memory::FieldPlace| field.of(&head);
        let words = of_head(layout.words)?;
        let code = of_head(layout.code_size)?;
        let code_end = (layout.head as u64).checked_add(code)?;
        (words <= MAX_WORDS && code_end <= 8 * words).then_some(())?;
        let pool = Pool::read(layout, memory, of_head(layout.pool)?)?;
        let method = pool.text(of_head(layout.name)?)?;
        let class = pool.class()?;
        is_name(&method).then_some(())?;
        let name = format!("{}.{method}", readable_class(&class)?);
        let file = pool.source().unwrap_or_default();
        let has_lines = of_head(layout.flags)? & layout.has_lines != 0;
        let lines = match has_lines {
            true => {
                let left = usize::try_from(8 * words - code_end).ok()?;
                let at = constant.checked_add(code_end)?;
                bytes_up_to(memory, at, left.min(MAX_LINES))
            }
            false => Vec::new(),
        };
        let size = METHOD + name.len() + file.len() + lines.len() + head.len();
        Some(Self {
            constant,
            head,
            seen: Instant::now(),
            name,
            file,
            lines,
            frames: HashMap::new(),
            charge: budget.take(size)?,
        })
    }
}

/// A constant pool.
struct Pool<'a> {
    layout: &'a MethodLayout,
    memory: &'a dyn ReadAt,
    address: u64,
    head: Vec<u8>,
}

impl<'a> Pool<'a> {
    fn read(layout: &'a MethodLayout, memory: &'a dyn ReadAt, address: u64) -> Option<Self> {
        Some(Self {
            layout,
            memory,
            address,
            head: bytes(memory, address, layout.pool_head)?,
        })
    }

    /// The text of that number.
    fn text(&self, index: u64) -> Option<String> {
        // The first one is none.
        let length = self.layout.pool_length.of(&self.head)?;
        (1..length).contains(&index).then_some(())?;
        let at = self.layout.pool_head as u64 + 8 * index;
        self.symbol(word(self.memory, self.address.checked_add(at)?)?)
    }

    /// The name of its class, with slashes.
    fn class(&self) -> Option<String> {
        let class = self.layout.class.of(&self.head)?;
        self.symbol(self.layout.class_name.at(self.memory, class)?)
    }

    fn source(&self) -> Option<String> {
        let index = match self.layout.source {
            SourceName::Pool(field) => field.of(&self.head)?,
            SourceName::Class(field) => field.at(self.memory, self.layout.class.of(&self.head)?)?,
        };
        self.text(index).filter(|name| is_name(name))
    }

    fn symbol(&self, address: u64) -> Option<String> {
        let length = self.layout.text_length.at(self.memory, address)?;
        let length = usize::try_from(length).ok()?.min(MAX_NAME);
        let text = bytes(self.memory, address.checked_add(self.layout.text)?, length)?;
        Some(String::from_utf8_lossy(&text).into_owned())
    }
}

/// Whether a text can be a name: what is read where there is none seldom is.
fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_control() || ";[/".contains(c))
}

/// A class as people write it. What the virtual machine adds to tell hidden ones from each other is
/// another in each run.
fn readable_class(class: &str) -> Option<String> {
    (!class.is_empty() && !class.contains(|c: char| c.is_control() || ";[".contains(c)))
        .then_some(())?;
    let class = class.split("+0x").next()?.replace('/', ".");
    Some(match class.split_once("$$Lambda") {
        Some((of, _)) => format!("{of}$$Lambda"),
        None => class,
    })
}

/// The line of a bytecode, from a method's compressed table: 0 when it has none
/// (`CompressedLineNumberReadStream`).
fn line(table: &[u8], excludes_zero: bool, bytecode: u16) -> u32 {
    const END: u8 = 0;
    const LONG: u8 = 0xff;
    let mut numbers = Compressed::new(table, excludes_zero);
    let (mut at, mut line) = (0i32, 0i32);
    let mut found = 0;
    while let Some(next) = numbers.byte() {
        let step = match next {
            END => break,
            LONG => numbers.signed().zip(numbers.signed()),
            short => Some((i32::from(short >> 3), i32::from(short & 7))),
        };
        let Some((bytecodes, lines)) = step else {
            break;
        };
        at = at.wrapping_add(bytecodes);
        line = line.wrapping_add(lines);
        if at > i32::from(bytecode) {
            break;
        }
        found = u32::try_from(line).unwrap_or(0);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_bytecodes() {
        // 0: line 10 (long: 0 and 10, doubled), 5: 12, 9: 11 (long: 4 and -1), end.
        let table = [0xff, 0, 20, 5 << 3 | 2, 0xff, 8, 1, 0, 0xff];
        let at = |bytecode| line(&table, false, bytecode);
        assert_eq!([at(0), at(4), at(5), at(8), at(9)], [10, 10, 12, 12, 11]);
        assert_eq!(line(&[], false, 3), 0);
        assert_eq!(line(&[0xff, 255], false, 3), 0);
    }

    #[test]
    fn classes_as_people_write_them() {
        for (class, readable) in [
            ("com/acme/Server", Some("com.acme.Server")),
            ("Server$Inner", Some("Server$Inner")),
            (
                "Server$$Lambda$14+0x0000000800c03000",
                Some("Server$$Lambda"),
            ),
            ("Server$$Lambda+0x00007f1234000a00", Some("Server$$Lambda")),
            (
                "java/lang/invoke/LambdaForm$MH+0x1",
                Some("java.lang.invoke.LambdaForm$MH"),
            ),
            ("", None),
            ("[Lcom/acme/Server;", None),
            ("a\nb", None),
        ] {
            assert_eq!(readable_class(class).as_deref(), readable, "{class}");
        }
        assert!(is_name("<init>") && is_name("Server.java"));
        assert!(!is_name("") && !is_name("a/b") && !is_name("a\0"));
    }
}
