//! A conversation with one target: its connection, what is on its way, and what it is asked before regions are sent.

use super::reader::{LogReader, Work};
use std::collections::{BTreeMap, VecDeque};
use terrace_client::Link;
use terrace_core::objects::wire::{Request, Response};
use terrace_core::objects::{Kind, ObjectError, Result, TagValue};

/// Puts that are on their way at a time, and their bytes.
pub(super) const FLIGHT_MAX: usize = 32;
pub(super) const FLIGHT_BYTES_MAX: u64 = 64 << 20;
/// The tag by which a target's array is known to be ours.
pub const SOURCE_TAG: &str = "terrace.source";

/// A connection, and what is on its way.
pub struct Talk {
    pub(super) link: Link,
    pub(super) flight: VecDeque<Flight>,
    pub(super) bytes: u64,
    pub(super) shares: Shares,
}

/// Bytes sent of each container, so that none waits for all that another one has.
#[derive(Default)]
pub(super) struct Shares {
    by_container: BTreeMap<String, u64>,
    /// Of the container that was served last.
    last: u64,
}

impl Shares {
    /// One that had nothing to send for long is not served alone until it has caught up.
    pub(super) fn of(&self, container: &str) -> u64 {
        let own = self.by_container.get(container).copied().unwrap_or(0);
        own.max(self.last.saturating_sub(FLIGHT_BYTES_MAX))
    }

    pub(super) fn add(&mut self, container: &str, bytes: u64) {
        self.last = self.of(container) + bytes;
        self.by_container.insert(container.to_owned(), self.last);
    }
}

pub(super) struct Flight {
    pub array: String,
    /// `None`: a part of a region whose last part comes later.
    pub work: Option<Work>,
    pub bytes: u64,
}

/// Why a turn ended early.
pub enum Stop {
    /// The conversation is over.
    Lost(std::io::Error),
    /// The target refuses something of this array.
    Refused(String, ObjectError),
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Stop {
        Stop::Lost(error)
    }
}

pub type LogReaders = BTreeMap<String, LogReader>;

/// Sees to it that the target has this array, and not another one of its name.
pub fn make_array(reader: &mut LogReader, talk: &mut Talk) -> std::result::Result<(), Stop> {
    let name = reader.name.clone();
    let refused = |error: ObjectError| Stop::Refused(name.clone(), error);
    let mut ask = |request: Request| -> std::result::Result<Result<Response>, Stop> {
        Ok(match talk.link.ask(&request)? {
            Response::Failed(error) => Err(error),
            answer => Ok(answer),
        })
    };
    if let Some((container, _)) = name.rsplit_once('/') {
        make_container(container, &mut ask)?.map_err(refused)?;
    }
    let mut spec = reader.spec.clone();
    spec.shape.iter_mut().zip(&spec.unlimited).filter(|(_, grows)| **grows).for_each(|(extent, _)| *extent = 0);
    let source = TagValue::Text(reader.identity.clone());
    let create = Request::CreateArray { path: name.clone(), spec: spec.clone() };
    let created = ask(create.clone()).inspect_err(|_| reader.may_be_made = true)?;
    match created {
        Err(error) if error.kind == Kind::Exists => {
            let tags = match ask(Request::Tags { path: name.clone() })?.map_err(refused)? {
                Response::Tags { tags } => tags,
                _ => vec![],
            };
            match tags.into_iter().find(|(key, _)| key == SOURCE_TAG) {
                Some((_, known)) if known == source => {
                    reader.is_made = true;
                    return Ok(());
                }
                // One that we had sent, and that was replaced here since.
                Some(_) => {
                    ask(Request::Remove { path: name.clone(), with_contents: false })?.map_err(refused)?;
                    ask(create)?.map_err(refused)?;
                }
                // Made, and the connection or an agent went before its tag: whoever made one that has nothing in it loses nothing.
                None => {
                    let there = match ask(Request::Stat { path: name.clone() })?.map_err(refused)? {
                        Response::Status(status) => status.spec,
                        _ => None,
                    };
                    // One that grows and is as it was made has nothing in it.
                    let grows = spec.unlimited.contains(&true);
                    let is_this = (grows || reader.may_be_made)
                        && there.is_some_and(|there| {
                            (there.data_type, &there.shape, &there.unlimited)
                                == (spec.data_type, &spec.shape, &spec.unlimited)
                        });
                    if !is_this {
                        return Err(refused(ObjectError::new(
                            Kind::Exists,
                            format!("the target has an array `{name}` that was not sent from here"),
                        )));
                    }
                }
            }
        }
        created => {
            created.map_err(refused)?;
        }
    }
    ask(Request::PutTags { path: name.clone(), tags: vec![(SOURCE_TAG.into(), source)] })?.map_err(refused)?;
    (reader.is_made, reader.is_new_there, reader.may_be_made) = (true, true, false);
    Ok(())
}

type Answer = std::result::Result<Result<Response>, Stop>;

fn make_container(name: &str, ask: &mut impl FnMut(Request) -> Answer) -> std::result::Result<Result<()>, Stop> {
    Ok(match ask(Request::CreateContainer { path: name.into() })? {
        Err(error) if error.kind == Kind::Exists => Ok(()),
        made => made.map(|_| ()),
    })
}

impl Talk {
    /// Asks for something while nothing is on its way; a refusal is one of this object.
    pub fn ask_for(&mut self, object: &str, request: &Request) -> std::result::Result<(), Stop> {
        match self.link.ask(request)? {
            Response::Failed(error) => Err(Stop::Refused(object.into(), error)),
            _ => Ok(()),
        }
    }

    /// The container, and those that it lies in.
    pub fn make_container(&mut self, name: &str) -> std::result::Result<(), Stop> {
        let mut ask = |request: Request| -> Answer {
            Ok(match self.link.ask(&request)? {
                Response::Failed(error) => Err(error),
                answer => Ok(answer),
            })
        };
        make_container(name, &mut ask)?.map_err(|error| Stop::Refused(name.into(), error))
    }
}
