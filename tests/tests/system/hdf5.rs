//! The HDF5 connector in unmodified programs: h5py and netCDF4, each with the HDF5 of its own wheel.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use terrace_tests::{Outcome, Wish, Workplace, checkout, library, python, skipped, wait_until};

/// A place with room for double the files, and a Python with h5py; without one the test shows nothing.
fn room(capacity: &str) -> Option<(Workplace, PathBuf)> {
    library("hdf5/libterrace_hdf5.so");
    let Some(python) = python() else {
        skipped("the Python environment is not there: make python");
        return None;
    };
    Some((Wish::default().tier("ram", capacity).build(), python))
}

/// One of the programs beside this file.
fn program(name: &str) -> String {
    checkout().join("tests/tests/system/hdf5").join(name).to_str().unwrap().into()
}

/// What a program says on stderr is its own, but for the connector's one line.
#[track_caller]
fn holds(outcome: &Outcome) {
    let others: Vec<&str> = outcome.stderr.lines().filter(|line| !line.starts_with("terrace: HDF5: ")).collect();
    assert_eq!((outcome.code, others), (0, vec![]), "{}", outcome.stdout);
    assert!(outcome.stdout.ends_with("all claims hold\n"), "{}", outcome.stdout);
}

#[track_caller]
fn rows(place: &Workplace, query: &str) -> Vec<String> {
    let outcome = Outcome::of(place.terrace("sql").args(["--format", "csv", query]).output().unwrap());
    assert_eq!(outcome.code, 0, "{query}: {}", outcome.stderr);
    outcome.stdout.lines().skip(1).map(String::from).collect()
}

#[test]
fn what_a_program_writes_is_asked_for_while_it_runs_and_the_file_is_what_it_is_natively() {
    let Some((place, python)) = room("64MiB") else { return };
    let python = python.to_str().unwrap();
    let script = program("all_kinds.py");
    let mut command = place.run_command(&["--hdf5"], &[python, &script, "kinds.h5", "steps"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    for step in 0..3 {
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, format!("written {step}\n"));
        let sums =
            rows(&place, "SELECT dim_0, sum(series) FROM \".hdf5/kinds.h5/series\" GROUP BY dim_0 ORDER BY dim_0");
        let wanted: Vec<String> = (0..=step).map(|step| format!("{step},{}.0", 6 + 40 * step)).collect();
        assert_eq!(sums, wanted);
        writeln!(stdin).unwrap();
    }
    child.stdout = Some(stdout.into_inner());
    holds(&Outcome::of_child(60, child));
    let tree = place.settled_tree();
    place.wait_for_the_agents_end();
    assert!(!place.root().join(".hdf5").exists(), "arrays, or what they were in, stayed");
    // The same program natively, with the same bytes.
    let natively = place.scratch().join("kinds.h5");
    let outcome = place.native(&[python, &script, natively.to_str().unwrap()]);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    assert!(tree.bytes("kinds.h5") == std::fs::read(&natively).unwrap(), "the file has other bytes than natively");
}

#[test]
fn arrays_say_what_the_file_says_whatever_calls_are_made() {
    let Some((place, python)) = room("64MiB") else { return };
    // Puts that HDF5 waits for, and puts that go on beside its own writes.
    for (seed, overlaps_from) in [(1, "1000000"), (2, "1"), (3, "1")] {
        let calls = format!("{} {} {seed} 100", python.display(), program("random_calls.py"));
        let script = format!("TERRACE_HDF5_OVERLAP_BYTES={overlaps_from} {calls}");
        holds(&place.run_with(&["--hdf5"], &["sh", "-c", &script]));
    }
}

#[test]
fn a_file_that_is_opened_again_has_the_arrays_that_it_had_while_nobody_else_has_changed_it() {
    let Some((place, python)) = room("64MiB") else { return };
    holds(&place.run_with(&["--hdf5"], &[python.to_str().unwrap(), &program("again.py")]));
}

#[test]
fn texts_of_any_length_are_as_wide_as_the_longest() {
    let Some((place, python)) = room("64MiB") else { return };
    holds(&place.run_with(&["--hdf5"], &[python.to_str().unwrap(), &program("texts.py")]));
}

/// It shrank so that its array had to be made anew, and was too large for that: the old one stayed.
#[test]
fn a_large_dataset_that_shrinks_leaves_no_array_that_says_what_it_was() {
    let Some((place, python)) = room("64MiB") else { return };
    let script = "import h5py, terrace\nsession = terrace.connect()\nfile = h5py.File('a.h5', 'w')\n\
                  x = file.create_dataset('x', (80 << 20,), 'f8', maxshape=(None,), chunks=(1 << 17,))\nx[5] = 1\n\
                  assert session.exists('.hdf5/a.h5/x')\nx.resize((40 << 20,))\n\
                  assert not session.exists('.hdf5/a.h5/x')\nprint('all claims hold')";
    holds(&place.run_with(&["--hdf5"], &[python.to_str().unwrap(), "-c", script]));
}

#[test]
fn two_hdf5_libraries_in_one_process_each_have_the_connector() {
    let Some((place, python)) = room("64MiB") else { return };
    holds(&place.run_with(&["--hdf5"], &[python.to_str().unwrap(), &program("two_libraries.py")]));
}

/// Compiles one of the programs beside this file.
#[track_caller]
fn compiled(place: &Workplace, compiler: &str, source: &str, flags: &[&str]) -> String {
    let to = place.scratch().join("program");
    let output = Command::new(compiler)
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"])
        .args([to.to_str().unwrap(), &program(source)])
        .args(flags)
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    to.to_str().unwrap().into()
}

#[test]
fn a_c_program_that_closes_nothing_is_asked_for_by_selections_and_conversions() {
    let Some((place, python)) = room("64MiB") else { return };
    let find = "import glob, h5py, os; print(glob.glob(os.path.dirname(h5py.__file__) + '.libs/libhdf5-*.so*')[0])";
    let hdf5 = place.native(&[python.to_str().unwrap(), "-c", find]).ok().stdout;
    let hdf5 = Path::new(hdf5.trim());
    let beside = format!("-Wl,-rpath,{}", hdf5.parent().unwrap().display());
    // What the wheel's library needs lies beside it.
    let flags = [hdf5.to_str().unwrap(), &beside, "-Wl,--disable-new-dtags", "-Wl,--allow-shlib-undefined"];
    let program = compiled(&place, "cc", "plain.c", &flags);
    let mut command = place.run_command(&["--hdf5"], &[&program, "plain.h5"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "written\n");
    let sums = "SELECT dim_0, sum(CAST(real AS BIGINT)), sum(CAST(whole AS BIGINT)) FROM \".hdf5/plain.h5\" GROUP BY dim_0 ORDER BY dim_0";
    // Rows 1 and 3 of real are columns 2 to 5 of cells 0 and 1; row 5 of whole was too large.
    let wanted = ["0,0,-6", "1,14,-2", "2,0,2", "3,54,6", "4,0,10", "5,280014,131068"];
    assert_eq!(rows(&place, sums), wanted);
    let tags = rows(&place, "SELECT path, key, value FROM terrace.tags WHERE key = 'rows'");
    assert_eq!(tags, [".hdf5/plain.h5/whole,rows,6"]);
    writeln!(stdin).unwrap();
    child.stdout = Some(stdout.into_inner());
    let outcome = Outcome::of_child(60, child);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""));
    let check = "import h5py\nf = h5py.File('plain.h5')\nprint(f['real'][:].sum(axis=1).tolist(), f['whole'][:].sum(axis=1).tolist())";
    let sums = place.native(&[python.to_str().unwrap(), "-c", check]).ok().stdout;
    assert_eq!(sums, "[0.0, 14.0, 0.0, 54.0, 0.0, 280014.0] [-6, -2, 2, 6, 10, 131068]\n");
}

#[test]
fn an_older_hdf5_knows_of_no_connector_and_its_files_are_files() {
    let Some((place, python)) = room("64MiB") else { return };
    let program = compiled(&place, "mpicc", "old.c", &["-I/usr/include/hdf5/openmpi", "-lhdf5_openmpi"]);
    let outcome = place.run_with(&["--hdf5"], &["sh", "-c", &format!("{program} && ! ls -d .hdf5 2>&1")]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{}", outcome.stdout);
    let check = "import h5py; print(h5py.File('old.h5')['x'][:].tolist())";
    assert_eq!(place.native(&[python.to_str().unwrap(), "-c", check]).ok().stdout, "[1, 2, 3]\n");
}

/// MPI-IO: HDF5 does it, as without the connector, which says so.
#[test]
fn files_of_a_parallel_hdf5_are_left_to_it() {
    let Some((place, python)) = room("64MiB") else { return };
    let prefix = checkout().join("build/parallel-hdf5");
    if !prefix.join("lib/libhdf5.so").exists() {
        return skipped("a parallel HDF5 that knows connectors is not there (tests/parallel-hdf5.sh)");
    }
    let (include, library) =
        (format!("-I{}/include", prefix.display()), format!("{}/lib/libhdf5.so", prefix.display()));
    let beside = format!("-Wl,-rpath,{}/lib", prefix.display());
    let program = compiled(&place, "mpicc.openmpi", "parallel.c", &[&include, &library, &beside]);
    let ranks = format!("mpirun.openmpi --allow-run-as-root --oversubscribe --quiet -n 3 {program} parallel.h5");
    let outcome = place.run_with(&["--hdf5"], &["sh", "-c", &format!("{ranks} && ! ls .hdf5/parallel.h5 2>&1")]);
    assert!(
        outcome.code == 0 && outcome.stdout.starts_with("all claims hold\n"),
        "{}{}",
        outcome.stdout,
        outcome.stderr
    );
    assert!(outcome.stderr.contains("parallel.h5 is in its file only"), "{}", outcome.stderr);
    let check = "import h5py; print(h5py.File('parallel.h5')['g/x'][:].ravel().tolist() == list(range(12000)))";
    assert_eq!(place.native(&[python.to_str().unwrap(), "-c", check]).ok().stdout, "True\n");
}

/// `--hdf5=both`, and policy that drops the files.
#[test]
fn zarr_alone_stays_where_policy_drops_the_files() {
    let wish = Wish::default().tier("ram", "64MiB").policy("flush = [\"**\", \"!**/*.h5\"]\nevict = [\"**/*.h5\"]");
    let Some(python) = python() else { return skipped("the Python environment is not there: make python") };
    library("hdf5/libterrace_hdf5.so");
    let (place, python) = (wish.build(), python.to_str().unwrap());
    let script = "import h5py, numpy as np\nf = h5py.File('out/a.h5', 'w')\nf['g/x'] = np.arange(12.).reshape(3, 4)\nf.close()\n\
                  assert h5py.File('out/a.h5')['g/x'][2, 3] == 11";
    std::fs::create_dir(place.root().join("out")).unwrap();
    place.run_with(&["--hdf5=both"], &[python, "-c", script]).ok();
    place.wait_for_the_agents_end();
    assert!(!place.root().join("out/a.h5").exists());
    let check = "import zarr; print(zarr.open_array('.zarr/out/a.h5/g/x', mode='r')[:].sum())";
    assert_eq!(place.native(&[python, "-c", check]).ok().stdout, "66.0\n");
}

#[test]
fn arrays_stay_as_zarr_where_both_are_wanted() {
    let Some((place, python)) = room("64MiB") else { return };
    let python = python.to_str().unwrap();
    let script =
        "import h5py, numpy as np\nf = h5py.File('out/a.h5', 'w')\nf['g/x'] = np.arange(12.).reshape(3, 4)\nf.close()";
    std::fs::create_dir(place.root().join("out")).unwrap();
    place.run_with(&["--hdf5=both"], &[python, "-c", script]).ok();
    let check = "import h5py, zarr\nx = zarr.open_array('.zarr/out/a.h5/g/x', mode='r')[:]\n\
                 print((x == h5py.File('out/a.h5')['g/x'][:]).all(), x.sum())";
    assert_eq!(place.native(&[python, "-c", check]).ok().stdout, "True 66.0\n");
}

#[test]
fn outside_the_root_and_for_reading_only_nothing_is_made() {
    let Some((place, python)) = room("64MiB") else { return };
    let outside = place.scratch().join("a.h5");
    let script = format!(
        "import h5py, os\nf = h5py.File({outside:?}, 'w')\nf['x'] = [1, 2]\nf.close()\n\
         os.system('cp {} b.h5')\n\
         f = h5py.File('b.h5')\nassert f['x'][1] == 2\nassert not os.path.lexists('.hdf5')\nprint('all claims hold')",
        outside.display()
    );
    let outcome = place.run_with(&["--hdf5"], &[python.to_str().unwrap(), "-c", &script]);
    assert_eq!((outcome.code, outcome.stderr.as_str(), outcome.stdout.as_str()), (0, "", "all claims hold\n"));
}

#[test]
fn without_an_agent_the_connector_says_so_and_files_are_files() {
    let Some((place, python)) = room("64MiB") else { return };
    let plugins = library("hdf5/libterrace_hdf5.so");
    let script = "import h5py\nfor n in 'ab':\n f = h5py.File(n + '.h5', 'w')\n f['x'] = [1, 2]\n f.close()\nprint(h5py.File('a.h5')['x'][1])";
    let outcome = place.native_sh(&format!(
        "HDF5_VOL_CONNECTOR=terrace HDF5_PLUGIN_PATH={} {} -c \"{script}\"",
        plugins.parent().unwrap().display(),
        python.display()
    ));
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "2\n"), "{}", outcome.stderr);
    assert_eq!(outcome.stderr.matches("the HDF5 connector does nothing").count(), 1, "{}", outcome.stderr);
}

#[test]
fn in_a_full_tier_the_file_is_whole_and_no_array_is_wrong() {
    let Some((place, python)) = room("6MiB") else { return };
    holds(&place.run_with(&["--hdf5"], &[python.to_str().unwrap(), &program("full.py")]));
    let check = "import h5py, numpy as np\nf = h5py.File('full.h5')\n\
                 print(all((f[f'x{n}'][:] == np.arange(1 << 18) + n).all() for n in range(8)))";
    assert_eq!(place.native(&[python.to_str().unwrap(), "-c", check]).ok().stdout, "True\n");
}

#[test]
fn a_write_that_hdf5_refuses_takes_the_array_with_it_and_reads_no_memory_of_others() {
    let Some((place, python)) = room("64MiB") else { return };
    // The last page of a mapping is the buffer, and the file's selection has more cells than the memory's.
    let script = "import h5py, mmap, numpy as np, terrace\nsession = terrace.connect()\n\
                  with h5py.File('a.h5', 'w') as file:\n    \
                      file['x'], file['y'] = np.zeros(1 << 18), np.ones(1 << 18)\n    \
                      cells = np.frombuffer(mmap.mmap(-1, 4096), 'f8')\n    \
                      try:\n        \
                          file['x'].id.write(h5py.h5s.create_simple((512,)), h5py.h5s.create_simple((1 << 18,)), cells)\n    \
                      except (TypeError, ValueError, OSError):\n        \
                          print('refused')\n    \
                      assert not session.exists('.hdf5/a.h5/x')\n    \
                      assert (session['.hdf5/a.h5/y'][...] == 1).all()\n\
                  print('all claims hold')";
    let outcome = place.run_with(&["--hdf5"], &[python.to_str().unwrap(), "-c", script]);
    assert_eq!(outcome.stdout, "refused\nall claims hold\n", "{}", outcome.stderr);
    holds(&outcome);
}

#[test]
fn a_program_that_is_killed_leaves_no_array_that_a_later_one_takes_for_its_own() {
    let Some((place, python)) = room("64MiB") else { return };
    let python = python.to_str().unwrap();
    let first = "import h5py, os, signal\nf = h5py.File('a.h5', 'w')\nf['x'] = [1, 2]\nf.close()\n\
                 f = h5py.File('a.h5', 'a')\nf['x'][0] = 7\nf.flush()\nf['x'][1] = 8\nos.kill(os.getpid(), signal.SIGKILL)";
    let second = "import h5py, terrace\nf = h5py.File('a.h5', 'a', locking=False)\ns = terrace.connect()\n\
                  assert not s.exists('.hdf5/a.h5/x')\nf['new'] = 1\nf['x'][0] += 1\n\
                  assert (s['.hdf5/a.h5/x'][...] == f['x'][:]).all() and f['x'][0] == 8\nprint('all claims hold')";
    let script = format!("{python} -c \"{first}\"; {python} -c \"{second}\"");
    let outcome = place.run_with(&["--hdf5"], &["sh", "-c", &script]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "all claims hold\n"), "{}", outcome.stderr);
    assert!(!place.root().join(".hdf5").exists());
}

#[test]
fn a_program_goes_on_when_the_agent_is_killed() {
    let Some((place, python)) = room("64MiB") else { return };
    let python = python.to_str().unwrap();
    let script = "import h5py, sys\nf = h5py.File('a.h5', 'w')\nf['x'] = [1.0, 2.0]\nprint('ready', flush=True)\nsys.stdin.readline()\n\
                  f['y'] = [3.0]\nf['x'][0] = 5\nf.create_group('g').attrs['k'] = 1\nf.close()\nprint('done')";
    let mut command = place.run_command(&["--hdf5"], &[python, "-c", script]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let agent = place.status().expect("an agent answers").agent_pid;
    // SAFETY: kill has no preconditions; the agent is this test's own.
    assert_eq!(unsafe { libc::kill(agent as libc::pid_t, libc::SIGKILL) }, 0);
    assert!(wait_until(30, || place.status().is_some_and(|status| status.agent_pid != agent)), "no new agent came");
    writeln!(stdin).unwrap();
    child.stdout = Some(stdout.into_inner());
    let outcome = Outcome::of_child(60, child);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "done\n"), "{}", outcome.stderr);
    let check = "import h5py\nf = h5py.File('a.h5')\nprint(f['x'][:].tolist(), f['y'][:].tolist(), f['g'].attrs['k'])";
    assert_eq!(place.native(&[python, "-c", check]).ok().stdout, "[5.0, 2.0] [3.0] 1\n");
}

#[test]
fn what_can_not_be_had_is_refused_by_name() {
    let Some((place, _)) = room("64MiB") else { return };
    for (flags, said) in [
        (&["--hdf5", "--mount"][..], "cannot be used with"),
        (&["--hdf5", "--nodes", "slurm"], "cannot be used with"),
        (&["--hdf5=none"], "invalid value"),
    ] {
        let outcome = place.run_with(flags, &["true"]).ends_with(2);
        assert!(outcome.stderr.contains(said), "{flags:?}: {}", outcome.stderr);
    }
    let mut command = place.run_command(&["--hdf5"], &["true"]);
    let outcome =
        Outcome::of(command.env("HDF5_VOL_CONNECTOR", "pass_through under_vol=0;under_info={}").output().unwrap());
    assert_eq!(outcome.code, 2);
    assert!(outcome.stderr.contains("HDF5_VOL_CONNECTOR says `pass_through under_vol"), "{}", outcome.stderr);
    let outcome = place.run_with(&["--hdf5"], &["sh", "-c", "echo $HDF5_VOL_CONNECTOR $HDF5_PLUGIN_PATH"]).ok();
    let plugins = library("hdf5/libterrace_hdf5.so");
    assert_eq!(outcome.stdout, format!("terrace {}:/usr/local/hdf5/lib/plugin\n", plugins.parent().unwrap().display()));
}
