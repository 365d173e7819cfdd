//! What an ELF file shows of a program: how it is linked, which language made it, which rights it takes, whether it uses io_uring.
//!
//! Only headers, notes, and a few small or string sections are read, so a program of 100 MB is looked at as fast as a small one.

use super::go::GoBuild;
use object::Endianness;
use object::elf::{self, FileHeader64};
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use std::fmt;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use terrace_tool::filesystem::FileSystem;

/// A section of strings longer than this is looked at so far only.
const STRINGS_MAX: u64 = 64 << 20;
/// Names that only a program which sets up io_uring has.
const IO_URING: [&[u8]; 3] = [b"io_uring_setup", b"io_uring_queue_init", b"8io_uring"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Libc {
    Glibc,
    Musl,
    Other,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Linkage {
    Dynamic(Libc),
    /// The libc is known only when the file tells.
    Static {
        pie: bool,
        libc: Option<Libc>,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub enum Language {
    Go(GoBuild),
    Rust,
    Other,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Binary {
    pub linkage: Linkage,
    pub language: Language,
    /// Another machine or word size than ours: its name.
    pub machine: Option<String>,
    /// Runs as another user or group, or with file capabilities: with the reason.
    pub privilege: Option<&'static str>,
    /// What in the file shows that it uses io_uring.
    pub io_uring: Option<String>,
}

impl Binary {
    /// Fails with a reason when the kernel would not execute it.
    pub fn read(path: &Path, metadata: &std::fs::Metadata, file: File) -> Result<Binary, &'static str> {
        let mut head = [0u8; 20];
        file.read_exact_at(&mut head, 0).map_err(|_| "its header is cut short")?;
        let mut binary = Binary {
            linkage: Linkage::Static { pie: false, libc: None },
            language: Language::Other,
            machine: other_machine(&head),
            privilege: privilege(path, metadata),
            io_uring: None,
        };
        if binary.machine.is_none() {
            binary.look(&file)?;
        }
        Ok(binary)
    }

    fn look(&mut self, file: &File) -> Result<(), &'static str> {
        let data = &ReadCache::new(file);
        let header = FileHeader64::<Endianness>::parse(data).map_err(|_| "its header is cut short")?;
        let endian = header.endian().map_err(|_| "its header is damaged")?;
        let segments = header.program_headers(endian, data).map_err(|_| "its program headers are cut short")?;
        let mut facts = Facts { is_position_independent: header.e_type(endian) == elf::ET_DYN, ..Facts::default() };
        for segment in segments {
            match segment.p_type(endian) {
                elf::PT_INTERP => facts.interpreter = segment.data(endian, data).ok().map(<[u8]>::to_vec),
                elf::PT_NOTE => {
                    let Ok(Some(mut notes)) = segment.notes(endian, data) else { continue };
                    while let Ok(Some(note)) = notes.next() {
                        facts.is_go |= note.name() == b"Go";
                        facts.is_gnu |= note.name() == b"GNU" && note.n_type(endian) == elf::NT_GNU_ABI_TAG;
                    }
                }
                _ => {}
            }
        }
        // A file without section headers still runs; then only the segments tell.
        if let Ok(sections) = header.sections(endian, data) {
            for section in sections.iter() {
                let name = sections.section_name(endian, section).unwrap_or_default();
                match name {
                    b".go.buildinfo" => facts.go = section.data(endian, data).ok().map(GoBuild::of),
                    b".comment" => {
                        facts.is_rust |= section.data(endian, data).is_ok_and(|text| has(text, b"rustc version"))
                    }
                    b".strtab" | b".dynstr" => {
                        let (at, size) = (section.sh_offset(endian), section.sh_size(endian).min(STRINGS_MAX));
                        let mut text = vec![0u8; size as usize];
                        if file.read_exact_at(&mut text, at).is_ok() {
                            facts.take_names(&text);
                        }
                    }
                    b".dynamic" => {
                        let Ok(Some(table)) = section.dynamic_table(endian, data, &sections) else { continue };
                        for entry in table.iter() {
                            match (entry.tag, table.string(entry)) {
                                (elf::DT_NEEDED, Ok(name)) if name.starts_with(b"liburing") => {
                                    facts.io_uring =
                                        Some(format!("it needs the library {}", String::from_utf8_lossy(name)))
                                }
                                (elf::DT_SONAME, Ok(name)) => facts.is_loader |= name.starts_with(b"ld-"),
                                _ => {}
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
        facts.put(self);
        Ok(())
    }
}

#[derive(Default)]
struct Facts {
    is_position_independent: bool,
    interpreter: Option<Vec<u8>>,
    is_go: bool,
    is_gnu: bool,
    is_musl: bool,
    is_rust: bool,
    /// It is the dynamic loader itself, given a program to load.
    is_loader: bool,
    go: Option<GoBuild>,
    io_uring: Option<String>,
}

impl Facts {
    fn take_names(&mut self, text: &[u8]) {
        self.is_rust |= has(text, b"rust_eh_personality") || has(text, b"__rust_alloc");
        self.is_musl |= has(text, b"__init_libc");
        if self.io_uring.is_none() {
            self.io_uring = IO_URING.iter().find_map(|wanted| {
                let at = find(text, wanted)?;
                let start = text[..at].iter().rposition(|byte| *byte == 0).map_or(0, |before| before + 1);
                let length = text[start..].iter().position(|byte| *byte == 0).unwrap_or(text.len() - start);
                Some(format!("it names {}", String::from_utf8_lossy(&text[start..start + length.min(80)])))
            });
        }
    }

    fn put(self, binary: &mut Binary) {
        let libc = match () {
            () if self.is_gnu => Some(Libc::Glibc),
            () if self.is_musl => Some(Libc::Musl),
            () => None,
        };
        binary.linkage = match self.interpreter {
            Some(path) if has(&path, b"ld-musl") => Linkage::Dynamic(Libc::Musl),
            Some(path) if has(&path, b"/ld-linux") => Linkage::Dynamic(Libc::Glibc),
            Some(_) => Linkage::Dynamic(Libc::Other),
            None if self.is_loader => Linkage::Dynamic(Libc::Glibc),
            None => Linkage::Static { pie: self.is_position_independent, libc },
        };
        binary.language = match self.go {
            Some(build) => Language::Go(build),
            None if self.is_go => Language::Go(GoBuild::default()),
            None if self.is_rust => Language::Rust,
            None => Language::Other,
        };
        binary.io_uring = self.io_uring;
    }
}

impl fmt::Display for Libc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Libc::Glibc => "glibc",
            Libc::Musl => "musl",
            Libc::Other => "another C library",
        })
    }
}

/// `is dynamically linked (glibc)`, `is statically linked, made by Go (go1.26.8, without cgo)`
impl fmt::Display for Binary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(machine) = &self.machine {
            return write!(f, "is a program for another machine ({machine})");
        }
        match &self.linkage {
            Linkage::Dynamic(libc) => write!(f, "is dynamically linked ({libc})")?,
            Linkage::Static { pie, libc } => {
                f.write_str(if *pie { "is statically linked, position-independent" } else { "is statically linked" })?;
                if let Some(libc) = libc {
                    write!(f, " ({libc})")?;
                }
            }
        }
        match &self.language {
            Language::Go(build) => {
                let version = build.version.as_deref().unwrap_or("an old version");
                let cgo = match build.has_cgo {
                    Some(true) => ", with cgo",
                    Some(false) => ", without cgo",
                    None => "",
                };
                write!(f, ", made by Go ({version}{cgo})")?;
            }
            Language::Rust => f.write_str(", made by Rust")?,
            Language::Other => {}
        }
        if let Some(reason) = self.privilege {
            write!(f, ", and {reason}")?;
        }
        Ok(())
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

fn has(text: &[u8], part: &[u8]) -> bool {
    find(text, part).is_some()
}

/// The machine's name when it is not ours.
fn other_machine(head: &[u8; 20]) -> Option<String> {
    let own = if cfg!(target_arch = "aarch64") { elf::EM_AARCH64 } else { elf::EM_X86_64 };
    let (class, order) = (head[4], head[5]);
    let number = match order {
        2 => u16::from_be_bytes([head[18], head[19]]),
        _ => u16::from_le_bytes([head[18], head[19]]),
    };
    let name = match elf::Machine(number) {
        elf::EM_386 => "i386".into(),
        elf::EM_X86_64 => "x86-64".into(),
        elf::EM_ARM => "ARM".into(),
        elf::EM_AARCH64 => "aarch64".into(),
        elf::EM_RISCV => "RISC-V".into(),
        elf::EM_PPC64 => "POWER".into(),
        elf::EM_S390 => "s390".into(),
        _ => format!("machine {number}"),
    };
    match (class, order) {
        (2, 1) if elf::Machine(number) == own => None,
        // x32: 32-bit pointers on x86-64.
        (1, _) => Some(format!("{name}, 32 bits")),
        _ => Some(name),
    }
}

/// Why the kernel starts this program in secure mode, where the loader ignores LD_PRELOAD.
fn privilege(path: &Path, metadata: &std::fs::Metadata) -> Option<&'static str> {
    if FileSystem::of(path).is_ok_and(|system| system.no_suid) {
        return None;
    }
    let mode = metadata.mode();
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    if mode & 0o4000 != 0 && metadata.uid() != user {
        return Some("is setuid and runs as another user");
    }
    if mode & 0o2010 == 0o2010 && metadata.gid() != group {
        return Some("is setgid and runs as another group");
    }
    let has_capabilities = xattr::get(path, "security.capability").is_ok_and(|value| value.is_some());
    (has_capabilities && user != 0).then_some("has file capabilities")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn read(bytes: &[u8]) -> Result<Binary, &'static str> {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("program");
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        Binary::read(&path, &path.metadata().unwrap(), File::open(&path).unwrap())
    }

    fn own() -> Vec<u8> {
        std::fs::read(std::env::current_exe().unwrap()).unwrap()
    }

    #[test]
    fn this_test_is_a_dynamic_rust_program() {
        let binary = read(&own()).unwrap();
        assert_eq!((binary.linkage, binary.language), (Linkage::Dynamic(Libc::Glibc), Language::Rust));
        assert_eq!((binary.machine, binary.privilege), (None, None));
    }

    #[test]
    fn a_binary_without_an_interpreter_is_static() {
        let mut bytes = std::fs::read("/bin/sh").unwrap();
        let table = u64::from_le_bytes(bytes[32..40].try_into().unwrap()) as usize;
        let (size, count) = (bytes[54] as usize, bytes[56] as usize);
        for entry in (0..count).map(|i| table + i * size) {
            if bytes[entry] == elf::PT_INTERP.0 as u8 {
                bytes[entry] = 0;
            }
        }
        assert_eq!(read(&bytes).unwrap().linkage, Linkage::Static { pie: true, libc: Some(Libc::Glibc) });
    }

    #[test]
    fn names_of_io_uring_are_evidence() {
        let mut facts = Facts::default();
        facts.take_names(b"\0malloc\0uv__io_uring_setup\0free\0");
        assert_eq!(facts.io_uring.as_deref(), Some("it names uv__io_uring_setup"));
    }

    #[test]
    fn damaged_files_are_looked_at_without_harm() {
        let bytes = own();
        for length in [0, 4, 6, 19, 20, 52, 63, 64, 65, 120, 400, 4000, bytes.len() / 2] {
            let _ = read(&bytes[..length]);
        }
        for at in 0..1000 {
            let mut damaged = bytes[..bytes.len().min(200_000)].to_vec();
            damaged[4 + at % 700] ^= 1 << (at % 8);
            let _ = read(&damaged);
        }
    }

    #[test]
    fn another_word_size_is_another_machine() {
        let mut bytes = own();
        bytes[4] = 1;
        bytes[18] = 3;
        assert_eq!(read(&bytes).unwrap().machine.as_deref(), Some("i386, 32 bits"));
    }
}
