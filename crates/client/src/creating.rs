//! What is looked at before an object is made or gets another name, and what is made for it: containers that it is to lie in.

use crate::session::Session;
use std::path::Path;
use terrace_core::objects::wire::Request;
use terrace_core::objects::{Kind, ObjectError, Result};
use terrace_index::PRIVATE_DIR;
use terrace_objects::array::{self, Metadata};
use terrace_objects::placed;

impl Session {
    /// The array's name, on this node; it gets its cells' place with the first put.
    pub(crate) fn create_array_here(&self, name: &str, metadata: &Metadata) -> Result<()> {
        let path = self.full_path(name)?;
        self.check_inside(name, &path)?;
        self.forget_tags(name)?;
        with_parents(&path, || array::create_array(&self.place(), &path, metadata))
    }

    /// Gives an object another name, with its tags, and all that lies below it; containers that it is to lie in are made. It is an error if
    /// there is an object of that name. Arrays that are open are to be opened again.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (old, new) = (self.name_of(from)?, self.name_of(to)?);
        if old.is_empty() || new.is_empty() {
            return Err(ObjectError::invalid("the root itself can't be renamed, nor can anything become it"));
        }
        if Path::new(&new).starts_with(&old) {
            return Err(ObjectError::invalid(format!(
                "`{from}` can't be renamed to `{to}`, which is itself or lies in it"
            )));
        }
        if self.is_elsewhere() {
            self.agent().done(&Request::Rename { from: old.clone(), to: new.clone() })?;
        } else {
            let (source, target) = (self.full_path(from)?, self.full_path(to)?);
            self.check_inside(from, &source)?;
            self.check_inside(to, &target)?;
            placed::look(&self.place(), &source)?;
            with_parents(&target, || placed::rename(&source, &target))?;
        }
        self.all_do(&Request::Renamed { from: old, to: new })
    }

    /// Refuses a name that a symbolic link leads out of the root: what is made there would be nobody's.
    pub(crate) fn check_inside(&self, name: &str, path: &Path) -> Result<()> {
        // The nearest directory that is there; what is missing is made below it.
        let there = path.ancestors().skip(1).find_map(|above| Some((above, above.canonicalize().ok()?)));
        let Some((above, there)) = there else { return Ok(()) };
        // The link of a file in a tier leads out of the root, too.
        if !there.is_dir() {
            return Err(ObjectError::new(Kind::WrongKind, format!("{} is not a container", above.display())));
        }
        let root = self.root().canonicalize().unwrap_or_else(|_| self.root().to_owned());
        match there.starts_with(&root) {
            true => Ok(()),
            false => Err(ObjectError::invalid(format!(
                "`{name}` leads out of the root: a symbolic link in it leads to {}",
                there.display()
            ))
            .hint("objects lie below the root that their agent serves")),
        }
    }

    /// The agent of a root's owner is not there for others: who that is, if it is somebody else.
    pub(crate) fn explained_by_owner(root: &Path, error: ObjectError) -> ObjectError {
        use std::os::unix::fs::MetadataExt;
        let owner = std::fs::symlink_metadata(root.join(PRIVATE_DIR)).ok().map(|found| found.uid());
        match owner.filter(|owner| error.kind == Kind::NoAgent && *owner != rustix::process::geteuid().as_raw()) {
            Some(owner) => ObjectError::new(
                Kind::Denied,
                format!("{} is served by an agent of user {owner}, which serves that user alone", root.display()),
            )
            .hint("connect to it by its address, with its token (terrace serve --listen)"),
            None => error,
        }
    }
}

/// Once more with the containers that were missing.
pub fn with_parents<T>(path: &Path, create: impl Fn() -> Result<T>) -> Result<T> {
    match create() {
        Err(error) if error.kind == Kind::NotFound => {
            let parent = path.parent().unwrap_or(path);
            std::fs::create_dir_all(parent).map_err(|failed| {
                let kind = match failed.kind() {
                    std::io::ErrorKind::NotADirectory | std::io::ErrorKind::AlreadyExists => Kind::WrongKind,
                    std::io::ErrorKind::PermissionDenied => Kind::Denied,
                    std::io::ErrorKind::StorageFull => Kind::NoSpace,
                    _ => Kind::System,
                };
                ObjectError::new(kind, format!("can't create the container {}: {failed}", parent.display()))
            })?;
            create()
        }
        created => created,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_user_is_told_whose_agent_it_is() {
        let place = tempfile::tempdir().unwrap();
        let own = place.path().join(PRIVATE_DIR);
        std::fs::create_dir(&own).unwrap();
        let none = || ObjectError::new(Kind::NoAgent, "no agent serves the root");
        assert_eq!(Session::explained_by_owner(place.path(), none()), none());
        if std::os::unix::fs::chown(&own, Some(65534), None).is_err() {
            eprintln!("SKIPPED: only root gives a directory away");
            return;
        }
        let told = Session::explained_by_owner(place.path(), none());
        assert!(told.kind == Kind::Denied && told.message.contains("65534"), "{told}");
    }
}
