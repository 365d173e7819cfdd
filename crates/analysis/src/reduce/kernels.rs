//! Sums, counts and extremes of a line of cells, into one group or into neighbouring ones; with or without a mask.

use crate::grid::CellType;

/// Partial sums side by side, so that the processor adds several numbers at once.
const LANES: usize = 16;

/// One group's sum of a line.
pub fn sum_real<T: CellType>(cells: &[T], mask: Option<&[u64]>) -> f64 {
    let mut lanes = [0f64; LANES];
    let (chunks, rest) = cells.as_chunks::<LANES>();
    match mask {
        None => {
            for chunk in chunks {
                (0..LANES).for_each(|lane| lanes[lane] += chunk[lane].to_f64());
            }
            rest.iter().zip(&mut lanes).for_each(|(cell, lane)| *lane += cell.to_f64());
        }
        Some(mask) => {
            let (masks, rest_mask) = mask.as_chunks::<LANES>();
            for (chunk, mask) in chunks.iter().zip(masks) {
                (0..LANES).for_each(|lane| lanes[lane] += masked(chunk[lane].to_f64(), mask[lane]));
            }
            for ((lane, cell), mask) in lanes.iter_mut().zip(rest).zip(rest_mask) {
                *lane += masked(cell.to_f64(), *mask);
            }
        }
    }
    lanes.iter().sum()
}

#[inline(always)]
fn masked(value: f64, mask: u64) -> f64 {
    f64::from_bits(value.to_bits() & mask)
}

/// Of a line of cells that are narrower than 64 bits, the sum fits in 64.
pub fn sum_integer<T: CellType>(cells: &[T], mask: Option<&[u64]>) -> i128 {
    let is_long = size_of::<T>() == size_of::<i64>();
    match mask {
        None if is_long => cells.iter().map(|cell| i128::from(cell.to_i64())).sum(),
        None => cells.iter().map(|cell| cell.to_i64()).sum::<i64>().into(),
        Some(mask) => {
            let taken = cells.iter().zip(mask).map(|(cell, mask)| cell.to_i64() & *mask as i64);
            if is_long { taken.map(i128::from).sum() } else { taken.sum::<i64>().into() }
        }
    }
}

/// Neighbouring groups: one cell for each.
pub fn add_real<T: CellType>(sums: &mut [f64], cells: &[T], mask: Option<&[u64]>) {
    match mask {
        None => sums.iter_mut().zip(cells).for_each(|(sum, cell)| *sum += cell.to_f64()),
        Some(mask) => {
            sums.iter_mut().zip(cells).zip(mask).for_each(|((sum, cell), mask)| *sum += masked(cell.to_f64(), *mask));
        }
    }
}

pub fn add_integer<T: CellType>(sums: &mut [i128], cells: &[T], mask: Option<&[u64]>) {
    match mask {
        None => sums.iter_mut().zip(cells).for_each(|(sum, cell)| *sum += i128::from(cell.to_i64())),
        Some(mask) => sums
            .iter_mut()
            .zip(cells)
            .zip(mask)
            .for_each(|((sum, cell), mask)| *sum += i128::from(cell.to_i64() & *mask as i64)),
    }
}

pub fn count(mask: &[u64]) -> u64 {
    mask.iter().map(|mask| mask & 1).sum()
}

pub fn add_count(counts: &mut [u64], mask: &[u64]) {
    counts.iter_mut().zip(mask).for_each(|(count, mask)| *count += mask & 1);
}

/// `better(new, old)`: the new one takes the old one's place. NaN is greater than all numbers.
pub fn extreme<T: CellType>(cells: &[T], mask: Option<&[u64]>, start: T, better: impl Fn(T, T) -> bool + Copy) -> T {
    match mask {
        None => {
            let mut lanes = [start; LANES];
            let (chunks, rest) = cells.as_chunks::<LANES>();
            for chunk in chunks {
                (0..LANES).for_each(|lane| {
                    lanes[lane] = if better(chunk[lane], lanes[lane]) { chunk[lane] } else { lanes[lane] }
                });
            }
            for (cell, lane) in rest.iter().zip(&mut lanes) {
                *lane = if better(*cell, *lane) { *cell } else { *lane };
            }
            lanes.into_iter().fold(start, |best, lane| if better(lane, best) { lane } else { best })
        }
        Some(mask) => cells
            .iter()
            .zip(mask)
            .fold(start, |best, (cell, mask)| if *mask != 0 && better(*cell, best) { *cell } else { best }),
    }
}

pub fn extreme_each<T: CellType>(
    bests: &mut [T],
    cells: &[T],
    mask: Option<&[u64]>,
    better: impl Fn(T, T) -> bool + Copy,
) {
    match mask {
        None => bests.iter_mut().zip(cells).for_each(|(best, cell)| {
            *best = if better(*cell, *best) { *cell } else { *best };
        }),
        Some(mask) => bests.iter_mut().zip(cells).zip(mask).for_each(|((best, cell), mask)| {
            *best = if *mask != 0 && better(*cell, *best) { *cell } else { *best };
        }),
    }
}
