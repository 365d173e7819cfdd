//! Questions about values: comparisons of arrays, joined by and/or; the cells that meet them; histograms. And regions of memory.

use crate::array::{region, terrace_array, terrace_region};
use crate::call::{Failure, Outcome, call, call_close, call_open, given, out, space, text, used};
use crate::handles::handle;
use std::ffi::{c_char, c_int, c_void};
use terrace_client::{Kind, Region, Selection, Where, histogram};

/// A question that each cell answers with yes or no.
#[allow(non_camel_case_types)]
pub struct terrace_where {
    _private: (),
}

/// Cells that have met a question.
#[allow(non_camel_case_types)]
pub struct terrace_selection {
    _private: (),
}

handle!(terrace_where, Where, "the question", "questions");
handle!(terrace_selection, Selection, "the selection", "selections");

fn within(told: *const terrace_region) -> Outcome<Option<Region>> {
    if told.is_null() { Ok(None) } else { region(told).map(Some) }
}

/// Asks for the cells of an array that meet a comparison: "> 3.5" (also <, <=, >=, =, !=). NaN meets nothing.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_where_new(
    array: *const terrace_array,
    comparison: *const c_char,
    question: *mut *mut terrace_where,
) -> c_int {
    call_open(question, || Ok(Where::new(&*used(array)?, text(comparison, "the comparison")?)?))
}

/// Cells that meet both questions. Both stay what they are.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_where_and(
    one: *const terrace_where,
    other: *const terrace_where,
    both: *mut *mut terrace_where,
) -> c_int {
    call_open(both, || Ok(used(one)?.clone().and(used(other)?.clone())))
}

/// Cells that meet one of the questions, or both. Both stay what they are.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_where_or(
    one: *const terrace_where,
    other: *const terrace_where,
    either: *mut *mut terrace_where,
) -> c_int {
    call_open(either, || Ok(used(one)?.clone().or(used(other)?.clone())))
}

/// Forgets a question.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_where_close(question: *mut terrace_where) -> c_int {
    call_close(question)
}

/// Looks for the cells, in the whole arrays (`within`: NULL) or in a block of them. All arrays of the question have one shape.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_select(
    question: *const terrace_where,
    within: *const terrace_region,
    selection: *mut *mut terrace_selection,
) -> c_int {
    call_open(selection, || Ok(used(question)?.select(self::within(within)?.as_ref())?))
}

/// How many cells those are.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_selection_count(selection: *const terrace_selection, count: *mut u64) -> c_int {
    call(|| {
        *out(count, "the count")? = used(selection)?.count();
        Ok(())
    })
}

/// Where they are: `room` (as many as the count, at least) positions in C order. Of the place [i, j] of an array of m columns: i m + j.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_selection_positions(
    selection: *const terrace_selection,
    positions: *mut u64,
    room: usize,
) -> c_int {
    call(|| {
        let selection = used(selection)?;
        let places = space(positions, room, "the place for the positions")?;
        if selection.count() > room as u64 {
            return Err(Failure::new(Kind::OutOfBounds, format!("the selection has {} cells", selection.count())));
        }
        places.iter_mut().zip(selection.positions()).for_each(|(place, position)| *place = position);
        Ok(())
    })
}

/// Their cells in an array of the same shape (one of the question's, or another), packed in the order of their positions.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_selection_get(
    selection: *const terrace_selection,
    array: *const terrace_array,
    cells: *mut c_void,
    bytes: usize,
) -> c_int {
    call(|| {
        let (selection, array) = (used(selection)?, used(array)?);
        let place = space(cells.cast::<u8>(), bytes, "the buffer")?;
        let wanted = selection.count() as u128 * array.spec().data_type.size() as u128;
        if wanted != bytes as u128 {
            return Err(Failure::invalid(format!("the selected cells have {wanted} bytes, the buffer {bytes}")));
        }
        place.copy_from_slice(&selection.data(&array)?);
        Ok(())
    })
}

/// Forgets a selection.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_selection_close(selection: *mut terrace_selection) -> c_int {
    call_close(selection)
}

/// How many cells lie in each of `bins` bins of one width from `low` to `high`; NaN, and what lies outside, is in none. `low` greater
/// than `high`: from the least to the greatest cell, which are then said there. `within`: NULL for all cells.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_histogram(
    array: *const terrace_array,
    within: *const terrace_region,
    bins: usize,
    low: *mut f64,
    high: *mut f64,
    counts: *mut u64,
) -> c_int {
    call(|| {
        let array = used(array)?;
        let (low, high) = (out(low, "the lower bound")?, out(high, "the upper bound")?);
        let counts = space(counts, bins, "the place for the counts")?;
        let bounds = (*low <= *high).then_some((*low, *high));
        let found = histogram(&array, self::within(within)?.as_ref(), bins, bounds)?;
        (*low, *high) = (found.low, found.high);
        counts.copy_from_slice(&found.counts);
        Ok(())
    })
}

fn memory_of(told: *const terrace_region, shape: *const u64) -> Outcome<(Region, Vec<u64>)> {
    let memory = region(told)?;
    let shape = given(shape, memory.rank(), "the memory's shape")?;
    Ok((memory, shape.to_vec()))
}

/// Puts cells that lie apart: in the region `memory` of a buffer of this shape (in cells, as many numbers as the region has dimensions). Both
/// regions have as many cells, in C order.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_array_put_from(
    array: *const terrace_array,
    region: *const terrace_region,
    shape: *const u64,
    memory: *const terrace_region,
    buffer: *const c_void,
    bytes: usize,
) -> c_int {
    call(|| {
        let (array, (memory, shape)) = (used(array)?, memory_of(memory, shape)?);
        let buffer = given(buffer.cast::<u8>(), bytes, "the buffer")?;
        Ok(array.put_from(&self::region(region)?, &shape, &memory, buffer)?)
    })
}

/// Gets cells into the region `memory` of a buffer of this shape; all others there stay what they are.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_array_get_into(
    array: *const terrace_array,
    region: *const terrace_region,
    shape: *const u64,
    memory: *const terrace_region,
    buffer: *mut c_void,
    bytes: usize,
) -> c_int {
    call(|| {
        let (array, (memory, shape)) = (used(array)?, memory_of(memory, shape)?);
        let buffer = space(buffer.cast::<u8>(), bytes, "the buffer")?;
        Ok(array.get_into(&self::region(region)?, &shape, &memory, buffer)?)
    })
}
