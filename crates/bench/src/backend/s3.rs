//! Objects in an S3 store, through object_store.
//!
//! An object is written in one go: requests must follow each other; they are gathered into parts of 8 MiB (S3 takes none
//! smaller than 5), and the object appears when it is flushed. Reads are ranged requests.

use super::{Backend, Target, not_open};
use crate::error::{Error, Result};
use crate::settings::S3Settings;
use bytes::Bytes;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path as Key;
use object_store::{MultipartUpload, ObjectStoreExt, PutPayload};
use std::io;
use std::path::Path;
use tokio::runtime::Runtime;

const PART_BYTES: usize = 8 << 20;

pub struct Store {
    runtime: Runtime,
    store: AmazonS3,
    directory: std::path::PathBuf,
    open: Option<Open>,
}

struct Open {
    key: Key,
    write: bool,
    /// Where the next request must begin.
    next: u64,
    part: Vec<u8>,
    upload: Option<Box<dyn MultipartUpload>>,
    /// Flushed: nothing can be added to it.
    stored: bool,
}

impl Store {
    pub fn new(settings: &S3Settings) -> Result<Store> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Error::io("start", "the S3 client", error))?;
        let mut builder = AmazonS3Builder::from_env().with_bucket_name(&settings.bucket);
        if let Some(endpoint) = &settings.endpoint {
            builder = builder.with_endpoint(endpoint).with_allow_http(endpoint.starts_with("http://"));
        }
        builder = builder.with_region(settings.region.as_deref().unwrap_or("us-east-1"));
        let store = builder.build().map_err(|error| {
            Error::input(
                format!("S3: {error}"),
                "give `bucket` and `endpoint`, and the keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            )
        })?;
        Ok(Store { runtime, store, directory: std::path::PathBuf::new(), open: None })
    }

    fn key(&self, path: &Path) -> Key {
        Key::from(path.strip_prefix(&self.directory).unwrap_or(path).to_string_lossy().as_ref())
    }

    fn put_part(&mut self) -> io::Result<()> {
        let open = self.open.as_mut().ok_or_else(not_open)?;
        let part = PutPayload::from_bytes(Bytes::from(std::mem::take(&mut open.part)));
        if open.upload.is_none() {
            open.upload = Some(self.runtime.block_on(self.store.put_multipart(&open.key)).map_err(io::Error::other)?);
        }
        let upload = open.upload.as_mut().expect("the upload was begun");
        self.runtime.block_on(upload.put_part(part)).map_err(io::Error::other)
    }
}

impl Backend for Store {
    fn open(&mut self, target: &Target) -> io::Result<()> {
        self.place(target.directory);
        let key = self.key(target.path);
        if !target.write {
            self.runtime.block_on(self.store.head(&key)).map_err(io::Error::other)?;
        }
        self.open = Some(Open { key, write: target.write, next: 0, part: Vec::new(), upload: None, stored: false });
        Ok(())
    }
    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let open = self.open.as_mut().ok_or_else(not_open)?;
        if open.next != offset {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "an S3 object is written from its beginning to its end: use a sequential pattern",
            ));
        }
        open.part.extend_from_slice(data);
        open.next += data.len() as u64;
        if open.part.len() >= PART_BYTES { self.put_part() } else { Ok(()) }
    }
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let open = self.open.as_ref().ok_or_else(not_open)?;
        let range = offset..offset + buffer.len() as u64;
        let bytes = self.runtime.block_on(self.store.get_range(&open.key, range)).map_err(io::Error::other)?;
        if bytes.len() != buffer.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer.copy_from_slice(&bytes);
        Ok(())
    }
    /// What is acknowledged is durable; before, there is no object.
    fn flush(&mut self) -> io::Result<()> {
        if self.open.as_ref().is_some_and(|open| open.upload.is_some() && !open.part.is_empty()) {
            self.put_part()?;
        }
        let open = self.open.as_mut().ok_or_else(not_open)?;
        if !open.write || open.stored {
            return Ok(());
        }
        if let Some(upload) = &mut open.upload {
            self.runtime.block_on(upload.complete()).map_err(io::Error::other)?;
        } else {
            let payload = PutPayload::from_bytes(Bytes::from(std::mem::take(&mut open.part)));
            self.runtime.block_on(self.store.put(&open.key, payload)).map_err(io::Error::other)?;
        }
        open.stored = true;
        Ok(())
    }
    fn close(&mut self) -> io::Result<()> {
        // Of what failed there is to be no object.
        let open = self.open.take().ok_or_else(not_open)?;
        match open.upload {
            Some(mut upload) if !open.stored => self.runtime.block_on(upload.abort()).map_err(io::Error::other),
            _ => Ok(()),
        }
    }
    fn place(&mut self, directory: &Path) {
        directory.clone_into(&mut self.directory);
    }
    fn exists(&mut self, path: &Path) -> io::Result<bool> {
        match self.runtime.block_on(self.store.head(&self.key(path))) {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(io::Error::other(error)),
        }
    }
    fn remove(&mut self, path: &Path) -> io::Result<()> {
        let key = self.key(path);
        self.runtime.block_on(self.store.delete(&key)).map_err(io::Error::other)
    }
}
