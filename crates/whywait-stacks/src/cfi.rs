//! A file's unwind tables, and a look at them before framehop runs them.
//!
//! framehop evaluates DWARF expressions without a bound on their steps, and computes with offsets
//! from the search table unchecked. The tables come from the observed program's file, so this
//! module checks the search table once, and each row before its first use: a row whose expressions
//! could loop is refused. It also recognises signal frames, whose expressions read the stack, which
//! framehop does not do.

use std::ops::Range;
use std::sync::Arc;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EndianSlice, LittleEndian, Operation, RegisterRule,
    UnwindSection,
};

use crate::arch;
use crate::elf::{Elf, ReadAt, u32_at};

/// What a row of the unwind tables says about a code address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnwindRow {
    /// framehop can use it.
    Usable {
        /// The frame is found by the frame pointer.
        by_frame_pointer: bool,
    },
    /// The function has no caller.
    Start,
    /// The address is in a signal trampoline: the caller's registers are in the signal frame.
    Signal,
    /// No row covers the address.
    Missing,
    /// It holds an expression that could run for ever.
    Refused,
}

/// Sections of unwind data. Addresses are as the file states them.
#[derive(Debug, Clone)]
pub(crate) struct UnwindTables {
    pub(crate) eh_frame: Arc<[u8]>,
    pub(crate) eh_frame_address: u64,
    /// A checked search table.
    pub(crate) header: Arc<[u8]>,
    pub(crate) header_address: u64,
    pub(crate) text: Option<Range<u64>>,
    pub(crate) got: Option<Range<u64>>,
}

type CfiReader<'a> = EndianSlice<'a, LittleEndian>;
/// gimli's working memory, reused from row to row.
pub(crate) type UnwindContext = gimli::UnwindContext<usize>;

/// The largest browsers have some 30 MB.
const MAX_EH_FRAME: u64 = 64 << 20;
/// A function's unwind instructions: kilobytes. It bounds the time one row can take.
const MAX_FDE: usize = 1 << 20;
/// Offset of the search table in a header with the one layout that linkers write.
const TABLE: usize = 12;

impl UnwindTables {
    /// Reads the tables of a file; `None` when it has none that can be used.
    pub(crate) fn read<R: ReadAt + ?Sized>(elf: &Elf<'_, R>) -> Option<Self> {
        let header = elf.eh_frame_header();
        let (eh_frame_address, eh_frame) = match elf.section(".eh_frame") {
            Some(section) => (section.address, elf.data(section, MAX_EH_FRAME)?),
            // Section headers can be stripped; the header says where the table is.
            None => {
                let (address, header) = header.as_ref()?;
                let at = eh_frame_pointer(*address, header)?;
                (at, elf.bytes_at_address(at, MAX_EH_FRAME)?)
            }
        };
        let mut tables = Self {
            eh_frame: eh_frame.into(),
            eh_frame_address,
            header: Arc::new([]),
            header_address: 0,
            text: elf.section(".text").map(|s| s.addresses()),
            got: elf.section(".got").map(|s| s.addresses()),
        };
        match header.and_then(|(address, h)| Some((address, tables.checked(address, h)?))) {
            Some((address, header)) => {
                (tables.header_address, tables.header) = (address, header.into())
            }
            None => {
                tables.header_address = eh_frame_address;
                tables.header = tables.build_header()?.into();
            }
        }
        Some(tables)
    }

    /// A linker's header, cut to its table, when that is sorted and points into `.eh_frame`.
    fn checked(&self, address: u64, mut header: Vec<u8>) -> Option<Vec<u8>> {
        // version 1, count udata4, table sdata4 relative to the header.
        if header.len() < TABLE || header[0] != 1 || header[2] != 0x03 || header[3] != 0x3b {
            return None;
        }
        if eh_frame_pointer(address, &header)? != self.eh_frame_address {
            return None;
        }
        let size = usize::try_from(u32_at(&header, 8)?).ok()?.checked_mul(8)?;
        header.truncate(TABLE.checked_add(size)?);
        if size == 0 || header.len() != TABLE + size {
            return None;
        }
        let mut last = None;
        for row in header[TABLE..].chunks_exact(8) {
            let pc = address
                .wrapping_add_signed(i64::from(i32::from_le_bytes(row[..4].try_into().ok()?)));
            let fde = address
                .wrapping_add_signed(i64::from(i32::from_le_bytes(row[4..].try_into().ok()?)));
            let inside = fde.checked_sub(self.eh_frame_address)? < self.eh_frame.len() as u64;
            if !inside || last.is_some_and(|last| pc < last) {
                return None;
            }
            last = Some(pc);
        }
        Some(header)
    }

    /// A header made from a walk over `.eh_frame`, for files that have none (or a bad one), so that
    /// lookups stay fast and the file need not be walked again for each process.
    fn build_header(&self) -> Option<Vec<u8>> {
        let section = self.section();
        let bases = self.bases();
        let mut rows = Vec::new();
        let mut entries = section.entries(&bases);
        while let Ok(Some(entry)) = entries.next() {
            let gimli::CieOrFde::Fde(partial) = entry else {
                continue;
            };
            let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else {
                continue;
            };
            let base = self.eh_frame_address;
            let pc = i32::try_from(fde.initial_address().wrapping_sub(base) as i64);
            let (Ok(pc), Ok(offset)) = (pc, i32::try_from(fde.offset())) else {
                continue;
            };
            rows.push((pc, offset));
        }
        if rows.is_empty() {
            return None;
        }
        rows.sort_unstable();
        // The table's "data" base is the header's address, here that of `.eh_frame` itself: offsets
        // serve as they are.
        let mut header = vec![1, 0x3b, 0x03, 0x3b, 0, 0, 0, 0];
        header.extend((rows.len() as u32).to_le_bytes());
        for (pc, offset) in rows {
            header.extend(pc.to_le_bytes());
            header.extend(offset.to_le_bytes());
        }
        Some(header)
    }

    /// Where functions with tables begin, as the file states addresses.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn addresses(&self) -> impl Iterator<Item = u64> + '_ {
        let rows = self.header.get(TABLE..).unwrap_or_default().chunks_exact(8);
        let starts = rows.filter_map(|row| u32_at(row, 0));
        starts.map(|it| {
            self.header_address
                .wrapping_add_signed(i64::from(it as i32))
        })
    }

    /// How much memory they take.
    pub(crate) fn bytes(&self) -> usize {
        self.eh_frame.len() + self.header.len()
    }

    fn section(&self) -> EhFrame<CfiReader<'_>> {
        let mut section = EhFrame::new(&self.eh_frame, LittleEndian);
        section.set_address_size(8);
        section
    }

    fn bases(&self) -> BaseAddresses {
        let start = |range: &Option<Range<u64>>| range.as_ref().map_or(0, |r| r.start);
        BaseAddresses::default()
            .set_eh_frame(self.eh_frame_address)
            .set_eh_frame_hdr(self.header_address)
            .set_text(start(&self.text))
            .set_got(start(&self.got))
    }

    /// The tables as framehop takes them; cheap, the bytes are shared.
    pub(crate) fn for_framehop(&self, base: u64) -> framehop::ExplicitModuleSectionInfo<Arc<[u8]>> {
        let range = |start: u64, bytes: &[u8]| start..start.saturating_add(bytes.len() as u64);
        framehop::ExplicitModuleSectionInfo {
            base_svma: base,
            text_svma: self.text.clone(),
            got_svma: self.got.clone(),
            eh_frame_svma: Some(range(self.eh_frame_address, &self.eh_frame)),
            eh_frame: Some(self.eh_frame.clone()),
            eh_frame_hdr_svma: Some(range(self.header_address, &self.header)),
            eh_frame_hdr: Some(self.header.clone()),
            ..Default::default()
        }
    }

    fn fde_offset(&self, address: u64) -> Option<usize> {
        let table = self.header.get(TABLE..)?;
        let relative = |at: usize| {
            let value = i32::from_le_bytes(table.get(at..at + 4)?.try_into().ok()?);
            Some(self.header_address.wrapping_add_signed(i64::from(value)))
        };
        let (mut low, mut high) = (0, table.len() / 8);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if relative(middle * 8)? <= address {
                low = middle
            } else {
                high = middle
            }
        }
        usize::try_from(relative(low * 8 + 4)?.checked_sub(self.eh_frame_address)?).ok()
    }

    /// The most code in one piece that has no rows: from the end of a function to the next one.
    pub(crate) fn largest_gap(&self) -> Option<Range<u64>> {
        let rows = self.header.get(TABLE..)?.chunks_exact(8);
        let starts = rows.filter_map(|row| {
            let value = i32::from_le_bytes(row[..4].try_into().ok()?);
            Some(self.header_address.wrapping_add_signed(i64::from(value)))
        });
        let starts = Vec::from_iter(starts);
        let apart = starts.windows(2).map(|pair| pair[0]..pair[1]);
        let widest = apart.max_by_key(|gap| gap.end.saturating_sub(gap.start))?;
        let offset = gimli::EhFrameOffset(self.fde_offset(widest.start)?);
        let section = self.section();
        let function = section
            .fde_from_offset(&self.bases(), offset, EhFrame::cie_from_offset)
            .ok()?;
        let end = function.initial_address().checked_add(function.len())?;
        (end < widest.end).then_some(end..widest.end)
    }

    /// The function that a code address is in.
    pub(crate) fn function(&self, address: u64) -> Option<Range<u64>> {
        let offset = gimli::EhFrameOffset(self.fde_offset(address)?);
        let fde = self
            .section()
            .fde_from_offset(&self.bases(), offset, EhFrame::cie_from_offset)
            .ok()?;
        fde.contains(address)
            .then(|| fde.initial_address()..fde.end_address())
    }

    /// Where the function at an address has saved [`arch::KEPT`] registers, from its caller's stack
    /// pointer on; within, `None`: they still have their values. `None`: that is not known.
    pub(crate) fn saved(
        &self,
        address: u64,
        context: &mut UnwindContext,
    ) -> Option<[Option<i64>; 2]> {
        let section = self.section();
        let bases = self.bases();
        let offset = gimli::EhFrameOffset(self.fde_offset(address)?);
        let fde = section
            .fde_from_offset(&bases, offset, EhFrame::cie_from_offset)
            .ok()?;
        if !fde.contains(address) || fde.entry_len() > MAX_FDE || fde.cie().entry_len() > MAX_FDE {
            return None;
        }
        let row = fde
            .unwind_info_for_address(&section, &bases, context, address)
            .ok()?;
        let [one, other] = arch::KEPT.map(|register| match row.register(register) {
            None | Some(RegisterRule::SameValue) => Some(None),
            Some(RegisterRule::Offset(offset)) => Some(Some(offset)),
            Some(_) => None,
        });
        Some([one?, other?])
    }

    /// What the tables have for a code address.
    pub(crate) fn row(&self, address: u64, context: &mut UnwindContext) -> UnwindRow {
        let section = self.section();
        let bases = self.bases();
        let Some(offset) = self.fde_offset(address) else {
            return UnwindRow::Missing;
        };
        // framehop takes offsets as u32.
        if u32::try_from(offset).is_err() {
            return UnwindRow::Refused;
        }
        let Ok(fde) = section.fde_from_offset(
            &bases,
            gimli::EhFrameOffset(offset),
            EhFrame::cie_from_offset,
        ) else {
            return UnwindRow::Refused;
        };
        if !fde.contains(address) {
            return UnwindRow::Missing;
        }
        if fde.entry_len() > MAX_FDE || fde.cie().entry_len() > MAX_FDE {
            return UnwindRow::Refused;
        }
        if fde.is_signal_trampoline() {
            return UnwindRow::Signal;
        }
        let encoding = fde.cie().encoding();
        let Ok(row) = fde.unwind_info_for_address(&section, &bases, context, address) else {
            return UnwindRow::Missing;
        };
        if arch::has_no_caller(row.register(arch::RETURN_ADDRESS)) {
            return UnwindRow::Start;
        }
        let mut expressions = Vec::new();
        let mut by_frame_pointer = false;
        match row.cfa() {
            CfaRule::Expression(expression) => expressions.push(*expression),
            // framehop computes `offset + offset of the saved register`.
            CfaRule::RegisterAndOffset { offset, .. } if offset.unsigned_abs() > 1 << 31 => {
                return UnwindRow::Refused;
            }
            CfaRule::RegisterAndOffset { register, .. } => {
                by_frame_pointer = *register == arch::FRAME_POINTER
            }
        }
        for register in [arch::FRAME_POINTER, arch::RETURN_ADDRESS] {
            match row.register(register) {
                Some(RegisterRule::Expression(e) | RegisterRule::ValExpression(e)) => {
                    expressions.push(e)
                }
                Some(RegisterRule::Offset(o) | RegisterRule::ValOffset(o))
                    if o.unsigned_abs() > 1 << 31 =>
                {
                    return UnwindRow::Refused;
                }
                _ => {}
            }
        }
        let harmless = expressions.iter().all(|expression| {
            let Ok(expression) = expression.get(&section) else {
                return false;
            };
            let mut operations = expression.operations(encoding);
            loop {
                match operations.next() {
                    Ok(None) => return true,
                    // Without branches every operation runs once. No compiler uses them in unwind
                    // tables.
                    Ok(Some(
                        Operation::Skip { .. } | Operation::Bra { .. } | Operation::Call { .. },
                    ))
                    | Err(_) => {
                        return false;
                    }
                    Ok(Some(_)) => {}
                }
            }
        });
        if harmless {
            UnwindRow::Usable { by_frame_pointer }
        } else {
            UnwindRow::Refused
        }
    }
}

/// Where the header says that `.eh_frame` is. Encodings: absolute, pc-relative or header-relative,
/// 4 bytes signed.
fn eh_frame_pointer(address: u64, header: &[u8]) -> Option<u64> {
    let value = i64::from(u32_at(header, 4)? as i32);
    match header[1] {
        0x1b => Some(address.wrapping_add(4).wrapping_add_signed(value)),
        0x3b => Some(address.wrapping_add_signed(value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn built_header_agrees_with_the_linkers() {
        let file = File::open("/proc/self/exe").unwrap();
        let elf = Elf::read(&file).unwrap();
        let tables = UnwindTables::read(&elf).unwrap();
        let mut own = tables.clone();
        own.header = tables.build_header().unwrap().into();
        own.header_address = own.eh_frame_address;
        let mut context = UnwindContext::new();
        let text = tables.text.clone().unwrap();
        let mut usable = 0;
        for address in text.step_by(1013) {
            let row = tables.row(address, &mut context);
            assert_eq!(row, own.row(address, &mut context), "at {address:#x}");
            usable += usize::from(matches!(row, UnwindRow::Usable { .. }));
        }
        assert!(usable > 100);
    }

    #[test]
    fn an_expression_that_loops_is_refused() {
        // CIE: "zR", code align 1, data align -8, ra 16, pc encoding absolute 8 bytes.
        let mut bytes = vec![];
        let cie = [
            0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x00, 0x0c, 7, 8, 0x90, 1,
        ];
        bytes.extend((cie.len() as u32).to_le_bytes());
        bytes.extend(cie);
        let fde_at = bytes.len();
        let mut fde = ((fde_at + 4) as u32).to_le_bytes().to_vec();
        fde.extend(0x1000u64.to_le_bytes());
        fde.extend(0x100u64.to_le_bytes());
        // no augmentation data; DW_CFA_def_cfa_expression { DW_OP_skip -3 }
        fde.extend([0, 0x0f, 3, 0x2f, 0xfd, 0xff]);
        bytes.extend((fde.len() as u32).to_le_bytes());
        bytes.extend(fde);
        bytes.extend([0; 4]);
        let mut tables = UnwindTables {
            eh_frame: bytes.into(),
            eh_frame_address: 0x4000,
            header: Arc::new([]),
            header_address: 0x4000,
            text: None,
            got: None,
        };
        tables.header = tables.build_header().unwrap().into();
        let mut context = UnwindContext::new();
        assert_eq!(tables.row(0x1010, &mut context), UnwindRow::Refused);
        assert_eq!(tables.row(0x2010, &mut context), UnwindRow::Missing);
    }
}
