//! Files become objects.
//!
//! A file is sent whole, or in parts that the journal notes; an upload that an interrupt left is gone on with. The store has the object
//! when all of it is there. A file that changes while it is sent is sent again.

use crate::Options;
use crate::journal::{Journal, Upload, Way};
use crate::remote::{Remote, parts_are_gone};
use crate::stage_in::is_transient;
use crate::telling::{Telling, files_in_words};
use crate::tree::{File, State, Tree, walk};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path as Key;
use object_store::{ObjectStoreExt, PutPayload};
use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};
use terrace_core::size::show_bytes;
use terrace_tool::failure::{Failure, Result, code, warn};
use terrace_tool::outln;

/// Larger files are sent in parts.
const WHOLE_BYTES: u64 = 16 << 20;
/// S3 takes at most 10,000 parts, of at least 5 MiB.
const PARTS: u64 = 9_000;
/// Parts of one file at once.
const AHEAD: usize = 4;
/// A file that changes again and again while it is sent is given up.
const TRIES: u32 = 3;
/// Between two looks at a directory while a run goes; and so many times what the look took.
const LOOK: Duration = Duration::from_secs(2);
const LOOK_SHARE: u32 = 20;

type Objects = HashMap<String, (u64, Option<String>)>;

pub async fn run(remote: &Remote, directory: &Path, options: &Options) -> Result<()> {
    let tree = walk(directory, true)?;
    if !tree.dangling.is_empty() {
        return Err(not_here(&tree, directory));
    }
    for path in tree.left_out.iter().take(20) {
        warn(format!("{} is no file and is not sent", path.display()));
    }
    if options.dry_run {
        let journal = Journal::open(Way::Out, directory, remote)?;
        let objects = objects(remote).await?;
        for file in &tree.files {
            let key = remote.key(&file.name)?;
            let there = if is_there(&journal, &objects, &key, file.state) { " (there already)" } else { "" };
            outln!("{} -> {key} {}{there}", file.path.display(), show_bytes(file.state.size));
        }
        return Ok(());
    }
    let again = format!("terrace stage-out {} {remote}", directory.display());
    let bytes = tree.files.iter().map(|file| file.state.size).sum();
    let telling = Telling::begin("sending", bytes, options.quiet);
    let failures = send_all(remote, directory, &tree.files, options, &telling).await?;
    if failures.is_empty() {
        telling.end("staged out", remote);
        return Ok(());
    }
    let mut text =
        format!("{} of {} could not be sent to {remote}:", failures.len(), files_in_words(tree.files.len() as u64));
    for failure in failures.iter().take(20) {
        text.push_str(&format!("\n  {}", failure.message));
    }
    Err(Failure::new(text)
        .code(code::NOT_DURABLE)
        .hint(format!("nothing was removed here; `{again}` goes on from there")))
}

/// What is durable is sent while the run goes, so that less is left for its end. Failures wait for that: it names them.
pub async fn follow(remote: &Remote, directory: &Path, options: &Options) -> Result<()> {
    loop {
        let begun = Instant::now();
        if directory.is_dir() {
            let mut tree = walk(directory, false)?;
            let settled = std::time::SystemTime::now() - LOOK;
            tree.files
                .retain(|file| file.path.metadata().is_ok_and(|now| now.modified().is_ok_and(|time| time < settled)));
            let telling = Telling::begin("sending", 0, true);
            let _ = send_all(remote, directory, &tree.files, options, &telling).await;
        }
        tokio::time::sleep(LOOK.max(begun.elapsed() * LOOK_SHARE)).await;
    }
}

fn not_here(tree: &Tree, directory: &Path) -> Failure {
    let mut text = format!("{} lead nowhere:", files_in_words(tree.dangling.len() as u64));
    for path in tree.dangling.iter().take(20) {
        text.push_str(&format!("\n  {}", path.display()));
    }
    Failure::new(text).hint(format!(
        "files that are in a tier are made durable by `terrace flush --all-nodes`, and by the end of a run; `terrace explain` tells of each. \
         Remove links in {} that are none of these",
        directory.display()
    ))
}

/// All files; the failures of single ones are for the end.
async fn send_all(
    remote: &Remote,
    directory: &Path,
    files: &[File],
    options: &Options,
    telling: &Telling,
) -> Result<Vec<Failure>> {
    let sender = Sender {
        remote,
        journal: Journal::open(Way::Out, directory, remote)?,
        objects: objects(remote).await?,
        telling,
    };
    let sent = stream::iter(files).map(|file| sender.send(file)).buffer_unordered(options.jobs.into());
    Ok(sent.filter_map(|sent| async { sent.err() }).collect().await)
}

/// What is below the prefix: sizes and tags.
async fn objects(remote: &Remote) -> Result<Objects> {
    if !remote.lists {
        return Ok(Objects::new());
    }
    let listed = remote.objects().map_ok(|object| (object.location.to_string(), (object.size, object.e_tag)));
    listed.try_collect().await.map_err(|error| remote.not_listed(&error).code(code::NOT_DURABLE))
}

fn is_there(journal: &Journal, objects: &Objects, key: &Key, state: State) -> bool {
    let Some((sent, etag)) = journal.same(key.as_ref()) else { return false };
    // Not every server lists tags.
    let is_same =
        |(size, now): &(u64, Option<String>)| *size == state.size && now.as_ref().is_none_or(|now| *now == etag);
    sent == state && objects.get(key.as_ref()).is_some_and(is_same)
}

/// A file that is being sent.
struct Source<'a> {
    path: &'a Path,
    file: std::fs::File,
    state: State,
}

impl Source<'_> {
    fn open(path: &Path) -> Result<Source<'_>> {
        let failed = |error: std::io::Error| Failure::io("read", path, error);
        let file = std::fs::File::open(path).map_err(failed)?;
        let state = State::of(&file.metadata().map_err(failed)?);
        Ok(Source { path, file, state })
    }

    /// None: it became shorter.
    fn read(&self, from: u64, bytes: u64) -> Result<Option<Bytes>> {
        let mut read = vec![0; bytes as usize];
        match self.file.read_exact_at(&mut read, from) {
            Ok(()) => Ok(Some(read.into())),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(Failure::io("read", self.path, error)),
        }
    }

    /// By its name: another file may have it by now.
    fn is_as_it_was(&self) -> bool {
        std::fs::metadata(self.path).is_ok_and(|now| State::of(&now) == self.state)
    }
}

struct Sender<'a> {
    remote: &'a Remote,
    journal: Journal,
    objects: Objects,
    telling: &'a Telling,
}

/// What was sent: the object's tag, or a part's. None: the file became shorter meanwhile.
type Sent<T> = Result<Option<T>>;

impl Sender<'_> {
    async fn send(&self, file: &File) -> Result<()> {
        let key = self.remote.key(&file.name)?;
        if is_there(&self.journal, &self.objects, &key, file.state) {
            self.telling.is_there(file.state.size);
            return Ok(());
        }
        for _ in 0..TRIES {
            let source = Source::open(&file.path)?;
            let etag = match (&self.remote.in_parts, source.state.size > WHOLE_BYTES) {
                (Some(store), true) => self.in_parts(store.as_ref(), &key, &source).await?,
                (None, true) => self.by_the_stores_own_parts(&key, &source).await?,
                (_, false) => self.whole(&key, &source).await?,
            };
            if let Some(etag) = etag.filter(|_| source.is_as_it_was()) {
                self.journal.note_same(key.as_ref(), source.state, etag)?;
                self.telling.file_is_done();
                return Ok(());
            }
            self.journal.note_ended(key.as_ref())?;
        }
        Err(Failure::new(format!("{} changes while it is sent", file.path.display())))
    }

    async fn whole(&self, key: &Key, source: &Source<'_>) -> Sent<String> {
        let _turn = self.remote.turn().await;
        let Some(bytes) = source.read(0, source.state.size)? else { return Ok(None) };
        let put = again(|| self.remote.store.put(key, PutPayload::from_bytes(bytes.clone()))).await;
        let put = put.map_err(|error| self.remote.failure("write", key, &error))?;
        self.telling.moved(source.state.size);
        Ok(Some(put.e_tag.unwrap_or_default()))
    }

    /// An interrupt leaves nothing to go on with.
    async fn by_the_stores_own_parts(&self, key: &Key, source: &Source<'_>) -> Sent<String> {
        let failed = |error: object_store::Error| self.remote.failure("write", key, &error);
        let upload = self.remote.store.put_multipart(key).await.map_err(failed)?;
        let mut write = object_store::WriteMultipart::new(upload);
        let size = source.state.size;
        for from in (0..size).step_by(WHOLE_BYTES as usize) {
            let Some(bytes) = source.read(from, WHOLE_BYTES.min(size - from))? else {
                let _ = write.abort().await;
                return Ok(None);
            };
            write.wait_for_capacity(AHEAD).await.map_err(failed)?;
            self.telling.moved(bytes.len() as u64);
            write.put(bytes);
        }
        Ok(Some(write.finish().await.map_err(failed)?.e_tag.unwrap_or_default()))
    }

    async fn in_parts(&self, store: &dyn MultipartStore, key: &Key, source: &Source<'_>) -> Sent<String> {
        let failed = |error: object_store::Error| self.remote.failure("write", key, &error);
        let part_bytes = part_bytes(source.state.size);
        let mut upload = match self.journal.upload(key.as_ref()) {
            Some(upload) if upload.state == source.state && upload.part_bytes == part_bytes => upload,
            before => {
                if let Some(before) = before {
                    // If it is left behind, the store's own rules for incomplete uploads end it.
                    let _ = store.abort_multipart(key, &before.id).await;
                }
                self.begin(store, key, source.state, part_bytes).await?
            }
        };
        for anew in [false, true] {
            let sent = match self.parts(store, key, source, &upload).await? {
                Ok(Some(parts)) => store.complete_multipart(key, &upload.id, parts).await,
                Ok(None) => {
                    let _ = store.abort_multipart(key, &upload.id).await;
                    return Ok(None);
                }
                Err(error) => Err(error),
            };
            match sent {
                Ok(put) => return Ok(Some(put.e_tag.unwrap_or_default())),
                // The store has ended the upload meanwhile, or has completed it without our knowing.
                Err(error) if !anew && parts_are_gone(&error) => {
                    upload = self.begin(store, key, source.state, part_bytes).await?;
                }
                Err(error) => return Err(failed(error)),
            }
        }
        unreachable!("the second turn returns")
    }

    async fn begin(&self, store: &dyn MultipartStore, key: &Key, state: State, part_bytes: u64) -> Result<Upload> {
        let begun = again(|| store.create_multipart(key)).await;
        let id = begun.map_err(|error| self.remote.failure("write", key, &error))?;
        let upload = Upload { id, state, part_bytes, parts: BTreeMap::new() };
        self.journal.note_begun(key.as_ref(), upload.clone())?;
        Ok(upload)
    }

    /// The inner result is the store's.
    async fn parts(
        &self,
        store: &dyn MultipartStore,
        key: &Key,
        source: &Source<'_>,
        upload: &Upload,
    ) -> Result<object_store::Result<Option<Vec<PartId>>>> {
        let size = source.state.size;
        let one = |number: usize| async move {
            let from = number as u64 * upload.part_bytes;
            let bytes = upload.part_bytes.min(size - from);
            if let Some(id) = upload.parts.get(&number) {
                self.telling.is_brought(bytes);
                return Ok::<_, Failure>(Ok(Some(PartId { content_id: id.clone() })));
            }
            let _turn = self.remote.turn().await;
            let Some(data) = source.read(from, bytes)? else { return Ok(Ok(None)) };
            let put = again(|| store.put_part(key, &upload.id, number, PutPayload::from_bytes(data.clone()))).await;
            let part = match put {
                Ok(part) => part,
                Err(error) => return Ok(Err(error)),
            };
            self.journal.note_part(key.as_ref(), number, part.content_id.clone())?;
            self.telling.moved(bytes);
            Ok(Ok(Some(part)))
        };
        let count = size.div_ceil(upload.part_bytes) as usize;
        let mut done = stream::iter(0..count).map(one).buffered(AHEAD);
        let mut parts = vec![];
        while let Some(part) = done.try_next().await? {
            match part {
                Ok(Some(part)) => parts.push(part),
                Ok(None) => return Ok(Ok(None)),
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(Some(parts)))
    }
}

/// The client has tried again by itself; this is for a network that is away for longer.
async fn again<T, F: Future<Output = object_store::Result<T>>>(attempt: impl Fn() -> F) -> object_store::Result<T> {
    let mut tried = 0;
    loop {
        tried += 1;
        match attempt().await {
            Err(error) if tried < TRIES && is_transient(&error) => {
                tokio::time::sleep(Duration::from_secs(2) * tried).await
            }
            other => return other,
        }
    }
}

fn part_bytes(size: u64) -> u64 {
    size.div_ceil(PARTS).next_multiple_of(1 << 20).max(WHOLE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_has_more_parts_than_a_store_takes() {
        for size in [WHOLE_BYTES + 1, 1 << 30, 5 << 40] {
            let parts = size.div_ceil(part_bytes(size));
            assert!((2..=10_000).contains(&parts), "{size}: {parts} parts");
        }
        assert_eq!(part_bytes(1 << 30), WHOLE_BYTES);
    }
}
