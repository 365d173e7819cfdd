//! The way a program goes, what won't work on it, and what to do: pure, so that `doctor` and `run` say the same.

use super::{Binary, Kind, Language, Libc, Linkage, Program};
use crate::door::Door;
use serde::Serialize;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// The library serves its calls by way of libc, the supervisor all others.
    Both,
    Preload,
    Supervisor,
    Mount,
    /// Neither reaches it.
    Natively,
    /// It would not run.
    Nowhere,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Weight {
    /// Worth knowing.
    Note,
    /// `run` says it too.
    Warning,
    /// `run` does not start it.
    Refusal,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limit {
    pub weight: Weight,
    pub what: String,
    pub advice: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reach {
    pub way: Way,
    pub limits: Vec<Limit>,
}

impl Reach {
    fn new(way: Way) -> Reach {
        Reach { way, limits: vec![] }
    }
    fn but(mut self, weight: Weight, what: impl Into<String>, advice: impl Into<String>) -> Reach {
        self.limits.push(Limit { weight, what: what.into(), advice: advice.into() });
        self
    }
    fn refused(what: &str, advice: &str) -> Reach {
        Reach::new(Way::Natively).but(Weight::Refusal, what, advice)
    }
    pub fn refusal(&self) -> Option<&Limit> {
        self.limits.iter().find(|limit| limit.weight == Weight::Refusal)
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Both => "the preload library, and the supervisor for what goes past it",
            Way::Preload => "the preload library",
            Way::Supervisor => "the supervisor",
            Way::Mount => "the private mount",
            Way::Natively => "natively: it would read the right bytes, see links where files are in a tier, and create files that are durable at once",
            Way::Nowhere => "it can't run",
        })
    }
}

/// How `program`'s last interpreter is reached through `door`.
pub fn reach(program: &Program, door: Door, is_root: bool) -> Reach {
    match &program.last().kind {
        Kind::NotFound => {
            Reach::new(Way::Nowhere).but(Weight::Refusal, "there is no such program", "give its path, or correct PATH")
        }
        Kind::NotExecutable(_) => Reach::new(Way::Nowhere).but(
            Weight::Refusal,
            "the system does not execute it",
            "make it executable (chmod +x), or run it with its interpreter",
        ),
        // To the kernel all programs are alike.
        Kind::Binary(binary) if door == Door::Mount && binary.privilege.is_some() && !is_root => Reach::new(Way::Mount)
            .but(
                Weight::Warning,
                "in the mount's user namespace a program gains no rights, so it runs without the ones it was given",
                "run it outside of the run, or use a build of it without setuid, setgid or capabilities",
            ),
        Kind::Unreadable | Kind::ShellText | Kind::Binary(_) if door == Door::Mount => Reach::new(Way::Mount),
        Kind::Unreadable => unreadable(door, is_root),
        // A shell's own script: as its shell.
        Kind::ShellText => Reach::new(door_way(door)),
        Kind::Script(..) => unreachable!("`last` is where scripts end"),
        Kind::Binary(binary) => of_binary(binary, door, is_root),
    }
}

/// Of a program that both can reach.
fn door_way(door: Door) -> Way {
    match door {
        Door::Both => Way::Both,
        Door::Preload => Way::Preload,
        Door::Supervise => Way::Supervisor,
        Door::Mount => Way::Mount,
    }
}

fn unreadable(door: Door, is_root: bool) -> Reach {
    let advice = "make it readable (chmod +r) to be sure";
    match (door, is_root) {
        (Door::Preload, _) => {
            Reach::new(Way::Preload).but(Weight::Warning, "if it is statically linked, nothing reaches it", advice)
        }
        (_, true) | (Door::Mount, _) => Reach::new(door_way(door)),
        (Door::Both, false) => Reach::new(Way::Preload).but(
            Weight::Warning,
            "the system lets no other process look into a program that its user can't read, so the supervisor can't help it",
            advice,
        ),
        (Door::Supervise, false) => Reach::refused(
            "the system lets no other process look into a program that its user can't read, so the supervisor can't reach it",
            "make it readable (chmod +r), or leave out --supervise-only",
        ),
    }
}

fn of_binary(binary: &Binary, door: Door, is_root: bool) -> Reach {
    if binary.machine.is_some() {
        return Reach::refused(
            "neither the preload library nor the supervisor is made for its kind of machine",
            "use a build of it for this machine, with 64 bits",
        );
    }
    if binary.privilege.is_some() {
        return privileged(door, is_root);
    }
    let uses_library = binary.linkage == Linkage::Dynamic(Libc::Glibc);
    let is_go = matches!(binary.language, Language::Go(_));
    let reach = match (uses_library, door) {
        (true, Door::Preload) if is_go => Reach::new(Way::Preload).but(
            Weight::Refusal,
            "Go makes its own system calls, so the preload library serves only what it does by way of C",
            "leave out --preload-only, so that the supervisor serves them",
        ),
        (true, _) => Reach::new(door_way(door)),
        (false, Door::Preload) => {
            Reach::refused(unloadable(&binary.linkage), "leave out --preload-only, or use a dynamically linked build")
        }
        (false, _) => Reach::new(Way::Supervisor),
    };
    match (&binary.io_uring, door) {
        (None, _) => reach,
        (Some(evidence), Door::Preload) => reach.but(
            Weight::Warning,
            format!("it may use io_uring ({evidence}), which opens files unseen: they would be created durable at once, and links be seen"),
            "leave out --preload-only, or tell the program to use ordinary reads and writes",
        ),
        (Some(evidence), _) => reach.but(
            Weight::Note,
            format!("it may use io_uring ({evidence}), which is refused in a run as if the system did not have it"),
            "most programs fall back to ordinary reads and writes; tell it to, if it has a setting for that",
        ),
    }
}

fn unloadable(linkage: &Linkage) -> &'static str {
    match linkage {
        Linkage::Dynamic(Libc::Musl) => "the preload library is made for glibc, not for musl",
        Linkage::Dynamic(_) => "the preload library is made for glibc, and it uses another C library",
        Linkage::Static { .. } => "the preload library can't reach a statically linked program",
    }
}

/// A program with more rights than its user: the loader ignores the library; the supervisor's filter needs `no_new_privs` of
/// everybody but root, which takes the rights away.
fn privileged(door: Door, is_root: bool) -> Reach {
    match (door, is_root) {
        (Door::Both | Door::Supervise, true) => Reach::new(Way::Supervisor).but(
            Weight::Warning,
            "it runs as another user: what it creates is durable at once, in the root itself, because root's tiers are root's",
            "run it as the user that owns the data",
        ),
        (Door::Both | Door::Supervise, false) => Reach::refused(
            "in a supervised run a program gains no rights, so it would run without the ones it was given",
            "run it outside of the run, or use a build of it without setuid, setgid or capabilities",
        ),
        (Door::Mount, _) => Reach::new(Way::Mount),
        (Door::Preload, _) => Reach::refused(
            "the system does not let it load the preload library",
            "run it as the user that owns the data, without setuid, setgid or capabilities",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::go::GoBuild;

    fn binary(linkage: Linkage) -> Binary {
        Binary { linkage, language: Language::Other, machine: None, privilege: None, io_uring: None }
    }

    fn way(binary: Binary, door: Door, is_root: bool) -> (Way, Option<Weight>) {
        let program = Program { path: "p".into(), kind: Kind::Binary(binary) };
        let reach = reach(&program, door, is_root);
        (reach.way, reach.limits.iter().map(|limit| limit.weight).max())
    }

    const STATIC: Linkage = Linkage::Static { pie: false, libc: None };
    const DYNAMIC: Linkage = Linkage::Dynamic(Libc::Glibc);

    #[test]
    fn dynamic_programs_go_every_way() {
        assert_eq!(way(binary(DYNAMIC), Door::Both, false), (Way::Both, None));
        assert_eq!(way(binary(DYNAMIC), Door::Preload, false), (Way::Preload, None));
        assert_eq!(way(binary(DYNAMIC), Door::Supervise, false), (Way::Supervisor, None));
    }

    #[test]
    fn what_does_not_load_the_library_needs_the_supervisor() {
        for linkage in [STATIC, Linkage::Dynamic(Libc::Musl), Linkage::Dynamic(Libc::Other)] {
            assert_eq!(way(binary(linkage.clone()), Door::Both, false), (Way::Supervisor, None));
            assert_eq!(way(binary(linkage), Door::Preload, false), (Way::Natively, Some(Weight::Refusal)));
        }
    }

    #[test]
    fn go_goes_past_the_library_even_when_it_is_dynamic() {
        let go = Binary { language: Language::Go(GoBuild::default()), ..binary(DYNAMIC) };
        assert_eq!(way(go.clone(), Door::Both, false), (Way::Both, None));
        assert_eq!(way(go, Door::Preload, false), (Way::Preload, Some(Weight::Refusal)));
    }

    #[test]
    fn more_rights_are_for_the_supervisor_of_root_only() {
        let setuid = Binary { privilege: Some("is setuid and runs as another user"), ..binary(DYNAMIC) };
        assert_eq!(way(setuid.clone(), Door::Both, true), (Way::Supervisor, Some(Weight::Warning)));
        assert_eq!(way(setuid.clone(), Door::Both, false), (Way::Natively, Some(Weight::Refusal)));
        assert_eq!(way(setuid, Door::Preload, true), (Way::Natively, Some(Weight::Refusal)));
    }

    #[test]
    fn io_uring_is_warned_of_where_it_would_go_unseen() {
        let uring = Binary { io_uring: Some("it names io_uring_setup".into()), ..binary(DYNAMIC) };
        assert_eq!(way(uring.clone(), Door::Preload, false), (Way::Preload, Some(Weight::Warning)));
        assert_eq!(way(uring, Door::Both, false), (Way::Both, Some(Weight::Note)));
    }

    #[test]
    fn a_mount_reaches_every_program() {
        let other = Binary { machine: Some("i386, 32 bits".into()), ..binary(STATIC) };
        let setuid = Binary { privilege: Some("is setuid and runs as another user"), ..binary(DYNAMIC) };
        let uring = Binary { io_uring: Some("it names io_uring_setup".into()), ..binary(DYNAMIC) };
        for program in [other, uring, binary(STATIC)] {
            assert_eq!(way(program, Door::Mount, false), (Way::Mount, None));
        }
        assert_eq!(way(setuid.clone(), Door::Mount, true), (Way::Mount, None));
        assert_eq!(way(setuid, Door::Mount, false), (Way::Mount, Some(Weight::Warning)));
    }

    #[test]
    fn another_machine_is_refused_everywhere() {
        let other = Binary { machine: Some("i386, 32 bits".into()), ..binary(STATIC) };
        for door in [Door::Both, Door::Preload, Door::Supervise] {
            assert_eq!(way(other.clone(), door, true), (Way::Natively, Some(Weight::Refusal)));
        }
    }
}
