//! What two regions have in common, and how to copy it from one packed buffer to another.
//!
//! In each dimension a region is an arithmetic progression; two of them meet in a third one (Chinese remainders). The
//! copy walks the outer dimensions and hands out runs, merged while both buffers go on without a gap.

use super::RANK_MAX;
use super::region::Region;

/// The common cells: in each dimension `count` of them, starting at index `from` (step `from_step`) of the source's buffer
/// and `to` (step `to_step`) of the target's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    rank: usize,
    count: [u64; RANK_MAX],
    from: [u64; RANK_MAX],
    from_step: [u64; RANK_MAX],
    to: [u64; RANK_MAX],
    to_step: [u64; RANK_MAX],
    from_count: [u64; RANK_MAX],
    to_count: [u64; RANK_MAX],
}

/// Copy `cells` cells, one after the other on both sides when both steps are 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub from: u64,
    pub to: u64,
    pub cells: u64,
    pub from_step: u64,
    pub to_step: u64,
}

impl Overlap {
    /// `None` if the regions have no cell in common, or not the same number of dimensions.
    pub fn of(source: &Region, target: &Region) -> Option<Overlap> {
        if source.rank() != target.rank() {
            return None;
        }
        let rank = source.rank();
        let zero = [0; RANK_MAX];
        let mut overlap = Overlap {
            rank,
            count: zero,
            from: zero,
            from_step: [1; RANK_MAX],
            to: zero,
            to_step: [1; RANK_MAX],
            from_count: zero,
            to_count: zero,
        };
        for d in 0..rank {
            let a = Progression { start: source.offset()[d], count: source.count()[d], step: source.stride()[d] };
            let b = Progression { start: target.offset()[d], count: target.count()[d], step: target.stride()[d] };
            let common = a.meet(&b)?;
            overlap.count[d] = common.count;
            overlap.from[d] = (common.start - a.start) / a.step;
            overlap.to[d] = (common.start - b.start) / b.step;
            overlap.from_step[d] = (common.step / a.step).max(1);
            overlap.to_step[d] = (common.step / b.step).max(1);
            overlap.from_count[d] = a.count;
            overlap.to_count[d] = b.count;
        }
        Some(overlap)
    }

    pub fn cells(&self) -> u64 {
        self.count[..self.rank].iter().product()
    }

    /// All of the target's cells are in the source.
    pub fn covers_target(&self) -> bool {
        self.count[..self.rank] == self.to_count[..self.rank]
    }

    /// All of the source's cells are in the target.
    pub fn covers_source(&self) -> bool {
        self.count[..self.rank] == self.from_count[..self.rank]
    }

    /// Calls `copy` for each run of cells.
    pub fn for_each_run(&self, mut copy: impl FnMut(Run)) {
        let rank = self.rank;
        if rank == 0 {
            return copy(Run { from: 0, to: 0, cells: 1, from_step: 1, to_step: 1 });
        }
        // Distance between neighbours of each dimension in the packed buffers.
        let (mut from_unit, mut to_unit) = ([1u64; RANK_MAX], [1u64; RANK_MAX]);
        for d in (0..rank - 1).rev() {
            from_unit[d] = from_unit[d + 1] * self.from_count[d + 1];
            to_unit[d] = to_unit[d + 1] * self.to_count[d + 1];
        }
        let (mut from_base, mut to_base) = (0, 0);
        for d in 0..rank {
            from_base += self.from[d] * from_unit[d];
            to_base += self.to[d] * to_unit[d];
        }
        // The innermost dimensions that are whole on both sides are one run.
        let mut inner = rank - 1;
        let mut cells = self.count[inner];
        let (from_step, to_step) = (self.from_step[inner], self.to_step[inner]);
        if from_step == 1 && to_step == 1 {
            while inner > 0
                && self.count[inner] == self.from_count[inner]
                && self.count[inner] == self.to_count[inner]
                && self.from_step[inner - 1] == 1
                && self.to_step[inner - 1] == 1
            {
                inner -= 1;
                cells *= self.count[inner];
            }
        }
        let mut index = [0u64; RANK_MAX];
        loop {
            copy(Run { from: from_base, to: to_base, cells, from_step, to_step });
            let mut d = inner;
            loop {
                if d == 0 {
                    return;
                }
                d -= 1;
                index[d] += 1;
                from_base += self.from_step[d] * from_unit[d];
                to_base += self.to_step[d] * to_unit[d];
                if index[d] < self.count[d] {
                    break;
                }
                from_base -= self.count[d] * self.from_step[d] * from_unit[d];
                to_base -= self.count[d] * self.to_step[d] * to_unit[d];
                index[d] = 0;
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Progression {
    start: u64,
    count: u64,
    step: u64,
}

impl Progression {
    fn last(&self) -> u64 {
        self.start + (self.count - 1) * self.step
    }

    fn meet(&self, other: &Progression) -> Option<Progression> {
        if self.count == 0 || other.count == 0 {
            return None;
        }
        let low = self.start.max(other.start);
        let high = self.last().min(other.last());
        if low > high {
            return None;
        }
        if self.step == 1 && other.step == 1 {
            return Some(Progression { start: low, count: high - low + 1, step: 1 });
        }
        let (a, b) = (self.step as i128, other.step as i128);
        let (gcd, inverse, _) = extended_gcd(a, b);
        let distance = other.start as i128 - self.start as i128;
        if distance % gcd != 0 {
            return None;
        }
        let step = a / gcd * b;
        // self.start + k * a is the least non-negative solution of both, modulo `step`.
        let k = (distance / gcd * inverse).rem_euclid(b / gcd);
        let mut start = self.start as i128 + k * a;
        let low = low as i128;
        if start < low {
            start += (low - start + step - 1) / step * step;
        } else {
            start -= (start - low) / step * step;
        }
        if start > high as i128 {
            return None;
        }
        let count = (high as i128 - start) / step + 1;
        Some(Progression { start: start as u64, count: count as u64, step: if count == 1 { 1 } else { step as u64 } })
    }
}

/// (g, x, y) with a x + b y = g.
fn extended_gcd(a: i128, b: i128) -> (i128, i128, i128) {
    let (mut r, mut next_r, mut x, mut next_x, mut y, mut next_y) = (a, b, 1, 0, 0, 1);
    while next_r != 0 {
        let quotient = r / next_r;
        (r, next_r) = (next_r, r - quotient * next_r);
        (x, next_x) = (next_x, x - quotient * next_x);
        (y, next_y) = (next_y, y - quotient * next_y);
    }
    (r, x, y)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn positions(region: &Region) -> Vec<Vec<u64>> {
        let mut all = vec![vec![]];
        for d in 0..region.rank() {
            let values = (0..region.count()[d]).map(|i| region.offset()[d] + i * region.stride()[d]);
            let values: Vec<u64> = values.collect();
            all = all
                .into_iter()
                .flat_map(|prefix| values.iter().map(move |value| [prefix.clone(), vec![*value]].concat()))
                .collect();
        }
        all
    }

    fn region() -> impl Strategy<Value = (Region, Region)> {
        let dimension = || (0u64..12, 0u64..7, 1u64..5);
        (0usize..4).prop_flat_map(move |rank| {
            let one = || proptest::collection::vec(dimension(), rank);
            (one(), one()).prop_map(|(a, b)| {
                let make = |parts: Vec<(u64, u64, u64)>| {
                    let column = |get: fn(&(u64, u64, u64)) -> u64| parts.iter().map(get).collect::<Vec<u64>>();
                    Region::strided(&column(|p| p.0), &column(|p| p.1), &column(|p| p.2)).unwrap()
                };
                (make(a), make(b))
            })
        })
    }

    proptest! {
        #[test]
        fn runs_copy_exactly_the_common_cells((source, target) in region()) {
            let (from, to) = (positions(&source), positions(&target));
            let mut copied = vec![None; to.len()];
            if let Some(overlap) = Overlap::of(&source, &target) {
                overlap.for_each_run(|run| for i in 0..run.cells {
                    let (f, t) = ((run.from + i * run.from_step) as usize, (run.to + i * run.to_step) as usize);
                    assert!(copied[t].replace(f).is_none(), "copied twice");
                });
                prop_assert_eq!(copied.iter().flatten().count() as u64, overlap.cells());
                prop_assert_eq!(overlap.covers_target(), copied.iter().all(Option::is_some));
            }
            for (index, position) in to.iter().enumerate() {
                prop_assert_eq!(copied[index], from.iter().position(|found| found == position));
            }
        }
    }

    #[test]
    fn a_block_that_is_whole_in_its_inner_dimensions_is_one_run() {
        let whole = Region::whole(&[4, 5, 6]).unwrap();
        let rows = Region::block(&[1, 0, 0], &[2, 5, 6]).unwrap();
        let mut runs = vec![];
        Overlap::of(&whole, &rows).unwrap().for_each_run(|run| runs.push(run));
        assert_eq!(runs, [Run { from: 30, to: 0, cells: 60, from_step: 1, to_step: 1 }]);
    }
}
