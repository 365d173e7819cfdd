//! Adds time to each call of another backend: a slow storage, for tests and for showing what requests cost.

use super::{Backend, Blocks, Target};
use crate::workload::Block;
use std::io;
use std::path::Path;
use std::time::Duration;

pub struct Delayed {
    inner: Box<dyn Backend>,
    delay: Duration,
}

impl Delayed {
    pub fn new(inner: Box<dyn Backend>, delay: Duration) -> Delayed {
        Delayed { inner, delay }
    }
}

impl Backend for Delayed {
    fn open(&mut self, target: &Target) -> io::Result<()> {
        self.inner.open(target)
    }
    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        std::thread::sleep(self.delay);
        self.inner.write(offset, data)
    }
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        std::thread::sleep(self.delay);
        self.inner.read(offset, buffer)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
    fn close(&mut self) -> io::Result<()> {
        self.inner.close()
    }
    fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)
    }
    fn place(&mut self, directory: &Path) {
        self.inner.place(directory);
    }
    fn exists(&mut self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }
    fn blocks(&mut self) -> Option<&mut dyn Blocks> {
        if self.inner.blocks().is_some() { Some(self) } else { None }
    }
    fn collective(&self) -> bool {
        self.inner.collective()
    }
    fn join_call(&mut self, write: bool) -> io::Result<()> {
        std::thread::sleep(self.delay);
        self.inner.join_call(write)
    }
}

impl Blocks for Delayed {
    fn write_block(&mut self, block: &Block, data: &[u8]) -> io::Result<()> {
        std::thread::sleep(self.delay);
        let blocks = self.inner.blocks().ok_or_else(|| io::Error::other("the backend takes no blocks"))?;
        blocks.write_block(block, data)
    }
    fn read_block(&mut self, block: &Block, buffer: &mut [u8]) -> io::Result<()> {
        std::thread::sleep(self.delay);
        let blocks = self.inner.blocks().ok_or_else(|| io::Error::other("the backend takes no blocks"))?;
        blocks.read_block(block, buffer)
    }
}
