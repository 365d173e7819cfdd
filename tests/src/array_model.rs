//! A model of an array: cells in a vector, indexed the plain way. What the engine does is compared with it.

use terrace_client::{Array, ArraySpec, Region};

/// A small, fast, seeded source of random numbers (xorshift64*): a failing seed can be repeated.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    fn word(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    /// Below `limit`, which is at least 1.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.word() % limit
    }
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count + 8);
        while bytes.len() < count {
            bytes.extend_from_slice(&self.word().to_le_bytes());
        }
        bytes.truncate(count);
        bytes
    }
    /// A region inside `shape` from `first` on in dimension 0; about a quarter of them with steps.
    pub fn region(&mut self, shape: &[u64], rows: std::ops::Range<u64>) -> Region {
        let (mut offset, mut count, mut stride) = (vec![], vec![], vec![]);
        let steps = self.below(4) == 0;
        for (dimension, &extent) in shape.iter().enumerate() {
            let (low, high) = if dimension == 0 { (rows.start, rows.end) } else { (0, extent) };
            let start = low + self.below(high - low);
            let step = if steps { 1 + self.below(3) } else { 1 };
            let most = (high - start).div_ceil(step);
            offset.push(start);
            count.push(1 + self.below(most));
            stride.push(step);
        }
        Region::strided(&offset, &count, &stride).unwrap()
    }
}

pub struct ArrayModel {
    shape: Vec<u64>,
    size: usize,
    cells: Vec<u8>,
}

impl ArrayModel {
    pub fn new(spec: &ArraySpec) -> ArrayModel {
        let spec = spec.clone().checked().unwrap();
        let count: u64 = spec.shape.iter().product();
        ArrayModel { cells: spec.fill.repeat(count as usize), size: spec.data_type.size(), shape: spec.shape }
    }

    /// Positions of the region's cells in the model, in the order of a packed buffer.
    fn positions(&self, region: &Region) -> Vec<usize> {
        let mut positions = vec![0usize];
        for (d, &extent) in self.shape.iter().enumerate() {
            let steps: Vec<usize> =
                (0..region.count()[d]).map(|i| (region.offset()[d] + i * region.stride()[d]) as usize).collect();
            positions =
                positions.iter().flat_map(|base| steps.iter().map(move |step| base * extent as usize + step)).collect();
        }
        positions
    }

    pub fn put(&mut self, region: &Region, packed: &[u8]) {
        for (position, cell) in self.positions(region).into_iter().zip(packed.chunks_exact(self.size)) {
            self.cells[position * self.size..][..self.size].copy_from_slice(cell);
        }
    }

    pub fn get(&self, region: &Region) -> Vec<u8> {
        let cells = self.positions(region).into_iter();
        cells.flat_map(|position| self.cells[position * self.size..][..self.size].iter().copied()).collect()
    }
}

/// Random puts and gets in these rows of an array that nobody else writes to, compared with the model; `between` is called after
/// each. Nothing was put there before.
pub fn compare_at_random(
    array: &Array,
    seed: u64,
    rows: std::ops::Range<u64>,
    operations: u64,
    mut between: impl FnMut(u64),
) {
    let spec = array.spec().clone();
    let mut model = ArrayModel::new(&spec);
    let mut random = Random::new(seed);
    let size = spec.data_type.size();
    for operation in 0..operations {
        let region = random.region(&spec.shape, rows.clone());
        if random.below(2) == 0 {
            let cells = random.bytes(region.cells() as usize * size);
            array.put(&region, &cells).unwrap();
            model.put(&region, &cells);
        } else {
            let mut cells = vec![0xaa; region.cells() as usize * size];
            array.get(&region, &mut cells).unwrap();
            assert!(cells == model.get(&region), "seed {seed}, operation {operation}: {region} differs");
        }
        between(operation);
    }
    let mut offset = vec![0; spec.shape.len()];
    let mut count = spec.shape.clone();
    (offset[0], count[0]) = (rows.start, rows.end - rows.start);
    let all = Region::block(&offset, &count).unwrap();
    let mut cells = vec![0; all.cells() as usize * size];
    array.get(&all, &mut cells).unwrap();
    assert!(cells == model.get(&all), "seed {seed}: the rows differ at the end");
}
