//! The page of what the papers claim: each row says what repeats it, what was measured, and a verdict.

use std::path::Path;

#[test]
fn every_claim_has_a_command_a_measurement_that_is_there_and_a_verdict() {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page_directory = tree.join("docs/reference");
    let page = std::fs::read_to_string(page_directory.join("claims.md")).unwrap();
    let papers = page.split("\n## ").skip(1).count();
    assert_eq!(papers, 5, "a part for each paper");
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| claim |") && !line.starts_with("| ---"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    // As many as the papers have: figures, tables, and what their text says in numbers.
    assert!(rows.len() >= 34, "{} claims", rows.len());
    for row in rows {
        let [claim, place, command, measured, verdict] = row[..] else { panic!("five cells: {row:?}") };
        assert!(!claim.is_empty() && !place.is_empty(), "{row:?}");
        let known = ["holds", "holds in part", "does not hold here", "needs other machines", "not repeated yet"];
        assert!(known.contains(&verdict), "{claim}: the verdict `{verdict}`");
        if !["needs other machines", "not repeated yet"].contains(&verdict) {
            assert!(measured.contains("]("), "{claim}: no link to what was measured");
        }
        for script in command.split('`').skip(1).step_by(2).filter_map(|words| words.split(' ').next()) {
            let there = script == "terrace" || tree.join(script).is_file();
            assert!(there, "{claim}: there is no `{script}`");
        }
        for link in measured.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            assert!(page_directory.join(link).is_file(), "{claim}: {link} is not there");
        }
    }
}
