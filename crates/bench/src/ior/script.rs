//! IOR's scripts: `IOR START`, directives a line, `RUN` for each test, `IOR STOP`. Each test begins as the one before it was.

use super::Options;
use crate::error::{Error, Result};
use std::path::Path;

pub fn runs(first: &Options, path: &Path) -> Result<Vec<Options>> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Error::input(format!("can't read IOR's script {}: {error}", path.display()), "name a file"))?;
    let is = |line: &str, word: &str| line.eq_ignore_ascii_case(word);
    let mut lines = text.lines().enumerate().skip_while(|(_, line)| !is(line.trim(), "ior start"));
    if lines.next().is_none() {
        return Err(Error::input(
            format!("{}: there is no line `IOR START`", path.display()),
            "begin the tests with it",
        ));
    }
    let mut now = first.clone();
    let mut runs = Vec::new();
    // What stands behind the last `RUN` is a test as well.
    let mut open = false;
    for (index, line) in lines {
        let line = line.split('#').next().unwrap_or_default().trim();
        if is(line, "ior stop") {
            break;
        }
        if is(line, "run") {
            runs.push(now.clone());
            open = false;
            continue;
        }
        for directive in line.split(',').map(str::trim).filter(|directive| !directive.is_empty()) {
            now.directive(directive).map_err(|error| {
                let place = format!("{}, line {}: {error}", path.display(), index + 1);
                Error::input(place, error.hint().unwrap_or_default())
            })?;
            open = true;
        }
    }
    if open {
        runs.push(now);
    }
    if runs.is_empty() {
        return Err(Error::input(
            format!("{}: there is no test in it", path.display()),
            "write `RUN` behind its lines",
        ));
    }
    Ok(runs)
}
