//! The few parts of a 64-bit little-endian ELF file that unwinding needs, read piece by piece.
//!
//! The file belongs to the observed program and is not trusted: every size is checked against the
//! file's length and against a bound before memory is reserved, and the file is read rather than
//! mapped, so that one which shrinks under us gives an error and not a signal.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Bytes at offsets: a file, or an image in memory.
pub(crate) trait ReadAt {
    /// Fills `buffer` with the bytes from `offset`.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    /// Length in bytes.
    fn len(&self) -> u64;
}

impl ReadAt for File {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, buffer, offset)
    }
    fn len(&self) -> u64 {
        self.metadata().map_or(0, |m| m.len())
    }
}

impl ReadAt for [u8] {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let bytes = usize::try_from(offset)
            .ok()
            .and_then(|start| self.get(start..start.checked_add(buffer.len())?))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }
    fn len(&self) -> u64 {
        self.len() as u64
    }
}

/// A loadable segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Offset in the file.
    pub(crate) offset: u64,
    /// Address as the file states it.
    pub(crate) address: u64,
    /// Bytes in the file.
    pub(crate) size: u64,
    /// It holds code.
    pub(crate) executable: bool,
}

/// A section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Section {
    /// Its name, empty when that could not be read.
    pub(crate) name: Vec<u8>,
    /// `SHT_*`.
    pub(crate) kind: u32,
    /// Address as the file states it, 0 when it is not loaded.
    pub(crate) address: u64,
    /// Offset in the file.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) size: u64,
    /// Index of an associated section, such as a symbol table's strings.
    pub(crate) link: u32,
    compressed: bool,
}

impl Section {
    /// Addresses, as the file states them.
    pub(crate) fn addresses(&self) -> Range<u64> {
        self.address..self.address.saturating_add(self.size)
    }
}

/// An ELF file's outline.
#[derive(Debug)]
pub(crate) struct Elf<'f, R: ReadAt + ?Sized> {
    file: &'f R,
    length: u64,
    /// Loadable segments.
    pub(crate) segments: Vec<Segment>,
    /// Sections; empty when the file has no table of them.
    pub(crate) sections: Vec<Section>,
    eh_frame_header: Option<Segment>,
    notes: Vec<Segment>,
}

/// A table of 4 million functions.
const MAX_EH_FRAME_HEADER: u64 = 32 << 20;
const MAX_PROGRAM_HEADERS: u16 = 256;
const MAX_SECTIONS: u16 = 4096;
const SECTION_HEADER: usize = 64;
const MAX_SECTION_NAMES: u64 = 1 << 20;
const MAX_NOTES: u64 = 64 << 10;
/// Names of symbols and sections that mean anything here are shorter.
const MAX_SYMBOL: usize = 1 << 10;
const SYMBOL: u64 = 24;
const SYMBOLS_AT_ONCE: u64 = SYMBOL << 15;

const PT_LOAD: u32 = 1;
const PF_X: u32 = 1;
const PT_NOTE: u32 = 4;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const SHT_NOBITS: u32 = 8;
const SHT_SYMTAB: u32 = 2;
const SHT_DYNSYM: u32 = 11;
const SHF_COMPRESSED: u64 = 1 << 11;

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(
        bytes.get(at..at.checked_add(2)?)?.try_into().ok()?,
    ))
}
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(
        bytes.get(at..at.checked_add(4)?)?.try_into().ok()?,
    ))
}
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(
        bytes.get(at..at.checked_add(8)?)?.try_into().ok()?,
    ))
}

impl<'f, R: ReadAt + ?Sized> Elf<'f, R> {
    /// Reads the headers. `None`: not an ELF file for a 64-bit little-endian machine, or a broken
    /// one.
    pub(crate) fn read(file: &'f R) -> Option<Self> {
        let length = file.len();
        let mut elf = Self {
            file,
            length,
            segments: vec![],
            sections: vec![],
            eh_frame_header: None,
            notes: vec![],
        };
        let header = elf.bytes(0, 64, 64)?;
        if !header.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        elf.read_segments(&header)?;
        // A file without sections (or with a broken table of them) still has a build-id and an
        // unwind table.
        let _ = elf.read_sections(&header);
        Some(elf)
    }

    fn read_segments(&mut self, header: &[u8]) -> Option<()> {
        let at = u64_at(header, 32)?;
        let entry = usize::from(u16_at(header, 54)?);
        let count = u16_at(header, 56)?;
        if !(56..=1024).contains(&entry) || count > MAX_PROGRAM_HEADERS {
            return None;
        }
        let size = entry as u64 * u64::from(count);
        for raw in self.bytes(at, size, size)?.chunks_exact(entry) {
            let segment = Segment {
                offset: u64_at(raw, 8)?,
                address: u64_at(raw, 16)?,
                size: u64_at(raw, 32)?,
                executable: u32_at(raw, 4)? & PF_X != 0,
            };
            match u32_at(raw, 0)? {
                PT_LOAD => self.segments.push(segment),
                PT_NOTE => self.notes.push(segment),
                PT_GNU_EH_FRAME => self.eh_frame_header = Some(segment),
                _ => {}
            }
        }
        Some(())
    }

    fn read_sections(&mut self, header: &[u8]) -> Option<()> {
        let at = u64_at(header, 40)?;
        let entry = usize::from(u16_at(header, 58)?);
        let count = u16_at(header, 60)?;
        let names = usize::from(u16_at(header, 62)?);
        if entry != SECTION_HEADER || count > MAX_SECTIONS {
            return None;
        }
        let size = entry as u64 * u64::from(count);
        let mut name_offsets = Vec::new();
        for raw in self.bytes(at, size, size)?.chunks_exact(entry) {
            name_offsets.push(u32_at(raw, 0)? as usize);
            self.sections.push(Section {
                name: vec![],
                kind: u32_at(raw, 4)?,
                compressed: u64_at(raw, 8)? & SHF_COMPRESSED != 0,
                address: u64_at(raw, 16)?,
                offset: u64_at(raw, 24)?,
                size: u64_at(raw, 32)?,
                link: u32_at(raw, 40)?,
            });
        }
        let names = self.data(self.sections.get(names)?, MAX_SECTION_NAMES)?;
        for (section, offset) in self.sections.iter_mut().zip(name_offsets) {
            section.name = c_string(&names, offset, MAX_SYMBOL)
                .unwrap_or_default()
                .to_vec();
        }
        Some(())
    }

    /// The section of that name.
    pub(crate) fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|s| s.name == name.as_bytes())
    }

    /// A section's bytes; `None` when it is empty, lies outside of the file, is compressed or
    /// larger than `at_most`.
    pub(crate) fn data(&self, section: &Section, at_most: u64) -> Option<Vec<u8>> {
        if section.kind == SHT_NOBITS || section.size == 0 || section.compressed {
            return None;
        }
        self.bytes(section.offset, section.size, at_most)
    }

    /// A number in the file's data, at an address as the file states it; 0 where the file has no
    /// bytes for it.
    pub(crate) fn number_at_address(&self, address: u64) -> Option<i32> {
        let holds = |s: &&Segment| address >= s.address && address - s.address < s.size;
        let Some(segment) = self.segments.iter().find(holds) else {
            return Some(0);
        };
        let offset = segment.offset.checked_add(address - segment.address)?;
        let bytes = self.bytes(offset, 4, 4)?;
        Some(i32::from_le_bytes(bytes.try_into().ok()?))
    }

    /// Where in the file the byte is that an address, as the file states it, has.
    pub(crate) fn offset_of(&self, address: u64) -> Option<u64> {
        let holds = |s: &&Segment| address >= s.address && address - s.address < s.size;
        let segment = self.segments.iter().find(holds)?;
        segment.offset.checked_add(address - segment.address)
    }

    /// So many bytes of code at an offset in the file.
    pub(crate) fn code_at(&self, offset: u64, size: u64) -> Option<Vec<u8>> {
        self.bytes(offset, size, size)
    }

    fn bytes(&self, offset: u64, size: u64, at_most: u64) -> Option<Vec<u8>> {
        if size > at_most || offset.checked_add(size)? > self.length {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(size).ok()?];
        self.file.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }

    /// `.eh_frame_hdr` by its program header, for files whose sections were stripped: address and
    /// bytes.
    pub(crate) fn eh_frame_header(&self) -> Option<(u64, Vec<u8>)> {
        let segment = self.eh_frame_header?;
        Some((
            segment.address,
            self.bytes(segment.offset, segment.size, MAX_EH_FRAME_HEADER)?,
        ))
    }

    /// The bytes from an address as the file states it to the end of its segment.
    pub(crate) fn bytes_at_address(&self, address: u64, at_most: u64) -> Option<Vec<u8>> {
        let segment = self
            .segments
            .iter()
            .find(|s| address >= s.address && address - s.address < s.size)?;
        let skip = address - segment.address;
        self.bytes(
            segment.offset.checked_add(skip)?,
            segment.size - skip,
            at_most,
        )
    }

    /// The difference between addresses in a process and as the file states them, for an executable
    /// mapping of file offset `offset` at address `start`.
    pub(crate) fn bias(segments: &[Segment], start: u64, offset: u64) -> Option<u64> {
        // The kernel maps whole pages: a segment's mapping begins at its offset rounded down. lld
        // packs segments in the file, so that the page may hold the end of another segment, mapped
        // elsewhere.
        const PAGE: u64 = 4096;
        let segment = segments.iter().find(|s| {
            let first = s.offset & !(PAGE - 1);
            s.executable && offset >= first && offset < s.offset.saturating_add(s.size)
        })?;
        Some(
            start
                .wrapping_sub(offset)
                .wrapping_add(segment.offset)
                .wrapping_sub(segment.address),
        )
    }

    /// The GNU build-id in hex, empty when there is none.
    pub(crate) fn build_id(&self) -> String {
        let sections = self
            .sections
            .iter()
            .filter(|s| s.name == b".note.gnu.build-id")
            .map(|s| (s.offset, s.size));
        sections
            .chain(self.notes.iter().map(|s| (s.offset, s.size)))
            .filter_map(|(offset, size)| build_id_in(&self.bytes(offset, size, MAX_NOTES)?))
            .next()
            .unwrap_or_default()
    }

    /// Calls `visit` with name, address and size of every defined symbol, `.symtab` first, then
    /// `.dynsym`. Tables larger than `at_most` bytes are skipped, and so are symbols with names
    /// longer than [`MAX_SYMBOL`].
    pub(crate) fn symbols(&self, at_most: u64, mut visit: impl FnMut(&[u8], u64, u64)) {
        for kind in [SHT_SYMTAB, SHT_DYNSYM] {
            let Some((table, strings)) = self.symbol_table(kind, at_most) else {
                continue;
            };
            let Some(strings) = self.data(strings, at_most) else {
                continue;
            };
            // In pieces: the names alone may take a lot of memory.
            let end = table.offset.saturating_add(table.size);
            let mut at = table.offset;
            while at < end {
                let size = (end - at).min(SYMBOLS_AT_ONCE);
                let Some(symbols) = self.bytes(at, size, SYMBOLS_AT_ONCE) else {
                    break;
                };
                at += size;
                for raw in symbols.chunks_exact(SYMBOL as usize) {
                    visit_symbol(raw, &strings, &mut visit);
                }
            }
        }
    }

    /// A table of symbols and their names, unless it is larger than `at_most`.
    fn symbol_table(&self, kind: u32, at_most: u64) -> Option<(&Section, &Section)> {
        let table = self.sections.iter().find(|s| s.kind == kind)?;
        let strings = self.sections.get(table.link as usize)?;
        (table.size <= at_most && !table.compressed).then_some((table, strings))
    }

    /// How many bytes of the file are looked at to learn what unwinding needs of it.
    pub(crate) fn to_read(&self) -> u64 {
        let tables = [SHT_SYMTAB, SHT_DYNSYM]
            .into_iter()
            .filter_map(|kind| self.symbol_table(kind, u64::MAX))
            .flat_map(|(table, strings)| [table, strings]);
        let named = self
            .sections
            .iter()
            .filter(|s| s.name == b".eh_frame" || s.name.ends_with(b".gopclntab"));
        tables
            .chain(named)
            .map(|section| section.size.min(self.length))
            .fold(0, u64::saturating_add)
    }
}

fn visit_symbol(raw: &[u8], strings: &[u8], visit: &mut impl FnMut(&[u8], u64, u64)) {
    let (Some(name), Some(index), Some(address), Some(size)) = (
        u32_at(raw, 0),
        u16_at(raw, 6),
        u64_at(raw, 8),
        u64_at(raw, 16),
    ) else {
        return;
    };
    if index != 0
        && address != 0
        && let Some(name) = c_string(strings, name as usize, MAX_SYMBOL)
    {
        visit(name, address, size);
    }
}

/// The bytes up to the next NUL, if there are at most so many: which also keeps a hostile table
/// from being scanned again and again.
pub(crate) fn c_string(bytes: &[u8], start: usize, at_most: usize) -> Option<&[u8]> {
    let bytes = bytes.get(start..)?;
    let bytes = &bytes[..bytes.len().min(at_most + 1)];
    Some(&bytes[..bytes.iter().position(|&b| b == 0)?])
}

fn build_id_in(notes: &[u8]) -> Option<String> {
    const NT_GNU_BUILD_ID: u32 = 3;
    let mut at = 0usize;
    loop {
        let name_size = u32_at(notes, at)? as usize;
        let size = u32_at(notes, at.checked_add(4)?)? as usize;
        let kind = u32_at(notes, at.checked_add(8)?)?;
        let name_at = at.checked_add(12)?;
        let data_at = name_at.checked_add(name_size.checked_next_multiple_of(4)?)?;
        let data = notes.get(data_at..data_at.checked_add(size)?)?;
        if kind == NT_GNU_BUILD_ID
            && notes.get(name_at..name_at.checked_add(name_size)?) == Some(b"GNU\0")
        {
            return Some(data.iter().take(64).map(|b| format!("{b:02x}")).collect());
        }
        at = data_at.checked_add(size.checked_next_multiple_of(4)?)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_binary() {
        let file = File::open("/proc/self/exe").unwrap();
        let elf = Elf::read(&file).unwrap();
        assert!(elf.section(".text").is_some());
        assert!(elf.section(".eh_frame").is_some());
        assert!(!elf.segments.is_empty());
        assert!(elf.eh_frame_header().is_some());
        let mut start = 0;
        elf.symbols(1 << 30, |name, address, _| {
            if name == b"_start" {
                start = address;
            }
        });
        assert_ne!(start, 0);
    }

    #[test]
    fn a_truncated_or_damaged_file_is_refused_or_read_in_part_but_never_panics() {
        let whole = std::fs::read("/bin/true").unwrap();
        for length in (0..whole.len()).step_by(97).chain(0..200) {
            if let Some(elf) = Elf::read(&whole[..length]) {
                elf.build_id();
                elf.eh_frame_header();
                elf.symbols(1 << 30, |_, _, _| {});
            }
        }
        let mut state = 1u64;
        for _ in 0..2000 {
            let mut damaged = whole.clone();
            for _ in 0..20 {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                // Most damage in the headers: that is where the sizes are.
                let at = if state & 1 == 0 {
                    (state >> 33) as usize % 1024
                } else {
                    (state >> 33) as usize
                };
                let at = at % damaged.len();
                damaged[at] = (state >> 20) as u8;
            }
            if let Some(elf) = Elf::read(&damaged[..]) {
                elf.build_id();
                elf.symbols(1 << 30, |_, _, _| {});
                for section in &elf.sections {
                    elf.data(section, 1 << 30);
                }
            }
        }
    }

    #[test]
    fn bias_of_segments_that_share_a_page_of_the_file() {
        let segment = |offset, address, size, executable| Segment {
            offset,
            address,
            size,
            executable,
        };
        let segments = [
            segment(0, 0, 0x14c88, false),
            segment(0x14c90, 0x15c90, 0x40140, true),
        ];
        assert_eq!(
            Elf::<File>::bias(&segments, 0x5_5000_5000, 0x14000),
            Some(0x5_4fff_0000)
        );
        assert_eq!(Elf::<File>::bias(&segments, 0x5_5000_0000, 0x60000), None);
    }

    #[test]
    fn build_id_note() {
        let mut note = vec![4, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0];
        note.extend(b"GNU\0\xab\x01");
        assert_eq!(build_id_in(&note).as_deref(), Some("ab01"));
        assert_eq!(build_id_in(&note[..10]), None);
        assert_eq!(build_id_in(&[0xff; 64]), None);
    }
}
