//! An agent among others of its root: it writes down where it listens when nothing of an earlier launch is left in its tiers.
//!
//! Reason: with another number of agents, other agents keep a chunk. What was staged here before is made durable and dropped
//! first, so that whoever keeps it from now on finds it in the root.

use crate::agent::Agent;
use crate::error::{Context, Result};
use crate::shared::index_file::make_private;
use crate::shared::request::{Outcome, Scope};
use std::path::PathBuf;
use std::time::Duration;
use terrace_core::members::{LAUNCH, Member, Membership, Registered, directory, registered};
use terrace_index::PRIVATE_DIR;

/// How long an agent that could not make everything durable waits before it tries again.
const RETRY: Duration = Duration::from_secs(2);

impl Agent {
    fn own_entry(&self, membership: &Membership) -> PathBuf {
        directory(&self.settings.root, PRIVATE_DIR).join(membership.number.to_string())
    }

    /// Where this agent listened when it last lived: its clients know that address.
    pub fn listened_on(&self) -> Option<String> {
        let membership = self.settings.member.as_ref()?;
        let found = registered(&directory(&self.settings.root, PRIVATE_DIR), membership.number)?;
        (found.membership == *membership).then_some(found.member.address)
    }

    /// Others are not to take the agents for complete while this one is not ready.
    pub fn withdraw(&self) {
        if let Some(membership) = &self.settings.member {
            let _ = std::fs::remove_file(self.own_entry(membership));
        }
    }

    /// The last one to leave takes along what all of them used.
    pub fn leave_others(&self) {
        let Some(membership) = &self.settings.member else { return };
        let directory = directory(&self.settings.root, PRIVATE_DIR);
        // The next launch may have begun already: then all this is in use.
        if std::fs::read_to_string(directory.join(LAUNCH)).is_ok_and(|launch| launch.trim() != membership.launch) {
            return;
        }
        let names = std::fs::read_dir(&directory).into_iter().flatten().flatten().map(|entry| entry.file_name());
        if !names.into_iter().any(|name| name.to_str().is_some_and(|name| name.parse::<u32>().is_ok())) {
            let _ = std::fs::remove_dir_all(&directory);
        }
    }

    /// Until it has worked, or the agent ends.
    pub fn join_others(&self, member: &Member) {
        let Some(membership) = &self.settings.member else { return };
        while !self.schedule.has_ended() {
            let mut outcome = Outcome::default();
            self.objects.evict_arrays(&Scope(vec![]), &mut outcome);
            let written = match outcome.failures.first() {
                None => self.write_down(membership, member).map_err(|error| error.to_string()),
                Some(failure) => Err(format!("{}: {}", failure.path.display(), failure.reason)),
            };
            match written {
                Ok(()) => return,
                Err(reason) => {
                    self.warn(format!("agent {} can't join the others yet: {reason}", membership.number));
                    self.schedule.rest(RETRY);
                }
            }
        }
    }

    fn write_down(&self, membership: &Membership, member: &Member) -> Result<()> {
        let entry = self.own_entry(membership);
        make_private(entry.parent().expect("an entry lies in a directory"))?;
        let registered = Registered { membership: membership.clone(), member: member.clone() };
        let text = serde_json::to_vec_pretty(&registered).expect("these are plain data");
        let temporary = entry.with_extension("new");
        std::fs::write(&temporary, text).context("write", &temporary)?;
        std::fs::rename(&temporary, &entry).context("put in place", &entry)
    }
}
