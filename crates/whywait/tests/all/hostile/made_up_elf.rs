//! ELF files that no linker makes.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

const PAGE: u64 = 0x1000;
/// Where the code is that `odd map` calls.
const CODE_AT: u64 = 0x800;
const CODE: [u8; 14] = [
    0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3,
];

const PROGBITS: u32 = 1;
const SYMTAB: u32 = 2;
const STRTAB: u32 = 3;
const NOTE: u32 = 7;
const COMPRESSED: u64 = 0x800;

struct Section {
    name: &'static str,
    kind: u32,
    flags: u64,
    address: u64,
    /// What of it is written; the rest is a hole.
    bytes: Vec<u8>,
    size: u64,
    link: u32,
}

impl Section {
    fn new(name: &'static str, kind: u32, bytes: Vec<u8>) -> Self {
        Self {
            name,
            kind,
            flags: 2,
            address: 0,
            size: bytes.len() as u64,
            bytes,
            link: 0,
        }
    }
}

/// A file with a function of code and what else is asked for.
#[derive(Default)]
pub(crate) struct MadeUp(Vec<Section>);

impl MadeUp {
    /// With a build-id.
    pub(crate) fn build_id(mut self, number: u8) -> Self {
        let mut note = words(&[4, 20, 3]);
        note.extend(b"GNU\0");
        note.extend([number; 20]);
        self.0.push(Section::new(".note.gnu.build-id", NOTE, note));
        self
    }

    /// That names another file for its debug data.
    pub(crate) fn debug_link(mut self, path: &Path) -> Self {
        let mut link = path.as_os_str().as_encoded_bytes().to_vec();
        link.push(0);
        link.resize(link.len().next_multiple_of(4), 0);
        link.extend(words(&[0x1234_5678]));
        self.0.push(Section::new(".gnu_debuglink", PROGBITS, link));
        self
    }

    /// Whose debug data claims to be of this size once it is decompressed.
    pub(crate) fn compressed(mut self, size: u64) -> Self {
        let abbreviations = Section::new(".debug_abbrev", PROGBITS, vec![0; 16]);
        let mut head = words(&[1, 0]);
        head.extend(size.to_le_bytes());
        head.extend(1u64.to_le_bytes());
        // zlib: no data.
        head.extend([0x78, 0x9c, 0x03, 0, 0, 0, 0, 1]);
        let mut info = Section::new(".debug_info", PROGBITS, head);
        info.flags = COMPRESSED;
        self.0.extend([abbreviations, info]);
        self
    }

    /// With unwind tables of this size, most of which is a hole.
    pub(crate) fn unwind_tables(mut self, size: u64) -> Self {
        let mut section = Section::new(".eh_frame", PROGBITS, eh_frame());
        section.size = size;
        section.address = 0x10_0000;
        self.0.push(section);
        self
    }

    /// With so many symbols, all of the same long name.
    pub(crate) fn symbols(mut self, count: usize, name: usize) -> Self {
        let mut symbol = words(&[1]);
        symbol.extend([2, 0, 1, 0]);
        symbol.extend(CODE_AT.to_le_bytes());
        symbol.extend(0x10u64.to_le_bytes());
        let mut table = Section::new(".symtab", SYMTAB, symbol.repeat(count));
        // The first section is none, the second is the code.
        table.link = self.0.len() as u32 + 3;
        let mut names = vec![b'a'; name + 2];
        names[0] = 0;
        names[name + 1] = 0;
        let names = Section::new(".strtab", STRTAB, names);
        self.0.extend([table, names]);
        self
    }

    pub(crate) fn write(self, path: &Path) {
        let file = File::create(path).expect("a file");
        let put = |bytes: &[u8], at: u64| file.write_all_at(bytes, at).expect("written");
        let mut code = Section::new(".text", PROGBITS, CODE.to_vec());
        code.address = CODE_AT;
        let mut names = vec![0];
        let mut headers = vec![0; 64];
        let mut at = 2 * PAGE;
        let mut notes = None;
        let mut sections = vec![code];
        sections.extend(self.0);
        sections.push(Section::new(".shstrtab", STRTAB, Vec::new()));
        let last = sections.len() as u16;
        for mut section in sections {
            let name = names.len() as u32;
            names.extend(section.name.as_bytes());
            names.push(0);
            if section.name == ".shstrtab" {
                section.bytes.clone_from(&names);
                section.size = names.len() as u64;
            }
            let place = if section.name == ".text" { CODE_AT } else { at };
            put(&section.bytes, place);
            if section.kind == NOTE {
                notes = Some((place, section.size));
            }
            headers.extend(words(&[name, section.kind]));
            for word in [section.flags, section.address, place, section.size] {
                headers.extend(word.to_le_bytes());
            }
            headers.extend(words(&[section.link, 0]));
            let entry = if section.kind == SYMTAB { 24u64 } else { 0 };
            headers.extend(1u64.to_le_bytes());
            headers.extend(entry.to_le_bytes());
            at = (place.max(at) + section.size + PAGE) & !(PAGE - 1);
        }
        put(&headers, at);
        let mut segments = segment(1, 5, 0, PAGE);
        if let Some((place, size)) = notes {
            segments.extend(segment(4, 4, place, size));
        }
        let mut head = b"\x7fELF\x02\x01\x01".to_vec();
        head.resize(16, 0);
        head.extend([3, 0, 62, 0]);
        head.extend(words(&[1]));
        for word in [0, 64, at] {
            head.extend(word.to_le_bytes());
        }
        head.extend(words(&[0]));
        for half in [64, 56, (segments.len() / 56) as u16, 64, last + 1, last] {
            head.extend(half.to_le_bytes());
        }
        head.extend(segments);
        put(&head, 0);
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn segment(kind: u32, flags: u32, offset: u64, size: u64) -> Vec<u8> {
    let mut bytes = words(&[kind, flags]);
    for word in [offset, offset, offset, size, size, PAGE] {
        bytes.extend(word.to_le_bytes());
    }
    bytes
}

/// Rows for the code: a CIE and an FDE.
fn eh_frame() -> Vec<u8> {
    let cie = [
        1, b'z', b'R', 0, 1, 0x78, 16, 1, 0, 0x0c, 7, 8, 0x90, 1, 0, 0,
    ];
    let mut bytes = words(&[cie.len() as u32 + 4, 0]);
    bytes.extend(cie);
    let back = bytes.len() as u32 + 4;
    bytes.extend(words(&[24, back]));
    bytes.extend(CODE_AT.to_le_bytes());
    bytes.extend(0x100u64.to_le_bytes());
    bytes.extend([0; 4]);
    bytes
}
