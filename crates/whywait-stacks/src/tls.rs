//! Where a process's TLS libraries take clear text from the program, and give it some.
//!
//! OpenSSL and its forks (BoringSSL, LibreSSL), as a library or in the program itself, and Go's
//! crypto/tls. A function is watched where it begins, which says whose bytes go where, and at each
//! of its `ret`s, which says how many. A probe that has the kernel replace the return address would
//! do for C, yet it would hide who called from whoever copies the stack meanwhile; and Go moves its
//! stacks.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::elf::{Elf, ReadAt};
use crate::go::GoTable;
use crate::maps;
use crate::modules::{file_path, find_file, open_regular};

/// What a function of a TLS library does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsCall {
    /// `int SSL_read(SSL *, void *, int)`.
    Read,
    /// `int SSL_read_ex(SSL *, void *, size_t, size_t *)`.
    ReadEx,
    /// `int SSL_write(SSL *, const void *, int)`.
    Write,
    /// `int SSL_write_ex(SSL *, const void *, size_t, size_t *)`.
    WriteEx,
    /// `func (c *Conn) Read(b []byte) (int, error)` of Go's crypto/tls.
    GoRead,
    /// `func (c *Conn) Write(b []byte) (int, error)`.
    GoWrite,
}

impl TlsCall {
    fn named(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"SSL_read" => Self::Read,
            b"SSL_read_ex" => Self::ReadEx,
            b"SSL_write" => Self::Write,
            b"SSL_write_ex" => Self::WriteEx,
            b"crypto/tls.(*Conn).Read" => Self::GoRead,
            b"crypto/tls.(*Conn).Write" => Self::GoWrite,
            _ => return None,
        })
    }
}

/// Such a function in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFunction {
    /// What it does.
    pub call: TlsCall,
    /// Where it still has its arguments, as an offset in the file, in bytes.
    pub begins: u64,
    /// Its `ret`s, likewise.
    pub returns: Vec<u64>,
}

/// A file that a process has mapped, and that has such functions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFile {
    /// By which it can be opened.
    pub path: PathBuf,
    /// Device and inode.
    pub key: (u64, u64),
    /// Its functions.
    pub functions: Arc<[TlsFunction]>,
}

/// Knows files by device and inode, and looks at each once.
#[derive(Debug, Default)]
pub struct TlsLibraries {
    files: HashMap<(u64, u64), Arc<[TlsFunction]>>,
}

/// Symbol tables are no larger, but for browsers'.
const MAX_SYMBOLS: u64 = 128 << 20;
/// No such function is longer, bytes.
const MAX_FUNCTION: u64 = 64 << 10;
/// Nor has it more ways out.
const MAX_RETURNS: usize = 64;

/// So many files are remembered.
const MAX_FILES: usize = 1 << 14;

impl TlsLibraries {
    /// The files with TLS libraries that a process has mapped, itself among them.
    pub fn of(&mut self, tgid: u32) -> Vec<TlsFile> {
        let Ok(mapped) = maps::read(tgid) else {
            return Vec::new();
        };
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        for mapping in &mapped.found {
            let Some(path) = file_path(mapping) else {
                continue;
            };
            let Some((path, metadata)) = find_file(tgid, mapping, path) else {
                continue;
            };
            let key = (metadata.dev(), metadata.ino());
            if !seen.insert(key) {
                continue;
            }
            let functions = self.functions(key, &path);
            if !functions.is_empty() {
                found.push(TlsFile {
                    path,
                    key,
                    functions,
                });
            }
        }
        found
    }

    fn functions(&mut self, key: (u64, u64), path: &Path) -> Arc<[TlsFunction]> {
        if self.files.len() >= MAX_FILES {
            self.files.clear();
        }
        let of_file = || open_regular(path).map_or_else(Vec::new, |file| functions_of(&file));
        let functions = self.files.entry(key);
        functions.or_insert_with(|| of_file().into()).clone()
    }
}

fn functions_of<R: ReadAt + ?Sized>(file: &R) -> Vec<TlsFunction> {
    let Some(elf) = Elf::read(file) else {
        return Vec::new();
    };
    let mut named: Vec<(TlsCall, u64, u64)> = Vec::new();
    let mut runtime_text = None;
    elf.symbols(MAX_SYMBOLS, |name, address, size| {
        if name == b"runtime.text" {
            runtime_text = Some(address);
        }
        if let Some(call) = TlsCall::named(name) {
            named.push((call, address, size));
        }
    });
    // Programs of Go have a table of their own when they are stripped of symbols.
    if let Some(go) = GoTable::read(&elf, runtime_text) {
        go.each_function(|name, code| {
            if let Some(call) = TlsCall::named(name) {
                named.push((call, code.start, code.end - code.start));
            }
        });
    }
    named.sort_unstable();
    named.dedup_by_key(|(call, address, _)| (*call, *address));
    let functions = named.into_iter();
    functions
        .filter_map(|(call, address, size)| function(&elf, call, address, size))
        .collect()
}

fn function<R: ReadAt + ?Sized>(
    elf: &Elf<'_, R>,
    call: TlsCall,
    address: u64,
    size: u64,
) -> Option<TlsFunction> {
    let size = (1..=MAX_FUNCTION).contains(&size).then_some(size)?;
    let begins = elf.offset_of(address)?;
    let code = elf.code_at(begins, size)?;
    let returns: Vec<u64> = returns(&code, address)
        .map(|at| begins + at)
        .take(MAX_RETURNS + 1)
        .collect();
    let some = (1..=MAX_RETURNS).contains(&returns.len());
    some.then(|| TlsFunction {
        call,
        begins: begins + has_arguments(&code, address, call),
        returns,
    })
}

/// Where a function still has its arguments, from its beginning: at an instruction that the kernel
/// does itself (a push, or a branch), if there is one. Any other has the thread stop once more, and
/// in a virtual machine that takes ten times as long. (`push_xol_ops` and `branch_xol_ops` in the
/// kernel's arch/x86/kernel/uprobes.c)
#[cfg(target_arch = "x86_64")]
fn has_arguments(code: &[u8], address: u64, call: TlsCall) -> u64 {
    use iced_x86::{
        Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, Mnemonic, OpAccess, Register,
    };

    let arguments = match call {
        TlsCall::GoRead | TlsCall::GoWrite => [Register::RAX, Register::RBX, Register::R14],
        _ => [Register::RDI, Register::RSI, Register::RCX],
    };
    let mut factory = InstructionInfoFactory::new();
    let decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    for instruction in decoder {
        let pushes = instruction.mnemonic() == Mnemonic::Push
            && instruction.op0_register() != Register::None;
        match instruction.flow_control() {
            // Before that it may begin once more, on a larger stack.
            FlowControl::ConditionalBranch if arguments[0] == Register::RAX => continue,
            FlowControl::ConditionalBranch => return instruction.ip() - address,
            FlowControl::Next if pushes => return instruction.ip() - address,
            FlowControl::Next => {}
            _ => return 0,
        }
        let info = factory.info(&instruction);
        let overwritten = info.used_registers().iter().any(|used| {
            let reads = matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
            !reads && arguments.contains(&used.register().full_register())
        });
        if overwritten {
            return 0;
        }
    }
    0
}

#[cfg(target_arch = "aarch64")]
fn has_arguments(_: &[u8], _: u64, _: TlsCall) -> u64 {
    0
}

/// Where a function's code returns, from its beginning.
#[cfg(target_arch = "x86_64")]
fn returns(code: &[u8], address: u64) -> impl Iterator<Item = u64> {
    use iced_x86::{Decoder, DecoderOptions, FlowControl};

    let decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    decoder
        .into_iter()
        .filter(|it| it.flow_control() == FlowControl::Return)
        .map(move |it| it.ip() - address)
}

#[cfg(target_arch = "aarch64")]
fn returns(code: &[u8], _: u64) -> impl Iterator<Item = u64> {
    /// `ret`, `retaa` and `retab`.
    const RETURNS: [u32; 3] = [0xd65f_03c0, 0xd65f_0bff, 0xd65f_0fff];
    let words = code.as_chunks().0.iter().zip((0..).step_by(4));
    words
        .filter(|(word, _)| RETURNS.contains(&u32::from_le_bytes(**word)))
        .map(|(_, at)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_tls_library_has_no_such_function() {
        let mut libraries = TlsLibraries::default();
        assert_eq!(libraries.of(std::process::id()), []);
        assert!(
            !libraries.files.is_empty(),
            "this program and its libraries"
        );
        assert_eq!(libraries.of(u32::MAX), []);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn arguments_are_looked_for_where_the_kernel_need_not_step() {
        // cmp rsp, [r14 + 16]; jbe …; push rbp; mov rbp, rsp: Go
        let go = [0x49, 0x3b, 0x66, 0x10, 0x76, 0x10, 0x55, 0x48, 0x89, 0xe5];
        assert_eq!(has_arguments(&go, 0x1000, TlsCall::GoRead), 6);
        // sub rsp, 24; test edx, edx; js …: OpenSSL
        let c = [0x48, 0x83, 0xec, 0x18, 0x85, 0xd2, 0x78, 0x10];
        assert_eq!(has_arguments(&c, 0x1000, TlsCall::Read), 6);
        // mov rdi, rsi; push rbx: the first argument has gone by then
        let gone = [0x48, 0x89, 0xf7, 0x53];
        assert_eq!(has_arguments(&gone, 0x1000, TlsCall::Read), 0);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn each_return_of_a_function_is_found() {
        // xor eax, eax; ret; mov eax, 0xc3 (whose operand looks like one); ret
        let code = [0x31, 0xc0, 0xc3, 0xb8, 0xc3, 0, 0, 0, 0xc3];
        assert_eq!(returns(&code, 0x1000).collect::<Vec<_>>(), [2, 8]);
    }
}
