//! The files door for programs that can't load the preload library: static, Go and musl programs, raw system calls.
//!
//!   program ──trapped call──▶ kernel ──notification──▶ supervisor ──▶ the library's decision ──▶ answer, or a descriptor
//!                                                         ▲
//!                                    keeper: holds the listener and the shared state, starts the next supervisor
//!
//!   filter     which calls come                     listener   how they come and are answered
//!   calls      which answer is whose                open, metadata, attributes, names, copy, directories   the answers
//!   loader     the calls that a starting program makes before any other
//!   target     the program's memory and rights      state      what a killed supervisor leaves
//!   serve      the supervisor                       keep       the keeper
//!
//! Invariant: a call is done once. What the kernel does right is left to it; all else is done here, from the text that was
//! decided about, and a call that a killed supervisor had received is finished by the next one.

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("the supervisor is written for Linux on x86-64 (system calls, seccomp filter)");

mod attributes;
mod calls;
mod copy;
mod directories;
mod filter;
mod keep;
mod library;
mod listener;
mod loader;
mod metadata;
mod names;
mod open;
mod probe;
mod rights;
mod serve;
mod state;
mod target;

pub use filter::Filter;
pub use keep::{HOPELESS, keep};
pub use loader::{Loader, learn as learn_loader};
pub use probe::{Unavailable, probe};
pub use serve::serve;
