//! All tests of the program, in one: what is linked once runs side by side.

mod backends;
mod claims;
mod compatibility;
mod ends;
mod nodes;
mod origins;
mod own_files;
mod plans;
mod report;
mod runs;
mod statistics;
mod support;
