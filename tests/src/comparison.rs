//! The same commands in two equal roots, one of them accelerated.
//!
//! Both roots' paths have the same length, and both runs the same environment, so that outputs can be compared as they are
//! once the paths are replaced.

use crate::{Outcome, Tree, Wish, Workplace};
use std::time::{SystemTime, UNIX_EPOCH};

pub struct Comparison {
    native: Workplace,
    accelerated: Workplace,
    /// Times after this come from the clock and may differ.
    start_ns: i128,
}

impl Comparison {
    pub fn new() -> Comparison {
        Comparison::with(Wish::default())
    }

    pub fn with(wish: Wish) -> Comparison {
        // The file system's clock may be a tick behind.
        let start_ns = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i128 - 50_000_000;
        Comparison { native: Workplace::new(), accelerated: wish.build(), start_ns }
    }

    /// Prepares both roots (`$ROOT`) and scratch directories (`$SCRATCH`) natively.
    #[track_caller]
    pub fn prepare(self, script: &str) -> Comparison {
        self.native.native_sh(script).ok();
        self.accelerated.native_sh(script).ok();
        self
    }

    /// Runs the script in both roots; codes, outputs and trees must agree. Gives the accelerated outcome.
    #[track_caller]
    pub fn agrees_on(&self, script: &str) -> Outcome {
        let native = self.native.native_sh(script);
        let accelerated =
            if is_self_check() { self.accelerated.native_sh(script) } else { self.accelerated.sh(script) };
        let texts = [(&self.native, &native), (&self.accelerated, &accelerated)].map(|(place, outcome)| {
            let normal = |text: &str| {
                text.replace(place.root().to_str().unwrap(), "ROOT")
                    .replace(place.scratch().to_str().unwrap(), "SCRATCH")
            };
            (outcome.code, normal(&outcome.stdout), normal(&outcome.stderr))
        });
        let said = |(code, stdout, stderr): &(i32, String, String)| {
            format!("exit code {code}\n--- stdout\n{stdout}\n--- stderr\n{stderr}")
        };
        if texts[0] != texts[1] {
            let (native, accelerated) = (said(&texts[0]), said(&texts[1]));
            let differ = first_difference(&native, &accelerated);
            panic!("first difference: {differ}\n=== natively\n{native}\n=== under Terrace\n{accelerated}");
        }
        let differences = Tree::of(self.native.root()).differences(
            self.native.root(),
            &self.accelerated.settled_tree(),
            self.accelerated.root(),
            self.start_ns,
        );
        assert!(differences.is_empty(), "the trees differ:\n{}", differences.join("\n"));
        accelerated
    }

    /// As `agrees_on`; the script must succeed, and have put files into the fast tier.
    #[track_caller]
    pub fn agrees_and_uses_the_tier(&self, script: &str) {
        let outcome = self.agrees_on(script).ok();
        if is_self_check() {
            return;
        }
        let report = outcome.report.expect("--report writes JSON");
        let created = report["counters"]["creates_tier"].as_u64();
        assert!(created > Some(0), "no file was placed in the tier: {report:#}");
    }
}

impl Default for Comparison {
    fn default() -> Comparison {
        Comparison::new()
    }
}

/// With `TERRACE_TESTS_SELF_CHECK` set both runs are native: shows that a script gives the same results twice at all.
fn is_self_check() -> bool {
    std::env::var_os("TERRACE_TESTS_SELF_CHECK").is_some()
}

fn first_difference(a: &str, b: &str) -> String {
    let pair = a.lines().zip(b.lines()).find(|(a, b)| a != b);
    pair.map_or("one has more lines".into(), |(a, b)| format!("`{a}` / `{b}`"))
}
