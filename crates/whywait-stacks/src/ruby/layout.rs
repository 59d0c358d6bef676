//! Where Ruby keeps what, by version (x86-64).

use super::tables::LAYOUTS;

/// Offsets and sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RubyLayout {
    /// `rb_vm_t`: the list of ractors.
    pub(super) vm_ractors: u64,
    /// `rb_ractor_t`: its place in that list, and the list of its threads.
    pub(super) ractor_node: u64,
    pub(super) ractor_threads: u64,
    /// `rb_thread_t`: its place in that list, whose it is, and what it runs.
    pub(super) thread_node: u64,
    pub(super) thread_ractor: u64,
    pub(super) thread_vm: u64,
    pub(super) thread_context: u64,
    pub(super) native_id: NativeId,
    /// `rb_execution_context_t`: the stack of frames and values, and whose it is.
    pub(super) context_stack: u64,
    pub(super) context_stack_words: u64,
    pub(super) context_frame: u64,
    pub(super) context_thread: u64,
    /// `rb_control_frame_t`.
    pub(super) frame_bytes: u64,
    pub(super) frame_pc: u64,
    pub(super) frame_values: u64,
    pub(super) frame_iseq: u64,
    pub(super) frame_environment: u64,
    /// `rb_iseq_t`.
    pub(super) iseq_body: u64,
    /// `struct rb_iseq_constant_body`: a function's instructions, where it is from, its lines.
    pub(super) body_words: u64,
    pub(super) body_code: u64,
    pub(super) body_path: u64,
    pub(super) body_label: u64,
    pub(super) first_line: FirstLine,
    pub(super) body_lines: u64,
    pub(super) body_line_count: u64,
    pub(super) body_line_index: u64,
    /// `struct iseq_insn_info_entry`.
    pub(super) line_bytes: u64,
    pub(super) line_number: u64,
    /// Objects.
    pub(super) string: StringLayout,
    pub(super) array_length: u64,
    pub(super) array_items: u64,
    pub(super) array_embedded: u64,
    /// `rb_callable_method_entry_t`, and the definition that it leads to.
    pub(super) method_definition: u64,
    pub(super) definition_name: u64,
}

/// How a thread says which of the kernel's it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NativeId {
    /// Itself.
    OfThread(u64),
    /// By its `rb_native_thread`, which others may have at other times.
    OfNative { native: u64, id: u64 },
}

/// How a function says on which line it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FirstLine {
    /// By a small integer as Ruby has them.
    Value(u64),
    /// By one of C.
    Int(u64),
}

/// `struct RString`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StringLayout {
    pub(super) length: u64,
    /// Where its bytes are, if they are not within itself.
    pub(super) bytes: u64,
    /// Where they are within itself. To 3.1 there is no room for a length then: it is in the flags.
    pub(super) embedded: u64,
}

impl RubyLayout {
    /// The layout of a version.
    pub(super) fn of(version: (u32, u32)) -> Option<Self> {
        let known = LAYOUTS.iter().find(|(known, _)| *known == version)?;
        Some(known.1)
    }
}
