//! What calls refuse: the same errno natively and by each door.
//!
//! `errors.c` makes every wrapped call with bad addresses, flags and sizes, on directories, links, files in a tier, durable ones and missing
//! names, and prints a line for each. A call that hangs ends it by its alarm.

use std::path::Path;
use std::process::Command;
use terrace_tests::{Outcome, Workplace};

const FILES: &str =
    "mkdir full; echo durable > durable; ln -s file link; ln -s full to_full; ln -s nowhere dangling; ln -s loop loop";
/// So many lines at least: else the test shows nothing.
const LINES_MIN: usize = 2000;

fn program(place: &Workplace, flags: &[&str]) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/system/errors.c");
    let binary = place.scratch().join("errors");
    let made = Command::new("cc").args(["-O1", "-w"]).args(flags).arg("-o").arg(&binary).arg(source).status().unwrap();
    assert!(made.success(), "errors.c does not compile");
    binary.to_str().unwrap().to_owned()
}

fn agrees(link: &[&str], doors: &[&str]) {
    let lines = |run: &dyn Fn(&Workplace, &str) -> Outcome| {
        let place = Workplace::new();
        let program = program(&place, link);
        place.native_sh(FILES).ok();
        let outcome = run(&place, &format!("{program} make && {program} check"));
        assert_eq!(outcome.code, 0, "{outcome:?}");
        outcome.stdout
    };
    let native = lines(&|place, script| place.native_sh(script));
    assert!(native.lines().count() > LINES_MIN, "{native}");
    for door in doors {
        let flags: &[&str] = if *door == "--both" { &["--door", "both"] } else { &[door] };
        let accelerated = lines(&|place, script| place.run_with(flags, &["sh", "-c", script]));
        let differ: Vec<String> = native
            .lines()
            .zip(accelerated.lines())
            .filter(|(native, accelerated)| native != accelerated)
            .map(|(native, accelerated)| format!("natively {native}, with {door} {accelerated}"))
            .collect();
        assert!(differ.is_empty(), "{}", differ.join("\n"));
        assert_eq!(native.lines().count(), accelerated.lines().count());
    }
}

#[test]
fn calls_refuse_what_they_refuse_natively() {
    agrees(&[], &["--preload-only", "--supervise-only", "--both"]);
}

#[test]
fn calls_of_a_static_program_refuse_what_they_refuse_natively() {
    agrees(&["-static"], &["--supervise-only", "--both"]);
}
