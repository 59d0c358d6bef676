//! Prints the table of layouts: see the script beside this file, which adds `layouts`.

use std::collections::BTreeMap;
use std::mem::{offset_of, size_of};

/// By version: the layout as text, and the release that it was first seen in.
type Table = BTreeMap<(u32, u32), (String, &'static str)>;

macro_rules! layout {
    ($table:ident, $release:ident, $version:expr; $thread:ident; $string:ident; $line:ident) => {{
        use $release::*;
        let fields: Vec<(&str, String)> = vec![
            ("vm_ractors", offset_of!(rb_vm_struct, ractor.set).to_string()),
            ("ractor_node", offset_of!(rb_ractor_struct, vmlr_node).to_string()),
            ("ractor_threads", offset_of!(rb_ractor_struct, threads.set).to_string()),
            ("thread_node", offset_of!(rb_thread_struct, lt_node).to_string()),
            ("thread_ractor", offset_of!(rb_thread_struct, ractor).to_string()),
            ("thread_vm", offset_of!(rb_thread_struct, vm).to_string()),
            ("thread_context", offset_of!(rb_thread_struct, ec).to_string()),
            ("native_id", layout!(@id $thread)),
            ("context_stack", offset_of!(rb_execution_context_struct, vm_stack).to_string()),
            (
                "context_stack_words",
                offset_of!(rb_execution_context_struct, vm_stack_size).to_string(),
            ),
            ("context_frame", offset_of!(rb_execution_context_struct, cfp).to_string()),
            ("context_thread", offset_of!(rb_execution_context_struct, thread_ptr).to_string()),
            ("frame_bytes", size_of::<rb_control_frame_struct>().to_string()),
            ("frame_pc", offset_of!(rb_control_frame_struct, pc).to_string()),
            ("frame_values", offset_of!(rb_control_frame_struct, sp).to_string()),
            ("frame_iseq", offset_of!(rb_control_frame_struct, iseq).to_string()),
            ("frame_environment", offset_of!(rb_control_frame_struct, ep).to_string()),
            ("iseq_body", offset_of!(rb_iseq_struct, body).to_string()),
            ("body_words", offset_of!(rb_iseq_constant_body, iseq_size).to_string()),
            ("body_code", offset_of!(rb_iseq_constant_body, iseq_encoded).to_string()),
            ("body_path", offset_of!(rb_iseq_constant_body, location.pathobj).to_string()),
            ("body_label", offset_of!(rb_iseq_constant_body, location.label).to_string()),
            ("first_line", layout!(@line $line)),
            ("body_lines", offset_of!(rb_iseq_constant_body, insns_info.body).to_string()),
            ("body_line_count", offset_of!(rb_iseq_constant_body, insns_info.size).to_string()),
            (
                "body_line_index",
                offset_of!(rb_iseq_constant_body, insns_info.succ_index_table).to_string(),
            ),
            ("line_bytes", size_of::<iseq_insn_info_entry>().to_string()),
            ("line_number", offset_of!(iseq_insn_info_entry, line_no).to_string()),
            ("string", layout!(@string $string)),
            ("array_length", offset_of!(RArray, as_.heap.len).to_string()),
            ("array_items", offset_of!(RArray, as_.heap.ptr).to_string()),
            ("array_embedded", offset_of!(RArray, as_.ary).to_string()),
            ("method_definition", offset_of!(rb_method_entry_struct, def).to_string()),
            ("definition_name", offset_of!(rb_method_definition_struct, original_id).to_string()),
        ];
        let text = fields.iter().map(|(name, value)| format!("{name}: {value},\n")).collect();
        let known = $table
            .entry($version)
            .or_insert_with(|| (String::clone(&text), stringify!($release)));
        assert_eq!(known.0, text, "{} differs from {}", stringify!($release), known.1);
    }};
    (@id tid) => {
        format!("NativeId::OfThread({})", offset_of!(rb_thread_struct, tid))
    };
    (@id nt) => {
        format!(
            "NativeId::OfNative {{ native: {}, id: {} }}",
            offset_of!(rb_thread_struct, nt),
            offset_of!(rb_native_thread, tid)
        )
    };
    (@line value) => {
        format!("FirstLine::Value({})", offset_of!(rb_iseq_constant_body, location.first_lineno))
    };
    (@line int) => {
        format!("FirstLine::Int({})", offset_of!(rb_iseq_constant_body, location.first_lineno))
    };
    (@string heap) => {
        format!(
            "StringLayout {{ length: {}, bytes: {}, embedded: {} }}",
            offset_of!(RString, as_.heap.len),
            offset_of!(RString, as_.heap.ptr),
            offset_of!(RString, as_.embed.ary)
        )
    };
    (@string len) => {
        format!(
            "StringLayout {{ length: {}, bytes: {}, embedded: {} }}",
            offset_of!(RString, len),
            offset_of!(RString, as_.heap.ptr),
            offset_of!(RString, as_.embed.ary)
        )
    };
}

fn main() {
    let mut table = Table::new();
    layouts(&mut table);
    println!("//! Where each version of Ruby keeps what is read of it.");
    println!("//! Printed by `layouts/ruby`.\n");
    println!("use super::layout::{{FirstLine, NativeId, RubyLayout, StringLayout}};\n");
    println!(
        "pub(super) const LAYOUTS: [((u32, u32), RubyLayout); {}] = [",
        table.len()
    );
    for ((major, minor), (text, _)) in &table {
        println!("(({major}, {minor}), RubyLayout {{ {text} }}),");
    }
    println!("];");
}
