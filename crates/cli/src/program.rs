//! What kind of program a command is: can the preload library reach it?
//!
//! The library is loaded by the dynamic loader, so a static program, and one that runs with more rights than its user,
//! never see it. Names in the root still lead them to the right bytes, but what they create goes to the durable tier
//! and they see links where other programs see files.

use crate::filesystem::FileSystem;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    NotFound,
    /// With the reason.
    NotExecutable(&'static str),
    /// Its interpreter, and what that is.
    Script(PathBuf, Box<Program>),
    Dynamic,
    Musl,
    Static,
    StaticGo,
    /// Runs as another user or group, or with file capabilities: with the reason.
    Privileged(&'static str),
    /// Another machine's or word size's: the library is for this one.
    OtherMachine,
    /// Neither ELF nor `#!`: a shell runs it as a script, the kernel doesn't.
    Unknown,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    pub path: PathBuf,
    pub kind: Kind,
}

impl Program {
    /// Looks `command` up as execvp(3) does.
    pub fn find(command: &OsStr) -> Program {
        Program::find_at(command, 0)
    }

    fn find_at(command: &OsStr, depth: usize) -> Program {
        if command.as_bytes().contains(&b'/') {
            return Program::look_at(Path::new(command), depth);
        }
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
        let candidates: Vec<PathBuf> = std::env::split_paths(&path).map(|directory| directory.join(command)).collect();
        let is_program =
            |path: &&PathBuf| path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
        match candidates.iter().find(is_program).or_else(|| candidates.iter().find(|path| path.is_file())) {
            Some(path) => Program::look_at(path, depth),
            None => Program { path: command.into(), kind: Kind::NotFound },
        }
    }

    fn look_at(path: &Path, depth: usize) -> Program {
        Program { path: path.to_owned(), kind: kind_of(path, depth) }
    }

    /// Where the chain of interpreters ends.
    pub fn last(&self) -> &Program {
        match &self.kind {
            Kind::Script(_, interpreter) => interpreter.last(),
            _ => self,
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.kind {
            Kind::NotFound => write!(f, "{path} was not found"),
            Kind::NotExecutable(reason) => write!(f, "{path} can't be executed: {reason}"),
            Kind::Script(_, interpreter) => write!(f, "{path} is a script for {interpreter}"),
            Kind::Dynamic => write!(f, "{path} is dynamically linked"),
            Kind::Musl => {
                write!(f, "{path} is dynamically linked with musl, for which the preload library is not made")
            }
            Kind::Static => write!(f, "{path} is statically linked"),
            Kind::StaticGo => write!(f, "{path} is a statically linked Go program"),
            Kind::Privileged(reason) => {
                write!(f, "{path} {reason}, so the system does not let it load the preload library")
            }
            Kind::OtherMachine => write!(f, "{path} is for another machine than the preload library"),
            Kind::Unknown => {
                write!(f, "{path} has no `#!` line and is not a binary; a shell runs it as its own script")
            }
        }
    }
}

fn kind_of(path: &Path, depth: usize) -> Kind {
    let Ok(metadata) = path.metadata() else { return Kind::NotFound };
    if metadata.is_dir() {
        return Kind::NotExecutable("it is a directory");
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        return Kind::NotExecutable("it has no execute permission");
    }
    let Ok(mut file) = std::fs::File::open(path) else {
        // Executable but not readable: the kernel runs it, we can't look.
        return Kind::Dynamic;
    };
    let mut head = vec![];
    if file.by_ref().take(4096).read_to_end(&mut head).is_err() {
        return Kind::NotExecutable("it can't be read");
    }
    if let Some(rest) = head.strip_prefix(b"#!") {
        return script(rest, depth);
    }
    if !head.starts_with(b"\x7fELF") {
        return Kind::Unknown;
    }
    if let Some(reason) = privilege(path, &metadata) {
        return Kind::Privileged(reason);
    }
    elf(&head, &file)
}

fn script(after_mark: &[u8], depth: usize) -> Kind {
    let line = after_mark.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty()).collect();
    let Some(interpreter) = words.first().map(|word| PathBuf::from(OsString::from_vec(word.to_vec()))) else {
        return Kind::NotExecutable("its `#!` line names no interpreter");
    };
    // The kernel follows at most four scripts.
    if depth >= 4 {
        return Kind::NotExecutable("too many scripts interpret each other");
    }
    // `env` replaces itself by the program that it looks up.
    let is_env = interpreter.file_name() == Some(OsStr::new("env"));
    let named = words.iter().skip(1).find(|word| !word.starts_with(b"-") && !word.contains(&b'='));
    let next = match named.filter(|_| is_env) {
        Some(word) => Program::find_at(OsStr::from_bytes(word), depth + 1),
        None => Program::look_at(&interpreter, depth + 1),
    };
    Kind::Script(interpreter, Box::new(next))
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

const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;

fn elf(head: &[u8], file: &std::fs::File) -> Kind {
    let own_machine: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    let u16_at = |at: usize| head.get(at..at + 2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    let is_64_little = head.get(4..6) == Some(&[2, 1]);
    if !is_64_little || u16_at(18) != Some(own_machine) {
        return Kind::OtherMachine;
    }
    let u64_in =
        |bytes: &[u8], at: usize| bytes.get(at..at + 8).map(|b| u64::from_le_bytes(b.try_into().expect("8 bytes")));
    let (Some(table), Some(entry_size), Some(count)) = (u64_in(head, 32), u16_at(54), u16_at(56)) else {
        return Kind::NotExecutable("its header is cut short");
    };
    let mut is_go = false;
    for i in 0..count as u64 {
        let mut entry = [0u8; 56];
        let Some(at) = table.checked_add(i * entry_size as u64) else { break };
        if file.read_exact_at(&mut entry, at).is_err() {
            return Kind::NotExecutable("its program headers are cut short");
        }
        let kind = u32::from_le_bytes(entry[..4].try_into().expect("4 bytes"));
        let (Some(offset), Some(size)) = (u64_in(&entry, 8), u64_in(&entry, 32)) else { continue };
        let mut content = vec![0u8; size.min(4096) as usize];
        match kind {
            PT_INTERP if file.read_exact_at(&mut content, offset).is_ok() => {
                let is_musl = content.windows(7).any(|part| part == b"ld-musl");
                return if is_musl { Kind::Musl } else { Kind::Dynamic };
            }
            PT_NOTE if file.read_exact_at(&mut content, offset).is_ok() => {
                is_go |= content.windows(4).any(|part| part == b"Go\0\0");
            }
            _ => {}
        }
    }
    if is_go { Kind::StaticGo } else { Kind::Static }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(directory: &Path, name: &str, content: &[u8], mode: u32) -> PathBuf {
        let path = directory.join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn programs_are_told_apart() {
        let place = tempfile::tempdir().unwrap();
        let find = |path: &Path| Program::find(path.as_os_str());
        assert_eq!(Program::find(OsStr::new("sh")).kind, Kind::Dynamic);
        assert_eq!(Program::find(OsStr::new("no-such-program-here")).kind, Kind::NotFound);
        assert!(matches!(find(place.path()).kind, Kind::NotExecutable(reason) if reason.contains("directory")));
        let plain = file(place.path(), "plain", b"x", 0o644);
        assert!(matches!(find(&plain).kind, Kind::NotExecutable(_)));
        let script = file(place.path(), "script", b"#!/usr/bin/env -S sh -e\n", 0o755);
        let found = find(&script);
        assert_eq!(found.last().kind, Kind::Dynamic);
        assert!(found.to_string().contains("script for"));
        let looped = file(place.path(), "loop", format!("#!{}/loop\n", place.path().display()).as_bytes(), 0o755);
        assert!(matches!(find(&looped).last().kind, Kind::NotExecutable(_)));
        let unknown = file(place.path(), "unknown", b"echo hello\n", 0o755);
        assert_eq!(find(&unknown).kind, Kind::Unknown);
        let cut = file(place.path(), "cut", b"\x7fELF\x02\x01", 0o755);
        assert_eq!(find(&cut).kind, Kind::OtherMachine);
    }

    #[test]
    fn a_binary_without_an_interpreter_is_static() {
        let place = tempfile::tempdir().unwrap();
        let shell = std::fs::read("/bin/sh").unwrap();
        let mut bytes = shell.clone();
        let table = u64::from_le_bytes(shell[32..40].try_into().unwrap()) as usize;
        let (size, count) = (shell[54] as usize, shell[56] as usize);
        for entry in (0..count).map(|i| table + i * size) {
            if bytes[entry] == PT_INTERP as u8 {
                bytes[entry] = 0;
            }
        }
        let path = file(place.path(), "static", &bytes, 0o755);
        assert_eq!(Program::find(path.as_os_str()).kind, Kind::Static);
    }
}
