//! What a run gained or lost against the durable tier alone, in one sentence, and what would help.
//!
//! Only what was measured is counted: how long the movers took to write the run's files to the durable tier, and how long the run waited
//! for them at its end. Alone, a program that writes its files one after the other waits for all of it. Reads are not counted: nobody
//! has timed them.

use super::Report;
use std::fmt;
use terrace_core::size::{show_bytes, show_seconds};

/// Less is noise.
const NOTICEABLE_S: f64 = 0.1;
/// Files below this cost their metadata, not their bytes.
const SMALL_FILE_BYTES: u64 = 64 << 10;
/// So many small files are worth another setting.
const MANY_FILES: u64 = 200;

#[derive(Debug, PartialEq)]
pub struct Gain {
    verdict: String,
    advice: Vec<String>,
}

impl Gain {
    pub fn of(report: &Report) -> Gain {
        let counters = &report.counters;
        let (files, busy_s, waited_s) = (counters.flushed_files, counters.flush_s, report.flush_wait_s);
        let created: u64 = report.tiers.iter().filter(|tier| !tier.durable).map(|tier| tier.written_files).sum();
        let saved_s = busy_s - waited_s;
        let of_files = format!("writing {files} files ({}) to the durable tier", show_bytes(counters.flushed_bytes));
        let verdict = if created == 0 && files == 0 && counters.opens_tier == 0 {
            "no gain: the program used no file on a faster tier".to_owned()
        } else if files == 0 {
            format!("{created} files stayed on the faster tiers; none had to be written to the durable tier")
        } else if saved_s > NOTICEABLE_S {
            format!(
                "gained up to {}: {of_files} took {}, and the run waited for {} of it",
                show_seconds(saved_s),
                show_seconds(busy_s),
                show_seconds(waited_s)
            )
        } else if saved_s < -NOTICEABLE_S {
            format!(
                "lost about {}: {of_files} took {}, and the run waited {} for the final flush",
                show_seconds(-saved_s),
                show_seconds(busy_s),
                show_seconds(waited_s)
            )
        } else {
            format!("no gain from writes: the run waited for {of_files}, {}", show_seconds(waited_s))
        };
        Gain { verdict, advice: advice(report) }
    }
}

fn advice(report: &Report) -> Vec<String> {
    let counters = &report.counters;
    let mut advice = vec![];
    if counters.moved_live_files > 0 || (counters.creates_durable > counters.creates_small && counters.creates_tier > 0)
    {
        advice.push("the faster tiers were full: raise their `capacity`, or `--evict` what is not needed again".into());
    }
    if report.flush_wait_s > NOTICEABLE_S && report.flush_wait_s > 0.1 * report.program_s && counters.flushed_files > 0
    {
        let size = counters.flushed_bytes / counters.flushed_files;
        advice.push(match size < SMALL_FILE_BYTES {
            true => format!(
                "the flushed files are small ({} on average), so the durable tier's latency decides: raise `--threads`, and exclude \
                 scratch files from `--flush`",
                show_bytes(size)
            ),
            false => "the final flush is long: exclude scratch files from `--flush`".into(),
        });
    }
    let opens = counters.opens_tier + counters.opens_durable;
    // Small files of programs that make such are in the root, where they are to be.
    if counters.opens_durable > counters.opens_tier && opens >= 10 && counters.creates_small == 0 {
        advice.push("most opens went to the durable tier: `--prefetch PATTERN` copies inputs to a faster tier".into());
    }
    if counters.creates_small >= MANY_FILES && counters.unplaced_directories > 0 {
        advice.push(format!(
            "{} small files cost the durable tier several requests each: if they are in directories that the program makes, \
             `--directories all` keeps these in a faster tier, and writes each as a whole",
            counters.creates_small
        ));
    }
    advice
}

impl fmt::Display for Gain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "terrace: {}", self.verdict)?;
        self.advice.iter().try_for_each(|advice| writeln!(f, "terrace: hint: {advice}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Hits, Prediction};
    use super::*;
    use crate::door::Door;
    use terrace_core::control::{Counters, TierStatus};

    fn said(counters: Counters, flush_wait_s: f64) -> String {
        let ram = TierStatus { name: "ram".into(), written_files: counters.creates_tier, ..TierStatus::default() };
        let report = Report {
            version: 2,
            terrace: "",
            command: vec![],
            root: "/root".into(),
            started_unix_s: 0.0,
            door: Door::Both,
            exit_code: 0,
            program_exit_code: 0,
            program_s: 10.0,
            flush_wait_s,
            total_s: 20.0,
            tiers: vec![ram],
            counters,
            hits: Hits { opens_tier: 0, opens_durable: 0, ratio: None },
            final_flush: None,
            bandwidths: vec![],
            prediction: Prediction::None { reason: String::new() },
            nodes: vec![],
            agent_restarts: 0,
            shared: false,
            warnings: vec![],
        };
        Gain::of(&report).to_string()
    }

    #[test]
    fn what_was_written_beside_the_program_is_gained() {
        let counters = Counters {
            creates_tier: 4,
            flushed_files: 4,
            flushed_bytes: 4 << 30,
            flush_s: 12.0,
            ..Counters::default()
        };
        let text = said(counters, 2.0);
        assert!(text.contains("gained up to 10.0 s") && text.contains("4 files (4.0 GiB)"), "{text}");
    }

    #[test]
    fn many_small_files_are_told_from_a_slow_disk() {
        let counters = Counters {
            creates_tier: 5000,
            flushed_files: 5000,
            flushed_bytes: 5000 << 10,
            flush_s: 12.0,
            ..Counters::default()
        };
        let text = said(counters.clone(), 13.0);
        assert!(text.contains("lost about 1.00 s") && text.contains("latency") && text.contains("--threads"), "{text}");
        assert!(!text.contains("/s"), "no bandwidth: {text}");
        assert!(!said(counters, 0.5).contains("latency"), "nobody waited");
    }

    #[test]
    fn small_files_in_directories_that_might_be_placed_are_told() {
        let counters = Counters { creates_small: 2000, unplaced_directories: 40, ..Counters::default() };
        assert!(said(counters.clone(), 0.0).contains("--directories all"));
        assert!(!said(Counters { unplaced_directories: 0, ..counters.clone() }, 0.0).contains("--directories"));
        assert!(!said(Counters { creates_small: 9, ..counters }, 0.0).contains("--directories"));
    }

    #[test]
    fn a_run_without_files_gains_nothing() {
        assert!(said(Counters::default(), 0.0).contains("no gain"));
        let scratch = Counters { creates_tier: 3, ..Counters::default() };
        assert!(said(scratch, 0.0).contains("3 files stayed on the faster tiers"));
    }

    #[test]
    fn a_tier_that_was_full_is_named() {
        let counters = Counters { creates_tier: 3, creates_durable: 7, ..Counters::default() };
        assert!(said(counters, 0.0).contains("capacity"));
    }
}
