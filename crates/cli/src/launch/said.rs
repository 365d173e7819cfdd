//! The lines that a node says to its launch.

use std::fmt;

const PREFIX: &str = "terrace-join";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// By what tasks reach the agent; for who starts them without a `terrace run` (Slurm's plugin). Said before `Joined`.
    Reach {
        library: String,
        index: String,
    },
    /// Its agent is there. `of`: how many nodes there are, as far as this one knows.
    Joined {
        tag: String,
        host: String,
        of: usize,
    },
    /// It is the node that the launch was started on.
    Same {
        of: usize,
    },
    /// While it flushes at the end.
    Left {
        tag: String,
        files: u64,
        bytes: u64,
    },
    Done {
        tag: String,
    },
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Said::Reach { library, index } => write!(f, "{PREFIX} reach {library} {index}"),
            Said::Joined { tag, host, of } => write!(f, "{PREFIX} joined {tag} {host} {of}"),
            Said::Same { of } => write!(f, "{PREFIX} same {of}"),
            Said::Left { tag, files, bytes } => write!(f, "{PREFIX} left {tag} {files} {bytes}"),
            Said::Done { tag } => write!(f, "{PREFIX} done {tag}"),
        }
    }
}

impl Said {
    /// `None`: something else that the launcher, or a login script, has said.
    pub fn parse(line: &str) -> Option<Said> {
        // Launchers may put a rank, or a carriage return, around it.
        let (_, rest) = line.split_once(PREFIX)?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        Some(match *words.as_slice() {
            ["reach", library, index] => Said::Reach { library: library.into(), index: index.into() },
            ["joined", tag, host, of] => Said::Joined { tag: tag.into(), host: host.into(), of: of.parse().ok()? },
            ["same", of] => Said::Same { of: of.parse().ok()? },
            ["left", tag, files, bytes] => {
                Said::Left { tag: tag.into(), files: files.parse().ok()?, bytes: bytes.parse().ok()? }
            }
            ["done", tag] => Said::Done { tag: tag.into() },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard_through_what_launchers_add() {
        let (tag, host) = ("5f3a9c01".to_owned(), "n1".to_owned());
        for said in [
            Said::Joined { tag: tag.clone(), host, of: 3 },
            Said::Same { of: 3 },
            Said::Left { tag: tag.clone(), files: 7, bytes: 1 << 40 },
            Said::Done { tag },
        ] {
            assert_eq!(Said::parse(&said.to_string()), Some(said.clone()));
            assert_eq!(Said::parse(&format!("[1,0]<stdout>: {said}\r")), Some(said));
        }
        for other in ["", "Welcome to n1", "terrace-join", "terrace-join left x y z"] {
            assert_eq!(Said::parse(other), None, "{other}");
        }
    }
}
