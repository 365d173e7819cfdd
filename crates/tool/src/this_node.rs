//! The agent of this node, where several serve a root: each keeps its index and its sockets under a name with its number.

use crate::control_client::Client;
use crate::settings_file::in_force;
use terrace_core::declared::SETTINGS;
use terrace_core::members::number_of;
use terrace_core::settings::{Settings, root_id};
use terrace_core::wanted::Wanted;

/// Makes the settings those of the agent that answers here, if it is one of several: what the user says of them stays. One that is alone, as
/// `terrace run` starts it, comes first; where nobody answers, nothing is changed.
pub fn join(settings: &mut Settings, wanted: &Wanted) {
    let others = numbers(settings);
    if others.is_empty() || Client::connect(settings).is_ok() {
        return;
    }
    for number in others {
        if let Some(found) = in_force_of(settings, number).filter(|found| Client::connect(found).is_ok()) {
            // An agent that dies under a run is started again as it was.
            settings.listen = found.listen.clone();
            settings.join(found.member.clone().expect("it is one of several"));
            take(settings, found, wanted);
            return;
        }
    }
}

/// What the user has not said is as the agent has it: who starts it, and who runs programs on its node, may be two.
fn take(settings: &mut Settings, found: Settings, wanted: &Wanted) {
    let is_unsaid = |key: &str| wanted.origin(key) == "default";
    if is_unsaid("tier") && is_unsaid("quota") {
        settings.tiers = found.tiers;
        settings.quota_bytes = found.quota_bytes;
        settings.sizes_as_given = found.sizes_as_given;
    }
    if ["policy.flush", "policy.evict", "policy.prefetch"].into_iter().all(is_unsaid) {
        settings.policy = found.policy;
    }
    if SETTINGS.iter().map(|declared| declared.key).filter(|key| key.starts_with("mover.")).all(is_unsaid) {
        settings.mover = found.mover;
    }
    if is_unsaid("directories") {
        settings.directories = found.directories;
    }
    if is_unsaid("small_files") {
        settings.small_files = found.small_files;
    }
}

/// Of agents that are, or were, on this node.
fn numbers(settings: &Settings) -> Vec<u32> {
    let id = root_id(&settings.root);
    let beside = settings.runtime.parent().map(std::fs::read_dir).into_iter().flatten().flatten().flatten();
    let names = beside.filter_map(|entry| entry.file_name().into_string().ok());
    let mut numbers: Vec<u32> =
        names.filter(|name| name.starts_with(&id)).filter_map(|name| number_of(&name)).collect();
    numbers.sort_unstable();
    numbers
}

/// What the agent of this number was started with.
fn in_force_of(settings: &Settings, number: u32) -> Option<Settings> {
    let mut theirs = settings.clone();
    theirs.go_by_number(number);
    in_force(&theirs).filter(|found| found.root == settings.root && found.member.is_some())
}
