//! The agents of a root, as they have written themselves down in it.

use crate::session::token_of_environment;
use std::path::Path;
use terrace_core::members::{AGENTS_MAX, Member, Registered, TOKEN, directory, number_of, registered};
use terrace_core::objects::{Kind, ObjectError, Result};
use terrace_index::PRIVATE_DIR;
use terrace_objects::Place;
use terrace_objects::array::STAGED;

/// All agents of a root, in order; `None`: it has none that know of each other.
pub fn of_root(root: &Path) -> Result<Option<Vec<Member>>> {
    let directory = directory(root, PRIVATE_DIR);
    let Some(first) = registered(&directory, 0) else { return Ok(None) };
    let of = first.membership.of.clamp(1, AGENTS_MAX);
    (0..of)
        .map(|number| {
            let same =
                |found: &Registered| found.membership.of == of && found.membership.launch == first.membership.launch;
            registered(&directory, number).filter(same).map(|found| found.member).ok_or_else(|| {
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

/// Refuses, to an agent alone, an object of which others have cells or bytes: they serve the root together, and it knows nothing of them.
pub fn check_no_others_keep(place: &Place, object: &Path) -> Result<()> {
    if place.member().is_some() {
        return Ok(());
    }
    let names = std::fs::read_dir(object).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| name.starts_with(STAGED));
    // A bytes object is one link.
    let mut numbers = names.filter_map(|name| number_of(&name)).chain(terrace_objects::placed::member_of(object));
    numbers.find_map(|number| kept_by(place, object, number)).map_or(Ok(()), Err)
}

/// That the agent of this number, which serves the root with others, has what is newest of an object; `None`: it does not serve.
fn kept_by(place: &Place, object: &Path, number: u32) -> Option<ObjectError> {
    let root = place.root();
    let Registered { membership, member } = registered(&directory(root, PRIVATE_DIR), number)?;
    let (of, address, object) = (membership.of, member.address, object.display());
    let message = format!(
        "agent {number} of {of}, at {address}, has what is newest of {object}, and this program uses another one, which can't read it"
    );
    let hint =
        format!("set TERRACE_ROOT={}, and not TERRACE_INDEX: that leads to all agents of the root", root.display());
    Some(ObjectError::new(Kind::NoAgent, message).hint(hint))
}

/// Refuses an array of which an agent that is no more has cells staged: it was killed, and fewer agents were started after it, or
/// one alone where there were several. Without this, its cells would read as they were before, or as the fill value.
pub fn check_all_stages_have_agents(place: &Place, array: &Path) -> Result<()> {
    let of = match place.member() {
        None => 0,
        // An agent that has not written itself down yet knows of nobody.
        Some(number) => match registered(&directory(place.root(), PRIVATE_DIR), number) {
            Some(found) => found.membership.of,
            None => return Ok(()),
        },
    };
    let Ok(entries) = std::fs::read_dir(array) else { return Ok(()) };
    for name in entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
        let Some(rest) = name.strip_prefix(STAGED) else { continue };
        let needed = match (rest.is_empty(), number_of(&name), place.member()) {
            (true, _, None) => continue,
            (true, _, Some(_)) => "one agent alone".to_owned(),
            (false, Some(number), Some(_)) if number < of => continue,
            (false, Some(number), _) => format!("{} agents or more", number + 1),
            (false, None, _) => continue,
        };
        if let Some(kept) =
            number_of(&name).filter(|_| place.member().is_none()).and_then(|number| kept_by(place, array, number))
        {
            return Err(kept);
        }
        let link = array.join(&name);
        return Err(ObjectError::new(
            Kind::NoAgent,
            format!(
                "cells of {} are still in a tier of an agent that was killed ({})",
                array.display(),
                link.display()
            ),
        )
        .hint(format!("start {needed} once, which makes them durable; or remove the link, and they are given up")));
    }
    Ok(())
}

/// The token that all agents of a root want to see.
pub fn token_of_root(root: &Path) -> Result<String> {
    let file = directory(root, PRIVATE_DIR).join(TOKEN);
    match std::fs::read_to_string(&file) {
        Ok(text) => Ok(text.trim().to_owned()),
        // Agents with a token file of the user's own write none.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => token_of_environment(),
        Err(error) => {
            let kind = if error.kind() == std::io::ErrorKind::PermissionDenied { Kind::Denied } else { Kind::System };
            let message =
                format!("can't read the token of the agents of {}, {}: {error}", root.display(), file.display());
            Err(ObjectError::new(kind, message).hint("agents serve the user who started them"))
        }
    }
}
