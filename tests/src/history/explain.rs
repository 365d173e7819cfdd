//! The smallest relevant part of a history that nothing explains.
//!
//! The prefix up to the first result that can't be explained is bad already. Of it we keep what came after the latest moment at which
//! nothing was pending, with what was known then; and of that we take out each look without which it is bad as well. What changes
//! something stays: without it, what is left would be another history.

use super::check::{Event, Failure, Moment, Stop, run};
use super::model::Rules;
use super::operation::{Action, Operation, Seen};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// Each look that is taken out is another check, from a moment that may lie far back: after this the rest stays in.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longer parts are cut in the middle when they are printed.
const LINES_MAX: usize = 60;

pub(super) fn explain(
    operations: &[Operation],
    events: &[Event],
    names: &[String],
    rules: &Rules,
    failure: &Failure,
) -> String {
    let wrong = &operations[failure.operation as usize];
    let is_bad = |from: &Moment, out: &BTreeSet<u32>| {
        let counts = |number: u32| !out.contains(&number);
        let found = run(operations, &events[..=failure.event], from.clone(), rules, &counts, &mut 0);
        matches!(found, Err(Stop::Wrong(found)) if found.operation == failure.operation)
    };
    let from = failure.moments.last().cloned().expect("nothing was pending at the beginning");
    let mut out = BTreeSet::new();
    let part: BTreeSet<u32> = events[from.event..=failure.event].iter().map(|event| event.2).collect();
    let begun = Instant::now();
    for &number in part.iter().filter(|&&number| number != failure.operation) {
        if begun.elapsed() > PATIENCE {
            break;
        }
        let operation = &operations[number as usize];
        if operation.is_look() || matches!(operation.action, Action::Close { .. }) {
            out.insert(number);
            if !is_bad(&from, &out) {
                out.remove(&number);
            }
        }
    }
    let mut text = format!("no order of the operations explains\n  {wrong}\n");
    if let Action::Slot { slot, .. } = wrong.action {
        let _ = writeln!(text, "  (its slot {slot}: {:?})", wrong.seen);
    }
    if let Action::Listed { name } = wrong.action {
        let _ = writeln!(text, "  ({}: {:?})", names[name as usize], wrong.seen);
    }
    let _ = writeln!(text, "known before:");
    for configuration in &from.configurations {
        let _ = writeln!(text, "  {}", configuration.state.describe(names));
    }
    let _ = writeln!(text, "then, in the order of their starts ({} looks left out):", out.len());
    let kept: Vec<&Operation> = part.difference(&out).map(|&number| &operations[number as usize]).collect();
    let mut lines: Vec<(u64, String)> = kept.iter().map(|operation| (operation.start, operation.to_string())).collect();
    lines.sort();
    lines.dedup();
    for (at, (_, line)) in lines.iter().enumerate() {
        match lines.len().saturating_sub(LINES_MAX) {
            more if more > 0 && at == LINES_MAX / 2 => {
                let _ = writeln!(text, "  … {more} more …");
            }
            more if more > 0 && at > LINES_MAX / 2 && at < LINES_MAX / 2 + more => {}
            _ => {
                let _ = writeln!(text, "  {line}");
            }
        }
    }
    let _ = writeln!(text, "after which there may be:");
    for configuration in failure.last.iter().take(6) {
        let _ = writeln!(text, "  {}", configuration.state.describe(names));
    }
    if let Seen::Value(Some(value)) = wrong.seen {
        let wrote = |operation: &&Operation| match operation.action {
            Action::Write { value: written, .. } | Action::Append { value: written, .. } => written == value,
            _ => false,
        };
        match operations.iter().find(wrote) {
            Some(writer) => {
                let _ = writeln!(text, "{value} was written by\n  {writer}");
            }
            None => {
                let _ = writeln!(text, "{value} was written by nobody");
            }
        }
    }
    text
}
