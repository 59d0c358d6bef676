//! The records of the BPF programs, from bytes.
//!
//! The layouts are those of the collectors' `records.h`, taken from the object's BTF by the
//! skeleton; which records there are says `RECORDS` of `core/records.h`, and the rest is made from
//! that (`build/records.rs`).
#![allow(unsafe_code)]

use super::skel::types;

// The enum `Record`, and `decode`.
include!(concat!(env!("OUT_DIR"), "/records.rs"));

/// A layout in which every bit pattern is a value.
///
/// # Safety
/// It is for `repr(C)` types made of integers.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: an integer.
unsafe impl Plain for u32 {}

/// The value at the front of `bytes`, if there are enough of them.
pub(crate) fn view<T: Plain>(bytes: &[u8]) -> Option<T> {
    if bytes.len() < size_of::<T>() {
        return None;
    }
    // SAFETY: there are enough bytes, any bytes are a value of T (Plain), and the read needs no
    // alignment.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// A record that nothing follows, and how many bytes it takes.
fn whole<T: Plain>(bytes: &[u8]) -> Option<(Box<T>, usize)> {
    Some((Box::new(view(bytes)?), size_of::<T>()))
}

/// A record with what follows it, of which it says the length.
fn with_tail<T: Plain>(bytes: &[u8], len: fn(&T) -> u32) -> Option<(Box<T>, Vec<u8>, usize)> {
    let record: T = view(bytes)?;
    let end = size_of::<T>().checked_add(len(&record) as usize)?;
    let tail = bytes.get(size_of::<T>()..end)?.to_vec();
    Some((Box::new(record), tail, end))
}

/// The addresses of a kernel stack: `len` is in bytes, negative when none was taken.
pub(crate) fn kernel_addresses(stack: &[u64], len: i32) -> &[u64] {
    let count = usize::try_from(len).unwrap_or(0) / size_of::<u64>();
    &stack[..count.min(stack.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_is_cut_short_is_refused() {
        let mut bytes = vec![0u8; size_of::<types::sample_record>() + 16];
        bytes[0] = types::record_type::RECORD_SAMPLE.0 as u8;
        let len_at = std::mem::offset_of!(types::sample_record, stack_len);
        bytes[len_at] = 16;
        let (record, size) = decode(&bytes).expect("a whole record");
        assert_eq!(size, bytes.len());
        assert!(matches!(record, Record::Sample(_, stack) if stack.len() == 16));
        for cut in 0..bytes.len() {
            assert!(
                decode(&bytes[..cut]).is_none(),
                "{cut} bytes are not a whole record"
            );
        }
    }

    #[test]
    fn a_kernel_stack_that_failed_has_no_addresses() {
        assert!(kernel_addresses(&[1, 2], -14).is_empty());
        assert_eq!(kernel_addresses(&[1, 2], 8), [1]);
        assert_eq!(kernel_addresses(&[1, 2], 800), [1, 2]);
    }
}
