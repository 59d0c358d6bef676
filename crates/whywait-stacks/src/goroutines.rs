//! Which goroutines a goroutine has begun: who serves streams of HTTP/2 was begun by the one that
//! reads them, or along with it.
//!
//! All goroutines of a process are in `runtime.allgs`. A stripped program does not say where that
//! variable is: it is found among the program's data, as what lists goroutines, and among them the
//! one that is asked for. The `g` says who began it (`parentGoid`, from Go 1.21 on), followed by
//! where (`gopc`), by its `ancestors`, and by its function (`startpc`); so these fields are found
//! in the goroutine itself, too. Nothing is written to the target, and it is not stopped.
//!
//! Layout: `runtime/runtime2.go` (`g`), `runtime/proc.go` (`allgs`).

use std::ops::Range;

use crate::cfi::UnwindContext;
use crate::elf::u64_at;
use crate::goroutine::{GoroutineHead, HEAD, MAX_ID, program};
use crate::loss::Loss;
use crate::maps;
use crate::modules::Modules;
use crate::process::{FrameExit, Process};

/// The goroutines that one has begun, and those that were begun by the one that began it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Family {
    /// By their addresses and ids.
    pub children: Vec<(u64, u64)>,
    /// Likewise, without itself.
    pub siblings: Vec<(u64, u64)>,
}

/// Where a process has its goroutines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GoroutineList {
    /// That was looked for so often without success.
    NotFound(u32),
    /// The address of the variable, and `parentGoid` in each.
    Found { variable: u64, parent: usize },
}

impl Default for GoroutineList {
    fn default() -> Self {
        Self::NotFound(0)
    }
}

/// Programs have less data of their own.
const MAX_DATA: u64 = 16 << 20;
/// Of a process with more none is looked at: that would take tens of milliseconds.
const MAX_GOROUTINES: u64 = 1 << 14;
/// A goroutine that has ended is in the list, and may be none at that moment.
const MAX_TRIES: u32 = 8;
/// So many variables are looked at that could be the list: a hostile program may have any number.
const MAX_VARIABLES: usize = 1024;
/// Lists and goroutines lie in Go's heap, which begins at one place, and is smaller.
const LARGEST_HEAP: u64 = 1 << 38;
/// So much of the data is looked through at a time.
const PIECE: usize = 256 << 10;
/// An address, a length, a capacity.
const SLICE: usize = 24;
/// Goroutines lie close together, and none across such a boundary, as a rule (`mheap`'s pages).
const TOGETHER: u64 = 8 << 10;
/// `parentGoid` lies in this part of a `g`, in all versions that have it.
const PARENT: Range<usize> = 208..344;

/// The families of goroutines of a process.
pub(crate) fn families(
    process: &mut Process,
    goroutines: &[u64],
    modules: &mut Modules,
    context: &mut UnwindContext,
) -> Result<Vec<Family>, Loss> {
    if !process.has_goroutines(modules) {
        return Err(Loss::GoVersion);
    }
    let (variable, parent) = match process.goroutine_list {
        GoroutineList::Found { variable, parent } => (variable, parent),
        GoroutineList::NotFound(MAX_TRIES..) => return Err(Loss::GoTasks),
        GoroutineList::NotFound(tries) => {
            process.goroutine_list = GoroutineList::NotFound(tries + 1);
            let found = goroutines.iter().find_map(|one| {
                let parent = parent_of(process, *one, modules, context)?;
                Some((variable_with(process, *one)?, parent))
            });
            let (variable, parent) = found.ok_or(Loss::GoTasks)?;
            process.goroutine_list = GoroutineList::Found { variable, parent };
            (variable, parent)
        }
    };
    let all = listed(process, variable).ok_or(Loss::GoTasks)?;
    let all = read_all(process, all, parent);
    Ok(goroutines.iter().map(|one| family(*one, &all)).collect())
}

/// A goroutine, and who began it.
#[derive(Debug, Clone, Copy)]
struct Begun {
    address: u64,
    id: u64,
    parent: u64,
}

impl Begun {
    fn parse(bytes: &[u8], address: u64, parent: usize) -> Option<Self> {
        let head = GoroutineHead::parse(bytes.get(..HEAD)?, address)?;
        Some(Self {
            address,
            id: head.id(),
            parent: u64_at(bytes, parent)?,
        })
    }
}

/// What should be a list of goroutines, and one of them: each has its bounds. For fuzz targets.
#[cfg(any(test, fuzzing))]
pub(crate) fn made_up(bytes: &[u8]) {
    if let Some((_, length)) = lists(bytes) {
        assert!((1..=MAX_GOROUTINES).contains(&(length as u64)));
    }
    let at = u64_at(bytes, 0).unwrap_or(0);
    for parent in PARENT.step_by(8) {
        let begun = Begun::parse(bytes, at, parent);
        assert!(begun.is_none_or(|begun| begun.id < MAX_ID));
    }
}

/// The goroutines at these addresses, without those that are none now.
fn read_all(process: &mut Process, mut addresses: Vec<u64>, parent: usize) -> Vec<Begun> {
    addresses.sort_unstable();
    let size = parent + 8;
    let mut all = Vec::with_capacity(addresses.len());
    let (mut from, mut bytes) = (0, Vec::new());
    for address in addresses {
        let begin = address - address % TOGETHER;
        if begin != from || bytes.is_empty() {
            from = begin;
            bytes = process.read_up_to(from, TOGETHER as usize);
        }
        let at = (address - from) as usize;
        let parsed = match bytes.get(at..at + size) {
            Some(bytes) => Begun::parse(bytes, address, parent),
            None => Begun::parse(&process.read_up_to(address, size), address, parent),
        };
        all.extend(parsed);
    }
    all
}

fn family(one: u64, all: &[Begun]) -> Family {
    let Some(own) = all.iter().find(|other| other.address == one) else {
        return Family::default();
    };
    let begun_by = |id: u64| {
        let by = all
            .iter()
            .filter(move |other| id != 0 && other.parent == id);
        by.filter(|other| other.id != own.id)
            .map(|other| (other.address, other.id))
            .collect()
    };
    Family {
        children: begun_by(own.id),
        siblings: begun_by(own.parent),
    }
}

/// Where a goroutine has the id of the one that began it: in front of two addresses of code with a
/// word between them. `None`: it does not show, or this is no goroutine.
fn parent_of(
    process: &mut Process,
    address: u64,
    modules: &mut Modules,
    context: &mut UnwindContext,
) -> Option<usize> {
    let mut bytes = [0; PARENT.end + 32];
    let read = process.read_memory(address, &mut bytes);
    GoroutineHead::parse(&bytes[..HEAD], address).filter(|_| read)?;
    let mut is_code = |at: usize| {
        let place = u64_at(&bytes, at).and_then(|word| process.place(word, modules, context));
        place.is_some_and(|place| matches!(place.step, FrameExit::Go(_)))
    };
    let is_id = |at: usize| u64_at(&bytes, at).is_some_and(|id| (1..MAX_ID).contains(&id));
    let mut found = PARENT
        .step_by(8)
        .filter(|at| is_id(*at) && is_code(at + 8) && is_code(at + 24));
    let parent = found.next()?;
    found.next().is_none().then_some(parent)
}

/// The variable of the process that lists its goroutines, this one among them. It is a small one:
/// those come first, and what was never touched stays so.
fn variable_with(process: &mut Process, goroutine: u64) -> Option<u64> {
    let data = maps::data(process.tgid(), program(process.tgid())?, MAX_DATA);
    let pieces = data.into_iter().flat_map(|range| {
        let begins = range.clone().step_by(PIECE);
        begins.map(move |from| (from, range.end.saturating_sub(from)))
    });
    let mut tried = 0;
    for (from, left) in pieces.take(MAX_DATA as usize / PIECE) {
        // With what begins in this piece, and ends in the next one.
        let size = usize::try_from(left)
            .unwrap_or(PIECE)
            .min(PIECE + SLICE - 8);
        let bytes = process.read_up_to(from, size);
        for at in (0..(bytes.len() + 1).saturating_sub(SLICE)).step_by(8) {
            let near = |list: u64| list.abs_diff(goroutine) < LARGEST_HEAP;
            if !lists(&bytes[at..]).is_some_and(|(list, _)| near(list)) {
                continue;
            }
            tried += 1;
            let variable = from + at as u64;
            match listed(process, variable) {
                Some(all) if all.contains(&goroutine) => return Some(variable),
                _ if tried >= MAX_VARIABLES => return None,
                _ => {}
            }
        }
    }
    None
}

/// A slice of what may be goroutines: where they are listed, and how many.
fn lists(bytes: &[u8]) -> Option<(u64, usize)> {
    let word = |i: usize| u64_at(bytes, 8 * i);
    let (at, length, capacity) = (word(0)?, word(1)?, word(2)?);
    let fits = (1..=MAX_GOROUTINES).contains(&length) && length <= capacity;
    // A slice at most doubles as it grows, but for small ones.
    let grown = capacity <= length.saturating_mul(2).saturating_add(64);
    let pointer = at != 0 && at.is_multiple_of(8);
    Some((at, usize::try_from(length).ok()?)).filter(|_| fits && grown && pointer)
}

/// What a variable lists, if its first one is a goroutine: that of `main`, which stays.
fn listed(process: &mut Process, variable: u64) -> Option<Vec<u64>> {
    let mut slice = [0; SLICE];
    let read = process.read_memory(variable, &mut slice);
    let (at, length) = lists(&slice).filter(|_| read)?;
    let mut first = [0; 8];
    let mut head = [0; HEAD];
    let of_main = process.read_memory(at, &mut first)
        && process.read_memory(u64::from_le_bytes(first), &mut head);
    GoroutineHead::parse(&head, u64::from_le_bytes(first)).filter(|_| of_main)?;
    let mut bytes = vec![0; 8 * length];
    let read = process.read_memory(at, &mut bytes);
    let words = bytes.chunks_exact(8).filter_map(|word| u64_at(word, 0));
    read.then(|| words.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_those_that_the_same_one_began() {
        let of = |(id, parent)| Begun {
            address: id << 8,
            id,
            parent,
        };
        // 1 accepts; 2 serves a connection, and began its reader 3 and two others; 6 is elsewhere.
        let all = [(1, 0), (2, 1), (3, 2), (4, 2), (5, 2), (6, 1), (7, 3)].map(of);
        let family_of = |id: u64| family(id << 8, &all);
        assert_eq!(family_of(3).children, [(7 << 8, 7)]);
        assert_eq!(family_of(3).siblings, [(4 << 8, 4), (5 << 8, 5)]);
        assert_eq!(family_of(1).children.len(), 2);
        assert!(family_of(1).siblings.is_empty(), "nobody began it");
        assert_eq!(family_of(9), Family::default());
    }

    #[test]
    fn a_list_has_a_length_within_its_capacity() {
        let words = |words: [u64; 3]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            lists(&bytes)
        };
        assert_eq!(words([0xc0_0000_1000, 3, 4]), Some((0xc0_0000_1000, 3)));
        assert_eq!(words([0xc0_0000_1000, 5, 4]), None);
        assert_eq!(words([0xc0_0000_1001, 3, 4]), None);
        assert_eq!(words([0, 3, 4]), None);
        assert_eq!(words([0xc0_0000_1000, 3, 1 << 40]), None);
        assert_eq!(words([0xc0_0000_1000, 1 << 40, 1 << 40]), None);
        assert_eq!(words([u64::MAX - 7, u64::MAX, u64::MAX]), None);
        assert_eq!(lists(&[0; 16]), None);
    }
}
