//! The C ABI of the objects door: `libterrace.so`, described by `include/terrace.h`.
//!
//!   C ──pointers──▶ call (checks, catches panics, keeps the error's text) ──▶ terrace_client
//!
//! Invariants: nothing that a program passes is followed before it was looked at (handles are numbers in a table, memory is
//! checked for NULL); every call returns a code; no panic leaves a call. What C can't tell (whether memory is as long as was
//! said) is trusted.

// C knows no `unsafe`: a header says what must be given, and `call` looks at what can be looked at.
#![allow(clippy::not_unsafe_ptr_arg_deref)]

// The header tells things in this order.
mod call;

mod session;

mod bytes;

mod array;

mod transfer;

mod stager;

mod lock;

mod tag;

mod values;

mod savime;

mod handles;

mod hook;

pub use array::*;
pub use bytes::*;
pub use call::{terrace_code, terrace_error, terrace_version};
pub use hook::*;
pub use lock::*;
pub use savime::*;
pub use session::*;
pub use stager::*;
pub use tag::*;
pub use transfer::*;
pub use values::*;
