//! The compiled half of the Python package `terrace`: thin classes over the client, with bytes for cells.
//!
//!   terrace/*.py (indexing, NumPy, fsspec, Zarr) ──▶ _native (this) ──▶ terrace-client
//!
//! Invariant: cells are copied with the interpreter's lock released, between tier memory and the buffer that NumPy owns.
//! What a buffer's owner must not do meanwhile is what NumPy itself asks of threads.
//!
//! Why two halves: what needs NumPy is shorter and clearer in Python, and the stable ABI has no NumPy.

mod array;
mod bytes;
mod errors;
mod session;
mod stager;
mod tags;
mod transfer;
mod values;
mod waiting;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<session::Session>()?;
    module.add_class::<array::Array>()?;
    module.add_class::<array::Lock>()?;
    module.add_class::<bytes::Bytes>()?;
    module.add_class::<transfer::Transfer>()?;
    module.add_class::<stager::Stager>()?;
    module.add_class::<stager::Steps>()?;
    module.add_class::<values::Where>()?;
    module.add_class::<values::Selected>()?;
    module.add_function(wrap_pyfunction!(array::keepers, module)?)?;
    module.add_function(wrap_pyfunction!(values::histogram, module)?)?;
    module.add_function(wrap_pyfunction!(transfer::finish_transfers, module)?)?;
    module.add_function(wrap_pyfunction!(session::parse_zarr_metadata, module)?)?;
    Ok(())
}
