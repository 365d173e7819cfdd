//! Staging: puts that a program starts and does not wait for, in a queue of so many bytes; and reading steps as they become whole.

use crate::array::{region_of, terrace_array, terrace_region};
use crate::call::{Failure, Outcome, call, call_close, call_open, check_memory, closed, given, out, text, used};
use crate::handles::handle;
use crate::session::{patience, terrace_session};
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};
use terrace_client::{Arrived, Full, Staged, Stager, StagerSpec, StepCursor};

/// A queue of puts, with threads that do them.
#[allow(non_camel_case_types)]
pub struct terrace_stager {
    _private: (),
}

/// Where a reader of a container's steps is.
#[allow(non_camel_case_types)]
pub struct terrace_steps {
    _private: (),
}

/// Where puts are to have arrived.
#[repr(C)]
#[allow(non_camel_case_types)]
pub enum terrace_arrived {
    /// The agent has them: all who ask it see them, and they survive a kill of any process.
    TERRACE_STAGED = 0,
    /// All agents have them that they are forwarded to.
    TERRACE_ANALYSIS = 1,
    /// The root's own storage has them.
    TERRACE_DURABLE = 2,
}

/// What a stager is to be. What is left zero is chosen.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct terrace_stager_spec {
    /// Bytes of cells that may be queued (256 MiB).
    pub queue_bytes: u64,
    /// A put that the queue has no room for is not done; else it waits for room.
    pub drops: bool,
    /// Threads that put (1).
    pub threads: c_int,
}

/// Since the stager was made; what is queued: now.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct terrace_stager_counters {
    pub queued_puts: u64,
    pub queued_bytes: u64,
    pub queued_bytes_max: u64,
    pub done_puts: u64,
    pub done_bytes: u64,
    pub dropped_puts: u64,
    pub dropped_bytes: u64,
    pub dropped_steps: u64,
    pub failed_puts: u64,
    /// How long the program waited for room.
    pub blocked_s: f64,
    /// How long the threads were putting.
    pub busy_s: f64,
}

handle!(terrace_stager, Stager, "the stager", "stagers");
handle!(terrace_steps, Mutex<StepCursor>, "the steps", "steps");

/// Makes a stager. `spec`: NULL for what is chosen.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_stager_create(
    session: *const terrace_session,
    spec: *const terrace_stager_spec,
    stager: *mut *mut terrace_stager,
) -> c_int {
    call_open(stager, || {
        let mut wanted = StagerSpec::default();
        if let Some(spec) = given(spec, usize::from(!spec.is_null()), "the spec")?.first() {
            if spec.queue_bytes > 0 {
                wanted.queue_bytes = spec.queue_bytes;
            }
            wanted.full = if spec.drops { Full::Drop } else { Full::Block };
            wanted.threads = match spec.threads {
                0 => 1,
                1..=64 => spec.threads as usize,
                other => return Err(Failure::invalid(format!("{other} threads: 1 to 64 are possible"))),
            };
        }
        Ok(used(session)?.stager(wanted)?)
    })
}

/// Queues a put and returns. `copies`: the cells are copied, and the memory is the program's again at once; else it must stay and
/// be left alone until terrace_stager_sync has returned. `queued` (or NULL): false if the queue was full and nothing will be put.
/// Puts into arrays of one container take effect in their order.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_stager_put(
    stager: *const terrace_stager,
    array: *const terrace_array,
    region: *const terrace_region,
    cells: *const c_void,
    bytes: usize,
    copies: bool,
    queued: *mut bool,
) -> c_int {
    call(|| {
        let (stager, array) = (used(stager)?, used(array)?);
        let region = region_of(&array, region, bytes)?;
        let cells = cells.cast::<u8>();
        check_memory(cells, bytes, "the buffer")?;
        let staged = match copies {
            true => stager.put(&array, &region, given(cells, bytes, "the buffer")?)?,
            // SAFETY: the program promises that the memory stays until it has called sync.
            false => unsafe { stager.put_borrowed(&array, &region, cells, bytes)? },
        };
        told(staged, queued)
    })
}

fn told(staged: Staged, queued: *mut bool) -> Outcome<()> {
    if !queued.is_null() {
        *out(queued, "the answer")? = staged == Staged::Queued;
    }
    Ok(())
}

/// Takes room for a whole step of so many bytes: the puts that follow have it. `queued`: false if there is none (a stager that
/// drops), and the step's puts are not to be made.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_stager_begin_step(stager: *const terrace_stager, bytes: u64, queued: *mut bool) -> c_int {
    call(|| told(used(stager)?.begin_step(bytes)?, queued))
}

/// Says, after all earlier puts of the container, that its first `steps` steps are whole: for readers that can't tell by its cells.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_stager_publish(stager: *const terrace_stager, container: *const c_char, steps: u64) -> c_int {
    call(|| Ok(used(stager)?.publish(text(container, "the container's name")?, steps)?))
}

/// Waits until all earlier puts have arrived (one of terrace_arrived), for so many seconds (less than 0: for as long as it takes);
/// TERRACE_BUSY: they have not. Gives the first failure of the puts since the last call; all others were done.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_stager_sync(stager: *const terrace_stager, arrived: c_int, seconds: f64) -> c_int {
    call(|| {
        let arrived = match arrived {
            0 => Arrived::Staged,
            1 => Arrived::Analysis,
            2 => Arrived::Durable,
            other => return Err(Failure::invalid(format!("{other} is not one of terrace_arrived"))),
        };
        Ok(used(stager)?.sync(arrived, patience(seconds)?)?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn terrace_stager_count(stager: *const terrace_stager, counters: *mut terrace_stager_counters) -> c_int {
    call(|| {
        let found = used(stager)?.counters();
        *out(counters, "the counters")? = terrace_stager_counters {
            queued_puts: found.queued_puts,
            queued_bytes: found.queued_bytes,
            queued_bytes_max: found.queued_bytes_max,
            done_puts: found.done_puts,
            done_bytes: found.done_bytes,
            dropped_puts: found.dropped_puts,
            dropped_bytes: found.dropped_bytes,
            dropped_steps: found.dropped_steps,
            failed_puts: found.failed_puts,
            blocked_s: found.blocked_s,
            busy_s: found.busy_s,
        };
        Ok(())
    })
}

/// Waits until what is queued has been put, gives the failures that no sync has told, and forgets the stager.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_stager_close(stager: *mut terrace_stager) -> c_int {
    call(|| {
        let closed = closed(stager)?;
        Ok(closed.sync(Arrived::Staged, None)?)
    })
}

/// The steps of a container from `from` on. `arrays`: names of those, in the container, that a step has to have (`count` of them;
/// 0: all that are there and grow).
#[unsafe(no_mangle)]
pub extern "C" fn terrace_steps_open(
    session: *const terrace_session,
    container: *const c_char,
    from: u64,
    arrays: *const *const c_char,
    count: usize,
    steps: *mut *mut terrace_steps,
) -> c_int {
    call_open(steps, || {
        let session = used(session)?;
        let names = given(arrays, count, "the list of names")?;
        let names = names.iter().map(|&name| text(name, "an array's name")).collect::<Outcome<Vec<&str>>>()?;
        let cursor = session.steps(text(container, "the container's name")?, from, &names)?;
        Ok(Mutex::new(cursor))
    })
}

/// Waits for the next step that all its arrays have whole, for so many seconds (less than 0: for as long as it takes);
/// TERRACE_BUSY: it has not come.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_steps_next(steps: *const terrace_steps, seconds: f64, step: *mut u64) -> c_int {
    call(|| {
        let step = out(step, "the step")?;
        let cursor = used(steps)?;
        let found = cursor.lock().unwrap_or_else(PoisonError::into_inner).next(patience(seconds)?)?;
        *step = found.ok_or_else(|| Failure::new(terrace_client::Kind::Busy, "the next step is not there yet"))?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn terrace_steps_close(steps: *mut terrace_steps) -> c_int {
    call_close(steps)
}
