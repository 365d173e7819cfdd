//! What kind of program a command is, before it runs, and by which way it can be reached.
//!
//!   find (PATH, `#!`, env.rs) ─▶ binary (what its ELF file shows) ─▶ reach (the way it goes, what won't work, what to do)
//!
//! The preload library is loaded by the dynamic loader, so a static program, Go's own code, and a program that runs with more
//! rights than its user never see it; the supervisor reaches the first two. What neither reaches is refused by name: its
//! look-ups would lead to the right bytes, but it would see links where other programs see files.

mod binary;
mod env;
mod go;
mod reach;

use binary::{Binary, Language, Libc, Linkage};
pub use reach::{Limit, Reach, Way, Weight, reach};

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    NotFound,
    /// With the reason.
    NotExecutable(&'static str),
    /// Its interpreter, and what that is.
    Script(PathBuf, Box<Program>),
    /// It may be executed and not be read, so we can't look, and the kernel lets no other process look into it.
    Unreadable,
    /// Neither ELF nor `#!`: a shell runs it as a script, the kernel doesn't.
    ShellText,
    Binary(Binary),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    pub path: PathBuf,
    pub kind: Kind,
}

impl Program {
    /// What a command line runs: looked up as execvp(3) does, through `env` if that is its first word.
    pub fn of_command(command: &[OsString]) -> Program {
        let words: Vec<&OsStr> = command.iter().map(OsString::as_os_str).collect();
        let Some((first, rest)) = words.split_first() else {
            return Program { path: PathBuf::new(), kind: Kind::NotFound };
        };
        let program = Program::find_at(first, 0);
        match env::names(rest).filter(|_| is_env(&program.path)) {
            Some(named) => {
                let named = Program::find_at(&named, 1);
                Program { kind: Kind::Script(program.path.clone(), Box::new(named)), path: program.path }
            }
            None => program,
        }
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

    pub fn interpreter(&self) -> Option<&Program> {
        match &self.kind {
            Kind::Script(_, interpreter) => Some(interpreter),
            _ => None,
        }
    }

    /// Without its path.
    pub fn kind_in_words(&self) -> String {
        match &self.kind {
            Kind::NotFound => "was not found".into(),
            Kind::NotExecutable(reason) => format!("can't be executed: {reason}"),
            Kind::Script(by, _) if *by == self.path => "runs another program".into(),
            Kind::Script(by, _) => format!("is a script for {}", by.display()),
            Kind::Unreadable => "can be executed but not read, so nothing is known of it".into(),
            Kind::ShellText => "has no `#!` line and is not a binary; a shell runs it as its own script".into(),
            Kind::Binary(binary) => binary.to_string(),
        }
    }

    /// Where the chain of interpreters ends.
    pub fn last(&self) -> &Program {
        match &self.kind {
            Kind::Script(_, interpreter) => interpreter.last(),
            _ => self,
        }
    }
}

/// The whole chain in a sentence.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.kind {
            Kind::Script(by, interpreter) if *by == self.path => write!(f, "{path} runs {interpreter}"),
            Kind::Script(_, interpreter) => write!(f, "{path} is a script for {interpreter}"),
            _ => write!(f, "{path} {}", self.kind_in_words()),
        }
    }
}

fn kind_of(path: &Path, depth: usize) -> Kind {
    let Ok(metadata) = path.metadata() else { return Kind::NotFound };
    if metadata.is_dir() {
        return Kind::NotExecutable("it is a directory");
    }
    if !metadata.is_file() {
        return Kind::NotExecutable("it is not a regular file");
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        return Kind::NotExecutable("it has no execute permission");
    }
    // It may have become a FIFO since, on which an open would wait.
    let opened = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let Ok(file) = opened else { return Kind::Unreadable };
    // What the kernel reads of a `#!` line is shorter.
    let mut head = [0u8; 4096];
    let Ok(count) = file.read_at(&mut head, 0) else { return Kind::NotExecutable("it can't be read") };
    let head = &head[..count];
    if let Some(rest) = head.strip_prefix(b"#!") {
        return script(rest, depth);
    }
    if !head.starts_with(b"\x7fELF") {
        return Kind::ShellText;
    }
    match Binary::read(path, &metadata, file) {
        Ok(binary) => Kind::Binary(binary),
        Err(reason) => Kind::NotExecutable(reason),
    }
}

fn script(after_mark: &[u8], depth: usize) -> Kind {
    let line = after_mark.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.trim_ascii();
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let (first, rest) = line.split_at(end);
    if first.is_empty() {
        return Kind::NotExecutable("its `#!` line names no interpreter");
    }
    let interpreter = PathBuf::from(OsString::from_vec(first.to_vec()));
    // The kernel gives an interpreter all that follows as one word.
    let argument = Some(OsStr::from_bytes(rest.trim_ascii())).filter(|word| !word.is_empty());
    // The kernel follows at most four scripts.
    if depth >= 4 {
        return Kind::NotExecutable("too many scripts interpret each other");
    }
    let next = match env::names(argument.as_slice()).filter(|_| is_env(&interpreter)) {
        Some(word) => Program::find_at(&word, depth + 1),
        None => Program::look_at(&interpreter, depth + 1),
    };
    Kind::Script(interpreter, Box::new(next))
}

fn is_env(program: &Path) -> bool {
    program.file_name() == Some(OsStr::new("env"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(path: &Path) -> Program {
        Program::of_command(&[path.as_os_str().to_owned()])
    }

    fn file(directory: &Path, name: &str, content: &[u8], mode: u32) -> PathBuf {
        let path = directory.join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn is_dynamic(program: &Program) -> bool {
        matches!(&program.kind, Kind::Binary(binary) if binary.linkage == Linkage::Dynamic(Libc::Glibc))
    }

    #[test]
    fn programs_are_told_apart() {
        let place = tempfile::tempdir().unwrap();
        assert!(is_dynamic(&Program::of_command(&["sh".into()])));
        assert_eq!(Program::of_command(&["no-such-program-here".into()]).kind, Kind::NotFound);
        assert!(matches!(find(place.path()).kind, Kind::NotExecutable(reason) if reason.contains("directory")));
        let plain = file(place.path(), "plain", b"x", 0o644);
        assert!(matches!(find(&plain).kind, Kind::NotExecutable(_)));
        let script = file(place.path(), "script", b"#!/usr/bin/env -S sh -e\n", 0o755);
        let found = find(&script);
        assert!(is_dynamic(found.last()));
        assert!(found.to_string().contains("script for"));
        let looped = file(place.path(), "loop", format!("#!{}/loop\n", place.path().display()).as_bytes(), 0o755);
        assert!(matches!(find(&looped).last().kind, Kind::NotExecutable(_)));
        let unknown = file(place.path(), "unknown", b"echo hello\n", 0o755);
        assert_eq!(find(&unknown).kind, Kind::ShellText);
        let cut = file(place.path(), "cut", b"\x7fELF\x02\x01", 0o755);
        assert!(matches!(find(&cut).kind, Kind::NotExecutable(_)));
    }

    #[test]
    fn env_is_looked_through() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        for command in ["env sh", "env -i sh -c true", "/usr/bin/env -u HOME A=b sh", "env -S sh -c"] {
            let program = Program::of_command(&words(command));
            assert!(program.last().path.ends_with("sh") && is_dynamic(program.last()), "{command}: {program}");
        }
        assert!(find(Path::new("/usr/bin/env")).last().path.ends_with("env"));
    }
}
