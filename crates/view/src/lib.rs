//! The private mount of `terrace run --mount`: a root's files, at the root's own path, for one run's programs alone.
//!
//! ```text
//!  program ──any system call──▶ kernel ──FUSE──▶ view server ──libc's call──▶ preload library ──▶ the root, the tiers
//!  (in a mount namespace of its own)             (outside of it)
//! ```
//!
//! - `enter` makes the mount: in the new process, between fork and exec (`namespace`).
//! - `serve` answers what the kernel asks (`requests`), by names and open files that it keeps track of (`nodes`).
//!
//! Invariant: this crate knows nothing of tiers, records or links. Every call that it makes goes through libc (`terrace_passthrough`), and the
//! server is started with the preload library, which makes of each what it makes of any program's. So there is one
//! implementation of what a file in a tier is, and the mount is a plain pass-through.

mod namespace;
mod nodes;
mod requests;

pub use namespace::{Namespace, Refused, probe};
pub use requests::serve;
