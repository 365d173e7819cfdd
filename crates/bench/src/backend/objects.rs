//! Terrace's objects: a bytes object for a file, or an array object for each variable of a dataset.
//!
//! A request is a put or a get; what is put is seen by all and survives a kill of the agent. `flush` makes it durable in the root:
//! a bytes object is closed for that, as what somebody has open stays in its tier. Of several that write one, the last to flush
//! makes it durable.

use super::{Backend, Blocks, Target, not_open};
use crate::error::{Error, Result};
use crate::settings::{Datasets, TerraceObjectsSettings};
use crate::workload::Block;
use std::io;
use std::path::Path;
use terrace_client::{Array, ArraySpec, Bytes, Create, DataType, Kind, ObjectError, Region, Session};

pub struct Objects {
    session: Session,
    datasets: Datasets,
    chunks: Vec<u64>,
    open: Option<Open>,
}

struct Open {
    name: String,
    content: Content,
}

enum Content {
    /// None after a flush.
    Bytes(Option<Box<Bytes>>),
    /// By the number of the variable.
    Arrays(Vec<Array>),
}

impl Objects {
    pub fn new(settings: &TerraceObjectsSettings) -> Result<Objects> {
        let session = Session::connect(settings.connect.as_deref().unwrap_or_default()).map_err(|error| {
            let hint = error.hint.clone().unwrap_or_else(|| "start an agent: `terrace serve --root DIRECTORY`".into());
            Error::input(format!("Terrace's objects: {error}"), hint)
        })?;
        Ok(Objects { session, datasets: settings.datasets, chunks: settings.chunks.clone(), open: None })
    }

    /// An object's name is the path below the root.
    fn name(&self, path: &Path) -> io::Result<String> {
        let root = self.session.root();
        let below = path.strip_prefix(root).ok().map(Path::to_owned).or_else(|| {
            let parent = path.parent()?.canonicalize().ok()?;
            Some(parent.strip_prefix(root).ok()?.join(path.file_name()?))
        });
        match below.as_deref().and_then(Path::to_str) {
            Some(name) if !name.is_empty() => Ok(name.to_owned()),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("it does not lie below the root {} that the agent serves", root.display()),
            )),
        }
    }

    fn array(&self, name: &str, block: &Block, write: bool) -> io::Result<Array> {
        let name = format!("{name}/v{}", block.variable);
        if !write {
            return self.session.open_array(&name, false).map_err(io_error);
        }
        let data_type = match block.element_bytes {
            2 => DataType::UInt16,
            4 => DataType::UInt32,
            8 => DataType::UInt64,
            _ => DataType::UInt8,
        };
        let spec = ArraySpec::new(data_type, &block.sizes).chunks(&self.chunks);
        self.session.create_array(&name, &spec, Create::IfMissing).map_err(io_error)
    }

    fn bytes(&mut self) -> io::Result<&Bytes> {
        let Some(Open { name, content: Content::Bytes(bytes) }) = &mut self.open else { return Err(not_open()) };
        if bytes.is_none() {
            *bytes = Some(Box::new(self.session.open_bytes(name, true).map_err(io_error)?));
        }
        bytes.as_deref().ok_or_else(not_open)
    }

    fn array_of(&self, block: &Block) -> io::Result<(&Array, Region)> {
        let Some(Open { content: Content::Arrays(arrays), .. }) = &self.open else { return Err(not_open()) };
        let array = arrays.get(block.variable as usize).ok_or_else(not_open)?;
        Ok((array, Region::block(&block.starts, &block.counts).map_err(io_error)?))
    }
}

impl Backend for Objects {
    fn open(&mut self, target: &Target) -> io::Result<()> {
        let name = self.name(target.path)?;
        let arrays = self.datasets == Datasets::Arrays && !target.blocks.is_empty();
        if target.write {
            let container = if arrays { Some(name.as_str()) } else { name.rsplit_once('/').map(|(parent, _)| parent) };
            if let Some(container) = container {
                self.session.create_container(container, Create::IfMissing).map_err(io_error)?;
            }
        }
        let content = if arrays {
            let open = target.blocks.iter().map(|block| self.array(&name, block, target.write));
            Content::Arrays(open.collect::<io::Result<_>>()?)
        } else if target.write {
            Content::Bytes(Some(Box::new(self.session.create_bytes(&name, Create::IfMissing).map_err(io_error)?)))
        } else {
            Content::Bytes(Some(Box::new(self.session.open_bytes(&name, false).map_err(io_error)?)))
        };
        self.open = Some(Open { name, content });
        Ok(())
    }
    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.bytes()?.write_at(offset, data).map_err(io_error)
    }
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.bytes()?.read_exact_at(offset, buffer).map_err(io_error)
    }
    fn flush(&mut self) -> io::Result<()> {
        let open = self.open.as_mut().ok_or_else(not_open)?;
        if let Content::Bytes(bytes) = &mut open.content
            && let Some(bytes) = bytes.take()
        {
            bytes.close().map_err(io_error)?;
        }
        self.session.flush(&open.name).map_err(io_error)
    }
    fn close(&mut self) -> io::Result<()> {
        match self.open.take().ok_or_else(not_open)?.content {
            Content::Bytes(Some(bytes)) => bytes.close().map_err(io_error),
            Content::Bytes(None) | Content::Arrays(_) => Ok(()),
        }
    }
    fn exists(&mut self, path: &Path) -> io::Result<bool> {
        let name = self.name(path)?;
        self.session.exists(&name).map_err(io_error)
    }
    fn remove(&mut self, path: &Path) -> io::Result<()> {
        let name = self.name(path)?;
        self.session.remove(&name, true).map_err(io_error)
    }
    fn blocks(&mut self) -> Option<&mut dyn Blocks> {
        if self.datasets == Datasets::Arrays { Some(self) } else { None }
    }
}

impl Blocks for Objects {
    fn write_block(&mut self, block: &Block, data: &[u8]) -> io::Result<()> {
        let (array, region) = self.array_of(block)?;
        array.put(&region, data).map_err(io_error)
    }
    fn read_block(&mut self, block: &Block, buffer: &mut [u8]) -> io::Result<()> {
        let (array, region) = self.array_of(block)?;
        array.get(&region, buffer).map_err(io_error)
    }
}

fn io_error(error: ObjectError) -> io::Error {
    match error.kind {
        Kind::NotFound => io::Error::new(io::ErrorKind::NotFound, error.to_string()),
        Kind::OutOfBounds => io::Error::new(io::ErrorKind::UnexpectedEof, error.to_string()),
        Kind::NoSpace => io::Error::from_raw_os_error(libc::ENOSPC),
        _ => io::Error::other(error.to_string()),
    }
}
