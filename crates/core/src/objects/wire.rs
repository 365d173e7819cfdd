//! What client and agent say to each other about objects.
//!
//!   frame = magic, length of the message, length of the payload │ message (postcard) │ payload (cells or bytes, as they are)
//!
//! The payload stays outside the message so that it goes straight from the socket into tier memory, and back.
//!
//! Invariant: lengths are checked before anything is allocated; a message that can't be read is an error, never a panic.

use super::error::{Kind, ObjectError, Result};
use super::{ArraySpec, Region, TagQuery, TagValue};
use crate::members::Member;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// `TER` and the version of this language.
pub const MAGIC: u32 = u32::from_le_bytes(*b"TER\x08");
pub const FRAME_BYTES: usize = 16;
pub const MESSAGE_BYTES_MAX: u32 = 16 << 20;
/// A payload is one transfer's bytes; larger transfers go in several.
pub const PAYLOAD_BYTES_MAX: u64 = 1 << 30;

/// The first 16 bytes of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    pub message_bytes: u32,
    pub payload_bytes: u64,
}

impl Frame {
    pub fn encode(self) -> [u8; FRAME_BYTES] {
        let mut bytes = [0; FRAME_BYTES];
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.message_bytes.to_le_bytes());
        bytes[8..].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8; FRAME_BYTES]) -> Result<Frame> {
        let magic = u32::from_le_bytes(bytes[..4].try_into().expect("4 bytes"));
        let message_bytes = u32::from_le_bytes(bytes[4..8].try_into().expect("4 bytes"));
        let payload_bytes = u64::from_le_bytes(bytes[8..].try_into().expect("8 bytes"));
        if magic != MAGIC {
            return Err(ObjectError::new(Kind::Protocol, "the peer does not speak this version of Terrace's language"));
        }
        if message_bytes > MESSAGE_BYTES_MAX || payload_bytes > PAYLOAD_BYTES_MAX {
            return Err(ObjectError::new(
                Kind::Protocol,
                format!("a frame of {message_bytes} and {payload_bytes} bytes is longer than the longest possible"),
            ));
        }
        Ok(Frame { message_bytes, payload_bytes })
    }
}

/// A message and its frame, ready to be sent before the payload.
pub fn encode<T: Serialize>(message: &T, payload_bytes: u64) -> Result<Vec<u8>> {
    let body = postcard::to_stdvec(message)
        .map_err(|error| ObjectError::new(Kind::Protocol, format!("a message can't be written: {error}")))?;
    if body.len() > MESSAGE_BYTES_MAX as usize || payload_bytes > PAYLOAD_BYTES_MAX {
        return Err(ObjectError::invalid(format!("a message of {} and {payload_bytes} bytes is too long", body.len())));
    }
    let mut frame = Frame { message_bytes: body.len() as u32, payload_bytes }.encode().to_vec();
    frame.extend_from_slice(&body);
    Ok(frame)
}

pub fn decode<T: DeserializeOwned>(message: &[u8]) -> Result<T> {
    let unreadable = |reason: String| ObjectError::new(Kind::Protocol, format!("a message can't be read: {reason}"));
    match postcard::take_from_bytes::<T>(message) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(unreadable(format!("{} bytes are left over", rest.len()))),
        Err(error) => Err(unreadable(error.to_string())),
    }
}

/// Paths are relative to the root, without a leading slash; names that are not UTF-8 are not objects.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// First on every connection. The token is needed over TCP.
    Hello {
        token: String,
    },
    Flush {
        path: String,
    },
    Evict {
        path: String,
    },
    Prefetch {
        path: String,
    },
    /// The staged form of the array at `path` is full of records: make a new generation of its log.
    Compact {
        path: String,
    },
    /// Room for so many bytes of objects in any tier but the root's.
    MakeRoom {
        bytes: u64,
    },
    /// One chunk of the durable form, decoded; answered by `Bytes`.
    Chunk {
        path: String,
        chunk: Vec<u64>,
    },
    PutTags {
        path: String,
        tags: Vec<(String, TagValue)>,
    },
    DeleteTag {
        path: String,
        key: String,
    },
    /// Of an object that was removed, and of all below it.
    ForgetTags {
        path: String,
    },
    Tags {
        path: String,
    },
    Query {
        query: TagQuery,
    },
    /// What follows is for clients on other nodes; on the same node they do it by themselves.
    Root,
    Stat {
        path: String,
    },
    List {
        path: String,
    },
    CreateContainer {
        path: String,
    },
    Remove {
        path: String,
        with_contents: bool,
    },
    CreateArray {
        path: String,
        spec: ArraySpec,
    },
    PutRegion {
        path: String,
        region: Region,
        step: u64,
    },
    GetRegion {
        path: String,
        region: Region,
    },
    Resize {
        path: String,
        shape: Vec<u64>,
    },
    /// Opened for writing as well.
    CreateBytes {
        file: FileRef,
        exclusive: bool,
    },
    /// Answered by `Length`.
    OpenBytes {
        file: FileRef,
    },
    WriteBytes {
        file: FileRef,
        position: u64,
    },
    ReadBytes {
        file: FileRef,
        position: u64,
        count: u64,
    },
    SetLength {
        file: FileRef,
        length: u64,
    },
    /// Answered by `Length`.
    LengthOf {
        file: FileRef,
    },
    /// Nobody asks for it any more. Not answered.
    CloseBytes {
        open: u64,
    },
    Lock {
        path: String,
        region: Region,
        exclusive: bool,
        patience_ms: Option<u64>,
    },
    Unlock {
        path: String,
        lock: u64,
    },
    /// As `GetRegion`, from where the cells lie: after the answer and its payload comes a second answer, which says whether they
    /// were overwritten meanwhile (`Failed`).
    LendRegion {
        path: String,
        region: Region,
    },
    /// All agents of the root.
    Members,
    /// The agent that has the newest bytes of a file.
    Whose {
        path: String,
    },
    /// Cells are to go by this provider of libfabric; the client's endpoint has this address. Answered by `Fabric`.
    Fabric {
        provider: String,
        address: Vec<u8>,
    },
    /// As `PutRegion`: the agent reads the cells from the client's memory.
    PullRegion {
        path: String,
        region: Region,
        bytes: u64,
        from: There,
    },
    /// As `GetRegion`: the agent writes the cells into the client's memory.
    PushRegion {
        path: String,
        region: Region,
        bytes: u64,
        to: There,
    },
    /// Regions of the array at `path` that are staged here and end beyond `from` along `dimension`.
    Regions {
        path: String,
        dimension: u32,
        from: u64,
    },
    /// Waits until what was put at and below `path` before has arrived at all agents that it is forwarded to.
    SyncForwards {
        path: String,
        patience_ms: Option<u64>,
    },
    /// This conversation is that of an agent that forwards to this one; an earlier one of it is over.
    Forwarder {
        who: u64,
    },
    /// As `PutRegion`: the payload has so many of the region's cells (`few`), and all others get the fill value.
    PutFew {
        path: String,
        region: Region,
        count: u64,
    },
    /// One tag; answered by `Tags`, with none if there is none.
    Tag {
        path: String,
        key: String,
    },
    /// Between agents of one root: of files that lie in tiers.
    Peer(crate::peers::Ask),
    Rename {
        from: String,
        to: String,
    },
    /// An object was renamed: its tags go with it, and what is staged of it is found by its new name.
    Renamed {
        from: String,
        to: String,
    },
    /// Any shape of the same rank, for any array: made durable, dropped from the tiers, and cut.
    Reshape {
        path: String,
        shape: Vec<u64>,
    },
    /// Where parts of queries are answered beside this agent.
    QueryNode,
}

/// A file that a client has opened: the agent keeps it open, whatever becomes of its name. An agent that does not know it (any more)
/// opens what the name leads to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileRef {
    pub path: String,
    /// The client's own number for it, unlike any other.
    pub open: u64,
    pub writable: bool,
}

/// Memory of another process, as it told (fi_mr(3)).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct There {
    pub at: u64,
    pub key: u64,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Response {
    Done,
    Failed(ObjectError),
    /// The payload is what was asked for.
    Bytes,
    Written {
        bytes: u64,
    },
    Length {
        bytes: u64,
    },
    Root {
        path: String,
    },
    Tags {
        tags: Vec<(String, TagValue)>,
    },
    Paths {
        paths: Vec<String>,
    },
    Status(Status),
    Entries {
        entries: Vec<Entry>,
    },
    Locked {
        lock: u64,
    },
    /// `number`: who answers. No members: the agent is alone.
    Members {
        number: u32,
        members: Vec<Member>,
        token: String,
    },
    /// `None`: no agent, it is in the root's own storage, or not there.
    Whose {
        member: Option<u32>,
    },
    /// The agent's endpoint has this address.
    Fabric {
        address: Vec<u8>,
    },
    /// The fabric did not move the cells: they are to go over this connection.
    Unmoved {
        reason: String,
    },
    /// `base`: the shape below the staged regions, where the durable form has cells.
    Regions {
        shape: Vec<u64>,
        base: Option<Vec<u64>>,
        regions: Vec<Region>,
    },
    Peer(crate::peers::Answer),
    /// `None`: it has no program for queries.
    QueryNode {
        address: Option<String>,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ObjectKind {
    Container,
    Bytes,
    Array,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Entry {
    pub name: String,
    pub kind: ObjectKind,
}

/// What is known of an object.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Status {
    pub kind: ObjectKind,
    /// Of a bytes object; of an array all its cells'.
    pub bytes: u64,
    /// An array's, with its shape now.
    pub spec: Option<ArraySpec>,
    /// The tier that has the newest bytes; of an array all that have cells of it, that of its newest region first, `root` for what lies
    /// in the root.
    pub tier: String,
    /// Nothing is newer than what the root's own storage has.
    pub is_durable: bool,
    /// The same for as long as the object is there, whatever it is called. File systems give it again to what is made later.
    pub identity: u64,
    /// When the directory of an array or container was made, in ns since 1970, where the file system tells.
    pub made_ns: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::DataType;
    use proptest::prelude::*;

    fn requests() -> Vec<Request> {
        let region = Region::strided(&[1, 2], &[3, 4], &[5, 6]).unwrap();
        let spec = ArraySpec::new(DataType::Bytes(7), &[0, 9]).unlimited(0).dimensions(&["t", "x"]);
        vec![
            Request::Hello { token: "secret".into() },
            Request::PutRegion { path: "a/b".into(), region, step: 7 },
            Request::CreateArray { path: "a".into(), spec },
            Request::PutTags { path: "".into(), tags: vec![("k".into(), TagValue::Floats(vec![1.0, -0.0]))] },
            Request::Lock { path: "x".into(), region, exclusive: true, patience_ms: Some(9) },
            Request::PutFew { path: "a/b".into(), region, count: 3 },
            Request::Root,
        ]
    }

    #[test]
    fn a_message_reads_back_as_it_was_written() {
        for request in requests() {
            let sent = encode(&request, 77).unwrap();
            let frame = Frame::decode(sent[..FRAME_BYTES].try_into().unwrap()).unwrap();
            assert_eq!((frame.message_bytes as usize, frame.payload_bytes), (sent.len() - FRAME_BYTES, 77));
            assert_eq!(decode::<Request>(&sent[FRAME_BYTES..]).unwrap(), request);
        }
    }

    #[test]
    fn a_region_that_makes_no_sense_does_not_pass() {
        let bad: (Vec<u64>, Vec<u64>, Vec<u64>) = (vec![u64::MAX], vec![2], vec![1]);
        let message = postcard::to_stdvec(&bad).unwrap();
        assert!(decode::<Region>(&message).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode::<Request>(&bytes);
            let _ = decode::<Response>(&bytes);
            if let Ok(head) = <[u8; FRAME_BYTES]>::try_from(&bytes[..bytes.len().min(FRAME_BYTES)]) {
                let _ = Frame::decode(&head);
            }
        }

        #[test]
        fn a_damaged_message_is_a_message_or_an_error(which in 0usize..7, at in any::<usize>(), value in any::<u8>(), cut in any::<usize>()) {
            let mut sent = encode(&requests()[which], 0).unwrap().split_off(FRAME_BYTES);
            let place = at % sent.len();
            sent[place] = value;
            sent.truncate(1 + cut % sent.len());
            let _ = decode::<Request>(&sent);
        }
    }
}
