//! Waiting that Ctrl-C ends: in short steps, between which the interpreter looks at its signals.

use crate::errors::OrRaise;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Not felt by who pressed Ctrl-C, and rare enough to cost nothing.
const STEP: Duration = Duration::from_millis(50);

/// Seconds as Python gives them; `None`: as long as it takes.
pub fn patience(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(seconds) = seconds else { return Ok(None) };
    match Duration::try_from_secs_f64(seconds.max(0.0)) {
        Ok(patience) => Ok(Some(patience)),
        Err(_) if seconds > 0.0 => Ok(None),
        Err(_) => Err(PyValueError::new_err(format!("a timeout of {seconds} seconds"))),
    }
}

/// Calls `attempt` with a part of the patience until it has a result or the patience is at its end. The last attempt's answer
/// is `None` where there was no result.
pub fn in_steps<T: Send>(
    py: Python<'_>,
    patience: Option<Duration>,
    attempt: impl Fn(Duration) -> Option<T> + Send + Sync,
) -> PyResult<Option<T>> {
    let begun = Instant::now();
    loop {
        let left = patience.map_or(STEP, |patience| patience.saturating_sub(begun.elapsed()));
        if let Some(result) = py.detach(|| attempt(left.min(STEP))) {
            return Ok(Some(result));
        }
        if left.is_zero() {
            return Ok(None);
        }
        py.check_signals()?;
    }
}

/// Does a long call in a thread of its own. After Ctrl-C the call goes on there, and nobody waits for it.
pub fn abandonable<T: Send + 'static>(
    py: Python<'_>,
    call: impl FnOnce() -> terrace_client::Result<T> + Send + 'static,
) -> PyResult<T> {
    let (sender, receiver) = channel();
    let spawned = std::thread::Builder::new().name("terrace-call".into()).spawn(move || {
        let _ = sender.send(call());
    });
    spawned.map_err(|error| PyRuntimeError::new_err(format!("no thread for a call is to be had: {error}")))?;
    let receiver = std::sync::Mutex::new(receiver);
    loop {
        let answer = py.detach(|| receiver.lock().expect("one thread uses it").recv_timeout(STEP));
        match answer {
            Ok(result) => return result.or_raise(py),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("the call's thread ended without an answer"));
            }
        }
    }
}
