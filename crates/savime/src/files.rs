//! Where commands write files: below the root, as objects; or `@path`, as files of the program that asks.

use std::io::Write;
use std::path::{Path, PathBuf};
use terrace_analysis::{Error, Result};
use terrace_client::{Create, Kind, Session};

pub enum Place<'a> {
    Root { session: &'a Session, name: String },
    Client(PathBuf),
}

impl<'a> Place<'a> {
    pub fn of(session: &'a Session, text: &str) -> Result<Place<'a>> {
        if text.contains(['"', '\'', '\n']) {
            return Err(
                Error::invalid(format!("`{}` has quotes in it", text.escape_debug())).hint("give a path without them")
            );
        }
        match text.strip_prefix('@') {
            Some("") => Err(Error::invalid("`@` names no file")),
            Some(path) => {
                let path = std::path::absolute(path).map_err(|error| Error::invalid(format!("`{text}`: {error}")))?;
                Ok(Place::Client(path))
            }
            None => Ok(Place::Root { session, name: below_root(session, text)? }),
        }
    }

    /// A directory that is there afterwards.
    pub fn create_directory(&self) -> Result<()> {
        match self {
            Place::Root { session, name } => Ok(session.create_container(name, Create::IfMissing)?),
            Place::Client(path) => std::fs::create_dir_all(path).map_err(|error| failed(path, error)),
        }
    }

    pub fn inside(&self, name: &str) -> Place<'a> {
        match self {
            Place::Root { session, name: own } => Place::Root { session, name: format!("{own}/{name}") },
            Place::Client(path) => Place::Client(path.join(name)),
        }
    }

    pub fn with_suffix(&self, suffix: &str) -> Place<'a> {
        match self {
            Place::Root { session, name } => Place::Root { session, name: format!("{name}{suffix}") },
            Place::Client(path) => {
                let mut path = path.clone().into_os_string();
                path.push(suffix);
                Place::Client(path.into())
            }
        }
    }

    /// As commands of the language name it.
    pub fn text(&self) -> String {
        match self {
            Place::Root { name, .. } => name.clone(),
            Place::Client(path) => format!("@{}", path.display()),
        }
    }

    /// A file with these parts, one after the other.
    pub fn write(&self, parts: &[&[u8]]) -> Result<()> {
        match self {
            Place::Root { session, name } => {
                let bytes = session.create_bytes(name, Create::Replace)?;
                for part in parts {
                    bytes.append(part)?;
                }
                Ok(bytes.close()?)
            }
            Place::Client(path) => {
                let mut file = std::fs::File::create(path).map_err(|error| failed(path, error))?;
                for part in parts {
                    file.write_all(part).map_err(|error| failed(path, error))?;
                }
                Ok(())
            }
        }
    }
}

fn failed(path: &Path, error: std::io::Error) -> Error {
    Error::new(Kind::System, format!("can't write {}: {error}", path.display()))
}

/// A name below the root; whatever lies elsewhere is not to be had by it.
pub fn below_root(session: &Session, text: &str) -> Result<String> {
    let path = Path::new(text);
    let outside = || {
        Error::new(Kind::Denied, format!("`{text}` does not lie below the root {}", session.root().display()))
            .hint("a file of the client is written `@path`")
    };
    let relative = match path.is_absolute() {
        true => path.strip_prefix(session.root()).map_err(|_| outside())?,
        false => path,
    };
    let is_plain = relative.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    match relative.to_str() {
        Some(name) if is_plain && !name.is_empty() => Ok(name.to_owned()),
        _ => Err(outside()),
    }
}
