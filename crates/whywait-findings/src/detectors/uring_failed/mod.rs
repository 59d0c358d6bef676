//! `uring-failed`: operations of a ring fail.
//!
//! **Invariant.** Operations succeed, or fail as the kernel says "again", "cancelled", "in time" or
//! "the peer has gone".
//!
//! **Evidence.** The kernel's own count of completions with an error, by opcode; the rows of failed
//! operations say with which error, and on which descriptor.
//!
//! **Cost.** Not known as a time: what the operation was for did not happen. Saving 0.
//!
//! **Guards.** Errors that are normal do not count: see [`is_normal`]. Ten of an opcode's
//! operations and one in a hundred must have failed, or else all of at least three. What asks
//! whether a file is there is answered by "no": that is a note, and only if the answer is nearly
//! always that.

use std::collections::BTreeMap;

use whywait_events::uring::{Sum, error_name, opcode_name};
use whywait_model::Model;
use whywait_model::rings::{Failures, RingState};
use whywait_words::{counted, list, percent, shares};

use crate::declaration::Declaration;
use crate::facts::Facts;
use crate::finding::{Evidence, Finding, Saving, SavingKind, Severity};
use crate::numbers::{FAILED, FAILED_ALL, FAILED_SHARE, MISSING, MISSING_SHARE, SHOWN, Share};
use crate::shared::intervals::in_proportion;
use crate::shared::rings;

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "uring-failed",
    meaning: "operations of an io_uring ring fail, and not as operations normally do",
    severities: &[
        (Severity::Warning, ""),
        (
            Severity::Note,
            "if nearly all ask for files that are not there",
        ),
    ],
    invariant: "operations succeed, or fail for a reason that is part of their use",
    explain: include_str!("explain.md"),
    waits: None,
    detect,
};

const ENOENT: i32 = 2;
const EINTR: i32 = 4;
const EAGAIN: i32 = 11;
const EEXIST: i32 = 17;
const ENOTDIR: i32 = 20;
const EPIPE: i32 = 32;
const ETIME: i32 = 62;
const ECONNABORTED: i32 = 103;
const ECONNRESET: i32 = 104;
const ENOBUFS: i32 = 105;
const ENOTCONN: i32 = 107;
const ETIMEDOUT: i32 = 110;
const EALREADY: i32 = 114;
const ECANCELED: i32 = 125;

/// Whether an operation fails with that in a healthy program too.
fn is_normal(opcode: u32, errno: i32) -> bool {
    match errno {
        // A poll is armed anew, a signal came, a timer ran out, something was taken back.
        EAGAIN | EINTR | ETIME | ECANCELED => true,
        // What is to be cancelled is over, or under way: POLL_REMOVE, TIMEOUT_REMOVE,
        // ASYNC_CANCEL. Changing what epoll watches is tried one way and then the other.
        ENOENT | EALREADY | EEXIST => matches!(opcode, 7 | 12 | 14 | 29),
        // The client has gone: of what reads, writes, sends, receives or shuts down.
        EPIPE | ECONNRESET | ENOTCONN | ETIMEDOUT => moves_data(opcode) || opcode == 34,
        // The client has gone before it was accepted.
        ECONNABORTED => opcode == 13,
        // A receiver is out of provided buffers, and is armed again when there are some: RECVMSG,
        // RECV, READ_MULTISHOT, RECV_ZC and the completions of multishot operations.
        ENOBUFS => matches!(opcode, 10 | 27 | 49 | 58 | 63),
        _ => false,
    }
}

/// READV, WRITEV, READ_FIXED, WRITE_FIXED, SENDMSG, RECVMSG, READ, WRITE, SEND, RECV, SPLICE,
/// SEND_ZC, SENDMSG_ZC, READ_MULTISHOT, RECV_ZC, READV_FIXED, WRITEV_FIXED, and further
/// completions.
fn moves_data(opcode: u32) -> bool {
    matches!(
        opcode,
        1 | 2 | 4 | 5 | 9 | 10 | 22 | 23 | 26 | 27 | 30 | 47 | 48 | 49 | 58 | 60 | 61 | 63
    )
}

/// Whether it says that a path leads nowhere, or somewhere already: OPENAT, STATX, OPENAT2,
/// RENAMEAT, UNLINKAT, MKDIRAT, SYMLINKAT, LINKAT, FGETXATTR and GETXATTR.
fn is_missing(opcode: u32, errno: i32) -> bool {
    matches!(opcode, 18 | 21 | 28 | 35..=39 | 43 | 44)
        && matches!(errno, ENOENT | EEXIST | ENOTDIR | 61)
}

/// Failed operations of an opcode.
struct Failed<'a> {
    sum: &'a Sum,
    /// How many failed for a reason that is not normal, in proportion to those that have rows.
    count: u64,
    /// Whether they only ask for what is not there.
    missing: bool,
}

impl<'a> Failed<'a> {
    fn of(state: &RingState, sum: &'a Sum) -> Option<Self> {
        let opcode = sum.opcode;
        // The kernel's side does not count these at all.
        let counted = |errno| !matches!(errno, EAGAIN | ETIME | ECANCELED);
        let all = state.failures_where(opcode, counted);
        let of = |rows: u64| in_proportion(sum.failed, rows, all.max(1));
        let real = state.failures_where(opcode, |errno| {
            !is_normal(opcode, errno) && !is_missing(opcode, errno)
        });
        let missing = state.failures_where(opcode, |errno| is_missing(opcode, errno));
        let (real, missing) = (of(real), of(missing));
        let often = real >= *FAILED && Share::new(real, sum.completed).is_at_least(*FAILED_SHARE);
        if often || (real >= *FAILED_ALL && real >= sum.completed) {
            return Some(Self {
                sum,
                count: real,
                missing: false,
            });
        }
        let nearly_all = Share::new(missing, sum.completed).is_at_least(*MISSING_SHARE);
        (missing >= *MISSING && nearly_all).then_some(Self {
            sum,
            count: missing,
            missing: true,
        })
    }

    /// Whether an error is one of those that it counts.
    fn is_meant(&self, errno: i32) -> bool {
        let opcode = self.sum.opcode;
        is_missing(opcode, errno) == self.missing && !is_normal(opcode, errno)
    }

    /// The errors, those of most operations first.
    fn errors<'s>(&self, state: &'s RingState) -> Vec<(i32, &'s Failures)> {
        let opcode = self.sum.opcode;
        let rows = state.failures.range((opcode, 0)..=(opcode, i32::MAX));
        let mut errors: Vec<_> = rows
            .map(|((_, errno), failures)| (*errno, failures))
            .filter(|(errno, _)| self.is_meant(*errno))
            .collect();
        errors.sort_by_key(|(errno, failures)| (std::cmp::Reverse(failures.count), *errno));
        errors
    }

    /// `500 of 500 read operations`.
    fn title(&self) -> String {
        format!(
            "{} of {} {}",
            self.count,
            self.sum.completed,
            operations(self.sum)
        )
    }
}

/// `read operations`.
fn operations(sum: &Sum) -> String {
    let many = if sum.completed == 1 { "" } else { "s" };
    format!("{} operation{many}", opcode_name(sum.opcode))
}

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    model
        .rings
        .values()
        .filter_map(|state| {
            let sums = state.sums.iter();
            let mut failed: Vec<Failed<'_>> =
                sums.filter_map(|sum| Failed::of(state, sum)).collect();
            failed.sort_by_key(|failed| (failed.missing, std::cmp::Reverse(failed.count)));
            finding(model, state, &failed)
        })
        .collect()
}

fn finding(model: &Model, state: &RingState, failed: &[Failed<'_>]) -> Option<Finding> {
    let most = failed.first()?;
    let errors = most.errors(state);
    let (errno, _) = errors.first()?;
    let severity = if most.missing {
        Severity::Note
    } else {
        Severity::Warning
    };
    let title = format!(
        "{} of {} fail with {}",
        most.title(),
        rings::thread(model, state.thread()),
        names(&errors)
    );
    let all = failed.iter().map(|failed| failed.count);
    let all = all.fold(0, u64::saturating_add);
    let finding = rings::about(state, Finding::new(&DECLARATION, severity, title))
        .about("errno", error_name(*errno))
        .saving(Saving::sum(SavingKind::Latency, 0, all))
        .evidence(failed.iter().map(|failed| evidence(state, failed)))
        .evidence([rings::life(state)])
        .fix(fix(*errno, most));
    Some(finding)
}

/// `EBADF`; with their shares if there are several: `EBADF 90 %; EINVAL 10 %`.
fn names(errors: &[(i32, &Failures)]) -> String {
    if let [(errno, _)] = errors {
        return error_name(*errno);
    }
    let counts = errors.iter().map(|(_, failures)| failures.count);
    let all = counts.fold(0, u64::saturating_add);
    let named: Vec<(String, u64)> = errors
        .iter()
        .take(*SHOWN)
        .map(|(errno, failures)| (error_name(*errno), failures.count))
        .collect();
    shares(named.iter().map(|(name, n)| (name.as_str(), *n)), all)
}

fn evidence(state: &RingState, failed: &Failed<'_>) -> Evidence {
    let errors = failed.errors(state);
    let mut text = format!(
        "{} failed ({}): {}",
        failed.title(),
        percent(failed.count, failed.sum.completed),
        names(&errors)
    );
    let mut counts: BTreeMap<i32, u64> = BTreeMap::new();
    for (fd, n) in errors
        .iter()
        .flat_map(|(_, failures)| &failures.descriptors)
    {
        *counts.entry(*fd).or_default() += n;
    }
    let mut descriptors: Vec<(i32, u64)> = counts.into_iter().filter(|(fd, _)| *fd >= 0).collect();
    descriptors.sort_by_key(|(fd, n)| (std::cmp::Reverse(*n), *fd));
    if !descriptors.is_empty() {
        let numbers = descriptors.iter().map(|(fd, _)| fd.to_string());
        let numbers: Vec<String> = numbers.take(*SHOWN).collect();
        let more = match descriptors.len().saturating_sub(*SHOWN) {
            0 => String::new(),
            more => format!(" and {}", counted(more, "other")),
        };
        let (one, many) = ("descriptor", "descriptors");
        let noun = if descriptors.len() == 1 { one } else { many };
        text.push_str(&format!("; on {noun} {}{more}", list(&numbers)));
    }
    Evidence::new(text)
}

fn fix(errno: i32, most: &Failed<'_>) -> &'static str {
    const FAULT: i32 = 14;
    match errno {
        _ if most.missing => {
            "ask for what is there: a list of the folder costs one call, and so does opening it \
             once; if asking is the point, nothing is to be done"
        }
        9 => {
            "the descriptor was closed, or never open: keep it open until its operations are \
             over, cancel them before it is closed, and use IOSQE_FIXED_FILE with numbers of \
             registered files only"
        }
        22 | 95 => {
            "an argument is wrong, or this kernel or this file does not support the operation: \
             ask with IORING_REGISTER_PROBE, check offsets and lengths (O_DIRECT wants them \
             aligned), and have another way if it is refused"
        }
        FAULT => "the buffer's address is wrong or was freed: keep it until the completion",
        12 => "memory is short, or the limit of locked memory is (RLIMIT_MEMLOCK)",
        23 | 24 => "close descriptors, or raise the limit (ulimit -n)",
        28 | 122 => "the disk or the quota is full: make room",
        5 => "the device reports errors: look at dmesg",
        _ => {
            "look at the result of each completion (negative: an error number) where it is taken, \
             and log what was refused"
        }
    }
}

#[cfg(test)]
mod tests;
