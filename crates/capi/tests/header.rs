//! `include/terrace.h` is what the sources say, and C and C++ compilers take it.

use std::path::{Path, PathBuf};
use std::process::Command;

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

#[test]
fn the_header_is_what_the_sources_say() {
    let config = cbindgen::Config::from_file(here().join("cbindgen.toml")).unwrap();
    let mut made = Vec::new();
    cbindgen::generate_with_config(here(), config).expect("cbindgen reads the sources").write(&mut made);
    let made = String::from_utf8(made).unwrap();
    let header = here().join("include/terrace.h");
    if std::env::var_os("TERRACE_WRITE_HEADER").is_some() {
        std::fs::write(&header, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&header).unwrap_or_default();
    let first = made.lines().zip(kept.lines().chain(std::iter::repeat(""))).find(|(made, kept)| made != kept);
    assert!(
        made == kept,
        "include/terrace.h is not what the sources say; first difference (wanted, found): {first:?}\n\
         hint: TERRACE_WRITE_HEADER=1 cargo test --release -p terrace-capi --test header"
    );
}

#[test]
fn compilers_take_the_header_alone_and_without_a_warning() {
    for (compiler, standard, suffix) in [("cc", "-std=c99", "c"), ("c++", "-std=c++11", "cc")] {
        if Command::new(compiler).arg("--version").output().is_err() {
            eprintln!("SKIPPED: no {compiler} here");
            continue;
        }
        let source = std::env::temp_dir().join(format!("terrace-header-{}.{suffix}", std::process::id()));
        std::fs::write(&source, "#include <terrace.h>\nint main(void) { return terrace_error()[0]; }\n").unwrap();
        let output = Command::new(compiler)
            .args([standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I"])
            .arg(here().join("include"))
            .arg(&source)
            .output()
            .unwrap();
        let _ = std::fs::remove_file(&source);
        assert!(output.status.success(), "{compiler}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
