//! Files below the root whose bytes lie in other nodes' tiers.
//!
//! Where an agent runs it says which: for a program of a run, as this one may be, they are files like any others.

use std::collections::BTreeMap;
use std::path::Path;
use terrace_agent::node;
use terrace_core::control::{Request, Response};
use terrace_core::settings::Settings;
use terrace_tool::control_client::Client;

pub use terrace_agent::elsewhere::nodes;
pub use terrace_core::control::Elsewhere;

/// All of them, or what `below` is or has below it.
pub fn files(settings: &Settings, below: Option<&Path>) -> Vec<Elsewhere> {
    let request = Request::ListElsewhere { prefix: below.map(Path::to_path_buf) };
    match Client::connect(settings).map(|mut client| client.ask(&request, |_| {})) {
        Ok(Ok(Response::Elsewhere { files })) => files,
        _ => terrace_agent::elsewhere::files(settings, below),
    }
}

/// `nodeA: 2, nodeB: 1`
pub fn by_node(files: &[Elsewhere]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    files.iter().for_each(|file| *counts.entry(&file.whose).or_default() += 1);
    counts.iter().map(|(node, count)| format!("{node}: {count}")).collect::<Vec<_>>().join(", ")
}

/// What a user is told of them; `None`: there are none.
pub fn in_words(settings: &Settings) -> Option<String> {
    if nodes(settings).is_empty() && node::gone(&settings.root).is_empty() {
        return None;
    }
    let files = files(settings, None);
    (!files.is_empty()).then(|| {
        format!(
            "{} files below the root are on other nodes ({}): programs of a run find them, others don't until they are flushed there",
            files.len(),
            by_node(&files)
        )
    })
}

/// What a user is told of nodes that serve a directory above this root; `None`: there are none.
pub fn above_in_words(settings: &Settings) -> Option<String> {
    let (above, node) = terrace_agent::elsewhere::nodes_above(&settings.root).into_iter().next()?;
    let above = above.display();
    Some(format!(
        "node {} serves {above}, above this root: what it keeps in its tiers is not found here before it is flushed there; give both \
         the same root (--root {above})",
        node.host
    ))
}
