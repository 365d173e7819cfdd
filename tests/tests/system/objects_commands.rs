//! Objects from the command line.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use terrace_client::{DataType, Region, Session};
use terrace_tests::{Http, Outcome, Served, Workplace, terrace_binary};

fn say(place: &Workplace, subcommand: &str, arguments: &[&str]) -> Outcome {
    Outcome::of(place.terrace(subcommand).args(arguments).output().unwrap())
}

#[track_caller]
fn well(place: &Workplace, subcommand: &str, arguments: &[&str]) -> String {
    let outcome = say(place, subcommand, arguments);
    assert_eq!(outcome.code, 0, "{subcommand} {arguments:?}: {}", outcome.stderr);
    outcome.stdout
}

#[test]
fn objects_are_put_described_tagged_found_got_and_removed() {
    let place = Workplace::new();
    let shell = place.shell();
    let path = |name: &str| place.scratch().join(name).display().to_string();
    // As numpy.save writes it: 2 by 3 of float64.
    let header = "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }";
    let header = format!("{header:<117}\n");
    let cells: Vec<u8> = (0..6).flat_map(|value| f64::from(value).to_le_bytes()).collect();
    let npy =
        [b"\x93NUMPY\x01\x00".as_slice(), &(header.len() as u16).to_le_bytes(), header.as_bytes(), &cells].concat();
    std::fs::write(path("in.npy"), &npy).unwrap();
    std::fs::write(path("in.txt"), "some words").unwrap();

    well(&place, "put", &[&path("in.npy"), "study/array"]);
    well(&place, "put", &[&path("in.txt"), "study/text"]);
    let again = say(&place, "put", &[&path("in.txt"), "study/text"]);
    assert!(again.code != 0 && again.stderr.contains("study/text"), "{}", again.stderr);
    well(&place, "put", &["--replace", &path("in.txt"), "study/text"]);

    well(&place, "tag", &["study/array", "band=J", "seeing=0.7"]);
    assert_eq!(well(&place, "tag", &["study/array"]), "band=J\nseeing=0.7\n");
    assert_eq!(well(&place, "tag", &["--find", "seeing", "--to", "1"]), "study/array\n");
    assert_eq!(well(&place, "tag", &["--find", "band", "--value", "K"]), "");
    let said = well(&place, "stat", &["study/array", "study/text", "study"]);
    assert!(said.contains("study/array: array of float64 [2, 3]") && said.contains("band = J"), "{said}");
    assert!(said.contains("study/text: bytes") && said.contains("study: container"), "{said}");

    let session = Session::open(&place.runtime().join("index")).unwrap();
    let array = session.open_array("study/array", false).unwrap();
    assert_eq!(array.spec().data_type, DataType::Float64);
    assert_eq!(array.get_values::<f64>(&Region::block(&[1, 0], &[1, 3]).unwrap()).unwrap(), [3.0, 4.0, 5.0]);
    drop((array, session));

    well(&place, "get", &["study/array", &path("out.npy")]);
    let got = std::fs::read(path("out.npy")).unwrap();
    assert_eq!(got[got.len() - cells.len()..], cells);
    well(&place, "get", &["study/text", &path("out.txt")]);
    assert_eq!(std::fs::read_to_string(path("out.txt")).unwrap(), "some words");
    assert_eq!(say(&place, "get", &["none", &path("x")]).code, 1);

    well(&place, "rm", &["study/text"]);
    assert!(say(&place, "rm", &["study"]).stderr.contains("contents"));
    well(&place, "rm", &["-r", "study"]);
    assert!(!place.root().join("study").exists());
    shell.ends_and_leaves();
}

#[test]
fn commands_go_to_the_agent_that_the_environment_names_unless_a_root_is_named() {
    let (place, elsewhere) = (Workplace::new(), tempfile::tempdir().unwrap());
    let served = Served::begin(&place, &[]);
    std::fs::write(place.scratch().join("in.txt"), "some words").unwrap();
    let program = terrace_binary();
    let in_another_directory = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.current_dir(elsewhere.path()).env("TERRACE_INDEX", &served.index).args(words);
        Outcome::of(command.output().unwrap())
    };
    let put = in_another_directory(&["put", place.scratch().join("in.txt").to_str().unwrap(), "study/text"]);
    assert_eq!(put.code, 0, "{}", put.stderr);
    let asked =
        in_another_directory(&["sql", "--format", "csv", "SELECT name FROM terrace.objects WHERE kind = 'bytes'"]);
    assert_eq!((asked.code, asked.stdout.as_str()), (0, "name\ntext\n"), "{}", asked.stderr);
    let named = in_another_directory(&["stat", "--root", elsewhere.path().to_str().unwrap(), "study/text"]);
    assert!(named.code != 0 && named.stderr.contains("study/text"), "{}", named.stderr);

    let mut web = Command::new(&program);
    web.current_dir(elsewhere.path()).env("TERRACE_INDEX", &served.index).stdout(Stdio::piped());
    let token_file = place.scratch().join("token");
    let mut web = web.args(["web", "--token-file"]).arg(&token_file).spawn().unwrap();
    let page = BufReader::new(web.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    let http = Http::new(page.strip_prefix("page: ").unwrap().split("/?").next().unwrap(), Served::TOKEN);
    assert_eq!(http.get("/zarr/study/zarr.json").status, 200);
    web.kill().unwrap();
    web.wait().unwrap();
    served.end();
}

/// NumPy and zarr-python, as they are installed for the Python package's tests, read what a flush leaves.
#[test]
fn zarr_python_reads_a_flushed_array_as_it_is() {
    let Some(python) = terrace_tests::python() else {
        return terrace_tests::skipped("zarr-python is not there; `make python` installs it");
    };
    let place = Workplace::new();
    let shell = place.shell();
    let session = Session::open(&place.runtime().join("index")).unwrap();
    let spec = terrace_client::ArraySpec::new(DataType::Int16, &[0, 4]).unlimited(0).chunks(&[2, 3]).fill(&[9, 0]);
    let array = session.create_array("a", &spec, terrace_client::Create::New).unwrap();
    array.put_values(&Region::block(&[1, 1], &[4, 2]).unwrap(), &[1i16, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    session.flush("a").unwrap();
    let program = "import sys, zarr; a = zarr.open(sys.argv[1], mode='r'); print(a.shape, a.dtype, a[:].tolist())";
    let output = Command::new(&python).args(["-c", program]).arg(place.root().join("a")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(
        said.trim(),
        "(5, 4) int16 [[9, 9, 9, 9], [9, 1, 2, 9], [9, 3, 4, 9], [9, 5, 6, 9], [9, 7, 8, 9]]",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    drop((array, session));
    shell.ends_and_leaves();
}
