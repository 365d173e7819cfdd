//! Reads `{"machine": …, "workload": …}` objects, one a line, and writes the model's bounds for each, one a line:
//!
//! ```text
//! cargo run --release -p terrace-model --example bounds < questions.jsonl
//! ```

use serde::Deserialize;
use std::io::{self, BufRead, Write};
use terrace_model::{Machine, Workload, durable_alone_s, page_cache_s, tiers};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    machine: Machine,
    workload: Workload,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut output = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let question: Question = serde_json::from_str(&line)?;
        let tiers = tiers(&question.machine, &question.workload)?;
        let answer = serde_json::json!({
            "durable_alone_s": durable_alone_s(&question.machine, &question.workload)?,
            "page_cache_s": page_cache_s(&question.machine, &question.workload)?,
            "tiers_s": tiers.total_s(),
            "tiers": tiers,
        });
        writeln!(output, "{answer}")?;
    }
    Ok(())
}
