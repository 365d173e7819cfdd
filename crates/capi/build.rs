//! The shared library's name and its symbols' version.
//!
//! Programs ask for `libterrace.so.N` and for each symbol at that version, so that one which was built for another N does not start with
//! this one. GNU ld gives each symbol the version of the library's name (`--default-symver`): rustc hands the linker a version script of
//! its own, without a name, and no linker takes a second one beside it.
//!
//! The library stays loaded once it is: threads of programs hold destructors of its thread-locals.

use std::path::Path;

/// Another one when a program that was built before would not run any more (`tests/abi.rs`).
const ABI: &str = "0";

fn main() {
    let name = format!("libterrace.so.{ABI}");
    println!("cargo:rustc-cdylib-link-arg=-fuse-ld=bfd");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,{name},-z,nodelete,--default-symver");
    println!("cargo:rustc-env=TERRACE_SONAME={name}");
    println!("cargo:rerun-if-changed=build.rs");
    // What is linked against the library where it is built finds it by its name, too.
    let out = std::env::var("OUT_DIR").expect("cargo says where");
    let Some(built) = Path::new(&out).ancestors().nth(3) else { return };
    for directory in [built.to_owned(), built.join("deps")] {
        let link = directory.join(&name);
        if link.symlink_metadata().is_err() {
            // Another build may do the same at this moment.
            let _ = std::os::unix::fs::symlink("libterrace.so", link);
        }
    }
}
