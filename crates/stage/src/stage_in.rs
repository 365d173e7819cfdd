//! Objects become files.
//!
//! Ranges of an object are asked for side by side and written one after the other, so that a part file that an interrupt left is gone on
//! with at its end. Its name has the object's tag: what another version of the object left is not gone on with.

use crate::Options;
use crate::journal::{Journal, Way};
use crate::remote::Remote;
use crate::telling::Telling;
use crate::tree::{PART_SUFFIX, State};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStoreExt};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use terrace_core::size::show_bytes;
use terrace_tool::failure::{Failure, Result};
use terrace_tool::outln;

const RANGE_BYTES: u64 = 8 << 20;
/// Ranges of one object that are asked for at once.
const AHEAD: usize = 4;
/// A range is asked for so often; the client has tried again by itself before.
const TRIES: u32 = 3;

pub async fn run(remote: &Remote, directory: &Path, options: &Options) -> Result<()> {
    let objects = list(remote).await?;
    let wanted = wanted(directory, &objects)?;
    let bytes: u64 = objects.values().map(|object| object.size).sum();
    std::fs::create_dir_all(directory).map_err(|error| Failure::io("make", directory, error))?;
    let journal = Journal::open(Way::In, directory, remote)?;
    if options.dry_run {
        for (place, object) in &wanted {
            let there = if is_there(&journal, place, object) { " (there already)" } else { "" };
            outln!("{} <- {} {}{there}", place.display(), object.location, show_bytes(object.size));
        }
        return Ok(());
    }
    let telling = Telling::begin("bringing", bytes, options.quiet);
    let brought = stream::iter(wanted)
        .map(|(place, object)| bring(remote, &journal, place, object, &telling))
        .buffer_unordered(options.jobs.into())
        .try_collect::<Vec<()>>()
        .await;
    brought.map_err(|failure| {
        let hint = failure.hint.clone().unwrap_or_else(|| {
            format!("what was brought is kept: `terrace stage-in {remote} {}` goes on from there", directory.display())
        });
        failure.hint(hint)
    })?;
    telling.end("staged in", remote);
    Ok(())
}

/// Each object with the place that its file gets.
pub fn wanted<'a>(
    directory: &Path,
    objects: &'a BTreeMap<String, ObjectMeta>,
) -> Result<Vec<(PathBuf, &'a ObjectMeta)>> {
    let with_place = |(name, object): (&'a String, &'a ObjectMeta)| {
        let above = Path::new(name).ancestors().skip(1).find_map(|above| objects.get(above.to_str()?));
        match above {
            Some(above) => Err(Failure::new(format!("{} and {} can't both be files", above.location, object.location))
                .hint("remove one of the objects, or bring them one by one")),
            None => Ok((directory.join(name), object)),
        }
    };
    objects.iter().map(with_place).collect()
}

/// Those below the prefix.
async fn below(remote: &Remote) -> Result<BTreeMap<String, ObjectMeta>> {
    let listed: Vec<ObjectMeta> = remote.objects().try_collect().await.map_err(|error| remote.not_listed(&error))?;
    let named = listed.into_iter().filter_map(|object| {
        let parts = object.location.prefix_match(&remote.prefix)?;
        let name = parts.map(|part| part.as_ref().to_owned()).collect::<Vec<String>>().join("/");
        Some((name, object))
    });
    Ok(named.filter(|(name, _)| !name.is_empty()).collect())
}

/// Objects below the prefix, or the one of that name, by the names that they get.
pub async fn list(remote: &Remote) -> Result<BTreeMap<String, ObjectMeta>> {
    // Most servers of plain HTTP can't list.
    let mut objects = if remote.lists { below(remote).await? } else { BTreeMap::new() };
    if objects.is_empty() && !remote.prefix.as_ref().is_empty() {
        match remote.store.head(&remote.prefix).await {
            Ok(object) => drop(objects.insert(remote.last_part()?, object)),
            Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(remote.failure("look at", &remote.prefix, &error)),
        }
    }
    // Marks of folders.
    let names: BTreeSet<String> = objects.keys().cloned().collect();
    let is_folder = |name: &str| names.range(format!("{name}/")..).next().is_some_and(|next| is_below(next, name));
    objects.retain(|name, object| object.size > 0 || !is_folder(name));
    if objects.is_empty() {
        return Err(Failure::bad_input(
            format!("{remote}: no object has that name or lies below it"),
            "correct the URL",
        ));
    }
    Ok(objects)
}

fn is_below(name: &str, directory: &str) -> bool {
    name.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

/// A file that was brought has the object's time; what was brought from here is known better.
pub fn is_there(journal: &Journal, place: &Path, object: &ObjectMeta) -> bool {
    let Ok(metadata) = place.metadata() else { return false };
    if let (Some((state, etag)), Some(now)) = (journal.same(object.location.as_ref()), &object.e_tag) {
        return state == State::of(&metadata) && etag == *now;
    }
    let seconds =
        metadata.modified().ok().and_then(|time| Some(time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs()));
    metadata.is_file()
        && metadata.len() == object.size
        && seconds == u64::try_from(object.last_modified.timestamp()).ok()
}

pub async fn bring(
    remote: &Remote,
    journal: &Journal,
    place: PathBuf,
    object: &ObjectMeta,
    telling: &Telling,
) -> Result<()> {
    if is_there(journal, &place, object) {
        telling.is_there(object.size);
        return Ok(());
    }
    let part = part_of(&place, object);
    let state = fill(remote, &part, object, telling).await?;
    std::fs::rename(&part, &place).map_err(|error| Failure::io("make", &place, error))?;
    if let Some(etag) = &object.e_tag {
        journal.note_same(object.location.as_ref(), state, etag.clone())?;
    }
    telling.file_is_done();
    Ok(())
}

/// Makes the part file a whole one; begun by an earlier attempt or not.
pub async fn fill(remote: &Remote, part: &Path, object: &ObjectMeta, telling: &Telling) -> Result<State> {
    let parent = part.parent().expect("it lies in a directory");
    std::fs::create_dir_all(parent).map_err(|error| Failure::io("make", parent, error))?;
    let mut file = std::fs::File::options()
        .append(true)
        .create(true)
        .open(part)
        .map_err(|error| Failure::io("make", part, error))?;
    let failed = |error: std::io::Error| Failure::io("write", part, error);
    let mut begun = file.metadata().map_err(failed)?.len();
    if begun > object.size {
        file.set_len(0).map_err(failed)?;
        begun = 0;
    }
    telling.is_brought(begun);
    let ranges = (begun..object.size).step_by(RANGE_BYTES as usize);
    let mut parts = stream::iter(ranges)
        .map(|from| range(remote, object, from..object.size.min(from + RANGE_BYTES)))
        .buffered(AHEAD);
    while let Some(bytes) = parts.try_next().await? {
        file.write_all(&bytes).map_err(failed)?;
        telling.moved(bytes.len() as u64);
    }
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(object.last_modified.timestamp().max(0) as u64);
    file.set_modified(time).map_err(failed)?;
    Ok(State::of(&file.metadata().map_err(failed)?))
}

pub fn part_of(place: &Path, object: &ObjectMeta) -> PathBuf {
    place.with_file_name(part_name(&place.file_name().expect("an object has a name").to_string_lossy(), object))
}

/// Of the file `name` while it is not whole.
pub fn part_name(name: &str, object: &ObjectMeta) -> String {
    let mut hash = Sha256::new();
    hash.update(object.location.as_ref());
    hash.update(object.e_tag.as_deref().unwrap_or_default());
    hash.update(object.last_modified.to_rfc3339());
    hash.update(object.size.to_le_bytes());
    let tag: String = hash.finalize()[..6].iter().map(|byte| format!("{byte:02x}")).collect();
    // Names have at most 255 bytes; the object's own tag and place tell its part from others.
    let short: String = name.chars().take(50).collect();
    format!(".{short}.{tag}{PART_SUFFIX}")
}

async fn range(remote: &Remote, object: &ObjectMeta, range: std::ops::Range<u64>) -> Result<Bytes> {
    let mut tried = 0;
    let is_part = range.start > 0 || range.end < object.size;
    loop {
        let options = GetOptions {
            // Not every server of plain HTTP knows ranges.
            range: is_part.then(|| GetRange::Bounded(range.clone())),
            // All ranges are of one version of the object.
            if_match: object.e_tag.clone(),
            if_unmodified_since: object.e_tag.is_none().then_some(object.last_modified),
            ..GetOptions::default()
        };
        let turn = remote.turn().await;
        let got = match remote.store.get_opts(&object.location, options).await {
            Ok(answer) => answer.bytes().await,
            Err(error) => Err(error),
        };
        drop(turn);
        tried += 1;
        match got {
            Ok(bytes) if bytes.len() as u64 == range.end - range.start => return Ok(bytes),
            Ok(bytes) if tried == TRIES => {
                return Err(Failure::new(format!(
                    "can't read {} ({remote}): {} bytes came from {}, {} were asked for",
                    object.location,
                    bytes.len(),
                    range.start,
                    range.end - range.start
                )));
            }
            Err(error) if tried == TRIES || !is_transient(&error) => {
                return Err(remote.failure("read", &object.location, &error));
            }
            Ok(_) | Err(_) => tokio::time::sleep(Duration::from_secs(2) * tried).await,
        }
    }
}

/// Whether it may go another time.
pub fn is_transient(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::Generic { .. } | object_store::Error::JoinError { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(size: u64, e_tag: Option<&str>) -> ObjectMeta {
        let last_modified = SystemTime::UNIX_EPOCH.into();
        ObjectMeta { location: "a/b".into(), last_modified, size, e_tag: e_tag.map(str::to_owned), version: None }
    }

    #[test]
    fn parts_of_other_versions_have_other_names_and_none_is_too_long() {
        let of = |name: &str, object: &ObjectMeta| part_of(Path::new(name), object).to_str().unwrap().to_owned();
        assert_eq!(of("d/x", &object(1, Some("e"))), of("d/x", &object(1, Some("e"))));
        assert_ne!(of("d/x", &object(1, Some("e"))), of("d/x", &object(1, Some("f"))));
        assert_ne!(of("d/x", &object(1, None)), of("d/x", &object(2, None)));
        let long = "ä".repeat(127);
        assert!(of(&long, &object(1, None)).len() <= 255);
        assert!(is_below("a/b", "a") && !is_below("ab", "a") && !is_below("a", "a"));
    }

    #[test]
    fn a_file_with_another_size_or_time_is_not_the_object() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("x");
        std::fs::write(&file, "abc").unwrap();
        let set = |seconds| {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            std::fs::File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();
        };
        set(0);
        let journal = Journal::at(place.path().join("journal"), || ()).unwrap();
        let is = |object: &ObjectMeta| is_there(&journal, &file, object);
        assert!(is(&object(3, None)) && !is(&object(4, None)));
        set(1);
        assert!(!is(&object(3, None)));
        // Replaced within a second by as many bytes: its tag says so, if it is known which one was brought.
        set(0);
        assert!(is(&object(3, Some("other"))));
        journal.note_same("a/b", State::of(&file.metadata().unwrap()), "one".into()).unwrap();
        assert!(is(&object(3, Some("one"))) && !is(&object(3, Some("other"))));
    }
}
