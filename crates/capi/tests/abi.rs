//! What programs that were built against the library count on: its name, its symbols and their version, the layout of structures.
//!
//! `abi/` keeps what was published. What is new is added to it (`TERRACE_WRITE_ABI=1`); what is gone or has changed is another ABI, and
//! needs another number in `build.rs`.

use std::path::{Path, PathBuf};
use std::process::Command;

const SONAME: &str = env!("TERRACE_SONAME");

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn library() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().join("libterrace.so")
}

fn header() -> String {
    std::fs::read_to_string(here().join("include/terrace.h")).unwrap()
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// All that was published is still there; what is there is published.
fn compare(found: &str, file: &str) {
    let path = here().join("abi").join(file);
    if std::env::var_os("TERRACE_WRITE_ABI").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, found).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let lost: Vec<&str> = kept.lines().filter(|line| !found.lines().any(|found| found == *line)).collect();
    assert!(lost.is_empty(), "programs that were built before would not run: {lost:?}\nhint: another ABI in build.rs");
    let new: Vec<&str> = found.lines().filter(|line| !kept.lines().any(|kept| kept == *line)).collect();
    assert!(
        new.is_empty(),
        "not published yet: {new:?}\nhint: TERRACE_WRITE_ABI=1 cargo test --release -p terrace-capi"
    );
    assert!(!kept.is_empty());
}

#[test]
fn the_library_has_its_name_and_the_symbols_that_were_published() {
    let told = output(Command::new("readelf").args(["-dW"]).arg(library()));
    assert!(told.contains(&format!("soname: [{SONAME}]")), "{told}");
    let symbols = output(Command::new("nm").args(["-D", "--defined-only"]).arg(library()));
    let mut exported: Vec<String> = symbols
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .filter(|symbol| symbol.starts_with("terrace_"))
        .map(str::to_owned)
        .collect();
    exported.sort();
    for symbol in &exported {
        assert_eq!(symbol.split_once("@@").map(|(_, version)| version), Some(SONAME), "{symbol}");
    }
    let header = header();
    for symbol in &exported {
        let name = symbol.split('@').next().unwrap();
        assert!(header.contains(&format!("{name}(")), "{name} is exported, and not in terrace.h");
    }
    compare(&(exported.join("\n") + "\n"), "symbols.txt");
}

/// (structure, its fields)
fn structures(header: &str) -> Vec<(String, Vec<String>)> {
    let mut found = vec![];
    let mut lines = header.lines();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("typedef struct ").and_then(|rest| rest.strip_suffix(" {")) else {
            continue;
        };
        let fields = lines.by_ref().map(str::trim).take_while(|line| !line.starts_with('}'));
        let fields = fields.filter(|line| line.ends_with(';')).map(|line| {
            let declared = line.trim_end_matches(';').split('[').next().unwrap();
            declared.rsplit([' ', '*']).next().unwrap().to_owned()
        });
        found.push((name.to_owned(), fields.collect()));
    }
    found
}

#[test]
fn structures_and_constants_are_laid_out_as_they_were() {
    if Command::new("cc").arg("--version").output().is_err() {
        eprintln!("SKIPPED: no cc here");
        return;
    }
    let header = header();
    let mut source = String::from("#include <stddef.h>\n#include <stdio.h>\n#include <terrace.h>\nint main(void) {\n");
    let mut say = |what: String| source.push_str(&format!("  printf(\"%s %ld\\n\", \"{what}\", (long){what});\n"));
    let structures = structures(&header);
    assert!(structures.len() >= 7, "{structures:?}");
    for (name, fields) in structures {
        say(format!("sizeof({name})"));
        fields.into_iter().for_each(|field| say(format!("offsetof({name}, {field})")));
    }
    for line in header.lines() {
        if let Some((constant, _)) = line.trim().split_once(" = ")
            && constant.starts_with("TERRACE_")
        {
            say(constant.to_owned());
        }
    }
    source.push_str("  return 0;\n}\n");
    let place = std::env::temp_dir().join(format!("terrace-abi-{}", std::process::id()));
    let file = place.with_extension("c");
    std::fs::write(&file, source).unwrap();
    output(Command::new("cc").arg("-I").arg(here().join("include")).arg(&file).arg("-o").arg(&place));
    let told = output(&mut Command::new(&place));
    let _ = (std::fs::remove_file(&file), std::fs::remove_file(&place));
    compare(&told, "layout.txt");
}
