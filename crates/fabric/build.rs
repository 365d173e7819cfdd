//! Compiles the shim where libfabric's headers are (Debian: libfabric-dev). The library itself is loaded when it is first used,
//! so that what is built here runs where it is missing.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(has_libfabric)");
    println!("cargo::rerun-if-changed=shim/fabric.c");
    println!("cargo::rerun-if-changed=shim/fabric.h");
    println!("cargo::rerun-if-env-changed=LIBFABRIC_INCLUDE");
    let mut build = cc::Build::new();
    if let Some(directory) = std::env::var_os("LIBFABRIC_INCLUDE") {
        build.include(directory);
    }
    let usual = "/usr/include/rdma/fabric.h";
    println!("cargo::rerun-if-changed={usual}");
    build.file("shim/fabric.c").warnings(true).flag("-std=gnu11");
    match build.try_compile("terrace_fabric_shim") {
        Ok(()) => println!("cargo::rustc-cfg=has_libfabric"),
        Err(_) if !std::path::Path::new(usual).exists() && std::env::var_os("LIBFABRIC_INCLUDE").is_none() => {}
        Err(error) => panic!("libfabric's headers are here, and the shim does not compile: {error}"),
    }
}
