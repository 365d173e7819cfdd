//! This was built where libfabric's headers are missing.

use std::marker::PhantomData;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use terrace_core::objects::wire::There;
use terrace_core::objects::{Kind, ObjectError, Result};

pub enum Endpoint {}
pub struct Exposed<'a>(Endpoint, PhantomData<&'a mut [u8]>);

impl Endpoint {
    pub fn open(_provider: Option<&str>, _at: Option<IpAddr>) -> Result<Endpoint> {
        Err(ObjectError::new(Kind::System, "this was built without libfabric")
            .hint("install libfabric-dev where it is built, or leave TERRACE_FABRIC out"))
    }
    pub fn provider(&self) -> String {
        match *self {}
    }
    pub fn address(&self) -> Result<Vec<u8>> {
        match *self {}
    }
    pub fn meet(&mut self, _address: &[u8]) -> Result<()> {
        match *self {}
    }
    pub fn expose<'a>(&mut self, _buffer: &'a [u8]) -> Result<Exposed<'a>> {
        match *self {}
    }
    pub fn expose_mut<'a>(&mut self, _buffer: &'a mut [u8]) -> Result<Exposed<'a>> {
        match *self {}
    }
    pub fn read(&mut self, _from: There, _to: &mut [u8], _connection: BorrowedFd<'_>) -> Result<()> {
        match *self {}
    }
    pub fn write(&mut self, _from: &[u8], _to: There, _connection: BorrowedFd<'_>) -> Result<()> {
        match *self {}
    }
    pub fn attend(&mut self, _connection: BorrowedFd<'_>) -> Result<()> {
        match *self {}
    }
}

impl Exposed<'_> {
    pub fn there(&self) -> There {
        match self.0 {}
    }
}
