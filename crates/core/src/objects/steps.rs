//! Steps: indices of a dimension that grows. A step is whole when every one of its cells was put, or is durable; readers see
//! the steps before the first one that is not.

use super::Region;
use std::ops::Range;

/// More boxes than this are not told apart: the step counts as not whole.
const BOXES_MAX: usize = 4096;

/// Steps from the first on that are whole: those before `start` are taken to be (the durable form's), the others are where `regions`
/// have all of their cells.
pub fn whole_steps(start: u64, shape: &[u64], regions: &[Region], dimension: usize) -> u64 {
    let end_of = |region: &Region| region.end()[dimension];
    let mut regions: Vec<&Region> = regions.iter().filter(|region| end_of(region) > start).collect();
    regions.sort_by_key(|region| region.offset()[dimension]);
    let mut next = 0;
    let mut active: Vec<&Region> = vec![];
    let mut step = start;
    while step < shape[dimension] {
        while next < regions.len() && regions[next].offset()[dimension] <= step {
            active.push(regions[next]);
            next += 1;
        }
        active.retain(|region| end_of(region) > step);
        let of_step: Vec<&Region> = active
            .iter()
            .filter(|region| (step - region.offset()[dimension]) % region.stride()[dimension] == 0)
            .copied()
            .collect();
        if !is_covered(shape, &of_step, dimension) {
            return step;
        }
        step += 1;
    }
    step
}

type Box = Vec<Range<u64>>;

/// All cells of a step lie in one of the regions.
fn is_covered(shape: &[u64], regions: &[&Region], dimension: usize) -> bool {
    let others: Vec<usize> = (0..shape.len()).filter(|&d| d != dimension).collect();
    let mut left: Vec<Box> = vec![others.iter().map(|&d| 0..shape[d]).collect()];
    left.retain(|part| !part.iter().any(Range::is_empty));
    for region in regions.iter().rev() {
        if left.is_empty() {
            break;
        }
        for covered in boxes(region, &others) {
            left = left.into_iter().flat_map(|part| without(part, &covered)).collect();
            if left.len() > BOXES_MAX {
                return false;
            }
        }
    }
    left.is_empty()
}

/// A region's boxes, without one dimension: one, or one for each cell of a dimension with a stride.
fn boxes(region: &Region, others: &[usize]) -> Vec<Box> {
    let end = region.end();
    let mut found: Vec<Box> = vec![vec![]];
    for &d in others {
        let (offset, stride) = (region.offset()[d], region.stride()[d]);
        let ranges: Vec<Range<u64>> = match stride {
            1 => vec![offset..end[d]],
            stride => (0..region.count()[d]).map(|i| offset + i * stride..offset + i * stride + 1).collect(),
        };
        if found.len() * ranges.len() > BOXES_MAX {
            return vec![];
        }
        found = found
            .into_iter()
            .flat_map(|part| {
                ranges.iter().map(move |range| part.iter().cloned().chain([range.clone()]).collect::<Box>())
            })
            .collect();
    }
    found
}

/// What is left of a box.
fn without(part: Box, covered: &Box) -> Vec<Box> {
    let meets = part.iter().zip(covered).all(|(a, b)| a.start < b.end && b.start < a.end);
    if !meets {
        return vec![part];
    }
    let mut rest = vec![];
    let mut middle = part;
    for d in 0..middle.len() {
        if middle[d].start < covered[d].start {
            let mut piece = middle.clone();
            piece[d].end = covered[d].start;
            rest.push(piece);
            middle[d].start = covered[d].start;
        }
        if middle[d].end > covered[d].end {
            let mut piece = middle.clone();
            piece[d].start = covered[d].end;
            rest.push(piece);
            middle[d].end = covered[d].end;
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block(offset: &[u64], count: &[u64]) -> Region {
        Region::block(offset, count).unwrap()
    }

    #[test]
    fn a_step_is_whole_when_all_its_pieces_are_there() {
        let shape = [3, 4, 5];
        let mut regions =
            vec![block(&[0, 0, 0], &[1, 4, 5]), block(&[1, 0, 0], &[1, 2, 5]), block(&[2, 0, 0], &[1, 4, 5])];
        assert_eq!(whole_steps(0, &shape, &regions, 0), 1);
        regions.push(block(&[1, 2, 0], &[1, 2, 3]));
        assert_eq!(whole_steps(0, &shape, &regions, 0), 1);
        regions.push(block(&[1, 1, 2], &[1, 3, 3]));
        assert_eq!(whole_steps(0, &shape, &regions, 0), 3);
        assert_eq!(whole_steps(2, &shape, &[], 0), 2);
    }

    proptest! {
        #[test]
        fn whole_steps_are_those_of_a_count_of_cells(
            puts in proptest::collection::vec(((0u64..4, 1u64..4), (0u64..4, 1u64..5, 1u64..3), (0u64..3, 1u64..4)), 0..14),
        ) {
            let shape = [7u64, 9, 6];
            let regions: Vec<Region> = puts.iter().map(|(t, x, y)| {
                Region::strided(&[t.0, x.0, y.0], &[t.1, x.1, y.1], &[1, x.2, 1]).unwrap()
            }).filter(|region| region.check_within(&shape).is_ok()).collect();
            let is_put = |cell: [u64; 3]| regions.iter().any(|region| {
                crate::objects::Overlap::of(region, &block(&cell, &[1, 1, 1])).is_some()
            });
            let is_whole = |t: &u64| (0..shape[1]).all(|x| (0..shape[2]).all(|y| is_put([*t, x, y])));
            let wanted = (0..shape[0]).take_while(is_whole).count() as u64;
            prop_assert_eq!(whole_steps(0, &shape, &regions, 0), wanted);
        }
    }
}
