//! Variables over an n-dimensional grid, divided among the workers along each dimension.
//!
//! Part k of a dimension of n cells in d parts is [k*n/d, (k+1)*n/d): parts differ by one cell at most, none is empty, and
//! together they are the dimension. A request is one contiguous row of a part.

use super::{Part, Request};
use crate::error::{Error, Result};
use crate::settings::{DatasetWorkload, Files, RunSettings};
use serde::{Deserialize, Serialize};

/// A part of one variable: a hyper-rectangle of a row-major array that begins at `base` in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    pub variable: u32,
    pub element_bytes: u64,
    pub base: u64,
    pub sizes: Vec<u64>,
    pub starts: Vec<u64>,
    pub counts: Vec<u64>,
}

impl Block {
    pub fn bytes(&self) -> u64 {
        self.counts.iter().product::<u64>() * self.element_bytes
    }
    /// Contiguous rows, in file order.
    pub fn rows(&self) -> impl Iterator<Item = Request> + Send + use<> {
        let block = self.clone();
        let (last, outer) = block.counts.split_last().expect("an array has a dimension");
        let row_bytes = last * block.element_bytes;
        let rows: u64 = outer.iter().product();
        let mut strides = vec![block.element_bytes; block.sizes.len()];
        for dimension in (0..strides.len().saturating_sub(1)).rev() {
            strides[dimension] = strides[dimension + 1] * block.sizes[dimension + 1];
        }
        (0..rows).map(move |row| {
            let mut offset = block.base + block.starts[block.starts.len() - 1] * block.element_bytes;
            let mut rest = row;
            for dimension in (0..block.sizes.len() - 1).rev() {
                offset += (block.starts[dimension] + rest % block.counts[dimension]) * strides[dimension];
                rest /= block.counts[dimension];
            }
            Request { offset, bytes: row_bytes, read: false }
        })
    }
}

fn divisions(workload: &DatasetWorkload, workers: u32) -> Vec<u64> {
    if !workload.divisions.is_empty() {
        return workload.divisions.iter().map(|division| u64::from(*division)).collect();
    }
    let mut divisions = vec![1; workload.dimensions.len()];
    divisions[0] = u64::from(workers);
    divisions
}

pub fn total_bytes(workload: &DatasetWorkload) -> u64 {
    let cells: u64 = workload.dimensions.iter().product();
    cells * workload.variables.iter().map(|variable| variable.bytes()).sum::<u64>()
}

pub fn check(workload: &DatasetWorkload, settings: &RunSettings) -> Result<()> {
    let wrong = |message: String, hint: &str| Err(Error::input(message, hint));
    if workload.dimensions.is_empty() || workload.dimensions.len() > 32 || workload.dimensions.contains(&0) {
        return wrong("`dimensions` must be 1 to 32 numbers above 0".into(), "for example [1152, 576, 94]");
    }
    if workload.variables.is_empty() {
        return wrong("`variables` is empty".into(), "for example [\"float32\"]");
    }
    let bytes = workload.variables.iter().map(|variable| u128::from(variable.bytes())).sum::<u128>();
    let cells = workload.dimensions.iter().try_fold(bytes, |product, size| product.checked_mul(u128::from(*size)));
    if cells.is_none_or(|bytes| bytes > i64::MAX as u128) {
        return wrong("the dataset is larger than 8 EiB".into(), "make its dimensions smaller");
    }
    if !workload.divisions.is_empty() && workload.divisions.len() != workload.dimensions.len() {
        return wrong(
            format!("{} dimensions and {} divisions", workload.dimensions.len(), workload.divisions.len()),
            "give one division for each dimension (1: not divided)",
        );
    }
    let divisions = divisions(workload, settings.workers);
    let product = divisions.iter().try_fold(1_u64, |product, division| product.checked_mul(*division));
    if product != Some(u64::from(settings.workers)) {
        let text = divisions.iter().map(u64::to_string).collect::<Vec<_>>().join("x");
        return wrong(
            format!("divisions {text} make {} parts for {} workers", product.unwrap_or(u64::MAX), settings.workers),
            "make the product of `divisions` equal to `workers`",
        );
    }
    for (dimension, (size, division)) in workload.dimensions.iter().zip(&divisions).enumerate() {
        if division > size || *division == 0 {
            return wrong(
                format!("dimension {dimension} has {size} cells and can't be divided into {division} parts"),
                "a part has at least one cell",
            );
        }
    }
    Ok(())
}

pub fn part(workload: &DatasetWorkload, settings: &RunSettings, worker: u32) -> Part {
    let divisions = divisions(workload, settings.workers);
    let mut place = u64::from(worker);
    let mut starts = vec![0; divisions.len()];
    let mut counts = vec![0; divisions.len()];
    for dimension in (0..divisions.len()).rev() {
        let (index, of, size) = (place % divisions[dimension], divisions[dimension], workload.dimensions[dimension]);
        let edge = |part: u64| (u128::from(part) * u128::from(size) / u128::from(of)) as u64;
        starts[dimension] = edge(index);
        counts[dimension] = edge(index + 1) - starts[dimension];
        place /= of;
    }
    let own_file = settings.files == Files::PerWorker;
    let cells: u64 = if own_file { counts.iter().product() } else { workload.dimensions.iter().product() };
    let mut base = 0;
    let mut blocks = Vec::new();
    for (variable, data_type) in workload.variables.iter().enumerate() {
        // A file of its own holds the worker's part only, densely.
        let (sizes, starts) = if own_file {
            (counts.clone(), vec![0; counts.len()])
        } else {
            (workload.dimensions.clone(), starts.clone())
        };
        let counts = counts.clone();
        blocks.push(Block { variable: variable as u32, element_bytes: data_type.bytes(), base, sizes, starts, counts });
        base += cells * data_type.bytes();
    }
    let request_bytes_max =
        blocks.iter().map(|block| block.counts[block.counts.len() - 1] * block.element_bytes).max().unwrap_or(0);
    let rows: Vec<_> = blocks.iter().map(Block::rows).collect();
    Part {
        requests: Box::new(rows.into_iter().flatten()),
        bytes: blocks.iter().map(Block::bytes).sum(),
        request_bytes_max,
        blocks,
    }
}
