//! Bytes objects: files below the root whose bytes lie in a tier, made and removed exactly as the preload library makes and
//! removes a program's.
//!
//!   create: record ─▶ object (O_EXCL) ─▶ link in the root ─▶ event        open: the kernel follows the link
//!
//! Invariant: as in the files door, the link is made last, and is the one atomic step that says who created the file.

mod file;
mod names;

pub use file::BytesFile;
pub use names::{Found, best_device, create, look, member_of, open, remove, remove_tree, rename, say_renamed};
