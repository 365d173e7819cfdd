//! How a region's cells become messages: all of them, or those that meet the rule's condition.

use super::conversation::{Flight, Talk};
use super::reader::Work;
use terrace_core::objects::few::{Condition, Gathered};
use terrace_core::objects::wire::{PAYLOAD_BYTES_MAX, Request};
use terrace_core::objects::{ArraySpec, ObjectError, Region, Result, cells};

/// How cells of an array become messages.
pub struct Sending<'a> {
    pub spec: &'a ArraySpec,
    pub condition: &'a Condition,
}

impl Sending<'_> {
    /// A region's cells, in as many messages as it takes. Refused: cells that can't be compared.
    pub fn send(
        &self,
        talk: &mut Talk,
        name: &str,
        region: &Region,
        packed: &[u8],
        work: &Work,
    ) -> Result<std::io::Result<()>> {
        let size = self.spec.data_type.size();
        let parts = parts(region, size, PAYLOAD_BYTES_MAX);
        let last = parts.len().saturating_sub(1);
        let mut at = 0;
        for (number, part) in parts.into_iter().enumerate() {
            let bytes = part.cells() as usize * size;
            let cells = &packed[at..at + bytes];
            let sent = match self.condition.is_empty() {
                true => {
                    let request = Request::PutRegion { path: name.into(), region: part, step: 0 };
                    talk.link.send(&request, cells).map(|()| bytes)
                }
                false => {
                    let (request, payload) = self.only(name, part, cells)?;
                    talk.link.send(&request, &payload).map(|()| payload.len())
                }
            };
            let Ok(bytes_sent) = sent else { return Ok(sent.map(drop)) };
            at += bytes;
            let work = (number == last).then(|| work.clone());
            talk.flight.push_back(Flight { array: name.into(), work, bytes: bytes_sent as u64 });
            talk.bytes += bytes_sent as u64;
        }
        Ok(Ok(()))
    }

    /// Cells that meet the condition, as what is shorter: those alone with their positions, or all with the others filled.
    fn only(&self, name: &str, region: Region, cells: &[u8]) -> Result<(Request, Vec<u8>)> {
        let data_type = self.spec.data_type;
        let gathered = self.condition.gather(data_type, &self.spec.fill, cells).ok_or_else(|| {
            ObjectError::invalid(format!("cells of the type {data_type} can't be compared with numbers"))
                .hint("leave the array out of the rule that has `where`")
        })?;
        Ok(match gathered {
            Gathered::Few { count, payload } => (Request::PutFew { path: name.into(), region, count }, payload),
            Gathered::Many(all) => (Request::PutRegion { path: name.into(), region, step: 0 }, all),
        })
    }
}

/// The region in pieces whose packed cells are runs of its own, none with more bytes than `most`.
fn parts(region: &Region, size: usize, most: u64) -> Vec<Region> {
    let bytes = region.cells().saturating_mul(size as u64);
    let Some(dimension) = region.count().iter().position(|&count| count > 1).filter(|_| bytes > most) else {
        return vec![*region];
    };
    let row: u64 = cells(&region.count()[dimension + 1..]).unwrap_or(u64::MAX).saturating_mul(size as u64).max(1);
    let (total, rows) = (region.count()[dimension], (most / row).max(1));
    let mut found = vec![];
    let mut done = 0;
    while done < total {
        let count_here = rows.min(total - done);
        let (mut offset, mut count) = (region.offset().to_vec(), region.count().to_vec());
        offset[dimension] += done * region.stride()[dimension];
        count[dimension] = count_here;
        let part = Region::strided(&offset, &count, region.stride()).expect("a part of a region is one");
        found.extend(parts(&part, size, most));
        done += count_here;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_that_is_too_large_for_one_message_travels_in_runs_of_its_cells() {
        let region = Region::block(&[3, 0, 0], &[2, 10, 7]).unwrap();
        assert_eq!(parts(&region, 8, 1 << 20), [region]);
        for most in [8, 56, 100, 300, 560, 561] {
            let parts = parts(&region, 8, most);
            assert!(parts.iter().all(|part| part.cells() * 8 <= most), "{parts:?}");
            // Packed one after the other they are the region: cells in C order.
            let mut all = vec![];
            for part in &parts {
                for i in 0..part.count()[0] {
                    for j in 0..part.count()[1] {
                        let offset = part.offset();
                        all.extend((0..part.count()[2]).map(|k| (offset[0] + i, offset[1] + j, offset[2] + k)));
                    }
                }
            }
            assert_eq!(all.len() as u64, region.cells());
            assert!(all.is_sorted());
        }
    }
}
