//! From an answer to FUSE's reply. `known_for`: how long the kernel takes names and attributes for known.

use crate::calls::Answer;
use fuser::{
    FileAttr, FileHandle, FopenFlags, Generation, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite,
    ReplyXattr,
};
use std::time::Duration;

pub fn reply_entry(answer: Answer<FileAttr>, known_for: Duration, reply: ReplyEntry) {
    match answer {
        Ok(attributes) => reply.entry(&known_for, &attributes, Generation(0)),
        Err(error) => reply.error(error),
    }
}

pub fn reply_attributes(answer: Answer<FileAttr>, known_for: Duration, reply: ReplyAttr) {
    match answer {
        Ok(attributes) => reply.attr(&known_for, &attributes),
        Err(error) => reply.error(error),
    }
}

pub fn reply_empty(answer: Answer<()>, reply: ReplyEmpty) {
    match answer {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

pub fn reply_open(answer: Answer<FileHandle>, flags: FopenFlags, reply: ReplyOpen) {
    match answer {
        Ok(handle) => reply.opened(handle, flags),
        Err(error) => reply.error(error),
    }
}

pub fn reply_data(answer: Answer<Vec<u8>>, reply: ReplyData) {
    match answer {
        Ok(data) => reply.data(&data),
        Err(error) => reply.error(error),
    }
}

pub fn reply_written(answer: Answer<usize>, reply: ReplyWrite) {
    match answer {
        Ok(written) => reply.written(written as u32),
        Err(error) => reply.error(error),
    }
}

/// For size 0 how much there is, else the bytes.
pub fn reply_xattr(size: u32, reply: ReplyXattr, read: impl FnOnce(&mut [u8]) -> Answer<usize>) {
    let mut buffer = vec![0; size as usize];
    match read(&mut buffer) {
        Ok(length) if size == 0 => reply.size(length as u32),
        Ok(length) => reply.data(&buffer[..length]),
        Err(error) => reply.error(error),
    }
}
