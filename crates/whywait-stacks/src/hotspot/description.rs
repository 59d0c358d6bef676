//! What a virtual machine says of its own structures: tables that `libjvm.so` exports for tools
//! that look at it from outside (`vmStructs.hpp`, in all versions since 6). Which column of a table
//! lies where is exported, too.

use std::collections::HashMap;

use super::memory::{FieldPlace, Pages, Width};
use crate::elf::ReadAt;

/// The tables, with the number of their columns that are read.
const STRUCTS: &str = "gHotSpotVMStruct";
const TYPES: &str = "gHotSpotVMType";
const INTEGERS: &str = "gHotSpotVMIntConstant";

/// Version 17 has 2,000 fields.
const MAX_ENTRIES: usize = 1 << 14;
const MAX_STRIDE: u64 = 256;

/// The tables' contents.
#[derive(Debug, Default)]
pub(super) struct Description {
    /// Where a field of a type is: its offset, or its address if it is static, and its type.
    fields: HashMap<(String, String), DescribedField>,
    sizes: HashMap<String, u64>,
    integers: HashMap<String, i32>,
}

#[derive(Debug)]
struct DescribedField {
    of_type: String,
    is_static: bool,
    offset: u64,
    address: u64,
}

impl Description {
    /// Reads the tables. `symbol` gives the address in the process of an exported variable. `None`:
    /// they are not there, or are none.
    pub(super) fn read(memory: &dyn ReadAt, symbol: impl Fn(&str) -> Option<u64>) -> Option<Self> {
        let mut pages = Pages::new(memory);
        let mut found = Self::default();
        let columns = [
            "TypeName",
            "FieldName",
            "TypeString",
            "IsStatic",
            "Offset",
            "Address",
        ];
        each(&mut pages, &symbol, STRUCTS, columns, |pages, row| {
            let [type_name, field, of_type, is_static, offset, address] = row;
            let name = (pages.text(type_name)?, pages.text(field)?);
            // That of a static one of a type that has no name here is null.
            let of_type = pages.text(of_type).unwrap_or_default();
            let described = DescribedField {
                of_type,
                is_static: pages.word(is_static)? as u32 != 0,
                offset: pages.word(offset)?,
                address: pages.word(address)?,
            };
            found.fields.entry(name).or_insert(described);
            Some(())
        })?;
        each(
            &mut pages,
            &symbol,
            TYPES,
            ["TypeName", "Size"],
            |pages, [name, size]| {
                let name = pages.text(name)?;
                found.sizes.insert(name, pages.word(size)?);
                Some(())
            },
        )?;
        each(
            &mut pages,
            &symbol,
            INTEGERS,
            ["Name", "Value"],
            |pages, [name, value]| {
                let name = pages.text(name)?;
                found
                    .integers
                    .insert(name, pages.word(value)? as u32 as i32);
                Some(())
            },
        )?;
        Some(found)
    }

    fn described(&self, of: &str, name: &str) -> Option<&DescribedField> {
        self.fields.get(&(of.to_owned(), name.to_owned()))
    }

    /// Where a field of a structure is; `None`: this version has none, or of another kind.
    pub(super) fn field(&self, of: &str, name: &str) -> Option<FieldPlace> {
        let found = self.described(of, name).filter(|it| !it.is_static)?;
        let width = match &*found.of_type {
            of_type if of_type.ends_with('*') => Width::U64,
            "address" | "size_t" | "uint64_t" => Width::U64,
            "int" | "u4" | "uint32_t" => Width::I32,
            "u2" | "unsigned short" => Width::U16,
            "int16_t" => Width::I16,
            "bool" => Width::U8,
            _ => return None,
        };
        let offset = usize::try_from(found.offset).ok()?;
        (offset < super::MAX_STRUCTURE).then_some(FieldPlace { offset, width })
    }

    /// Where a part of a structure begins that is a structure itself, or an array.
    pub(super) fn part(&self, of: &str, name: &str) -> Option<u64> {
        let found = self.described(of, name).filter(|it| !it.is_static)?;
        (found.offset < super::MAX_STRUCTURE as u64).then_some(found.offset)
    }

    /// The address of a static field.
    pub(super) fn static_field(&self, of: &str, name: &str) -> Option<u64> {
        let found = self.described(of, name).filter(|it| it.is_static)?;
        (found.address != 0).then_some(found.address)
    }

    /// How large a structure is.
    pub(super) fn size(&self, of: &str) -> Option<usize> {
        let size = usize::try_from(*self.sizes.get(of)?).ok()?;
        (1..super::MAX_STRUCTURE).contains(&size).then_some(size)
    }

    pub(super) fn integer(&self, name: &str) -> Option<i32> {
        self.integers.get(name).copied()
    }

    /// One that was written down: what a real virtual machine says of what is read. Static fields
    /// are at addresses from `statics` on, in the text's order.
    #[cfg(any(test, fuzzing))]
    pub(super) fn written(text: &str, statics: u64) -> Self {
        let mut written = Self::default();
        let mut next = statics;
        for line in text.lines() {
            let mut words = line.splitn(5, ' ');
            let mut word = || words.next().unwrap_or_default().to_owned();
            let (kind, of) = (word(), word());
            let number = |text: String| text.parse::<u64>().expect("a number");
            match &*kind {
                "size" => {
                    written.sizes.insert(of, number(word()));
                }
                "integer" => {
                    written.integers.insert(of, number(word()) as i32);
                }
                _ => {
                    let name = word();
                    let is_static = kind == "static";
                    let described = DescribedField {
                        offset: if is_static { 0 } else { number(word()) },
                        address: if is_static { next } else { 0 },
                        of_type: word(),
                        is_static,
                    };
                    next += 8 * u64::from(is_static);
                    written.fields.insert((of, name), described);
                }
            }
        }
        written
    }
}

/// Calls `visit` with where the columns of each entry are, up to the one without a name. `None`:
/// there is no such table, or an entry is none.
fn each<const COLUMNS: usize>(
    pages: &mut Pages<'_>,
    symbol: &impl Fn(&str) -> Option<u64>,
    table: &str,
    columns: [&str; COLUMNS],
    mut visit: impl FnMut(&mut Pages<'_>, [u64; COLUMNS]) -> Option<()>,
) -> Option<()> {
    let mut variable = |name: String| pages.word(symbol(&name)?);
    let mut entry = variable(format!("{table}s"))?;
    let stride = variable(format!("{table}EntryArrayStride"))?;
    let mut offsets = [0; COLUMNS];
    for (offset, column) in offsets.iter_mut().zip(columns) {
        *offset = variable(format!("{table}Entry{column}Offset"))?;
        (*offset < stride).then_some(())?;
    }
    (8..=MAX_STRIDE).contains(&stride).then_some(())?;
    for _ in 0..MAX_ENTRIES {
        let row = offsets.map(|offset| entry.saturating_add(offset));
        // The last one has no name.
        if pages.word(row[0])? == 0 {
            return Some(());
        }
        visit(pages, row)?;
        entry = entry.checked_add(stride)?;
    }
    None
}
