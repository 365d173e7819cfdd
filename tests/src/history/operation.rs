//! One operation of a history: what a client asked for, what it was told, and when.

use std::fmt;

/// A name below the root, by its number in the history.
pub type Name = u16;
/// A client's session with a file; a client never uses a number twice.
pub type Session = u32;
/// Sessions of calls by a name have this bit: no recorder's has.
pub const OF_A_CALL: Session = 1 << 31;
/// Clients are processes; each incarnation is another one.
pub type Client = u32;

/// How a file was opened. `O_CLOEXEC`, `O_NOFOLLOW`, `O_NONBLOCK` and `O_SYNC` change nothing here: what the recorder opens is regular.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags {
    pub write: bool,
    pub create: bool,
    pub exclusive: bool,
    pub truncate: bool,
    pub append: bool,
    /// `O_DIRECTORY`, which must fail.
    pub directory: bool,
}

impl Flags {
    /// Of the recorder's letters.
    pub fn of(letters: &str) -> Flags {
        let has = |letter| letters.contains(letter);
        Flags {
            write: has('w'),
            create: has('c'),
            exclusive: has('x'),
            truncate: has('t'),
            append: has('a'),
            directory: has('d'),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute {
    Length,
    Mode,
    Links,
}

/// What happens at one moment. A call by a name is a session of its own if it has succeeded: between the moment at which it finds the file
/// and the one at which it changes or looks at it, other calls may happen, natively, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Open {
        name: Name,
        flags: Flags,
        session: Session,
    },
    /// One slot of a read: no call promises several slots at one moment. Past the end it is `None`.
    Slot {
        session: Session,
        slot: u32,
    },
    /// A read that failed.
    Read {
        session: Session,
    },
    Write {
        session: Session,
        slot: u32,
        value: u64,
    },
    Append {
        session: Session,
        value: u64,
    },
    SetLength {
        session: Session,
        slots: u32,
    },
    Sync {
        session: Session,
    },
    /// One attribute: natively, too, stat(2) looks at a file's length and at its links at two moments.
    Attribute {
        session: Session,
        which: Attribute,
    },
    SetMode {
        session: Session,
        mode: u16,
    },
    LinkOpened {
        session: Session,
        to: Name,
    },
    Close {
        session: Session,
    },
    Truncate {
        name: Name,
        slots: u32,
    },
    Rename {
        from: Name,
        to: Name,
        keep: bool,
        exchange: bool,
    },
    Link {
        from: Name,
        to: Name,
    },
    Unlink {
        name: Name,
    },
    Chmod {
        name: Name,
        mode: u16,
    },
    /// One name of a listing: the moments at which a listing looks at two names may differ.
    Listed {
        name: Name,
    },
    /// The process is gone, and with it what it had open.
    Die,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    Done,
    Failed(i32),
    Value(Option<u64>),
    Number(u32),
    Present(bool),
    /// What no file system may say: bytes that nobody wrote, a link where a file is.
    Nonsense,
    /// The process was killed meanwhile: done or not.
    Unknown,
}

#[derive(Clone, Debug)]
pub struct Operation {
    pub client: Client,
    pub node: u8,
    pub action: Action,
    pub seen: Seen,
    /// On CLOCK_MONOTONIC, in ns: the call was made not before `start` and had returned by `end`.
    pub start: u64,
    pub end: u64,
    /// The recorder's own words.
    pub text: String,
}

impl Operation {
    /// Changes nothing, whatever its moment: a look, or a failure.
    pub fn is_look(&self) -> bool {
        let looks = matches!(
            self.action,
            Action::Slot { .. }
                | Action::Read { .. }
                | Action::Sync { .. }
                | Action::Attribute { .. }
                | Action::Listed { .. }
        );
        looks || matches!(self.seen, Seen::Failed(_))
    }

    /// A mode or link count by fstat, not by stat.
    pub fn is_lasting_of_open(&self) -> bool {
        matches!(
            self.action,
            Action::Attribute { session, which: Attribute::Links | Attribute::Mode } if session < OF_A_CALL
        )
    }

    pub fn counts_links_of_open(&self) -> bool {
        matches!(self.action, Action::Attribute { session, which: Attribute::Links } if session < OF_A_CALL)
    }

    pub fn session(&self) -> Option<Session> {
        match self.action {
            Action::Open { session, .. }
            | Action::Slot { session, .. }
            | Action::Read { session }
            | Action::Write { session, .. }
            | Action::Append { session, .. }
            | Action::SetLength { session, .. }
            | Action::Sync { session }
            | Action::Attribute { session, .. }
            | Action::SetMode { session, .. }
            | Action::LinkOpened { session, .. }
            | Action::Close { session } => Some(session),
            _ => None,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, to: &mut fmt::Formatter) -> fmt::Result {
        let ms = |ns: u64| ns as f64 / 1e6;
        match self.seen {
            Seen::Unknown => write!(to, "[{:11.3}, killed     ]", ms(self.start))?,
            _ => write!(to, "[{:11.3}, {:11.3}]", ms(self.start), ms(self.end))?,
        }
        write!(to, " node {} client {:>6}  {}", self.node, self.client, self.text)
    }
}
