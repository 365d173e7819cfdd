//! What the command lines of our programs (`terrace`, `terrace-predict`, `terrace-query`, `terrace-web`) have in common.
//!
//!   setting_args ─▶ resolve (files, environment, flags ─▶ settings)         server_args: where a server listens, and who may come
//!   control_client: questions to the agent of a root                        this_node: which it is, where several serve the root
//!   failure: a sentence, a hint, an exit code                               output, table: answers, also into a pipe that is closed
//!
//! Nothing here starts, serves or moves anything.

pub mod control_client;
pub mod failure;
pub mod filesystem;
pub mod output;
mod paths;
pub mod resolve;
pub mod server_args;
pub mod setting_args;
pub mod settings_file;
pub mod table;
mod this_node;

pub use paths::{absolute, canonical_or_same};
