//! Objects in several containers: beside the container that its name says, an object may be a member of others.
//!
//! A membership is a tag of the container, `terrace.member.HASH` with the object's name, so it is kept, sent and made durable as tags
//! are, and the agent follows an object that is renamed or removed. The object has one name, one set of tags and one place: nothing is
//! copied, and no second path leads to it.

use crate::session::Session;
use std::path::Path;
use terrace_core::objects::wire::{ObjectKind, Status};
use terrace_core::objects::{Kind, MEMBER_KEY, ObjectError, Result, TagMatch, TagQuery, TagValue, member_key};

/// The container that a name says; "": the root.
fn home(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(home, _)| home)
}

impl Session {
    /// Makes an array or a bytes object a member of one more container. One that is a member already stays so.
    pub fn add_member(&self, container: &str, object: &str) -> Result<()> {
        self.checked_container(container)?;
        if self.stat(object)?.kind == ObjectKind::Container {
            return Err(ObjectError::new(
                Kind::WrongKind,
                format!("`{object}` is a container: only arrays and bytes objects are members of several"),
            ));
        }
        let name = self.name_of(object)?;
        match home(&name) == self.name_of(container)? {
            true => Ok(()),
            false => self.put_tag(container, &member_key(&name), TagValue::Text(name)),
        }
    }

    /// Ends what `add_member` began; the object stays. One that is no member is an error.
    pub fn remove_member(&self, container: &str, object: &str) -> Result<()> {
        let name = self.name_of(object)?;
        if home(&name) == self.name_of(container)? {
            return Err(ObjectError::invalid(format!("`{object}` lies in `{container}`: it was not added to it"))
                .hint("remove or rename the object itself"));
        }
        self.delete_tag(container, &member_key(&name)).map_err(|error| match error.kind {
            Kind::NotFound => ObjectError::new(Kind::NotFound, format!("`{object}` is no member of `{container}`")),
            _ => error,
        })
    }

    /// Arrays and bytes objects that lie in a container, and those that were added to it: names from the root, sorted.
    pub fn members(&self, container: &str) -> Result<Vec<(String, Status)>> {
        self.checked_container(container)?;
        let place = self.name_of(container)?;
        let own = self.list(container)?.into_iter().filter(|entry| entry.kind != ObjectKind::Container);
        let mut names: Vec<String> =
            own.map(|entry| Path::new(&place).join(entry.name).to_string_lossy().into_owned()).collect();
        for (key, value) in self.tags(container)? {
            if let (true, TagValue::Text(name)) = (key.starts_with(MEMBER_KEY), value) {
                names.push(name);
            }
        }
        names.sort();
        names.dedup();
        let mut members = vec![];
        for name in names {
            match self.stat(&name) {
                Ok(status) => members.push((name, status)),
                // A program has removed it as files, or another one just did.
                Err(error) if error.kind == Kind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(members)
    }

    /// The containers that an object is in: the one that its name says, and those that it was added to, sorted.
    pub fn containers_of(&self, object: &str) -> Result<Vec<String>> {
        self.stat(object)?;
        let name = self.name_of(object)?;
        let matches = TagMatch::Exact(TagValue::Text(name.clone()));
        let mut found = self.query(&TagQuery { key: member_key(&name), matches, below: String::new() })?;
        found.push(home(&name).to_owned());
        found.sort();
        found.dedup();
        Ok(found)
    }

    fn checked_container(&self, name: &str) -> Result<()> {
        match self.stat(name)?.kind {
            ObjectKind::Container => Ok(()),
            _ => Err(ObjectError::new(Kind::WrongKind, format!("`{name}` is not a container"))),
        }
    }
}
