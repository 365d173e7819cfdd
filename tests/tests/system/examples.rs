//! The examples in C with MPI: built as their first lines say, run under `terrace run`; each compares its result with what one process
//! computes, and fails where they differ.

use std::path::PathBuf;
use std::process::Command;
use terrace_tests::{Outcome, Wish, Workplace, checkout, library, skipped};

/// Whether the machine can run programs of several ranks.
fn has_mpi() -> bool {
    let is_there = |program: &str| Command::new(program).arg("--version").output().is_ok();
    let has = is_there("mpicc") && is_there("mpirun");
    if !has {
        skipped("no MPI here; tests/setup.sh installs Open MPI");
    }
    has
}

fn compile(place: &Workplace, example: &str) -> PathBuf {
    let program = place.scratch().join(example);
    let libraries = library("libterrace.so");
    let output = Command::new("mpicc")
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(checkout().join("crates/capi/include"))
        .arg(checkout().join(format!("examples/c/{example}.c")))
        .arg(&libraries)
        .arg(format!("-Wl,-rpath,{}", libraries.parent().unwrap().display()))
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

fn mpirun(program: &std::path::Path, ranks: u32, arguments: &str) -> String {
    // More ranks than this machine has cores, and perhaps as root, which Open MPI wants to hear twice.
    format!("mpirun --allow-run-as-root --oversubscribe --quiet -n {ranks} {} {arguments}", program.display())
}

#[track_caller]
fn succeeded(outcome: &Outcome) -> &str {
    assert_eq!(outcome.code, 0, "{}{}", outcome.stdout, outcome.stderr);
    &outcome.stdout
}

#[test]
fn particles_that_four_ranks_write_are_read_by_three_as_one_process_computes_them() {
    if !has_mpi() {
        return;
    }
    let place = Wish::default().tier("ram", "256MiB").patience(300).build();
    let (writer, reader) = (compile(&place, "particles-write"), compile(&place, "particles-read"));
    // Not a multiple of the ranks. The reader waits for what is not written yet.
    let script = format!("{} & {}; wait $!", mpirun(&reader, 3, ""), mpirun(&writer, 4, "200003"));
    let outcome = place.sh(&script);
    let said = succeeded(&outcome);
    assert!(said.contains("4 ranks wrote 3 steps of 200003 particles"), "{said}{}", outcome.stderr);
    let checked =
        said.lines().filter(|line| line.ends_with("of 200003 particles are energetic, as one process computes"));
    assert_eq!(checked.count(), 3, "{said}");
    // And durable as plain Zarr.
    place.wait_for_the_agents_end();
    let text = std::fs::read_to_string(place.root().join("vpic/step2/px/zarr.json")).unwrap();
    assert!(text.contains("float32"), "{text}");
}

#[test]
fn a_halo_exchange_of_four_ranks_computes_what_one_process_does() {
    if !has_mpi() {
        return;
    }
    let place = Wish::default().tier("ram", "64MiB").patience(300).build();
    let program = compile(&place, "halo");
    let outcome = place.sh(&mpirun(&program, 4, ""));
    assert_eq!(succeeded(&outcome), "4 ranks, 25 steps: the same as one process computes\n", "{}", outcome.stderr);
}
