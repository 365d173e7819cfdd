//! The documentation's links: each leads to a file, each page is found from the index, and paths in prose exist.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use terrace_tests::checkout;

/// Pages that stand beside docs/.
const OUTER: [&str; 5] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "demo/README.md"];

/// Every page, as its path in the checkout.
fn pages() -> BTreeSet<PathBuf> {
    let mut pages: BTreeSet<PathBuf> = OUTER.iter().map(PathBuf::from).collect();
    for top in ["docs", "benchmarks"] {
        for entry in walkdir::WalkDir::new(checkout().join(top)) {
            let path = entry.unwrap().into_path();
            if path.extension().is_some_and(|extension| extension == "md") {
                pages.insert(path.strip_prefix(checkout()).unwrap().to_owned());
            }
        }
    }
    assert!(pages.len() > 30, "only {} pages: {pages:?}", pages.len());
    pages
}

fn text(page: &Path) -> String {
    std::fs::read_to_string(checkout().join(page)).unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}

/// The targets of a page's relative links: a path in the checkout, and a heading's name or "".
fn links(page: &Path) -> Vec<(PathBuf, String)> {
    let text = text(page);
    let targets = text.split("](").skip(1).filter_map(|after| after.split_once(')')).map(|(target, _)| target);
    let relative = targets.filter(|target| !target.contains("://") && !target.contains(char::is_whitespace));
    let parted = relative.map(|target| target.split_once('#').unwrap_or((target, "")));
    parted
        .map(|(path, heading)| match path {
            "" => (page.to_owned(), heading.to_owned()),
            path => (plain(&page.parent().unwrap().join(path)), heading.to_owned()),
        })
        .collect()
}

/// Without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => assert!(plain.pop(), "{} leads out of the checkout", path.display()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// The names that GitHub and mdBook give to a page's headings.
fn headings(page: &Path) -> BTreeSet<String> {
    let text = text(page);
    let titles = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let named = titles.map(|title| {
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    });
    named.collect()
}

#[test]
fn every_link_leads_to_a_file_and_to_a_heading() {
    let mut count = 0;
    let mut wrong = vec![];
    for page in pages() {
        for (target, heading) in links(&page) {
            count += 1;
            if !checkout().join(&target).exists() {
                wrong.push(format!("{}: {} is not there", page.display(), target.display()));
            } else if !heading.is_empty() && !headings(&target).contains(&heading) {
                wrong.push(format!("{}: {} has no heading `{heading}`", page.display(), target.display()));
            }
        }
    }
    assert!(count > 150, "only {count} links were found");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// From the index for readers by clicking, and in the summary, which is the site's table of contents.
#[test]
fn every_page_is_reached_from_the_index_and_is_in_the_summary() {
    let summary = Path::new("docs/SUMMARY.md");
    let pages: BTreeSet<PathBuf> = pages().into_iter().filter(|page| page != summary).collect();
    let mut reached = BTreeSet::new();
    let mut next = vec![PathBuf::from("docs/README.md")];
    while let Some(page) = next.pop() {
        if pages.contains(&page) && reached.insert(page.clone()) {
            next.extend(links(&page).into_iter().map(|(target, _)| target));
        }
    }
    let unreached: Vec<_> = pages.difference(&reached).collect();
    assert!(unreached.is_empty(), "no way of links leads from docs/README.md to {unreached:?}");
    let listed: BTreeSet<PathBuf> = links(summary).into_iter().map(|(target, _)| target).collect();
    let unlisted: Vec<_> = pages.difference(&listed).collect();
    assert!(unlisted.is_empty(), "docs/SUMMARY.md does not list {unlisted:?}");
}

/// A reader follows `crates/…` in prose as he follows a link.
#[test]
fn every_path_of_the_sources_that_a_page_names_is_there() {
    let mut count = 0;
    let mut wrong = vec![];
    for page in pages().into_iter().filter(|page| page != Path::new("CHANGELOG.md")) {
        let text = text(&page);
        for word in text.split(|c: char| c == '`' || c.is_whitespace() || matches!(c, '(' | ')' | ',' | ';' | '|')) {
            let word = word.trim_end_matches(['.', ':', '/']);
            let is_path = ["crates/", "tests/", "scripts/", "benchmarks/", "demo/", "examples/", "docs/"]
                .iter()
                .any(|top| word.starts_with(top));
            let is_pattern = word.contains(['*', '{', '…', '<', '$', '#', '"', '\'', '\\']);
            if is_path && !is_pattern && !page.starts_with("benchmarks/results") {
                count += 1;
                if !checkout().join(word).exists() {
                    wrong.push(format!("{}: {word}", page.display()));
                }
            }
        }
    }
    assert!(count > 40, "only {count} paths were found");
    assert!(wrong.is_empty(), "these are not there: {wrong:#?}");
}

/// Hints of errors and comments of sources name pages, too.
#[test]
fn every_page_that_the_sources_name_is_there() {
    let mut count = 0;
    let mut wrong = vec![];
    for top in ["benchmarks", "crates", "demo", "python", "scripts", "tests", "tools"] {
        for entry in walkdir::WalkDir::new(checkout().join(top)) {
            let path = entry.unwrap().into_path();
            let is_source = path.extension().is_some_and(|extension| {
                ["rs", "py", "sh", "c", "h", "hpp", "f90", "toml"].iter().any(|one| extension == *one)
            });
            // This file's own patterns are no pages.
            if !is_source || path.ends_with("system/docs.rs") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            for after in text.split("docs/").skip(1) {
                let is_part = |c: char| c.is_alphanumeric() || matches!(c, '/' | '-' | '_' | '.');
                let name = after.split(|c| !is_part(c)).next().unwrap().trim_end_matches('.');
                if name.ends_with(".md") {
                    count += 1;
                    if !checkout().join("docs").join(name).exists() {
                        wrong.push(format!("{}: docs/{name}", path.display()));
                    }
                }
            }
        }
    }
    assert!(count > 10, "only {count} pages are named");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Longer lines of prose are hard to read in an editor. Tables, code and links can't be broken.
#[test]
fn no_line_of_prose_is_longer_than_150_columns() {
    let mut long = vec![];
    for page in pages().into_iter().filter(|page| !page.starts_with("benchmarks/results")) {
        let mut is_code = false;
        for (number, line) in text(&page).lines().enumerate() {
            is_code ^= line.trim_start().starts_with("```");
            // predict.py writes its note on the measurement in one line.
            let is_generated = line.starts_with("**Note on the measurement:**");
            let breaks =
                !is_code && !is_generated && !line.trim_start().starts_with(['|', '!']) && !line.starts_with("    ");
            if breaks && line.chars().count() > 150 {
                long.push(format!("{}:{}", page.display(), number + 1));
            }
        }
    }
    assert!(long.is_empty(), "{long:#?}");
}

/// What CONTRIBUTING.md and ARCHITECTURE.md say of the workspace is what the workspace is.
#[test]
fn every_crate_is_on_the_map_and_the_rust_version_is_the_one_that_is_needed() {
    let architecture = text(Path::new("ARCHITECTURE.md"));
    assert!(architecture.lines().count() <= 300, "ARCHITECTURE.md has more than 300 lines");
    assert!(text(Path::new("README.md")).lines().count() <= 100, "README.md has more than 100 lines");
    let mut crates = 0;
    for entry in std::fs::read_dir(checkout().join("crates")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        crates += 1;
        assert!(architecture.contains(&format!("| `crates/{name}` |")), "ARCHITECTURE.md's map has no crates/{name}");
    }
    assert!(crates > 10);
    let manifest = text(Path::new("Cargo.toml"));
    let version = manifest.split("rust-version = \"").nth(1).and_then(|after| after.split('"').next()).unwrap();
    assert!(text(Path::new("CONTRIBUTING.md")).contains(&format!("Rust {version} or newer")));
}
