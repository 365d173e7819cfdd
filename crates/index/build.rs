//! The fingerprint of this crate's source: programs and libraries that share memory must be made from the same.
use std::path::PathBuf;

fn main() {
    let mut files: Vec<PathBuf> = std::fs::read_dir("src").unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    // 64-bit FNV-1a.
    let hash = files
        .iter()
        .flat_map(|file| std::fs::read(file).unwrap())
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ byte as u64).wrapping_mul(0x0000_0100_0000_01b3));
    println!("cargo:rustc-env=TERRACE_LAYOUT={hash:016x}");
    println!("cargo:rerun-if-changed=src");
}
