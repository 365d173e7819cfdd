//! The pages that say what programs may rely on name tests that exist, and leave none out.

use std::collections::BTreeSet;
use terrace_tests::checkout;

/// Each page, and the file of tests that it names without saying so.
const PAGES: &[(&str, &str)] = &[
    ("reference/semantics.md", ""),
    ("reference/programs.md", "programs"),
    ("reference/programs-matrix.md", "matrix"),
    ("guide/objects.md", ""),
    ("guide/queries.md", "queries"),
    ("guide/staging.md", "staging"),
    ("reference/savime.md", "savime"),
    ("guide/c.md", "capi"),
    ("guide/cfitsio.md", "cfitsio"),
    ("guide/hdf5.md", "hdf5"),
    ("guide/predict.md", "predict"),
    ("guide/workflows.md", "engines"),
    ("guide/object-storage.md", "object_storage"),
    ("guide/web.md", "web"),
];

/// `file::test` of every test of the system.
fn tests() -> BTreeSet<String> {
    let mut tests = BTreeSet::new();
    for entry in std::fs::read_dir(checkout().join("tests/tests/system")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue; // programs of a test
        }
        let file = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        for after in text.split("#[test]\nfn ").skip(1) {
            tests.insert(format!("{file}::{}", after.split('(').next().unwrap()));
        }
    }
    tests
}

/// Every test that a page names; a bare name is one of `file`.
fn named(page: &str, file: &str) -> BTreeSet<String> {
    let whole = std::fs::read_to_string(checkout().join("docs").join(page)).unwrap();
    // A guide's other tables are not about tests.
    let text = whole.split_once("\n## What is tested\n").map_or(whole.as_str(), |(_, tested)| tested);
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| --"));
    let cells = rows.filter_map(|row| row.trim_end_matches('|').rsplit_once('|')).map(|(_, cell)| cell.to_owned());
    let quoted = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>());
    quoted.map(|name| if name.contains("::") { name } else { format!("{file}::{name}") }).collect()
}

#[test]
fn every_row_names_a_test_that_exists() {
    let tests = tests();
    for &(page, file) in PAGES {
        let named = named(page, file);
        assert!(named.len() > 3, "{page} has few rows: {named:?}");
        let unknown: Vec<_> = named.difference(&tests).collect();
        assert!(unknown.is_empty(), "docs/{page} names tests that don't exist: {unknown:?}");
    }
}

#[test]
fn every_test_of_a_claim_is_in_a_row() {
    let named_somewhere: BTreeSet<String> = PAGES.iter().flat_map(|(page, file)| named(page, file)).collect();
    let unnamed: Vec<_> = tests()
        .into_iter()
        .filter(|test| !["semantics::", "docs::"].iter().any(|of_pages| test.starts_with(of_pages)))
        .filter(|test| !named_somewhere.contains(test))
        .collect();
    assert!(unnamed.is_empty(), "these tests are on no page of docs/: {unnamed:?}");
}
