//! The library brings nothing with it: what it needs from libc is resolved in the program that loads it, so that a
//! program on another libc fails to find a symbol lazily instead of loading a second libc.
fn main() {
    println!("cargo:rustc-cdylib-link-arg=-nostdlib");
    println!("cargo:rustc-cdylib-link-arg=-nostartfiles");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--allow-shlib-undefined,-z,lazy,-Bsymbolic,--hash-style=gnu");
    println!("cargo:rerun-if-changed=build.rs");
}
