//! Completions and man pages: written from the same grammar as `--help`, for the commands that it lists.

use std::collections::BTreeSet;
use std::process::Command;

const TERRACE: &str = env!("CARGO_BIN_EXE_terrace");

fn says(arguments: &[&str]) -> String {
    let output = Command::new(TERRACE).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The commands that `--help` lists.
fn commands() -> BTreeSet<String> {
    let help = says(&["--help"]);
    let names: BTreeSet<String> = help
        .lines()
        .take_while(|line| *line != "Options:")
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect();
    assert!(names.contains("run") && names.len() > 10, "{names:?}");
    names
}

#[test]
fn completions_of_each_shell_know_each_command() {
    for shell in ["bash", "zsh", "fish"] {
        let text = says(&["completions", shell]);
        for command in commands() {
            assert!(text.contains(&command), "{shell} does not know {command}");
        }
        assert!(text.contains("flush"), "{shell} does not know `run --flush`");
    }
}

#[test]
fn bash_completes_a_command_by_its_beginning() {
    let script = r#"source /dev/stdin; COMP_WORDS=(terrace reco); COMP_CWORD=1; _terrace terrace reco terrace; echo "${COMPREPLY[@]}""#;
    let mut bash = Command::new("bash")
        .args(["--norc", "-c", script])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut bash.stdin.take().unwrap(), says(&["completions", "bash"]).as_bytes()).unwrap();
    let output = bash.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "recover\n");
}

#[test]
fn a_shell_that_is_not_known_is_refused_by_name() {
    let output = Command::new(TERRACE).args(["completions", "csh"]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("csh") && error.contains("fish"), "{error}");
}

#[test]
fn each_command_that_help_lists_has_a_man_page_and_no_other_has() {
    let place = tempfile::tempdir().unwrap();
    let pages = place.path().join("share/man1");
    says(&["man-pages", pages.to_str().unwrap()]);
    let found: BTreeSet<String> =
        std::fs::read_dir(&pages).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let wanted: BTreeSet<String> =
        commands().iter().map(|name| format!("terrace-{name}.1")).chain(["terrace.1".into()]).collect();
    let missing: Vec<_> = wanted.difference(&found).collect();
    assert!(missing.is_empty(), "without a page: {missing:?}");
    assert!(!found.contains("terrace-agent.1"), "{found:?}");
    let page = std::fs::read_to_string(pages.join("terrace-run.1")).unwrap();
    assert!(page.starts_with(".ie") && page.contains(".TH") && page.contains("flush"), "{page}");
}

#[test]
fn man_pages_that_have_no_place_are_refused_by_its_name() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    std::fs::write(&file, "").unwrap();
    let output = Command::new(TERRACE).args(["man-pages"]).arg(file.join("below")).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("file/below"), "{error}");
}
