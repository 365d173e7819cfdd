//! The agents of a root, as they have written themselves down in it.

use std::path::Path;
use terrace_core::members::{AGENTS_MAX, Member, Registered, TOKEN, directory};
use terrace_core::objects::{Kind, ObjectError, Result};
use terrace_index::PRIVATE_DIR;

fn read(directory: &Path, number: u32) -> Option<Registered> {
    serde_json::from_slice(&std::fs::read(directory.join(number.to_string())).ok()?).ok()
}

/// All agents of a root, in order; `None`: it has none that know of each other.
pub fn of_root(root: &Path) -> Result<Option<Vec<Member>>> {
    let directory = directory(root, PRIVATE_DIR);
    let Some(first) = read(&directory, 0) else { return Ok(None) };
    let of = first.membership.of.clamp(1, AGENTS_MAX);
    (0..of)
        .map(|number| {
            let same =
                |found: &Registered| found.membership.of == of && found.membership.launch == first.membership.launch;
            read(&directory, number).filter(same).map(|found| found.member).ok_or_else(|| {
                ObjectError::new(
                    Kind::NoAgent,
                    format!("agent {number} of {of} of {} is not there yet", root.display()),
                )
                .hint("it may still be starting, or making durable what it had kept")
            })
        })
        .collect::<Result<Vec<Member>>>()
        .map(Some)
}

/// The token that all agents of a root want to see.
pub fn token_of_root(root: &Path) -> Result<String> {
    let file = directory(root, PRIVATE_DIR).join(TOKEN);
    let text = std::fs::read_to_string(&file).map_err(|error| {
        ObjectError::new(Kind::Denied, format!("the token {} can't be read: {error}", file.display()))
    })?;
    Ok(text.trim().to_owned())
}
