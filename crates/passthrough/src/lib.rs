//! What a FUSE pass-through file system is made of; `terrace-view` and `terrace-slowfs` are two.
//!
//!   request ─▶ the file system's own nodes ─▶ Target ─▶ calls (libc) ─▶ the directory that is shown
//!                                                  └─▶ attributes, handles ─▶ replies
//!
//! How a node leads to its file is each file system's own matter (by names, or by a descriptor), as is what waits for what. What a
//! request does to the file once it is found is here, and the same for both.
//!
//! Invariant: every call goes through libc (`calls`), so that the preload library can stand in for it.

mod attributes;
pub mod calls;
mod change;
mod handles;
mod replies;

pub use attributes::{attributes, listed_type};
pub use calls::{Answer, ListedName, Target};
pub use change::{Change, drop_privileges, give};
pub use handles::{Handle, Handles};
pub use replies::{reply_attributes, reply_data, reply_empty, reply_entry, reply_open, reply_written, reply_xattr};
