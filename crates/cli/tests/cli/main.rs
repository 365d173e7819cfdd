//! The command as its users meet it.

mod bad_input;
mod manual;
mod run;
