//! Names of kernel functions, from `/proc/kallsyms`.

use std::collections::HashMap;
use std::thread::{Builder, JoinHandle};

use whywait_events::{Frame, ModuleKind};

use crate::loss::{Loss, Losses};
use crate::modules::Modules;

/// The kernel's symbols, read when first needed.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    symbols: Option<Symbols>,
    /// Reads them.
    reader: Option<JoinHandle<Symbols>>,
    /// Whether a name was ever looked for.
    asked: bool,
    /// Frames of addresses seen before; a kernel has not many that stacks go through.
    frames: HashMap<u64, Frame>,
}

/// Text symbols, sorted by address.
#[derive(Debug, Default)]
struct Symbols {
    /// Address, and start and length of the name in `names`.
    table: Vec<(u64, u32, u32)>,
    names: String,
}

/// Bounds the memory for known addresses.
const MAX_KNOWN: usize = 1 << 18;
/// An address farther than this behind the last symbol before it is in code loaded later (a module,
/// a BPF program).
const MAX_FUNCTION: u64 = 1 << 20;

impl Symbols {
    fn read() -> Self {
        Self::parse(&std::fs::read("/proc/kallsyms").unwrap_or_default())
    }
}

impl Kernel {
    /// Begins to read the symbols, on the side: it takes some 50 ms, which later are wanted for
    /// other things. Where no thread can be made (a limit of memory or of threads) they are read
    /// when first needed.
    pub(crate) fn prepare(&mut self) {
        self.reader = Builder::new().spawn(Symbols::read).ok();
    }

    /// Waits until they are read.
    pub(crate) fn prepared(&mut self) {
        if let Some(symbols) = self.reader.take().and_then(|reader| reader.join().ok()) {
            self.symbols = Some(symbols);
        }
    }

    /// Whether names were looked for, and the kernel shows none.
    pub(crate) fn is_hidden(&self) -> bool {
        let symbols = self.symbols.as_ref();
        self.asked && symbols.is_some_and(|symbols| symbols.table.is_empty())
    }

    /// Frames of kernel addresses.
    pub(crate) fn frames(
        &mut self,
        addresses: &[u64],
        modules: &mut Modules,
        losses: &mut Losses,
    ) -> Vec<Frame> {
        if addresses.is_empty() {
            return vec![];
        }
        self.prepared();
        self.asked = true;
        let symbols = self.symbols.get_or_insert_with(Symbols::read);
        let module = modules.special(ModuleKind::Kernel);
        let frame = |(depth, &address): (usize, &u64)| {
            // All but the innermost are return addresses.
            let address = address.saturating_sub(u64::from(depth > 0));
            if let Some(&known) = self.frames.get(&address) {
                return known;
            }
            let Some(name) = symbols.name(address) else {
                losses.count(Loss::KernelSymbols);
                return modules.symbols.frame(module, "[kernel]", "", 0);
            };
            let frame = modules.symbols.frame(module, name, "", 0);
            if self.frames.len() < MAX_KNOWN {
                self.frames.insert(address, frame);
            }
            frame
        };
        addresses.iter().enumerate().map(frame).collect()
    }
}

impl Symbols {
    fn parse(text: &[u8]) -> Self {
        let mut symbols = Self::default();
        for line in text.split(|&b| b == b'\n') {
            let Ok(line) = std::str::from_utf8(line) else {
                continue;
            };
            // address type name [module]
            let mut fields = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) =
                (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let Ok(address) = u64::from_str_radix(address, 16) else {
                continue;
            };
            // All zeros: hidden from us by kptr_restrict.
            if address == 0 || !matches!(kind, "t" | "T" | "w" | "W") {
                continue;
            }
            let Ok(start) = u32::try_from(symbols.names.len()) else {
                break;
            };
            // The functions of system calls have x86-64's names, as these have its numbers.
            let (entry, name) = match name.strip_prefix("__arm64_sys_") {
                Some(call) => ("__x64_sys_", call),
                None => ("", name),
            };
            symbols.names.push_str(entry);
            symbols.names.push_str(name);
            let length = symbols.names.len() - start as usize;
            symbols.table.push((address, start, length as u32));
        }
        // Stable: of several names for an address the kernel's first stays first, and is the one
        // that lookups find.
        symbols.table.sort_by_key(|&(address, ..)| address);
        symbols.table.dedup_by_key(|&mut (address, ..)| address);
        symbols.table.shrink_to_fit();
        symbols.names.shrink_to_fit();
        symbols
    }

    fn name(&self, address: u64) -> Option<&str> {
        let after = self.table.partition_point(|&(start, ..)| start <= address);
        let &(start, name, length) = self.table.get(after.checked_sub(1)?)?;
        if address - start > MAX_FUNCTION {
            return None;
        }
        self.names
            .get(name as usize..name as usize + length as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"\
ffffffff81000000 T _stext
ffffffff81000000 T startup_64
ffffffff81000100 t do_futex
ffffffff81000180 d data
ffffffff81000200 t ext4_sync_file\t[ext4]
";

    #[test]
    fn a_kernel_that_shows_no_address_hides_its_names() {
        let hidden = b"0000000000000000 T _stext\n0000000000000000 t do_futex\n";
        for (text, is_hidden) in [(TEXT, false), (&hidden[..], true)] {
            let mut kernel = Kernel {
                symbols: Some(Symbols::parse(text)),
                ..Kernel::default()
            };
            assert!(!kernel.is_hidden(), "nobody asked");
            let (mut modules, mut losses) = (Modules::default(), Losses::default());
            kernel.frames(&[0xffff_ffff_8100_0104], &mut modules, &mut losses);
            assert_eq!(kernel.is_hidden(), is_hidden);
        }
    }

    #[test]
    fn frames_carry_names_and_no_addresses() {
        let mut kernel = Kernel {
            symbols: Some(Symbols::parse(TEXT)),
            ..Kernel::default()
        };
        let (mut modules, mut losses) = (Modules::default(), Losses::default());
        let frames = kernel.frames(
            &[
                0xffff_ffff_8100_0104,
                0xffff_ffff_8100_0200,
                0xffff_ffff_8100_0001,
                0xffff_ffff_9000_0000,
            ],
            &mut modules,
            &mut losses,
        );
        let symbols = modules.take_new_symbols();
        let name = |frame: &Frame| {
            symbols
                .iter()
                .find(|s| s.frame == *frame)
                .unwrap()
                .name
                .clone()
        };
        // The second is a return address at a function's very start: the call was the last
        // instruction before.
        assert_eq!(
            frames.iter().map(name).collect::<Vec<_>>(),
            ["do_futex", "do_futex", "_stext", "[kernel]"]
        );
        assert!(frames.iter().all(|f| f.address < 1000));
        assert_eq!(modules.take_new()[0].kind, ModuleKind::Kernel);
    }

    #[test]
    fn hidden_addresses_give_no_names() {
        let symbols = Symbols::parse(b"0000000000000000 T do_futex\n");
        assert_eq!(symbols.name(0x10), None);
    }
}
