//! What one thread has of one aggregate: a number for each group.

use super::kernels as k;
use super::{Function, Reduction};
use crate::grid::CellType;
use crate::grid::with_cell_type;
use crate::sum::fitting;
use arrow::array::{ArrayRef, AsArray, Decimal128Array, Float64Array, Int64Array, PrimitiveArray, UInt64Array};
use arrow::datatypes::{ArrowPrimitiveType, DataType as ArrowType, Decimal128Type, Float64Type};
use datafusion::error::Result;
use std::sync::Arc;
use terrace_client::DataType;

/// Sums may leave 64 bits on their way.
pub const SUM_STATE: ArrowType = ArrowType::Decimal128(38, 0);

/// Groups that a line of cells goes into.
#[derive(Clone, Copy)]
pub enum Groups<'a> {
    One(usize),
    /// Neighbours, one for each cell, from this one on.
    Each(usize),
    Mapped(MappedLine<'a>),
}

/// Of each cell the group, by number; from the first so far apart.
#[derive(Clone, Copy)]
pub struct MappedLine<'a> {
    pub first: usize,
    pub numbers: &'a [u32],
    pub stride: usize,
}

impl MappedLine<'_> {
    /// Of cells that are rows, with their groups.
    pub fn for_each<T: Copy>(self, cells: &[T], mask: Option<&[u64]>, mut act: impl FnMut(usize, T)) {
        let group = |number: u32| self.first.wrapping_add(number as usize * self.stride);
        let all = cells.iter().zip(self.numbers);
        match mask {
            None => all.for_each(|(&cell, &number)| act(group(number), cell)),
            Some(mask) => {
                all.zip(mask).filter(|(_, mask)| **mask != 0).for_each(|((&cell, &number), _)| act(group(number), cell))
            }
        }
    }
}

pub enum Accumulator {
    /// Of counts there is one array for all aggregates.
    Nothing,
    Real(Vec<f64>),
    /// Sums that may leave 64 bits on their way.
    Integer(Vec<i128>),
    Least(Extremes),
    Greatest(Extremes),
    /// All of them: of each group as many as it may have, and how many it has.
    Values(Values),
}

pub struct Values {
    data_type: DataType,
    /// Of one group.
    room: usize,
    /// In the order of values, as numbers.
    keys: Vec<u64>,
    counts: Vec<usize>,
}

pub enum Extremes {
    I8(Vec<i8>),
    I16(Vec<i16>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    U64(Vec<u64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
}

/// A type whose extremes are kept.
pub trait Extreme: CellType {
    /// What every value is at most, and at least.
    const TOP: Self;
    const BOTTOM: Self;
    /// NaN is greater than all numbers, and than NaN: so nothing branches.
    fn greater(self, other: Self) -> bool;
    fn kept(extremes: &mut Extremes) -> &mut Vec<Self>;
    fn extremes(groups: usize, start: Self) -> Extremes;
    /// A number that is greater where the value comes later in SQL's order.
    fn key(self) -> u64;
    fn of_key(key: u64) -> Self;
    /// Between two values, as DataFusion's `median` has it.
    fn between(self, other: Self) -> Self;
}

fn key_of_real(bits: u64, sign: u64) -> u64 {
    if bits & sign == 0 { bits | sign } else { !bits & (sign | (sign - 1)) }
}

fn bits_of_key(key: u64, sign: u64) -> u64 {
    if key & sign == 0 { !key & (sign | (sign - 1)) } else { key ^ sign }
}

macro_rules! ranked {
    (real $native:ty, $bits:ty) => {
        fn key(self) -> u64 {
            key_of_real(self.to_bits().into(), 1 << (<$bits>::BITS - 1))
        }
        fn of_key(key: u64) -> Self {
            <$native>::from_bits(bits_of_key(key, 1 << (<$bits>::BITS - 1)) as $bits)
        }
        fn between(self, other: Self) -> Self {
            (self + other) / 2.0
        }
    };
    (integer $native:ty) => {
        // Their least one has the key 0.
        fn key(self) -> u64 {
            (self as i128 - <$native>::MIN as i128) as u64
        }
        fn of_key(key: u64) -> Self {
            (key as i128 + <$native>::MIN as i128) as $native
        }
        fn between(self, other: Self) -> Self {
            ((self as i128 + other as i128) / 2) as $native
        }
    };
}

macro_rules! extreme {
    ($($native:ty => $variant:ident, $bottom:expr, $top:expr, |$a:ident, $b:ident| $greater:expr, $kind:ident $own:ty $(, $bits:ty)?);*) => {
        $(impl Extreme for $native {
            const TOP: Self = $top;
            const BOTTOM: Self = $bottom;
            #[inline(always)]
            fn greater(self, other: Self) -> bool { let ($a, $b) = (self, other); $greater }
            fn kept(extremes: &mut Extremes) -> &mut Vec<Self> {
                match extremes {
                    Extremes::$variant(kept) => kept,
                    _ => unreachable!("made for this type"),
                }
            }
            fn extremes(groups: usize, start: Self) -> Extremes { Extremes::$variant(vec![start; groups]) }
            ranked!($kind $own $(, $bits)?);
        })*
    };
}
extreme! {
    i8 => I8, i8::MIN, i8::MAX, |a, b| a > b, integer i8;
    i16 => I16, i16::MIN, i16::MAX, |a, b| a > b, integer i16;
    i32 => I32, i32::MIN, i32::MAX, |a, b| a > b, integer i32;
    i64 => I64, i64::MIN, i64::MAX, |a, b| a > b, integer i64;
    u8 => U8, 0, u8::MAX, |a, b| a > b, integer u8;
    u16 => U16, 0, u16::MAX, |a, b| a > b, integer u16;
    u32 => U32, 0, u32::MAX, |a, b| a > b, integer u32;
    u64 => U64, 0, u64::MAX, |a, b| a > b, integer u64;
    f32 => F32, f32::NEG_INFINITY, f32::NAN, |a, b| (a > b) | a.is_nan(), real f32, u32;
    f64 => F64, f64::NEG_INFINITY, f64::NAN, |a, b| (a > b) | a.is_nan(), real f64, u64
}

/// Of extremes, whatever they are of.
macro_rules! each_kind {
    ($extremes:expr, |$kept:ident: $native:ident| $act:expr) => {
        match $extremes {
            Extremes::I8($kept) => {
                type $native = i8;
                $act
            }
            Extremes::I16($kept) => {
                type $native = i16;
                $act
            }
            Extremes::I32($kept) => {
                type $native = i32;
                $act
            }
            Extremes::I64($kept) => {
                type $native = i64;
                $act
            }
            Extremes::U8($kept) => {
                type $native = u8;
                $act
            }
            Extremes::U16($kept) => {
                type $native = u16;
                $act
            }
            Extremes::U32($kept) => {
                type $native = u32;
                $act
            }
            Extremes::U64($kept) => {
                type $native = u64;
                $act
            }
            Extremes::F32($kept) => {
                type $native = f32;
                $act
            }
            Extremes::F64($kept) => {
                type $native = f64;
                $act
            }
        }
    };
}

impl Accumulator {
    /// `rows`: so many has a group at most.
    pub fn new(reduction: &Reduction, groups: usize, rows: u64) -> Accumulator {
        let data_type = reduction.cells;
        match reduction.function {
            Function::Count => Accumulator::Nothing,
            Function::Median => {
                let room = rows as usize;
                Accumulator::Values(Values { data_type, room, keys: vec![0; room * groups], counts: vec![0; groups] })
            }
            Function::Average => Accumulator::Real(vec![0.0; groups]),
            Function::Sum if is_real(data_type) => Accumulator::Real(vec![0.0; groups]),
            Function::Sum => Accumulator::Integer(vec![0; groups]),
            Function::Least => Accumulator::Least(
                with_cell_type!(data_type, T => <T as Extreme>::extremes(groups, T::TOP), unreachable!("numbers only")),
            ),
            Function::Greatest => Accumulator::Greatest(
                with_cell_type!(data_type, T => <T as Extreme>::extremes(groups, T::BOTTOM), unreachable!("numbers only")),
            ),
        }
    }

    /// To so many groups, of which the new ones have nothing yet.
    pub fn grow(&mut self, groups: usize) {
        match self {
            Accumulator::Nothing | Accumulator::Values(_) => {}
            Accumulator::Real(sums) => sums.resize(groups, 0.0),
            Accumulator::Integer(sums) => sums.resize(groups, 0),
            Accumulator::Least(kept) => each_kind!(kept, |kept: T| kept.resize(groups, T::TOP)),
            Accumulator::Greatest(kept) => each_kind!(kept, |kept: T| kept.resize(groups, T::BOTTOM)),
        }
    }

    pub fn take<T: Extreme>(&mut self, cells: &[T], mask: Option<&[u64]>, groups: Groups<'_>) {
        let count = cells.len();
        match (self, groups) {
            (Accumulator::Nothing, _) => {}
            (Accumulator::Real(sums), Groups::One(group)) => sums[group] += k::sum_real(cells, mask),
            (Accumulator::Real(sums), Groups::Each(first)) => k::add_real(&mut sums[first..first + count], cells, mask),
            (Accumulator::Real(sums), Groups::Mapped(mapped)) => {
                mapped.for_each(cells, mask, |group, cell| sums[group] += cell.to_f64());
            }
            (Accumulator::Integer(sums), Groups::Mapped(mapped)) => {
                mapped.for_each(cells, mask, |group, cell| sums[group] += i128::from(cell.to_i64()));
            }
            (Accumulator::Integer(sums), Groups::One(group)) => {
                sums[group] += k::sum_integer(cells, mask);
            }
            (Accumulator::Integer(sums), Groups::Each(first)) => {
                k::add_integer(&mut sums[first..first + count], cells, mask);
            }
            (Accumulator::Values(values), groups) => values.take(cells, mask, groups),
            (Accumulator::Least(kept), groups) => {
                extreme(T::kept(kept), cells, mask, groups, |new, old| old.greater(new));
            }
            (Accumulator::Greatest(kept), groups) => extreme(T::kept(kept), cells, mask, groups, T::greater),
        }
    }

    pub fn merge(&mut self, other: Accumulator) {
        match (self, other) {
            (Accumulator::Real(own), Accumulator::Real(other)) => {
                own.iter_mut().zip(other).for_each(|(own, other)| *own += other);
            }
            (Accumulator::Integer(own), Accumulator::Integer(other)) => {
                own.iter_mut().zip(other).for_each(|(own, other)| *own += other);
            }
            (Accumulator::Least(own), Accumulator::Least(mut other)) => {
                merge_extremes(own, &mut other, Direction::Least);
            }
            (Accumulator::Greatest(own), Accumulator::Greatest(mut other)) => {
                merge_extremes(own, &mut other, Direction::Greatest);
            }
            _ => {}
        }
    }

    /// What these groups have, for whoever merges it with that of other nodes.
    pub fn states(&self, groups: &[usize]) -> Option<ArrayRef> {
        Some(match self {
            Accumulator::Nothing | Accumulator::Values(_) => return None,
            Accumulator::Real(sums) => {
                Arc::new(Float64Array::from_iter_values(groups.iter().map(|&group| sums[group])))
            }
            Accumulator::Integer(sums) => {
                let sums = Decimal128Array::from_iter_values(groups.iter().map(|&group| sums[group]));
                Arc::new(sums.with_data_type(SUM_STATE))
            }
            Accumulator::Least(kept) | Accumulator::Greatest(kept) => kept.told(groups),
        })
    }

    /// The states of another node, one for each of these groups.
    pub fn take_states(&mut self, groups: &[usize], states: &ArrayRef) {
        match self {
            Accumulator::Nothing | Accumulator::Values(_) => {}
            Accumulator::Real(sums) => {
                let states = states.as_primitive::<Float64Type>().values();
                groups.iter().zip(states).for_each(|(&group, state)| sums[group] += state);
            }
            Accumulator::Integer(sums) => {
                let states = states.as_primitive::<Decimal128Type>().values();
                groups.iter().zip(states).for_each(|(&group, state)| sums[group] += state);
            }
            Accumulator::Least(kept) => kept.take_told(groups, states, Direction::Least),
            Accumulator::Greatest(kept) => kept.take_told(groups, states, Direction::Greatest),
        }
    }

    /// The groups' results, from `first` on; `counts` are the rows of each.
    pub fn results(&self, function: Function, counts: &[u64], first: usize) -> Result<ArrayRef> {
        let range = first..first + counts.len();
        Ok(match self {
            Accumulator::Nothing => Arc::new(Int64Array::from_iter_values(counts.iter().map(|&count| count as i64))),
            Accumulator::Real(sums) if function == Function::Average => Arc::new(Float64Array::from_iter(
                sums[range].iter().zip(counts).map(|(sum, &count)| (count > 0).then(|| sum / count as f64)),
            )),
            Accumulator::Real(sums) => Arc::new(Float64Array::from_iter(present(&sums[range], counts))),
            Accumulator::Integer(sums) => {
                let sums = present(&sums[range], counts).map(|sum| sum.map(fitting).transpose());
                Arc::new(sums.collect::<Result<Int64Array>>()?)
            }
            Accumulator::Values(values) => with_cell_type!(
                values.data_type,
                T => Arc::new(PrimitiveArray::<<T as CellType>::Arrow>::from_iter(
                    range.map(|group| values.median::<T>(group))
                )),
                unreachable!("numbers only")
            ),
            Accumulator::Least(kept) | Accumulator::Greatest(kept) => match kept {
                Extremes::I8(kept) => widened(&kept[range], counts),
                Extremes::I16(kept) => widened(&kept[range], counts),
                Extremes::I32(kept) => widened(&kept[range], counts),
                Extremes::I64(kept) => widened(&kept[range], counts),
                Extremes::U8(kept) => widened(&kept[range], counts),
                Extremes::U16(kept) => widened(&kept[range], counts),
                Extremes::U32(kept) => widened(&kept[range], counts),
                Extremes::U64(kept) => Arc::new(UInt64Array::from_iter(present(&kept[range], counts))),
                Extremes::F32(kept) => {
                    let values =
                        present(&kept[range], counts).map(|value| value.map(|value| one_nan(f64::from(value))));
                    Arc::new(Float64Array::from_iter(values))
                }
                Extremes::F64(kept) => {
                    Arc::new(Float64Array::from_iter(present(&kept[range], counts).map(|value| value.map(one_nan))))
                }
            },
        })
    }
}

impl Values {
    fn take<T: Extreme>(&mut self, cells: &[T], mask: Option<&[u64]>, groups: Groups<'_>) {
        let mut put = |group: usize, cell: T| {
            self.keys[group * self.room + self.counts[group]] = cell.key();
            self.counts[group] += 1;
        };
        let rows = cells.iter().enumerate().filter(|(place, _)| mask.is_none_or(|mask| mask[*place] != 0));
        match groups {
            Groups::One(group) => rows.for_each(|(_, &cell)| put(group, cell)),
            Groups::Each(first) => rows.for_each(|(place, &cell)| put(first + place, cell)),
            Groups::Mapped(mapped) => mapped.for_each(cells, mask, put),
        }
    }

    fn median<T: Extreme>(&self, group: usize) -> Option<T> {
        let mut keys = self.keys[group * self.room..][..self.counts[group]].to_vec();
        let half = keys.len() / 2;
        let is_even = keys.len().is_multiple_of(2);
        if keys.is_empty() {
            return None;
        }
        let (lower, upper, _) = keys.select_nth_unstable(half);
        let upper = T::of_key(*upper);
        match lower.iter().max() {
            Some(&lower) if is_even => Some(T::of_key(lower).between(upper)),
            _ => Some(upper),
        }
    }
}

/// The same for NaNs of either sign: which of several comes first is chance.
fn one_nan(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value }
}

fn present<'a, T: Copy>(values: &'a [T], counts: &'a [u64]) -> impl Iterator<Item = Option<T>> + 'a {
    values.iter().zip(counts).map(|(value, &count)| (count > 0).then_some(*value))
}

fn widened<T: CellType>(values: &[T], counts: &[u64]) -> ArrayRef {
    Arc::new(Int64Array::from_iter(present(values, counts).map(|value| value.map(T::to_i64))))
}

fn is_real(data_type: DataType) -> bool {
    matches!(data_type, DataType::Float32 | DataType::Float64)
}

fn extreme<T: Extreme>(
    kept: &mut [T],
    cells: &[T],
    mask: Option<&[u64]>,
    groups: Groups<'_>,
    better: impl Fn(T, T) -> bool + Copy,
) {
    match groups {
        Groups::One(group) => kept[group] = k::extreme(cells, mask, kept[group], better),
        Groups::Each(first) => k::extreme_each(&mut kept[first..first + cells.len()], cells, mask, better),
        Groups::Mapped(mapped) => mapped.for_each(cells, mask, |group, cell| {
            if better(cell, kept[group]) {
                kept[group] = cell;
            }
        }),
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Least,
    Greatest,
}

fn keep_better<T: Extreme>(own: &mut T, other: T, direction: Direction) {
    let is_better = match direction {
        Direction::Least => own.greater(other),
        Direction::Greatest => other.greater(*own),
    };
    if is_better {
        *own = other;
    }
}

impl Extremes {
    pub fn arrow_type(&self) -> ArrowType {
        each_kind!(self, |_kept: T| <<T as CellType>::Arrow as ArrowPrimitiveType>::DATA_TYPE)
    }

    fn told(&self, groups: &[usize]) -> ArrayRef {
        each_kind!(self, |kept: T| {
            let values = groups.iter().map(|&group| kept[group]);
            Arc::new(PrimitiveArray::<<T as CellType>::Arrow>::from_iter_values(values))
        })
    }

    fn take_told(&mut self, groups: &[usize], states: &ArrayRef, direction: Direction) {
        each_kind!(self, |kept: T| {
            let states = states.as_primitive::<<T as CellType>::Arrow>().values();
            groups.iter().zip(states).for_each(|(&group, state)| keep_better(&mut kept[group], *state, direction));
        });
    }
}

fn merge_extremes(own: &mut Extremes, other: &mut Extremes, direction: Direction) {
    each_kind!(own, |own: T| {
        let others = T::kept(other).iter();
        own.iter_mut().zip(others).for_each(|(own, other)| keep_better(own, *other, direction));
    });
}
