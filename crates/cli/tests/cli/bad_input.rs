//! Bad input: each names the thing and a way out, does nothing, and exits with 2.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Place {
    /// On the durable file system; dropped with all that is below it.
    base: tempfile::TempDir,
    fast: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let fast = tempfile::Builder::new().prefix("cli-").tempdir_in("/dev/shm").unwrap();
        let place = Place { base: tempfile::tempdir_in("/var/tmp").unwrap(), fast };
        std::fs::create_dir(place.root()).unwrap();
        std::fs::create_dir(place.tier()).unwrap();
        std::fs::write(place.library(), "").unwrap();
        place
    }
    fn root(&self) -> PathBuf {
        self.base.path().join("root")
    }
    fn tier(&self) -> PathBuf {
        self.fast.path().join("tier")
    }
    fn library(&self) -> PathBuf {
        self.base.path().join("library.so")
    }
    fn terrace(&self, arguments: &[&str]) -> Said {
        Said::of(self.command(arguments).output().unwrap())
    }
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TERRACE_")) {
            command.env_remove(name);
        }
        command.env("TERRACE_LIBRARY", self.library()).env("TERRACE_STATE", self.base.path().join("state"));
        command.env("TERRACE_RUNTIME", self.fast.path().join("run"));
        command.current_dir(self.root()).args(arguments);
        command
    }
    /// `terrace run` with this terrace.toml, of a command that must not run.
    fn run_with(&self, toml: &str) -> Said {
        let file = self.base.path().join("terrace.toml");
        std::fs::write(&file, toml).unwrap();
        let said = self.terrace(&["run", "--config", file.to_str().unwrap(), "--", "touch", "ran"]);
        assert!(!self.root().join("ran").exists(), "the command ran");
        said
    }
    fn toml(&self, tier: &str) -> String {
        format!("root = {:?}\n[[tier]]\nname = \"ram\"\n{tier}\n", self.root())
    }
}

#[derive(Debug)]
struct Said {
    code: i32,
    out: String,
    err: String,
}

impl Said {
    fn of(output: Output) -> Said {
        Said {
            code: output.status.code().unwrap(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
    #[track_caller]
    fn refuses(&self, names: &[&str], way_out: &str) {
        assert_eq!(self.code, 2, "{self:?}");
        let (message, hint) = self.err.split_once("terrace: hint: ").unwrap_or_else(|| panic!("no hint: {self:?}"));
        for name in names {
            assert!(message.contains(name), "`{name}` is not named: {self:?}");
        }
        assert!(hint.contains(way_out), "no way out by `{way_out}`: {self:?}");
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn an_unknown_key_is_named_with_the_nearest_known_one() {
    let place = Place::new();
    place.run_with("rot = \"/x\"").refuses(&["terrace.toml", "`rot`"], "`root`");
    place.run_with("[mover]\nthread = 3").refuses(&["`mover.thread`"], "`mover.threads`");
    let tier = format!("path = {:?}\ncapcity = \"1GiB\"", place.tier());
    place.run_with(&place.toml(&tier)).refuses(&["`tier.capcity`"], "`capacity`");
}

#[test]
fn a_root_that_does_not_exist_or_is_no_directory_is_named() {
    let place = Place::new();
    place.terrace(&["run", "--root", "/no/such/root", "--", "true"]).refuses(&["/no/such/root"], "--root");
    let file = place.base.path().join("file");
    std::fs::write(&file, "").unwrap();
    place.terrace(&["run", "--root", text(&file), "--", "true"]).refuses(&[text(&file), "not a directory"], "--root");
}

#[test]
fn a_root_that_cannot_be_written_is_named() {
    let place = Place::new();
    place.terrace(&["run", "--root", "/proc/sys", "--", "true"]).refuses(&["/proc/sys", "not writable"], "--root");
}

#[test]
fn a_tier_that_is_missing_or_no_directory_is_named() {
    let place = Place::new();
    place
        .run_with(&place.toml("path = \"/no/such/tier\""))
        .refuses(&["`ram`", "/no/such/tier", "does not exist"], "path");
    let file = place.tier().join("file");
    std::fs::write(&file, "").unwrap();
    place.run_with(&place.toml(&format!("path = {file:?}"))).refuses(&["`ram`", "not a directory"], "directory");
}

#[test]
fn a_tier_that_cannot_be_written_is_named() {
    let place = Place::new();
    place.run_with(&place.toml("path = \"/proc/sys\"")).refuses(&["`ram`", "/proc/sys", "not writable"], "choose");
}

#[test]
fn a_tier_on_a_read_only_file_system_is_named() {
    let place = Place::new();
    let mount = place.fast.path().join("mount");
    std::fs::create_dir(&mount).unwrap();
    // Needs its own mount namespace: as root, or where users may have one.
    let script = format!(
        "mount -t tmpfs -o ro none {0} && exec {1} run --root {2} --tier ram={0} -- true",
        text(&mount),
        env!("CARGO_BIN_EXE_terrace"),
        text(&place.root())
    );
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]).env("TERRACE_LIBRARY", place.library());
    let said = Said::of(command.output().unwrap());
    if said.err.contains("unshare:") || said.err.contains("mount:") {
        eprintln!("skipped: this machine gives no mount namespace: {}", said.err);
        return;
    }
    said.refuses(&["`ram`", text(&mount), "read-only"], "choose");
}

#[test]
fn a_tier_that_is_full_is_named() {
    let place = Place::new();
    // More is reserved than any file system has.
    let tier = format!("path = {:?}\ncapacity = \"1MiB\"\nreserve = \"1000TiB\"", place.tier());
    place.run_with(&place.toml(&tier)).refuses(&["`ram`", "no room"], "reserve");
    let tier = format!("path = {:?}\ncapacity = 0", place.tier());
    place.run_with(&place.toml(&tier)).refuses(&["`ram`", "capacity 0"], "capacity");
}

#[test]
fn a_tier_that_is_the_root_or_overlaps_it_is_named() {
    let place = Place::new();
    place
        .run_with(&place.toml(&format!("path = {:?}", place.root())))
        .refuses(&["`ram`", "the root itself"], "another");
    let inside = place.root().join("inside");
    std::fs::create_dir(&inside).unwrap();
    place.run_with(&place.toml(&format!("path = {inside:?}"))).refuses(&["`ram`", "inside the root"], "outside");
    place
        .run_with(&place.toml(&format!("path = {:?}", place.base.path())))
        .refuses(&["`ram`", "contains the root"], "beside");
    let link = place.base.path().join("link");
    symlink(place.root(), &link).unwrap();
    place.run_with(&place.toml(&format!("path = {link:?}"))).refuses(&["`ram`", "the root itself"], "another");
}

#[test]
fn tiers_that_overlap_are_both_named() {
    let place = Place::new();
    let inside = place.tier().join("inside");
    std::fs::create_dir(&inside).unwrap();
    let two =
        |other: &Path| place.toml(&format!("path = {:?}\n[[tier]]\nname = \"ssd\"\npath = {other:?}", place.tier()));
    place.run_with(&two(&place.tier())).refuses(&["`ram`", "`ssd`", "same directory"], "own");
    place.run_with(&two(&inside)).refuses(&["`ram`", "`ssd`", "inside"], "own");
    let link = place.base.path().join("link");
    symlink(place.tier(), &link).unwrap();
    place.run_with(&two(&link)).refuses(&["`ram`", "`ssd`", "same directory"], "own");
}

#[test]
fn a_pattern_that_cannot_be_parsed_is_named() {
    let place = Place::new();
    let tier = format!("path = {:?}\n[policy]\nevict = [\"re:(\"]", place.tier());
    place.run_with(&place.toml(&tier)).refuses(&["evict", "`re:(`"], "regular expression");
    place.terrace(&["run", "--flush", "[a", "--", "true"]).refuses(&["flush", "`[a`"], "re:");
    place.terrace(&["config", "--flush", "/abs/**"]).refuses(&["`/abs/**`"], "`abs/**`");
}

#[test]
fn a_value_that_does_not_fit_is_named() {
    let place = Place::new();
    place.terrace(&["run", "--threads", "many", "--", "true"]).refuses(&["--threads", "`many`"], "whole number");
    place.terrace(&["run", "--tier", "ram=/dev/shm:8QiB", "--", "true"]).refuses(&["--tier", "QiB"], "8GiB");
    place.terrace(&["run", "--low-watermark", "0.95", "--", "true"]).refuses(&["watermark"], "below");
    place.terrace(&["run", "--config", "/no/such.toml", "--", "true"]).refuses(&["/no/such.toml"], "--config");
    let soon = place.terrace(&["run", "--walltime", "30s", "--", "true"]);
    soon.refuses(&["walltime", "30 s"], "--walltime-margin");
    place
        .terrace(&["run", "--report", "/no/such/dir/r.json", "--", "true"])
        .refuses(&["/no/such/dir/r.json"], "--report");
    place.terrace(&["run"]).refuses(&["no command"], "terrace run -- CMD");
    place.terrace(&["explain", "/etc/passwd"]).refuses(&["/etc/passwd", "not below the root"], "--root");
}

#[test]
fn a_missing_preload_library_is_named() {
    let place = Place::new();
    let said = place.terrace(&[
        "run",
        "--library",
        "/no/such.so",
        "--tier",
        &format!("ram={}", text(&place.tier())),
        "--",
        "true",
    ]);
    said.refuses(&["/no/such.so"], "TERRACE_LIBRARY");
}

#[test]
fn a_program_that_cannot_be_reached_is_refused_with_its_kind() {
    let place = Place::new();
    let tier = format!("ram={}", text(&place.tier()));
    let program = place.base.path().join("program");
    // A static binary: the shell's, without its interpreter's header.
    let mut bytes = std::fs::read("/bin/sh").unwrap();
    let table = u64::from_le_bytes(bytes[32..40].try_into().unwrap()) as usize;
    for entry in (0..bytes[56] as usize).map(|i| table + i * 56) {
        if bytes[entry] == 3 {
            bytes[entry] = 0;
        }
    }
    std::fs::write(&program, bytes).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    place
        .terrace(&["run", "--preload-only", "--tier", &tier, "--", text(&program)])
        .refuses(&[text(&program), "statically linked"], "dynamically");
    let doctor = place.terrace(&["doctor", "--preload-only", text(&program)]);
    assert!(doctor.code == 1 && doctor.out.contains("statically linked"), "{doctor:?}");
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } == 0 {
        std::fs::copy("/bin/sh", &program).unwrap();
        std::os::unix::fs::chown(&program, Some(12345), None).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
        place
            .terrace(&["run", "--preload-only", "--tier", &tier, "--", text(&program)])
            .refuses(&[text(&program), "setuid"], "without setuid");
    }
    let missing = place.terrace(&["run", "--tier", &tier, "--", "no-such-program"]);
    assert!(missing.code == 127 && missing.err.contains("no-such-program was not found"), "{missing:?}");
    let plain = place.terrace(&["run", "--tier", &tier, "--", text(&place.library())]);
    assert!(plain.code == 126 && plain.err.contains("no execute permission"), "{plain:?}");
}

#[test]
fn sea_ini_is_refused_by_what_it_lacks_and_taken_as_it_is() {
    let place = Place::new();
    let ini = place.base.path().join("sea.ini");
    std::fs::write(&ini, "[Sea]\nn_levels = 2 ;\nsource_0 = /dev/shm ;\n").unwrap();
    place.terrace(&["config", "--sea", text(&ini)]).refuses(&["sea.ini", "`source_1`"], "source_");

    let whole = format!(
        "[Sea]\nmount_dir = {1} ;\nn_levels = 2 ;\nsource_0 = {0} ;\nsource_1 = {1} ;\nmax_fs = 100 ;\n",
        text(&place.tier()),
        text(&place.root())
    );
    std::fs::write(&ini, whole).unwrap();
    std::fs::write(place.base.path().join(".sea_flushlist"), ".*_final\\.nii\n").unwrap();
    std::fs::write(place.base.path().join(".sea_evictlist"), ".*\n").unwrap();
    let said = place.terrace(&["config", "--json", "--sea", text(&ini)]);
    let json: serde_json::Value = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
    assert_eq!(json["settings"]["root"], text(&place.root()));
    assert_eq!(json["settings"]["tiers"][0]["paths"][0], text(&place.tier()));
    assert_eq!(json["settings"]["policy"]["flush"][0], "re:^(?:.*_final\\.nii)$");
    assert!(json["warnings"][0].as_str().unwrap().contains("`max_fs` is not needed"));
    let explained = place.terrace(&["explain", "--json", "--sea", text(&ini), "sub/x_final.nii"]);
    assert!(explained.out.contains("\"mode\": \"move\""), "{explained:?}");
}

#[test]
fn no_configuration_at_all_is_a_share_of_memory_and_flushes_everything() {
    let place = Place::new();
    let said = place.terrace(&["config", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
    assert_eq!(json["settings"]["root"], text(&place.root()));
    assert_eq!(json["settings"]["tiers"][0]["paths"][0], "/dev/shm");
    assert!(json["settings"]["tiers"][0]["capacity_bytes"].as_u64().unwrap() > 0);
    assert_eq!(json["settings"]["policy"]["flush"][0], "**");
}

#[test]
fn a_dry_run_shows_what_policy_would_do_and_changes_nothing() {
    let place = Place::new();
    std::fs::create_dir(place.root().join("work")).unwrap();
    std::fs::write(place.root().join("work/tmp.dat"), vec![0; 2000]).unwrap();
    std::fs::write(place.root().join("result.nii"), vec![0; 1000]).unwrap();
    let tier = format!("ram={}:1500", text(&place.tier()));
    let flags = ["run", "--dry-run", "--tier", &tier, "--flush", "*.nii", "--evict", "work/**", "--prefetch", "*.nii"];
    let said = place.terrace(&flags);
    assert_eq!(said.code, 0, "{said:?}");
    let line = |name: &str| -> Vec<String> {
        let line = said.out.lines().find(|line| line.ends_with(name)).unwrap_or_else(|| panic!("{name}: {said:?}"));
        line.split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(line("result.nii")[..2], ["copy", "ram"]);
    assert_eq!(line("work/tmp.dat")[..2], ["remove", "durable"]);
    assert!(said.out.contains("prefetched at the start: 1 files"), "{said:?}");
    assert!(!place.root().join(".terrace").exists());
}

#[test]
fn commands_without_an_agent_say_so() {
    let place = Place::new();
    let status = place.terrace(&["status"]);
    assert!(status.code == 1 && status.err.contains("no agent serves"), "{status:?}");
    let json = place.terrace(&["status", "--json"]);
    assert!(json.code == 1 && json.out.contains("\"running\": false"), "{json:?}");
    let prefetch = place.terrace(&["prefetch"]);
    assert!(prefetch.code == 1 && prefetch.err.contains("hint"), "{prefetch:?}");
    let list = place.terrace(&["ls"]);
    assert!(list.code == 0 && list.out.contains("no file below"), "{list:?}");
}

#[test]
fn a_capacity_that_the_file_system_does_not_have_is_refused() {
    let place = Place::new();
    let tier = format!("ram={}:900TiB", text(&place.tier()));
    let said = place.terrace(&["run", "--tier", &tier, "--", "touch", "ran"]);
    said.refuses(&["`ram`", "900.0 TiB", text(&place.tier())], "`capacity`");
    assert!(!place.root().join("ran").exists());
    // Settings for another machine can still be looked at.
    let said = place.terrace(&["config", "--tier", &tier]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.err.contains("warning: tier `ram`"), "{said:?}");
}

#[test]
fn a_misspelt_option_before_the_command_is_named_with_the_nearest() {
    let place = Place::new();
    for flag in ["--flsh", "--flsh=x"] {
        let said = place.terrace(&["run", flag, "x", "--", "touch", "ran"]);
        assert_eq!(said.code, 2, "{said:?}");
        assert!(said.err.contains("'--flsh'") && said.err.contains("'--flush'"), "{said:?}");
        assert!(!place.root().join("ran").exists() && !said.err.contains("PATH"), "{said:?}");
    }
}

#[test]
fn a_misspelt_command_is_named_with_the_nearest() {
    let said = Place::new().terrace(&["rnu", "--", "true"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.err.contains("'rnu'") && said.err.contains("'run'"), "{said:?}");
}

#[test]
fn a_reader_that_has_seen_enough_ends_no_command_badly() {
    let place = Place::new();
    std::fs::write(place.root().join("file"), "x").unwrap();
    let tier = format!("ram={}:1MiB", text(&place.tier()));
    let commands: [&[&str]; 9] = [
        &["config"],
        &["config", "--json"],
        &["ls"],
        &["ls", "--json"],
        &["run", "--dry-run"],
        &["explain", "file"],
        &["doctor"],
        &["recover"],
        &["--help"],
    ];
    for arguments in commands {
        for both in [false, true] {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let mut command = place.command(arguments);
            command.env("TERRACE_TIER", &tier).stdout(writer.try_clone().unwrap());
            // Its words may go there too (`2>&1 | head -1`).
            if both {
                command.stderr(writer);
            }
            let seen_enough = command.output().unwrap();
            let read = place.command(arguments).env("TERRACE_TIER", &tier).output().unwrap();
            assert!(!read.stdout.is_empty(), "{arguments:?} prints nothing");
            assert_eq!(seen_enough.status.code(), read.status.code(), "{arguments:?}: {seen_enough:?}");
            assert!(
                !String::from_utf8_lossy(&seen_enough.stderr).contains("panicked"),
                "{arguments:?}: {seen_enough:?}"
            );
        }
    }
}

#[test]
fn an_answer_that_finds_no_room_is_a_failure() {
    let place = Place::new();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = place.command(&["config"]).stdout(full).output().unwrap();
    let said = Said::of(output);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("standard output"), "{said:?}");
}
