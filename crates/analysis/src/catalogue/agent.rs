//! What the agent says of its tiers and of what moves between them.

use crate::error::{Error, Result};
use crate::tables::Objects;
use arrow::array::*;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use terrace_client::Kind;
use terrace_core::control::{Request, Response, Status};

const PATIENCE: Duration = Duration::from_secs(10);
const SOCKET: &str = "control";

fn status(objects: &Objects) -> Result<Status> {
    let Some(directory) = objects.session.runtime_directory() else {
        return Err(Error::invalid("tiers and transfers of an agent on another node are not to be seen from here")
            .hint("ask on its node, or by Flight SQL"));
    };
    ask(directory).map_err(|error| {
        Error::new(Kind::NoAgent, format!("the agent of {} does not answer: {error}", objects.session.root().display()))
    })
}

fn ask(directory: &Path) -> std::io::Result<Status> {
    // A socket's address holds 108 bytes; a directory's descriptor makes any path short.
    let handle = std::fs::File::open(directory)?;
    let short = Path::new("/proc/self/fd").join(handle.as_raw_fd().to_string()).join(SOCKET);
    let mut stream = BufReader::new(UnixStream::connect(short)?);
    stream.get_ref().set_read_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(&Request::Status)?;
    line.push(b'\n');
    stream.get_mut().write_all(&line)?;
    let mut answer = String::new();
    stream.read_line(&mut answer)?;
    match serde_json::from_str(&answer)? {
        Response::Status { status } => Ok(status),
        _ => Err(std::io::Error::other("it said something else")),
    }
}

pub fn tiers(objects: &Objects) -> Result<RecordBatch> {
    let tiers = status(objects)?.tiers;
    let mut paths = ListBuilder::new(StringBuilder::new());
    for tier in &tiers {
        tier.paths.iter().for_each(|path| paths.values().append_value(path.to_string_lossy()));
        paths.append(true);
    }
    let columns: [(&str, ArrayRef); 8] = [
        ("place", Arc::new(UInt64Array::from_iter_values(0..tiers.len() as u64))),
        ("name", Arc::new(StringArray::from_iter_values(tiers.iter().map(|tier| &tier.name)))),
        ("paths", Arc::new(paths.finish())),
        ("capacity_bytes", Arc::new(UInt64Array::from_iter_values(tiers.iter().map(|tier| tier.capacity_bytes)))),
        ("used_bytes", Arc::new(UInt64Array::from_iter_values(tiers.iter().map(|tier| tier.used_bytes)))),
        ("files", Arc::new(UInt64Array::from_iter_values(tiers.iter().map(|tier| tier.files)))),
        ("written_bytes", Arc::new(UInt64Array::from_iter_values(tiers.iter().map(|tier| tier.written_bytes)))),
        ("is_durable", Arc::new(BooleanArray::from_iter(tiers.iter().map(|tier| Some(tier.durable))))),
    ];
    Ok(RecordBatch::try_from_iter(columns)?)
}

pub fn transfers(objects: &Objects) -> Result<RecordBatch> {
    let status = status(objects)?;
    let root = objects.session.root();
    let relative = |path: &std::path::PathBuf| path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned();
    let paths: Vec<String> = status.moving.iter().map(relative).collect();
    let columns: [(&str, ArrayRef); 1] = [("path", Arc::new(StringArray::from_iter_values(&paths)))];
    Ok(RecordBatch::try_from_iter(columns)?)
}
