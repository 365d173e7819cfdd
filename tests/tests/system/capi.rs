//! The C ABI: C and Fortran programs, built as a user builds them, against a real agent.

use std::path::{Path, PathBuf};
use std::process::Command;
use terrace_tests::{Wish, Workplace, checkout, library, skipped};

/// Compiles a C program against `terrace.h` and `libterrace.so`.
fn compile_c(place: &Workplace, source: &Path) -> PathBuf {
    let program = place.scratch().join(source.file_stem().unwrap());
    let output = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(checkout().join("crates/capi/include"))
        .arg(source)
        .arg(library("libterrace.so"))
        .arg(format!("-Wl,-rpath,{}", library("libterrace.so").parent().unwrap().display()))
        .arg("-o")
        .arg(&program)
        .output()
        .expect("a C compiler is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// Compiles a C program and runs it under `terrace run`, in the root.
#[track_caller]
fn run_c(place: &Workplace, source: &str) -> String {
    let program = compile_c(place, &checkout().join(source));
    let outcome = place.run(&[program.to_str().unwrap()]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{}", outcome.stdout);
    outcome.stdout
}

#[test]
fn every_claim_about_bytes_objects_holds_in_c() {
    let place = Workplace::new();
    assert_eq!(run_c(&place, "tests/tests/system/capi/bytes.c"), "all claims hold\n");
    let tree = place.settled_tree();
    assert_eq!(
        (tree.bytes("forked"), tree.bytes("by-child"), tree.bytes("table")),
        (&b"parent"[..], &b"child"[..], &b"Jello"[..])
    );
    assert!(!tree.has("c"));
}

#[test]
fn claims_about_bytes_objects_hold_without_the_supervisor_too() {
    let place = Workplace::new();
    let program = compile_c(&place, &checkout().join("tests/tests/system/capi/bytes.c"));
    let outcome = place.run_with(&["--preload-only"], &[program.to_str().unwrap()]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""));
}

#[test]
fn every_claim_about_arrays_transfers_locks_and_tags_holds_in_c() {
    let place = Wish::default().tier("ram", "64MiB").build();
    assert_eq!(run_c(&place, "tests/tests/system/capi/arrays.c"), "all claims hold\n");
    place.wait_for_the_agents_end();
    assert!(place.root().join("sky/image/zarr.json").exists());
}

#[test]
fn claims_about_arrays_hold_where_only_the_supervisor_serves_the_program() {
    let place = Wish::default().tier("ram", "64MiB").build();
    let program = compile_c(&place, &checkout().join("tests/tests/system/capi/arrays.c"));
    let outcome = place.run_with(&["--supervise-only"], &[program.to_str().unwrap()]);
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (0, "all claims hold\n", ""));
}

#[test]
fn a_fortran_program_writes_steps_that_others_read() {
    if Command::new("gfortran").arg("--version").output().is_err() {
        return skipped("no gfortran here; tests/setup.sh installs it");
    }
    let place = Wish::default().tier("ram", "64MiB").build();
    let built = Command::new("gfortran")
        .current_dir(place.scratch())
        .args(["-std=f2018", "-Wall", "-Wextra", "-Werror", "-o", "writer"])
        .arg(checkout().join("crates/capi/fortran/terrace.f90"))
        .arg(checkout().join("examples/fortran/writer.f90"))
        .arg(library("libterrace.so"))
        .arg(format!("-Wl,-rpath,{}", library("libterrace.so").parent().unwrap().display()))
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let outcome = place.run(&[place.scratch().join("writer").to_str().unwrap()]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{}", outcome.stdout);
    assert_eq!(outcome.stdout, "extent 64 48 5\nstep 3, cell (2, 4): 3002.04\n");
    place.wait_for_the_agents_end();
    // C's order: the growing dimension is the first.
    let metadata = std::fs::read(place.root().join("run/temperature/zarr.json")).unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&metadata).unwrap();
    assert_eq!((&metadata["shape"], &metadata["attributes"]["units"]), (&[5, 48, 64][..].into(), &"K".into()));
}

#[test]
fn the_example_with_frames_does_what_it_says() {
    let place = Workplace::new();
    let said = run_c(&place, "examples/c/frames.c");
    assert_eq!(said, "2880000 bytes, the last frame begins with 231\nnight/2026-11-21 has\n  frames\n");
    place.settled_tree();
}

#[test]
fn an_installed_terrace_is_found_by_pkg_config_and_runs_the_example() {
    let place = Workplace::new();
    let prefix = place.scratch().join("prefix");
    let installed = Command::new(checkout().join("scripts/install.sh")).arg(&prefix).output().unwrap();
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    let script = format!(
        "export PKG_CONFIG_PATH={0}/lib/pkgconfig; cc {1} $(pkg-config --cflags --libs terrace) -Wl,-rpath,{0}/lib -o $SCRATCH/frames",
        prefix.display(),
        checkout().join("examples/c/frames.c").display()
    );
    let built = place.native_sh(&script);
    assert_eq!(built.code, 0, "{}", built.stderr);
    let outcome = place.native(&[
        prefix.join("bin/terrace").to_str().unwrap(),
        "run",
        "--config",
        place.config().to_str().unwrap(),
        "--cfitsio",
        "--quiet",
        "--",
        place.scratch().join("frames").to_str().unwrap(),
    ]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""));
    assert!(outcome.stdout.starts_with("2880000 bytes"), "{}", outcome.stdout);
}

#[test]
fn every_claim_about_values_and_memory_holds_in_c() {
    let place = Wish::default().tier("ram", "64MiB").build();
    assert_eq!(run_c(&place, "tests/tests/system/capi/values.c"), "all claims hold\n");
    place.wait_for_the_agents_end();
}

#[test]
fn every_claim_about_the_cpp_header_holds() {
    let place = Wish::default().tier("ram", "64MiB").build();
    let program = place.scratch().join("face");
    let output = Command::new("c++")
        .args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"])
        .arg(checkout().join("crates/capi/include"))
        .arg(checkout().join("tests/tests/system/capi/face.cpp"))
        .arg(library("libterrace.so"))
        .arg(format!("-Wl,-rpath,{}", library("libterrace.so").parent().unwrap().display()))
        .arg("-o")
        .arg(&program)
        .output()
        .expect("a C++ compiler is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let outcome = place.run(&[program.to_str().unwrap()]);
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (0, "all claims hold\n", ""));
    place.wait_for_the_agents_end();
}

/// The package of examples/r, in a library of its own; None without R.
fn r_library(place: &Workplace) -> Option<String> {
    if Command::new("Rscript").arg("--version").output().is_err() {
        skipped("no R here (apt install r-base-core)");
        return None;
    }
    let prefix = place.scratch().join("prefix");
    let installed = Command::new(checkout().join("scripts/install.sh")).arg(&prefix).output().unwrap();
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    let script = format!(
        "cp -r {}/examples/r/terrace $SCRATCH/package; mkdir $SCRATCH/library
        PKG_CONFIG_PATH={}/lib/pkgconfig R CMD INSTALL --no-test-load -l $SCRATCH/library $SCRATCH/package 2>&1",
        checkout().display(),
        prefix.display()
    );
    let built = place.native_sh(&script);
    assert!(built.code == 0 && !built.stdout.contains("warning"), "{}", built.stdout);
    Some(place.scratch().join("library").to_str().unwrap().into())
}

#[test]
fn every_claim_about_arrays_holds_in_r() {
    let place = Wish::default().tier("ram", "64MiB").build();
    let Some(library) = r_library(&place) else { return };
    let script = checkout().join("tests/tests/system/capi/claims.R");
    let outcome = place.sh(&format!("R_LIBS={library} Rscript {}", script.display()));
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "all claims hold\n"), "{}", outcome.stderr);
}

#[test]
fn the_example_in_r_appends_steps_that_others_read() {
    let place = Wish::default().tier("ram", "64MiB").build();
    let Some(library) = r_library(&place) else { return };
    let script = checkout().join("examples/r/heat.R");
    let outcome = place.sh(&format!("R_LIBS={library} Rscript {}", script.display()));
    let wanted = "5 steps of 64 x 48, the hottest cell of the last one has 997.620 K\n";
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, wanted), "{}", outcome.stderr);
    place.wait_for_the_agents_end();
    let text = std::fs::read_to_string(place.root().join("run/heat/zarr.json")).unwrap();
    let found: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found["shape"], serde_json::json!([5, 48, 64]), "dimensions the other way round");
}

#[test]
fn a_cmake_project_finds_an_installed_terrace_wherever_it_was_moved() {
    if Command::new("cmake").arg("--version").output().is_err() {
        return skipped("no cmake here (apt install cmake)");
    }
    let place = Wish::default().tier("ram", "64MiB").build();
    let (first, prefix) = (place.scratch().join("first"), place.scratch().join("moved here"));
    let installed = Command::new(checkout().join("scripts/install.sh")).arg(&first).output().unwrap();
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    std::fs::rename(&first, &prefix).unwrap();
    let example = checkout().join("examples/cpp/heat");
    let script = format!(
        "cd $SCRATCH; cmake -S {} -B build '-DCMAKE_PREFIX_PATH={}'; cmake --build build",
        example.display(),
        prefix.display()
    );
    let built = place.native_sh(&script);
    assert_eq!(built.code, 0, "{}{}", built.stdout, built.stderr);
    let outcome = place.run(&[place.scratch().join("build/heat").to_str().unwrap()]);
    let wanted = "20 steps of 64 x 48\nstep 0: 1000 K\nstep 5: 349.504 K\nstep 10: 326.933 K\nstep 15: 318.108 K\nheat in step 4: 700 K\n";
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (0, wanted, ""));

    // Another version than the one that is wanted is refused, by name.
    let other = place.scratch().join("other");
    std::fs::create_dir(&other).unwrap();
    let text = std::fs::read_to_string(example.join("CMakeLists.txt")).unwrap();
    let changed = text.replace("Terrace 0.1", "Terrace 7.0");
    assert_ne!(changed, text);
    std::fs::write(other.join("CMakeLists.txt"), changed).unwrap();
    std::fs::write(other.join("heat.cpp"), "").unwrap();
    let script = format!("cd $SCRATCH; cmake -S other -B refused '-DCMAKE_PREFIX_PATH={}'", prefix.display());
    let refused = place.native_sh(&script);
    assert!(refused.code != 0 && refused.stderr.contains("7.0"), "{}{}", refused.stdout, refused.stderr);
    place.wait_for_the_agents_end();
}

#[test]
fn every_claim_about_staging_and_steps_holds_in_c() {
    let place = Wish::default().tier("ram", "64MiB").build();
    assert_eq!(run_c(&place, "tests/tests/system/capi/staging.c"), "all claims hold\n");
    place.wait_for_the_agents_end();
    assert!(place.root().join("run/p/zarr.json").exists());
}
