//! The records of the BPF programs, from bytes.
//!
//! The layouts are those of `events.h`, taken from the object's BTF by the skeleton.
#![allow(unsafe_code)]

use crate::skel::types;

/// `enum record_type` of `events.h`.
const THREAD: u32 = 1;
const WAIT: u32 = 2;
const BUSY: u32 = 3;
const REQUEST: u32 = 4;
const SAMPLE: u32 = 5;
const SLEEPER: u32 = 6;
const USER_STACK: u32 = 7;
const WAKER: u32 = 8;
const PREEMPTED: u32 = 9;
/// `enum uring_record_type` of `uring_events.h`.
const URING_OP: u32 = 20;
const URING_SAMPLE: u32 = 21;
const URING_LAG: u32 = 22;
const SUSPECT: u32 = 30;
const CPU: u32 = 31;
const CALL: u32 = 32;
const FILE: u32 = 33;
const SOCKET: u32 = 34;

/// A record.
#[derive(Debug)]
pub(crate) enum Record {
    Thread(types::thread_record),
    /// With the addresses of its kernel stack, if they follow.
    Wait(Box<types::wait_record>, Vec<u64>),
    Busy(types::busy_record),
    Preempted(types::preempted_record),
    Request(types::request_record),
    /// With the bytes of its user stack.
    Sample(Box<types::sample_record>, Vec<u8>),
    /// With the bytes of its user stack.
    Sleeper(Box<types::sleeper_record>, Vec<u8>),
    /// With the bytes of its user stack.
    UserStack(types::user_stack_record, Vec<u8>),
    /// With the bytes of the waker's user stack.
    Waker(types::waker_record, Vec<u8>),
    UringOp(types::uring_op_record),
    UringSample(types::uring_sample_record),
    UringLag(types::uring_lag_record),
    Suspect(types::suspect_record),
    Cpu(Box<types::cpu_record>),
    Call(Box<types::call_record>),
    File(types::file_record),
    Socket(Box<types::socket_record>),
}

/// A layout in which every bit pattern is a value.
///
/// # Safety
/// Implement it only for `repr(C)` types made of integers, without padding.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: integers only; events.h asserts their sizes and names their padding.
unsafe impl Plain for types::thread_record {}
// SAFETY: as above.
unsafe impl Plain for types::wait_record {}
// SAFETY: as above.
unsafe impl Plain for types::whole_wait_record {}
// SAFETY: as above.
unsafe impl Plain for types::busy_record {}
// SAFETY: as above.
unsafe impl Plain for types::preempted_record {}
// SAFETY: as above.
unsafe impl Plain for types::request_record {}
// SAFETY: as above.
unsafe impl Plain for types::sample_record {}
// SAFETY: as above.
unsafe impl Plain for types::sleeper_record {}
// SAFETY: as above.
unsafe impl Plain for types::user_stack_record {}
// SAFETY: as above.
unsafe impl Plain for types::waker_record {}
// SAFETY: as above.
unsafe impl Plain for types::suspect_record {}
// SAFETY: as above.
unsafe impl Plain for types::cpu_record {}
// SAFETY: as above.
unsafe impl Plain for types::call_record {}
// SAFETY: as above.
unsafe impl Plain for types::file_record {}
// SAFETY: as above.
unsafe impl Plain for types::socket_record {}
// SAFETY: as above.
unsafe impl Plain for types::listener_key {}
// SAFETY: as above.
unsafe impl Plain for types::listener_sum {}
// SAFETY: as above.
unsafe impl Plain for types::herd_sum {}
// SAFETY: as above.
unsafe impl Plain for types::futex_key {}
// SAFETY: as above.
unsafe impl Plain for types::futex_sum {}
// SAFETY: as above.
unsafe impl Plain for types::thread {}
// SAFETY: as above.
unsafe impl Plain for types::counters {}
// SAFETY: as above.
unsafe impl Plain for types::request_totals {}
// SAFETY: as above.
unsafe impl Plain for types::uring_op_record {}
// SAFETY: as above.
unsafe impl Plain for types::uring_sample_record {}
// SAFETY: as above.
unsafe impl Plain for types::uring_lag_record {}
// SAFETY: as above.
unsafe impl Plain for types::uring_state {}
// SAFETY: as above.
unsafe impl Plain for types::uring_sum {}
// SAFETY: as above.
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

/// The record at the front of `bytes` and how many bytes it takes, not counting what a ring adds.
pub(crate) fn decode(bytes: &[u8]) -> Option<(Record, usize)> {
    let whole = |record: Record, size: usize| Some((record, size));
    match view::<u32>(bytes)? {
        THREAD => whole(
            Record::Thread(view(bytes)?),
            size_of::<types::thread_record>(),
        ),
        WAIT => {
            let record: types::wait_record = view(bytes)?;
            if record.kernel_stack_len == 0 {
                let size = size_of::<types::wait_record>();
                return whole(Record::Wait(Box::new(record), Vec::new()), size);
            }
            let record: types::whole_wait_record = view(bytes)?;
            let stack =
                kernel_addresses(&record.kernel_stack, record.wait.kernel_stack_len).to_vec();
            let size = size_of::<types::whole_wait_record>();
            whole(Record::Wait(Box::new(record.wait), stack), size)
        }
        BUSY => whole(Record::Busy(view(bytes)?), size_of::<types::busy_record>()),
        PREEMPTED => whole(
            Record::Preempted(view(bytes)?),
            size_of::<types::preempted_record>(),
        ),
        REQUEST => whole(
            Record::Request(view(bytes)?),
            size_of::<types::request_record>(),
        ),
        SAMPLE => {
            let record: types::sample_record = view(bytes)?;
            let (stack, size) = tail(bytes, size_of::<types::sample_record>(), record.stack_len)?;
            whole(Record::Sample(Box::new(record), stack), size)
        }
        SLEEPER => {
            let record: types::sleeper_record = view(bytes)?;
            let (stack, size) = tail(bytes, size_of::<types::sleeper_record>(), record.stack_len)?;
            whole(Record::Sleeper(Box::new(record), stack), size)
        }
        USER_STACK => {
            let record: types::user_stack_record = view(bytes)?;
            let from = size_of::<types::user_stack_record>();
            let (stack, size) = tail(bytes, from, record.stack_len)?;
            whole(Record::UserStack(record, stack), size)
        }
        WAKER => {
            let record: types::waker_record = view(bytes)?;
            let (stack, size) = tail(bytes, size_of::<types::waker_record>(), record.stack_len)?;
            whole(Record::Waker(record, stack), size)
        }
        URING_OP => whole(
            Record::UringOp(view(bytes)?),
            size_of::<types::uring_op_record>(),
        ),
        URING_SAMPLE => whole(
            Record::UringSample(view(bytes)?),
            size_of::<types::uring_sample_record>(),
        ),
        URING_LAG => whole(
            Record::UringLag(view(bytes)?),
            size_of::<types::uring_lag_record>(),
        ),
        SUSPECT => whole(
            Record::Suspect(view(bytes)?),
            size_of::<types::suspect_record>(),
        ),
        CPU => whole(
            Record::Cpu(Box::new(view(bytes)?)),
            size_of::<types::cpu_record>(),
        ),
        CALL => whole(
            Record::Call(Box::new(view(bytes)?)),
            size_of::<types::call_record>(),
        ),
        FILE => whole(Record::File(view(bytes)?), size_of::<types::file_record>()),
        SOCKET => whole(
            Record::Socket(Box::new(view(bytes)?)),
            size_of::<types::socket_record>(),
        ),
        _ => None,
    }
}

fn tail(bytes: &[u8], from: usize, len: u32) -> Option<(Vec<u8>, usize)> {
    let end = from.checked_add(len as usize)?;
    Some((bytes.get(from..end)?.to_vec(), end))
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
        bytes[0] = SAMPLE as u8;
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
