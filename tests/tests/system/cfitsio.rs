//! The CFITSIO driver in unmodified programs: what CFITSIO writes and reads, and the Montage kit.

use std::path::PathBuf;
use std::process::Command;
use terrace_tests::{Wish, Workplace, checkout, fetched, library, skipped};

/// Compiles a program that links Debian's libcfitsio.
fn compile(place: &Workplace, source: &str) -> PathBuf {
    let program = place.scratch().join("program");
    let cfitsio = std::fs::read_dir("/usr/lib/x86_64-linux-gnu").unwrap().map(|entry| entry.unwrap().path());
    let cfitsio = cfitsio.filter(|path| path.to_string_lossy().contains("/libcfitsio.so.")).min();
    let output = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(checkout().join(source))
        .arg(cfitsio.expect("libcfitsio is installed: tests/setup.sh"))
        .output()
        .expect("a C compiler is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

fn room() -> Workplace {
    library("libterrace_cfitsio.so");
    Wish::default().tier("ram", "64MiB").build()
}

/// Runs the program in two new roots: with the driver, and natively.
#[track_caller]
fn runs_well(flags: &[&str]) {
    let place = room();
    let program = compile(&place, "tests/tests/system/cfitsio/files.c");
    let outside = tempfile::tempdir_in("/var/tmp").unwrap();
    let flags: Vec<&str> = ["--cfitsio"].iter().chain(flags).copied().collect();
    let outcome = place.run_with(&flags, &[program.to_str().unwrap(), outside.path().to_str().unwrap()]);
    assert_eq!((outcome.code, outcome.stderr.as_str(), outcome.stdout.as_str()), (0, "", "all claims hold\n"));
    let tree = place.settled_tree();
    assert_eq!((tree.bytes("open.fits").len() % 2880, tree.bytes("left.fits").len() > 100_000), (0, true));
}

#[test]
fn cfitsio_writes_and_reads_in_the_root_as_it_does_anywhere() {
    runs_well(&[]);
}

#[test]
fn cfitsio_writes_and_reads_in_the_root_without_the_supervisor_too() {
    runs_well(&["--preload-only"]);
}

#[test]
fn without_an_agent_the_driver_says_so_and_files_are_files() {
    let place = room();
    let program = compile(&place, "tests/tests/system/cfitsio/one.c");
    let script = format!("LD_PRELOAD={} {} plain.fits", library("libterrace_cfitsio.so").display(), program.display());
    let outcome = place.native_sh(&script);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("the CFITSIO driver is off"), "{}", outcome.stderr);
    let with_driver = std::fs::read(place.root().join("plain.fits")).unwrap();
    std::fs::remove_file(place.root().join("plain.fits")).unwrap();
    assert_eq!(place.native(&[program.to_str().unwrap(), "plain.fits"]).code, 0);
    assert_eq!(std::fs::read(place.root().join("plain.fits")).unwrap(), with_driver);
}

#[test]
fn a_program_without_cfitsio_runs_nothing_of_the_driver() {
    let place = room();
    let outcome = place.run_with(&["--cfitsio"], &["sh", "-c", "cat /proc/self/maps"]);
    assert!(outcome.stdout.contains("libterrace_cfitsio.so"), "{}", outcome.stdout);
    assert!(!outcome.stdout.contains("libterrace.so"), "{}", outcome.stdout);
}

#[test]
fn a_library_that_loads_cfitsio_later_gets_the_driver() {
    let place = room();
    let program = compile(&place, "tests/tests/system/cfitsio/one.c");
    let script = format!(
        "import ctypes, os\nlib = ctypes.CDLL('libcfitsio.so.10', mode=os.RTLD_LOCAL | os.RTLD_NOW)\n\
         f, s = ctypes.c_void_p(), ctypes.c_int(0)\n\
         assert lib.ffinit(ctypes.byref(f), b'terrace://by/python.fits', ctypes.byref(s)) == 0\n\
         assert lib.ffclos(f, ctypes.byref(s)) in (0, 252)\n\
         assert os.path.exists('by/python.fits')\nprint('{}')",
        program.file_name().unwrap().to_str().unwrap()
    );
    let outcome = place.run_with(&["--cfitsio"], &["/usr/bin/python3", "-c", &script]);
    assert_eq!((outcome.code, outcome.stdout.trim()), (0, "program"), "{}", outcome.stderr);
}

/// The kit beside the checkout; its tests are skipped where it is not.
fn kit() -> Option<PathBuf> {
    let kit = checkout().parent()?.join("shared/montage-kit");
    if kit.join("run_montage.sh").exists() {
        return Some(kit);
    }
    skipped(&format!("{} is not there", kit.display()));
    None
}

/// A sky of the kit, its tiles in `raw` and all that Montage makes of them natively.
struct Sky {
    kit: PathBuf,
    native: tempfile::TempDir,
}

impl Sky {
    fn new(preset: &str, environment: &str) -> Option<Sky> {
        let sky = Sky { kit: kit()?, native: tempfile::tempdir_in("/var/tmp").unwrap() };
        let made = Command::new(fetched("tests-venv/bin/python"))
            .args([sky.kit.join("gen_tiles.py").as_path(), sky.native.path()])
            .args(["--preset", preset])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let output =
            Command::new("bash").arg("-c").arg(sky.script(environment)).env("ROOT", sky.native.path()).output();
        let output = output.unwrap();
        assert!(output.status.success(), "natively: {}", String::from_utf8_lossy(&output.stdout));
        // Where the tiles are the kit's own to the last bit (numpy's sine may differ), so is the mosaic.
        let sums =
            |name: &str| format!("cd $ROOT && sha256sum -c --quiet {}", sky.kit.join("expected").join(name).display());
        let is_kits = |name: &str| {
            let script = sums(name);
            Command::new("bash").arg("-c").arg(script).env("ROOT", sky.native.path()).output().unwrap().status.success()
        };
        if is_kits(&format!("{preset}.sha256")) && environment.is_empty() {
            assert!(is_kits(&format!("{preset}.mosaic.sha256")), "natively it is not the kit's mosaic");
        }
        Some(sky)
    }

    /// The workflow in `$ROOT`, everything that it writes there, too.
    fn script(&self, environment: &str) -> String {
        format!(
            "export PATH={}:$PATH {environment}; {} $ROOT 2>&1",
            fetched("tests-venv/bin").display(),
            self.kit.join("run_montage.sh").display()
        )
    }

    /// Montage under `terrace run` leaves what it left natively: mosaic, and every projected, difference and corrected image.
    #[track_caller]
    fn is_made(&self, place: &Workplace, environment: &str, flags: &[&str]) {
        let raw = place.root().join("raw");
        if !raw.exists() {
            let copied = Command::new("cp").arg("-r").arg(self.native.path().join("raw")).arg(&raw).status();
            assert!(copied.unwrap().success());
        }
        place.run_with(flags, &["bash", "-c", &self.script(environment)]).ok();
        self.is_what_it_is_natively(place, &format!("{environment} {flags:?}"));
    }

    #[track_caller]
    fn is_what_it_is_natively(&self, place: &Workplace, how: &str) {
        let tree = place.settled_tree();
        let mut images = 0;
        for entry in walkdir::WalkDir::new(self.native.path()) {
            let entry = entry.unwrap();
            let name = entry.path().strip_prefix(self.native.path()).unwrap().to_str().unwrap();
            if name.ends_with(".fits") && !name.starts_with("raw/") {
                images += 1;
                let native = std::fs::read(entry.path()).unwrap();
                assert!(tree.bytes(name) == native, "{name} is not what it is natively ({how})");
            }
        }
        assert!(images > 50, "{images} images");
        for step in ["03_mProjExec", "06_mDiffExec", "07_mFitExec", "09_mBgExec"] {
            let Ok(said) = std::fs::read_to_string(place.root().join(format!("meta/{step}.out"))) else { continue };
            for fault in ["failed=", "missing="] {
                let count = said.split(fault).nth(1).and_then(|rest| rest.split([',', ']']).next());
                assert!(count.is_none_or(|count| count == "0"), "{step}: {said}");
            }
        }
    }
}

#[test]
fn montage_makes_the_same_images_by_either_door_and_again_over_its_outputs() {
    let Some(sky) = Sky::new("medium", "") else { return };
    let room = || Wish::default().tier("ram", "1GiB").build();
    let by_driver = room();
    sky.is_made(&by_driver, "", &["--cfitsio"]);
    sky.is_made(&by_driver, "NORM=1", &["--cfitsio"]);
    sky.is_made(&room(), "", &[]);
    sky.is_made(&room(), "", &["--cfitsio", "--preload-only"]);
    // Tiers that are too small: images are moved down while they are written and read.
    let narrow = Wish::default().tier("ram", "20MiB").tier("ssd", "40MiB").build();
    sky.is_made(&narrow, "", &["--cfitsio"]);
}

#[test]
fn montage_with_independent_workers_makes_the_same_images() {
    let Some(sky) = Sky::new("small", "NPROC=3") else { return };
    let place = Wish::default().tier("ram", "1GiB").build();
    sky.is_made(&place, "NPROC=3", &["--cfitsio"]);
    sky.is_made(&place, "NPROC=3 NORM=1", &["--cfitsio"]);
}

/// The programs of one node, without an agent and, where the tests run as root, without a sight of the agent's tier.
fn on_another_node(place: &Workplace, script: &str, environment: &[(&str, &str)]) {
    let may_hide = is_root();
    let hidden = format!("mount -t tmpfs none {} && exec bash -c \"$SCRIPT\"", place.tier("ram").display());
    let mut command = if may_hide { Command::new("unshare") } else { Command::new("bash") };
    if may_hide {
        command.args(["-m", "sh", "-c", &hidden])
    } else {
        command.args(["-c", "exec bash -c \"$SCRIPT\""])
    };
    command.env("SCRIPT", script).env("ROOT", place.root()).current_dir(place.root());
    command.env("LD_PRELOAD", library("libterrace_cfitsio.so")).envs(environment.iter().copied());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

fn is_root() -> bool {
    // SAFETY: it only asks.
    unsafe { libc::geteuid() == 0 }
}

#[test]
fn montage_makes_the_same_images_with_its_agent_on_another_node_and_again_over_its_outputs() {
    let Some(sky) = Sky::new("small", "") else { return };
    let place = Wish::default().tier("ram", "1GiB").build();
    library("libterrace_cfitsio.so");
    let copied = Command::new("cp").arg("-r").arg(sky.native.path().join("raw")).arg(place.root()).status();
    assert!(copied.unwrap().success());
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let token = place.scratch().join("token");
    for switched_off in [&[][..], &[("TERRACE_PREFETCH", "0"), ("TERRACE_AGGREGATE", "0")]] {
        let mut serve = place.terrace("serve");
        serve.args(["--quiet", "--tls", "--listen", &address, "--token-file"]).arg(&token);
        let mut serve = serve.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(serve.stdout.take().unwrap()), &mut line).unwrap();
        let target = format!("tls://{address}");
        let reached = [("TERRACE_AGENT", target.as_str()), ("TERRACE_TOKEN_FILE", token.to_str().unwrap())];
        on_another_node(&place, &sky.script(""), &[&reached[..], switched_off].concat());
        // SAFETY: our own child.
        unsafe { libc::kill(serve.id() as i32, libc::SIGTERM) };
        assert_eq!(serve.wait().unwrap().code(), Some(0));
        sky.is_what_it_is_natively(&place, &format!("on another node {switched_off:?}"));
    }
}
