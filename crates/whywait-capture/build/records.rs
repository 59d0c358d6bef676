//! What Rust has of the BPF programs' records, from the object's BTF.
//!
//! `enum record_type`, which `RECORDS` of `src/core/records.h` makes, lists them: RECORD_THREAD is
//! the tag of `struct thread_record`. A record with a field `stack_len` is followed by as many
//! bytes of a stack. Generated are the enum `Record`, the function `decode`, and the promise that
//! any bytes are a value of a layout (`Plain`), for the records and for what maps hold. The layouts
//! themselves are in the skeleton.

use std::collections::BTreeMap;
use std::fmt::Write;

use libbpf_rs::btf::types::{Array, DataSec, Enum, Int, IntEncoding, MemberAttr, Ptr, Struct, Var};
use libbpf_rs::btf::{Btf, BtfType, HasSize, ReferencesType, TypeId};

/// The Rust code.
pub(crate) fn generate(btf: &Btf<'_>) -> String {
    let mut plain: BTreeMap<String, usize> = in_maps(btf);
    let (mut variants, mut arms, mut tagged) = (String::new(), String::new(), String::new());
    let mut all = String::new();
    for tag in tags(btf) {
        let layout = format!("{}_record", tag.to_lowercase());
        let Some(record) = btf.type_by_name::<Struct<'_>>(&layout) else {
            panic!("RECORDS of core/records.h lists {tag}, and there is no struct {layout}");
        };
        match Layout::of(btf, *record) {
            Ok(Layout { holes: false, size }) => plain.insert(layout.clone(), size),
            Ok(_) => panic!("struct {layout} has padding: name it, so that it is written"),
            Err(field) => panic!("struct {layout} is more than integers: {field}"),
        };
        assert!(
            begins_with_type(btf, record),
            "struct {layout} begins with its tag"
        );
        let variant = camel_case(&tag);
        let (tail, read) = if field_names(&record).iter().any(|name| name == "stack_len") {
            (
                ", Vec<u8>",
                "let (record, stack, size) = with_tail(bytes, |record: &types::",
            )
        } else {
            ("", "let (record, size) = whole::<types::")
        };
        let _ = writeln!(variants, "    {variant}(Box<types::{layout}>{tail}),");
        let tag = format!("types::record_type::RECORD_{tag}");
        let _ = writeln!(tagged, "            Record::{variant}(..) => {tag},");
        let _ = writeln!(all, "    {tag},");
        let _ = write!(arms, "        {tag} => {{\n            {read}");
        let _ = if tail.is_empty() {
            write!(
                arms,
                "{layout}>(bytes)?;\n            (Record::{variant}(record), size)"
            )
        } else {
            write!(
                arms,
                "{layout}| record.stack_len)?;\n            \
                 (Record::{variant}(record, stack), size)"
            )
        };
        arms.push_str("\n        }\n");
    }
    let mut code = format!(
        "/// A record, with the bytes of the user stack that follows some.\n\
         #[derive(Debug)]\npub(crate) enum Record {{\n{variants}}}\n\n\
         /// The record at the front of `bytes` and how many bytes it takes, not counting what a\n\
         /// ring adds.\n\
         pub(crate) fn decode(bytes: &[u8]) -> Option<(Record, usize)> {{\n    \
         Some(match types::record_type(view::<u32>(bytes)?) {{\n{arms}        \
         _ => return None,\n    }})\n}}\n\n\
         impl Record {{\n    \
         /// Which record it is.\n    \
         pub(crate) fn tag(&self) -> types::record_type {{\n        match self {{\n{tagged}        \
         }}\n    }}\n}}\n\n\
         #[cfg(test)]\npub(crate) const ALL_TAGS: &[types::record_type] = &[\n{all}];\n"
    );
    for (layout, size) in plain {
        let _ = write!(
            code,
            "\n// SAFETY: integers only, as BTF says.\nunsafe impl Plain for types::{layout} {{}}\n\
             const _: () = assert!(size_of::<types::{layout}>() == {size});\n"
        );
    }
    code
}

/// The names of `RECORDS`.
fn tags(btf: &Btf<'_>) -> Vec<String> {
    let tags = btf
        .type_by_name::<Enum<'_>>("record_type")
        .expect("core/records.h names enum record_type in BTF");
    tags.iter()
        .filter_map(|tag| {
            let name = tag.name?.to_str()?.strip_prefix("RECORD_")?;
            (name != "NONE").then(|| name.to_owned())
        })
        .collect()
}

/// The structs of integers that are keys or values of maps, with their sizes.
fn in_maps(btf: &Btf<'_>) -> BTreeMap<String, usize> {
    let maps = btf
        .type_by_kind::<DataSec<'_>>()
        .find(|section| section.name().is_some_and(|name| name == ".maps"))
        .expect("the object has maps");
    let mut found = BTreeMap::new();
    for map in maps.iter() {
        let map = btf.type_by_id::<Var<'_>>(map.ty).expect("a variable");
        let map = Struct::try_from(map.referenced_type()).expect("that is a struct");
        for member in map.iter() {
            if !member
                .name
                .is_some_and(|name| name == "key" || name == "value")
            {
                continue;
            }
            let pointer = btf.type_by_id::<Ptr<'_>>(member.ty).expect("a pointer");
            let target = pointer.referenced_type().skip_mods_and_typedefs();
            if let (Some(name), Ok(layout)) = (target.name(), Layout::of(btf, target))
                && Struct::try_from(target).is_ok()
            {
                found.insert(name.to_string_lossy().into_owned(), layout.size);
            }
        }
    }
    found
}

/// A type that is made of integers.
struct Layout {
    /// In bytes.
    size: usize,
    /// There are bytes that belong to no field.
    holes: bool,
}

impl Layout {
    /// Or else the name of what is no integer.
    fn of(btf: &Btf<'_>, of: BtfType<'_>) -> Result<Self, String> {
        let of = of.skip_mods_and_typedefs();
        if let Ok(int) = Int::try_from(of) {
            return match int.encoding {
                IntEncoding::Bool => Err("a bool, which not all bytes are".to_owned()),
                _ => Ok(Self {
                    size: usize::from(int.bits) / 8,
                    holes: false,
                }),
            };
        }
        if let Ok(array) = Array::try_from(of) {
            let item = Self::of(btf, array.contained_type())?;
            let size = item.size * array.capacity();
            return Ok(Self {
                size,
                holes: item.holes,
            });
        }
        let composite = Struct::try_from(of).map_err(|other| format!("{:?}", other.kind()))?;
        let (mut end, mut holes) = (0, false);
        for member in composite.iter() {
            let name = member.name.unwrap_or_default().to_string_lossy();
            let MemberAttr::Normal { offset } = member.attr else {
                return Err(format!("{name}, a bit field"));
            };
            let field =
                Self::of(btf, by_id(btf, member.ty)).map_err(|why| format!("{name} ({why})"))?;
            holes |= field.holes || offset as usize / 8 != end;
            end = offset as usize / 8 + field.size;
        }
        let size = composite.size();
        Ok(Self {
            size,
            holes: holes || end != size,
        })
    }
}

fn by_id<'btf>(btf: &'btf Btf<'btf>, id: TypeId) -> BtfType<'btf> {
    btf.type_by_id(id).expect("BTF refers to its own types")
}

fn begins_with_type(btf: &Btf<'_>, layout: Struct<'_>) -> bool {
    let Some(first) = layout.iter().next() else {
        return false;
    };
    let inner = Struct::try_from(by_id(btf, first.ty));
    first.name.is_some_and(|name| name == "type")
        || inner.is_ok_and(|inner| begins_with_type(btf, inner))
}

fn field_names(layout: &Struct<'_>) -> Vec<String> {
    layout
        .iter()
        .filter_map(|member| Some(member.name?.to_str()?.to_owned()))
        .collect()
}

/// `USER_STACK`: UserStack.
fn camel_case(tag: &str) -> String {
    tag.split('_')
        .map(|word| {
            let (first, rest) = word.split_at(1);
            format!("{first}{}", rest.to_lowercase())
        })
        .collect()
}
