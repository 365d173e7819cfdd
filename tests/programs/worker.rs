//! The behaviour of README.md in Rust.

use std::fs::{self, FileType, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

fn put(path: &str, options: &mut OpenOptions, bytes: &[u8]) {
    options.create(true).open(path).unwrap().write_all(bytes).unwrap();
}

fn kind(file_type: FileType) -> &'static str {
    match () {
        () if file_type.is_file() => "file",
        () if file_type.is_dir() => "directory",
        () if file_type.is_symlink() => "link",
        () => "other",
    }
}

fn run(path: &str, arguments: &[&str]) {
    assert!(Command::new(path).args(arguments).status().unwrap().success());
}

fn chmod(path: &str, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn main() {
    let new = || OpenOptions::new().write(true).truncate(true).clone();
    let echo = std::env::args().nth(1).unwrap_or("/bin/echo".into());
    fs::create_dir("work").unwrap();
    fs::create_dir("work/dir").unwrap();
    let lines: String = (1..=3000).map(|i| format!("line {i}\n")).collect();
    put("work/data", &mut new(), lines.as_bytes());
    put("work/data", OpenOptions::new().append(true), b"the end\n");
    let data = fs::read_to_string("work/data").unwrap();
    let equal = if data == lines + "the end\n" { "" } else { ", others" };
    println!("read back: {} bytes, {} lines{equal}", data.len(), data.matches('\n').count());

    let again = OpenOptions::new().write(true).create_new(true).open("work/data");
    println!("exclusive: {}", if again.is_err_and(|e| e.kind() == ErrorKind::AlreadyExists) { "exists" } else { "made" });

    chmod("work/data", 0o640);
    let before = fs::symlink_metadata("work/data").unwrap();
    println!("lstat data: {} {} {:o}", kind(before.file_type()), before.len(), before.mode() & 0o7777);

    fs::rename("work/data", "work/renamed").unwrap();
    let same = fs::symlink_metadata("work/renamed").unwrap().ino() == before.ino();
    let gone = fs::symlink_metadata("work/data").is_err_and(|e| e.kind() == ErrorKind::NotFound);
    println!("renamed: {} inode, data is {}", if same { "same" } else { "other" }, if gone { "gone" } else { "there" });

    put("work/kept", &mut new(), b"old\n");
    put("work/other", &mut new(), b"other\n");
    fs::rename("work/other", "work/kept").unwrap();
    print!("replaced: {}", fs::read_to_string("work/kept").unwrap());

    std::os::unix::fs::symlink("renamed", "work/link").unwrap();
    let link = kind(fs::symlink_metadata("work/link").unwrap().file_type());
    println!("lstat link: {link} to {}", fs::read_link("work/link").unwrap().display());
    let no_link = fs::read_link("work/renamed").is_err_and(|e| e.kind() == ErrorKind::InvalidInput);
    println!("readlink renamed: {}", if no_link { "not a link" } else { "a link" });

    put("work/echo", &mut new(), &fs::read(echo).unwrap());
    put("work/run", &mut new(), b"#!/bin/sh\necho script $1\n");
    chmod("work/echo", 0o755);
    chmod("work/run", 0o755);
    run("work/echo", &["ran", "well"]);
    run("work/run", &["well"]);

    let entries = fs::read_dir("work").unwrap().map(|entry| entry.unwrap());
    let mut listed: Vec<String> = entries
        .map(|entry| format!("{} {}", entry.file_name().display(), kind(entry.file_type().unwrap())))
        .collect();
    listed.sort();
    println!("list: {}", listed.join(", "));

    OpenOptions::new().write(true).open("work/renamed").unwrap().set_len(6).unwrap();
    println!("truncated: {}", fs::read_to_string("work/renamed").unwrap());

    fs::remove_file("work/renamed").unwrap();
    println!("removed: {}", if Path::new("work/renamed").symlink_metadata().is_err() { "gone" } else { "there" });
    let not_empty = fs::remove_dir("work").is_err_and(|e| e.kind() == ErrorKind::DirectoryNotEmpty);
    println!("rmdir work: {}", if not_empty { "not empty" } else { "removed" });

    std::env::set_current_dir("work/dir").unwrap();
    put("deep", &mut new(), b"deep\n");
    print!("below: ../kept is {}", fs::read_to_string("../kept").unwrap());
    std::env::set_current_dir("../..").unwrap();

    let mut big = fs::File::create("work/big").unwrap();
    for _ in 0..300 {
        big.write_all(&[b'k'; 1000]).unwrap();
    }
    println!("big: {}", fs::symlink_metadata("work/big").unwrap().len());
}
