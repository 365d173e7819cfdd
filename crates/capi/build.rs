//! The library stays loaded once it is: threads of programs hold destructors of its thread-locals.
fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libterrace.so,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
