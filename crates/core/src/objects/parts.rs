//! A region in parts, one for each chunk that it has cells in.

use super::RANK_MAX;
use super::error::Result;
use super::region::Region;

/// The cells of one chunk that a region has, in one dimension.
#[derive(Clone, Copy)]
struct Span {
    chunk: u64,
    offset: u64,
    count: u64,
}

fn spans(offset: u64, count: u64, stride: u64, extent: u64) -> Vec<Span> {
    let (mut spans, mut done) = (vec![], 0);
    while done < count {
        let cell = offset + done * stride;
        let chunk = cell / extent;
        let inside = ((chunk + 1) * extent - 1 - cell) / stride + 1;
        let count = inside.min(count - done);
        spans.push(Span { chunk, offset: cell, count });
        done += count;
    }
    spans
}

/// Calls `act` with each chunk, by its place in the grid, and the part of the region that lies in it.
pub fn for_each_part(region: &Region, chunks: &[u64], mut act: impl FnMut(&[u64], Region) -> Result<()>) -> Result<()> {
    region.check_rank(chunks.len())?;
    if region.is_empty() {
        return Ok(());
    }
    let rank = region.rank();
    let spans: Vec<Vec<Span>> =
        (0..rank).map(|d| spans(region.offset()[d], region.count()[d], region.stride()[d], chunks[d].max(1))).collect();
    let mut at = [0; RANK_MAX];
    'all: loop {
        let (mut chunk, mut offset, mut count) = ([0; RANK_MAX], [0; RANK_MAX], [0; RANK_MAX]);
        for d in 0..rank {
            let span = spans[d][at[d]];
            (chunk[d], offset[d], count[d]) = (span.chunk, span.offset, span.count);
        }
        act(&chunk[..rank], Region::strided(&offset[..rank], &count[..rank], region.stride())?)?;
        for d in (0..rank).rev() {
            if at[d] + 1 < spans[d].len() {
                at[d] += 1;
                continue 'all;
            }
            at[d] = 0;
        }
        return Ok(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn cells(region: &Region) -> Vec<Vec<u64>> {
        let mut all = vec![vec![]];
        for d in 0..region.rank() {
            let steps = (0..region.count()[d]).map(|i| region.offset()[d] + i * region.stride()[d]);
            let steps: Vec<u64> = steps.collect();
            all = all
                .into_iter()
                .flat_map(|cell: Vec<u64>| steps.iter().map(move |&step| [cell.clone(), vec![step]].concat()))
                .collect();
        }
        all
    }

    proptest! {
        #[test]
        fn parts_have_each_cell_once_and_in_its_chunk(
            dimensions in proptest::collection::vec((0u64..30, 1u64..9, 1u64..7, 1u64..9), 0..4)
        ) {
            let of = |pick: fn(&(u64, u64, u64, u64)) -> u64| dimensions.iter().map(pick).collect::<Vec<u64>>();
            let region = Region::strided(&of(|d| d.0), &of(|d| d.1), &of(|d| d.2)).unwrap();
            let chunks = of(|d| d.3);
            let mut found = vec![];
            for_each_part(&region, &chunks, |chunk, part| {
                for cell in cells(&part) {
                    assert!(cell.iter().zip(&chunks).zip(chunk).all(|((cell, extent), chunk)| cell / extent == *chunk));
                    found.push(cell);
                }
                Ok(())
            }).unwrap();
            prop_assert_eq!(found.len() as u64, region.cells());
            prop_assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), cells(&region).into_iter().collect());
        }
    }
}
