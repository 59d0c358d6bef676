//! The functions that a process has declared, whether it was met in them or not.
//!
//! A wait that is over has the instruction that its function was at. It says which function that is
//! only where the function is known, and many a one is over before it was ever met. So the engine's
//! own tables are looked through: that of functions, and those of the classes' methods.
//!
//! Taken is what stays where it is: what opcache keeps for all requests (`ZEND_ACC_IMMUTABLE`), and
//! all of a program that runs one script. Elsewhere each request compiles anew, and by now other
//! code may lie where the wait's was.
//!
//! The newest entry is the last. Those of the last request lie behind it once that is over, for the
//! engine only counts back (`zend_hash_discard`).
//!
//! Methods of traits are not taken: the classes that use one have copies of it, with the same code.

use std::collections::HashSet;

use super::{FUNCTION_BYTES, IN_C, IN_PHP, PhpLayout};
use crate::elf::{u32_at, u64_at};
use crate::process::{OBJECT, Process, object, word};

/// So often the process's memory is read for one look, at most: it takes some 10 ms then.
const MAX_READS: usize = 1 << 13;
/// Entries of a table that are read at once.
const ENTRIES_AT_ONCE: u64 = 128;
/// What is read of a table's and of a class's head.
const TABLE_BYTES: usize = 56;
const CLASS_BYTES: usize = 128;
/// The kind of a class in PHP.
const CLASS_IN_PHP: u8 = 2;

/// Code of a function that was declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DeclaredCode {
    pub(super) begin: u64,
    pub(super) bytes: u64,
    /// Address of the function.
    pub(super) function: u64,
}

/// The code of all functions and methods that a process with these globals has declared and that
/// stays: all, if it runs one script. Of code that two functions have there is nothing.
pub(super) fn declared(
    layout: &PhpLayout,
    process: &mut Process,
    globals: u64,
    runs_one: bool,
) -> Vec<DeclaredCode> {
    let mut look = TableWalk {
        layout,
        runs_one,
        process,
        left: MAX_READS,
        seen: HashSet::new(),
        found: Vec::new(),
    };
    // What cannot be read ends the look at one table.
    let _ = look.functions(globals);
    let _ = look.classes(globals);
    let mut found = look.found;
    found.sort_unstable();
    let mut own = Vec::with_capacity(found.len());
    for same in found.chunk_by(|one, other| one.begin == other.begin) {
        if let [one] = same {
            own.push(*one);
        }
    }
    own
}

struct TableWalk<'a> {
    layout: &'a PhpLayout,
    runs_one: bool,
    process: &'a mut Process,
    /// Reads.
    left: usize,
    /// Functions that were looked at: a class has those of its parents, too.
    seen: HashSet<u64>,
    found: Vec<DeclaredCode>,
}

/// What a table has where an entry may be.
struct TableEntry {
    /// Address of a function or of a class.
    value: u64,
    /// The table counts it.
    counts: bool,
}

/// Whether to go on to an older entry.
type GoOn = Option<bool>;

impl TableWalk<'_> {
    fn functions(&mut self, globals: u64) -> Option<()> {
        let at = globals.checked_add(self.layout.functions)?;
        let table = word(self.process, at)?;
        self.entries(table, true, |look, entry| {
            let kind = look.function(&entry);
            // The engine's own come first.
            Some(kind != Some(IN_C) || !entry.counts)
        })
    }

    fn classes(&mut self, globals: u64) -> Option<()> {
        let at = globals.checked_add(self.layout.classes)?;
        let table = word(self.process, at)?;
        self.entries(table, true, |look, entry| {
            let Some(class) = look.read(entry.value, CLASS_BYTES) else {
                return Some(true);
            };
            if class[0] != CLASS_IN_PHP {
                return Some(!entry.counts);
            }
            let flags = u32_at(&class, look.layout.class_flags as usize)?;
            if look.stays(&entry, flags) && flags & look.layout.is_trait == 0 {
                let methods = entry.value.checked_add(look.layout.class_functions)?;
                let _ = look.entries(methods, false, |look, entry| {
                    look.function(&entry);
                    Some(true)
                });
            }
            Some(true)
        })
    }

    /// Looks at the entries of a table, from the last one on, and with `discarded` at those that it
    /// had before.
    fn entries(
        &mut self,
        table: u64,
        discarded: bool,
        mut look_at: impl FnMut(&mut Self, TableEntry) -> GoOn,
    ) -> Option<()> {
        let layout = self.layout;
        let head = self.read(table, TABLE_BYTES)?;
        let items = u64_at(&head, layout.table_items as usize)?;
        let used = u64::from(u32_at(&head, layout.table_used as usize)?);
        let size = u64::from(u32_at(&head, layout.table_size as usize)?);
        let mut end = if discarded { size } else { used.min(size) };
        while end > 0 {
            let begin = end.saturating_sub(ENTRIES_AT_ONCE);
            let at = items.checked_add(begin * layout.item_bytes)?;
            self.left = self.left.checked_sub(1)?;
            let mut bytes = vec![0; ((end - begin) * layout.item_bytes) as usize];
            self.process.read_memory(at, &mut bytes).then_some(())?;
            let items = bytes.chunks_exact(layout.item_bytes as usize).enumerate();
            for (i, item) in items.rev() {
                if u32_at(item, layout.item_type as usize)? as u8 != layout.pointer {
                    continue;
                }
                let entry = TableEntry {
                    value: u64_at(item, layout.item_value as usize)?,
                    counts: begin + (i as u64) < used,
                };
                if !look_at(self, entry)? {
                    return Some(());
                }
            }
            end = begin;
        }
        Some(())
    }

    /// Whether a function or a class with these flags stays where it is.
    fn stays(&self, entry: &TableEntry, flags: u32) -> bool {
        flags & self.layout.immutable != 0 || self.runs_one && entry.counts
    }

    /// Takes a function's code, if it stays. Its kind, unless it was looked at before or cannot be
    /// read.
    fn function(&mut self, entry: &TableEntry) -> Option<u8> {
        let (layout, at) = (self.layout, entry.value);
        if self.left == 0 || !self.seen.insert(at) {
            return None;
        }
        let function = self.read(at, FUNCTION_BYTES)?;
        let kind = *function.get(layout.kind as usize)?;
        let flags = u32_at(&function, layout.flags as usize)?;
        let stays = self.stays(entry, flags) && flags & layout.of_trait == 0;
        let begin = u64_at(&function, layout.code as usize)?;
        let count = u32_at(&function, layout.code_count as usize)?;
        if kind == IN_PHP && stays && begin != 0 && count != 0 {
            self.found.push(DeclaredCode {
                begin,
                bytes: u64::from(count) * layout.instruction_bytes,
                function: at,
            });
        }
        Some(kind)
    }

    fn read(&mut self, at: u64, size: usize) -> Option<[u8; OBJECT]> {
        self.left = self.left.checked_sub(1)?;
        object(self.process, at, size)
    }
}

#[cfg(test)]
mod tests {
    use super::super::NextLook;
    use super::super::made_up::*;
    use super::*;
    use crate::made_up::own_process;
    use std::time::Duration;

    fn named(name: &str, line: u32) -> Option<(String, u32)> {
        Some((name.to_owned(), line))
    }

    #[test]
    fn functions_that_were_not_met_are_known_by_their_code() {
        let process = &mut own_process();
        let made = MadeUpPhp::new();
        assert_eq!(made.not_met(process, made.now), named("now", 41));
        assert_eq!(made.not_met(process, made.before), named("before", 51));
        let method = made.not_met(process, made.function);
        assert_eq!(method, named("Orders::load", 31));
    }

    #[test]
    fn only_what_stays_where_it_is_is_taken() {
        let process = &mut own_process();
        let mut made = MadeUpPhp::new();
        for function in [made.now, made.before, made.function] {
            made.set_flags(function + LAYOUT.flags, 0);
        }
        made.set_flags(made.class + LAYOUT.class_flags, 0);
        for function in [made.now, made.before, made.function] {
            assert_eq!(made.not_met(process, function), None, "of this request");
        }
        made.runs_one = true;
        assert_eq!(made.not_met(process, made.now), named("now", 41));
        let method = made.not_met(process, made.function);
        assert_eq!(method, named("Orders::load", 31));
        assert_eq!(made.not_met(process, made.before), None, "no longer there");
    }

    #[test]
    fn code_that_several_functions_have_says_nothing() {
        let process = &mut own_process();
        let mut made = MadeUpPhp::new();
        let flags = LAYOUT.immutable | LAYOUT.of_trait;
        made.set_flags(made.function + LAYOUT.flags, flags);
        assert_eq!(made.not_met(process, made.function), None, "a trait's");
        let mut made = MadeUpPhp::new();
        let flags = LAYOUT.immutable | LAYOUT.is_trait;
        made.set_flags(made.class + LAYOUT.class_flags, flags);
        assert_eq!(made.not_met(process, made.function), None, "in a trait");
        let mut made = MadeUpPhp::new();
        let code = made.code_of(made.now);
        made.memory.set(made.before + LAYOUT.code, code);
        assert_eq!(made.not_met(process, made.now), None, "two have it");
    }

    #[test]
    fn a_look_ends() {
        let process = &mut own_process();
        let mut made = MadeUpPhp::new();
        let all = declared(LAYOUT, process, made.globals, false);
        assert_eq!(all.len(), 3);
        // More entries than there is memory.
        let many = u64::from(u32::MAX);
        made.memory.set(made.table + LAYOUT.table_size, many);
        made.memory.is_read();
        assert_eq!(declared(LAYOUT, process, made.globals, false).len(), 1);
        // Memory to its end, of entries that are all one function.
        let entries = vec![u64::from(LAYOUT.pointer); MAX_READS * 1024];
        let at = entries.as_ptr() as u64;
        made.memory.set(made.table + LAYOUT.table_items, at);
        let size = entries.len() as u64 / 4;
        made.memory.set(made.table + LAYOUT.table_size, size);
        made.memory.is_read();
        assert!(declared(LAYOUT, process, made.globals, false).is_empty());
    }

    #[test]
    fn looks_in_vain_become_rare() {
        let mut next = NextLook::default();
        assert!(next.is_due());
        next.put_off(Duration::from_secs(1), false);
        assert!(!next.is_due());
        for _ in 0..100 {
            next.put_off(Duration::from_millis(10), false);
        }
        let rarely = next.in_vain;
        next.put_off(Duration::ZERO, true);
        assert!(rarely > 0 && next.in_vain == 0 && next.is_due());
    }
}
