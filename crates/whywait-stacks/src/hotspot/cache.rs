//! The code cache: which piece of code an address is in, and of what kind it is.

use std::ops::Range;

use super::layout::{BlobLayout, BlobPlace, CacheLayout};
use super::memory::{bytes, c_string, word};
use crate::elf::ReadAt;

/// A heap of the code cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Heap {
    pub(super) memory: Range<u64>,
    map: Range<u64>,
    segment_log2: u32,
}

/// There are three, or one.
const MAX_HEAPS: u64 = 16;
/// The largest that the option for it takes.
const MAX_CACHE: u64 = 2 << 30;
/// Segments are of 64 or 128 bytes, unless asked otherwise.
const SEGMENTS_LOG2: Range<u64> = 3..21;
/// In the map: nothing begins or goes on here.
const UNUSED: u8 = 0xff;
/// Each leads back by at least one segment; those of the largest code by 254 at a time.
const MAX_HOPS: usize = 1 << 12;
/// How much of the map is read at a time: an entry leads back by less.
const MAP_PIECE: u64 = 512;
const MAX_NAME: usize = 128;
/// In words.
const MAX_FRAME: u64 = 1 << 20;

/// All heaps of the code cache; none before there are any, or where they are not what they should
/// be.
pub(super) fn heaps(layout: &CacheLayout, memory: &dyn ReadAt) -> Vec<Heap> {
    let all = || -> Option<Vec<Heap>> {
        let array = word(memory, layout.heaps).filter(|&array| array != 0)?;
        let count = layout.array.0.at(memory, array)?;
        let elements = layout.array.1.at(memory, array)?;
        (count <= MAX_HEAPS).then_some(())?;
        (0..count)
            .map(|at| Heap::read(layout, memory, word(memory, elements.checked_add(8 * at)?)?))
            .collect()
    };
    all().unwrap_or_default()
}

impl Heap {
    fn read(layout: &CacheLayout, memory: &dyn ReadAt, at: u64) -> Option<Self> {
        let space = |part: u64| {
            let space = at.checked_add(part)?;
            let (low, high) = (
                layout.low.at(memory, space)?,
                layout.high.at(memory, space)?,
            );
            (low != 0 && high.checked_sub(low)? <= MAX_CACHE).then_some(low..high)
        };
        let segment_log2 = layout.segment_log2.at(memory, at)?;
        SEGMENTS_LOG2.contains(&segment_log2).then_some(())?;
        Some(Self {
            memory: space(layout.memory)?,
            map: space(layout.map)?,
            segment_log2: segment_log2 as u32,
        })
    }

    /// Where the block that holds an address begins (`CodeHeap::find_start`).
    fn block(&self, memory: &dyn ReadAt, address: u64) -> Option<u64> {
        let mut segment = address.checked_sub(self.memory.start)? >> self.segment_log2;
        let mut piece = (0, Vec::new());
        for _ in 0..MAX_HOPS {
            let known = |piece: &(u64, Vec<u8>)| {
                let at = usize::try_from(segment.checked_sub(piece.0)?).ok()?;
                piece.1.get(at).copied()
            };
            let back = match known(&piece) {
                Some(back) => back,
                None => {
                    let from = segment.saturating_sub(MAP_PIECE - 1);
                    let size = (segment - from + 1) as usize;
                    let at = self.map.start.checked_add(from)?;
                    (at.checked_add(size as u64)? <= self.map.end).then_some(())?;
                    piece = (from, bytes(memory, at, size)?);
                    known(&piece)?
                }
            };
            match back {
                0 => return self.memory.start.checked_add(segment << self.segment_log2),
                UNUSED => return None,
                back => segment = segment.checked_sub(u64::from(back))?,
            }
        }
        None
    }
}

/// Where the blob that holds an address begins; `None`: there is none.
pub(super) fn blob(
    heaps: &[Heap],
    layout: &CacheLayout,
    memory: &dyn ReadAt,
    address: u64,
) -> Option<u64> {
    let heap = heaps.iter().find(|heap| heap.memory.contains(&address))?;
    let block = heap.block(memory, address)?;
    (layout.used.at(memory, block)? & 0xff != 0).then_some(())?;
    block.checked_add(layout.block as u64)
}

/// What kind of code it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlobKind {
    /// Compiled methods, and what calls native ones.
    Compiled,
    /// Stubs of the runtime that have a frame of a fixed size.
    Framed,
    /// Stubs that jump on, with the return address on top of the stack.
    Table,
    /// Stubs that change the stack before they jump on.
    Adapter,
    /// Other stubs.
    Other,
}

/// The head of a piece of code, as far as it stays as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Blob {
    pub(super) start: u64,
    pub(super) code: Range<u64>,
    /// Where its name is.
    name: u64,
    /// In bytes, from the stack pointer to behind the return address.
    pub(super) frame: u64,
    /// From here on the frame is there; `None`: nowhere.
    pub(super) complete: Option<u64>,
    pub(super) head: Vec<u8>,
}

impl Blob {
    /// The one at an address that holds the code address `inside`.
    pub(super) fn read(
        layout: &BlobLayout,
        memory: &dyn ReadAt,
        start: u64,
        inside: u64,
    ) -> Option<Self> {
        let head = bytes(memory, start, layout.head)?;
        let place = |place| self::place(place, start, 0, &head);
        let code = place(layout.code.0)?..place(layout.code.1)?;
        let size = layout.size.of(&head)?;
        let whole = start..start.checked_add(size)?;
        let sound = whole.contains(&code.start) && code.end <= whole.end;
        let frame = layout.frame_size.of(&head)?;
        (sound && code.contains(&inside) && frame <= MAX_FRAME).then_some(())?;
        let complete = layout.frame_complete.of(&head);
        Some(Self {
            start,
            name: layout.name.of(&head)?,
            frame: 8 * frame,
            complete: complete.and_then(|offset| code.start.checked_add(offset)),
            code,
            head,
        })
    }

    /// Its name, which says of what kind it is: all versions have the same ones.
    pub(super) fn name(&self, memory: &dyn ReadAt) -> Option<String> {
        c_string(memory, self.name, MAX_NAME)
    }

    pub(super) fn kind(&self, name: &str) -> BlobKind {
        match name {
            "nmethod" | "native nmethod" => BlobKind::Compiled,
            "vtable chunks" => BlobKind::Table,
            "I2C/C2I adapters" => BlobKind::Adapter,
            _ if self.frame > 0 => BlobKind::Framed,
            _ => BlobKind::Other,
        }
    }

    /// The address at a place that its head has.
    pub(super) fn place(&self, at: BlobPlace) -> Option<u64> {
        place(at, self.start, self.code.start, &self.head)
    }
}

fn place(at: BlobPlace, blob: u64, code: u64, head: &[u8]) -> Option<u64> {
    match at {
        BlobPlace::Address(field) => field.of(head),
        BlobPlace::FromBlob(field) => blob.checked_add(field.of(head)?),
        BlobPlace::FromCode(field) => code.checked_add(field.of(head)?),
    }
}
