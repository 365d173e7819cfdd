//! The symbol audit: no function that takes a path, exported by libc or used by an installed program, goes unnoticed.
//!
//! libc-symbols.txt classifies every function of the C library as wrapped, native (with the reason) or without a path. A new
//! C library brings functions that are not in it: the audit fails until somebody has looked at them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use terrace_tests::{binaries, checkout};

#[derive(Debug, PartialEq)]
enum Class {
    Wrapped,
    Native(String),
    NoPath,
}

fn classes() -> BTreeMap<String, Class> {
    let text = std::fs::read_to_string(checkout().join("tests/libc-symbols.txt")).unwrap();
    let mut classes = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split('\t').collect();
        let class = match words[1..] {
            ["wrapped"] => Class::Wrapped,
            ["native", reason] if reason.len() > 10 => Class::Native(reason.into()),
            ["no path"] => Class::NoPath,
            _ => panic!("libc-symbols.txt: `{line}` is none of `wrapped`, `native` with a reason, `no path`"),
        };
        assert!(classes.insert(words[0].to_owned(), class).is_none(), "{} is listed twice", words[0]);
    }
    classes
}

/// `(name, version)` of dynamic symbols.
fn symbols(flag: &str, files: &[PathBuf]) -> BTreeSet<(String, String)> {
    let output =
        Command::new("nm").args(["-D", flag, "--with-symbol-versions"]).args(files).output().expect("nm is installed");
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace().rev();
            let (symbol, kind) = (words.next()?, words.next()?);
            let is_function =
                flag == "--undefined-only" && matches!(kind, "U" | "w") || matches!(kind, "T" | "t" | "W" | "w" | "i");
            let (name, version) = symbol.split_once('@').unwrap_or((symbol, ""));
            is_function.then(|| (name.to_owned(), version.trim_start_matches('@').to_owned()))
        })
        .collect()
}

fn names(symbols: BTreeSet<(String, String)>) -> BTreeSet<String> {
    symbols.into_iter().map(|(name, _)| name).collect()
}

fn libc() -> PathBuf {
    let found = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6"].map(PathBuf::from);
    found.into_iter().find(|path| path.exists()).expect("a GNU C library")
}

fn library() -> BTreeSet<String> {
    let path = binaries().join("libterrace_intercept.so");
    assert!(path.exists(), "{} is not built.\nhint: run `make build` first", path.display());
    names(symbols("--defined-only", &[path]))
}

#[test]
fn every_function_of_the_c_library_is_classified() {
    let classes = classes();
    let new: Vec<_> =
        names(symbols("--defined-only", &[libc()])).into_iter().filter(|name| !classes.contains_key(name)).collect();
    assert!(
        new.is_empty(),
        "{} functions are not in libc-symbols.txt: {new:?}\nhint: see whether they take a path; wrap them, or add them with their class",
        new.len()
    );
}

#[test]
fn every_wrapped_function_is_in_the_library() {
    let (library, classes) = (library(), classes());
    let missing: Vec<_> = classes
        .iter()
        .filter(|(name, class)| **class == Class::Wrapped && !library.contains(*name))
        .map(|(name, _)| name)
        .collect();
    assert!(missing.is_empty(), "listed as wrapped, not exported: {missing:?}");
    let unlisted: Vec<_> =
        library.iter().filter(|name| classes.get(*name).is_some_and(|class| *class != Class::Wrapped)).collect();
    assert!(unlisted.is_empty(), "exported, not listed as wrapped: {unlisted:?}");
}

/// Calls that show or change the name itself, or its file's identity: these can't be left to the kernel, which sees a link.
#[test]
fn no_call_that_could_show_the_link_is_left_native() {
    let classes = classes();
    let must = [
        "lstat",
        "lstat64",
        "__lxstat",
        "__lxstat64",
        "fstatat",
        "fstatat64",
        "__fxstatat",
        "__fxstatat64",
        "stat",
        "stat64",
        "fstat",
        "fstat64",
        "statx",
        "readlink",
        "readlinkat",
        "__readlink_chk",
        "__readlinkat_chk",
        "realpath",
        "__realpath_chk",
        "canonicalize_file_name",
        "readdir",
        "readdir64",
        "readdir_r",
        "readdir64_r",
        "scandir",
        "scandir64",
        "scandirat",
        "scandirat64",
        "getdents64",
        "open",
        "open64",
        "openat",
        "openat64",
        "__open_2",
        "__open64_2",
        "__openat_2",
        "__openat64_2",
        "creat",
        "creat64",
        "fopen",
        "fopen64",
        "freopen",
        "freopen64",
        "unlink",
        "unlinkat",
        "remove",
        "rename",
        "renameat",
        "renameat2",
        "link",
        "linkat",
        "chown",
        "lchown",
        "fchown",
        "fchownat",
        "chmod",
        "lchmod",
        "fchmodat",
        "fchmod",
        "utimensat",
        "futimens",
        "utimes",
        "lutimes",
        "lgetxattr",
        "lsetxattr",
        "llistxattr",
        "lremovexattr",
        "setxattr",
        "fsetxattr",
        "truncate",
        "truncate64",
        "ftw",
        "ftw64",
        "nftw",
        "nftw64",
        "fts_read",
        "fts64_read",
        "fts_children",
        "fts64_children",
        "mkstemp",
        "mkstemp64",
        "mkostemp",
        "mkostemp64",
        "mkstemps",
        "mkstemps64",
        "mkostemps",
        "mkostemps64",
        "execv",
        "execve",
        "execvp",
        "execvpe",
        "execl",
        "execlp",
        "execle",
        "execveat",
        "fexecve",
        "posix_spawn",
        "posix_spawnp",
        "syscall",
        "statfs",
        "statfs64",
        "statvfs",
        "statvfs64",
        "fstatfs",
        "fstatvfs",
    ];
    let left: Vec<_> = must.iter().filter(|name| classes.get(**name) != Some(&Class::Wrapped)).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn every_function_that_installed_programs_import_from_the_c_library_is_classified() {
    let (classes, library) = (classes(), library());
    let programs = programs();
    assert!(programs.len() > 300, "only {} programs", programs.len());
    let mut wrong = BTreeSet::new();
    for some in programs.chunks(200) {
        for (name, version) in symbols("--undefined-only", some) {
            if !version.starts_with("GLIBC_") || version == "GLIBC_PRIVATE" || is_in_another_library(&name) {
                continue;
            }
            match classes.get(&name) {
                None => {
                    wrong.insert(format!("{name} ({version}) is not classified"));
                }
                Some(Class::Wrapped) if !library.contains(&name) => {
                    wrong.insert(format!("{name} is not in the library"));
                }
                Some(_) => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{} programs import:\n{wrong:#?}", programs.len());
}

/// The mathematical library and the loader have GLIBC versions too; neither takes paths.
fn is_in_another_library(name: &str) -> bool {
    use std::sync::LazyLock;
    static OTHERS: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
        let beside = |name: &str| libc().with_file_name(name);
        let files =
            ["libm.so.6", "libmvec.so.1", "ld-linux-x86-64.so.2", "libresolv.so.2", "libthread_db.so.1"].map(beside);
        let files: Vec<PathBuf> = files.into_iter().filter(|path| path.exists()).collect();
        let mut found = names(symbols("--defined-only", &files));
        // Data, which nm shows by another letter.
        found.extend(data(&libc()));
        found.extend(files.iter().flat_map(|file| data(file)));
        found
    });
    OTHERS.contains(name)
}

fn data(file: &Path) -> BTreeSet<String> {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(file).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace().rev();
            let (symbol, kind) = (words.next()?, words.next()?);
            matches!(kind, "B" | "D" | "R" | "V" | "A" | "G").then(|| symbol.split('@').next().unwrap().to_owned())
        })
        .collect()
}

/// ELF programs of the distribution.
fn programs() -> Vec<PathBuf> {
    let mut programs = vec![];
    for directory in ["/usr/bin", "/usr/sbin"] {
        for entry in std::fs::read_dir(directory).unwrap().flatten() {
            let path = entry.path();
            let mut magic = [0u8; 4];
            let is_elf = path.symlink_metadata().is_ok_and(|metadata| metadata.is_file())
                && std::fs::File::open(&path)
                    .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut magic))
                    .is_ok()
                && magic == *b"\x7fELF";
            if is_elf {
                programs.push(path);
            }
        }
    }
    programs
}
