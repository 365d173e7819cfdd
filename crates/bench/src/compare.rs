//! Two results side by side: which runs differ, by how much, and how sure that is.

use crate::results::Row;
use crate::statistics::{Comparison, compare};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Serialize)]
pub struct Line {
    pub factors: BTreeMap<String, String>,
    pub operation: String,
    pub unit: &'static str,
    pub median_a: f64,
    pub median_b: f64,
    pub comparison: Comparison,
    /// The p-value after Holm's correction for all lines of the table.
    pub p_corrected: f64,
}

pub struct Table {
    pub lines: Vec<Line>,
    /// Runs that only one side has.
    pub unmatched: usize,
    /// The results are of different plans: what is no factor may differ as well.
    pub plans_differ: bool,
}

type Samples<'a> = BTreeMap<(&'a BTreeMap<String, String>, &'a str), (Vec<f64>, &'static str)>;

fn samples(rows: &[Row]) -> Samples<'_> {
    let mut samples = Samples::new();
    for row in rows.iter().filter(|row| row.counts()) {
        samples.entry((&row.factors, &row.operation)).or_insert_with(|| (vec![], row.unit())).0.push(row.rate());
    }
    samples
}

/// Matches runs by their factors' levels.
pub fn tables(a: &[Row], b: &[Row], confidence: f64) -> Table {
    let plans = |rows: &[Row]| rows.iter().map(|row| row.plan.clone()).collect::<BTreeSet<String>>();
    let plans_differ = plans(a) != plans(b);
    let (a, b) = (samples(a), samples(b));
    let mut lines = Vec::new();
    let mut unmatched = b.keys().filter(|key| !a.contains_key(*key)).count();
    for ((factors, operation), (rates_a, unit)) in &a {
        let Some((rates_b, _)) = b.get(&(*factors, *operation)) else {
            unmatched += 1;
            continue;
        };
        let Some(comparison) = compare(rates_a, rates_b, confidence) else { continue };
        let middle = |rates: &[f64]| {
            let mut sorted = rates.to_vec();
            sorted.sort_by(f64::total_cmp);
            crate::statistics::median(&sorted)
        };
        lines.push(Line {
            factors: (*factors).clone(),
            operation: (*operation).to_owned(),
            unit,
            median_a: middle(rates_a),
            median_b: middle(rates_b),
            comparison,
            p_corrected: comparison.p_value,
        });
    }
    correct(&mut lines, confidence);
    Table { lines, unmatched, plans_differ }
}

/// Holm: with many comparisons some differ by chance; the smallest p-value is multiplied by their number, the next by one less.
fn correct(lines: &mut [Line], confidence: f64) {
    let mut order: Vec<usize> = (0..lines.len()).collect();
    order.sort_by(|a, b| lines[*a].comparison.p_value.total_cmp(&lines[*b].comparison.p_value));
    let mut largest: f64 = 0.0;
    for (rank, index) in order.iter().enumerate() {
        let left = (lines.len() - rank) as f64;
        largest = largest.max((lines[*index].comparison.p_value * left).min(1.0));
        lines[*index].p_corrected = largest;
        lines[*index].comparison.differs = largest <= 1.0 - confidence;
    }
}
