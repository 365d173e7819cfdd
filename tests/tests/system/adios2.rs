//! ADIOS2 by its plugin (drivers/adios2), in an unmodified program: the Python bindings of ADIOS2's wheel, which has the headers, too.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use terrace_tests::{Outcome, Wish, checkout, library, python, skipped};

#[test]
fn a_program_of_adios2_reads_steps_while_another_one_writes_them() {
    let Some(python) = python() else { return skipped("the Python environment is not there: make python") };
    let place = Wish::default().tier("ram", "64MiB").build();
    let find = place.native(&[python.to_str().unwrap(), "-c", "import adios2; print(adios2.__path__[0])"]);
    if find.code != 0 {
        return skipped("ADIOS2 is not in the Python environment: make python");
    }
    let plugins = place.scratch().join("plugins");
    let libraries = library("libterrace.so");
    let mut build = Command::new(checkout().join("drivers/adios2/build.sh"));
    build.arg(find.stdout.trim()).arg(libraries.parent().unwrap()).arg(&plugins);
    let built = Outcome::of(build.output().unwrap()).ok();
    assert!(!built.stderr.contains("warning"), "{}", built.stderr);

    let script = checkout().join("tests/tests/system/adios2/stream.py");
    let words = |role: &'static str| [python.to_str().unwrap(), script.to_str().unwrap(), role].map(str::to_owned);
    let start = |role: &'static str| {
        let words = words(role);
        let mut command = place.run_command(&[], &words.iter().map(String::as_str).collect::<Vec<_>>());
        command.env("ADIOS2_PLUGIN_PATH", &plugins);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    // The reader begins before there is a stream.
    let mut reader = start("read");
    let mut writer = start("write");
    let (mut stdin, mut written) = (writer.stdin.take().unwrap(), BufReader::new(writer.stdout.take().unwrap()));
    let mut read = BufReader::new(reader.stdout.take().unwrap());
    for step in 0..5 {
        let mut line = String::new();
        written.read_line(&mut line).unwrap();
        assert_eq!(line, format!("written {step}\n"));
        // It is read before the next one is written.
        line.clear();
        read.read_line(&mut line).unwrap();
        assert_eq!(line, format!("read {step}\n"));
        writeln!(stdin).unwrap();
    }
    writer.stdout = Some(written.into_inner());
    reader.stdout = Some(read.into_inner());
    for child in [writer, reader] {
        let outcome = Outcome::of_child(120, child);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "all claims hold\n"), "{}", outcome.stderr);
    }
    place.settled_tree();
    assert!(place.root().join("run.bp/fields/heat/zarr.json").exists());
}
