//! Claims about names: raw bytes, below the tier, nothing else.

use super::{Claim, NESTED, listed, path};
use crate::tier::{EntryKind, Tier, TierExt, Writing};
use crate::{Error, Next};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub(super) const CLAIMS: &[Claim] = &[
    ("names are any bytes", names_are_any_bytes),
    ("a name of 255 bytes fits, a longer one is refused", a_name_of_255_bytes_fits),
    ("directories may nest", directories_may_nest),
    ("names stay below the tier", names_stay_below_the_tier),
    ("a temporary takes any name at its commit", a_temporary_takes_any_name_at_its_commit),
    ("listings tell files from directories", listings_tell_files_from_directories),
    ("walk finds every file once", walk_finds_every_file_once),
];

fn names_are_any_bytes(tier: &dyn Tier) {
    let names: &[&[u8]] = &[
        b"with spaces",
        b" ",
        b"new\nline",
        b"tab\tand\rreturn",
        b"quote'\"`$(x)",
        b"back\\slash",
        b"-rf",
        b"~",
        b"*?[a]{b}",
        b"...",
        b".hidden",
        b"not utf-8 \xff\xfe\x80",
        b"\x01\x7f",
        "größe-日本語-🧠".as_bytes(),
        "e\u{301}".as_bytes(),
        "é".as_bytes(),
    ];
    for (i, name) in names.iter().enumerate() {
        tier.write(Path::new(OsStr::from_bytes(name)), &[i as u8]).unwrap();
    }
    for (i, name) in names.iter().enumerate() {
        assert_eq!(tier.read(Path::new(OsStr::from_bytes(name))).unwrap(), [i as u8], "{name:?}");
    }
    let mut expected: Vec<PathBuf> = names.iter().map(|name| PathBuf::from(OsStr::from_bytes(name))).collect();
    expected.push(PathBuf::from(NESTED));
    expected.sort();
    assert_eq!(listed(tier, ""), expected);
}

fn a_name_of_255_bytes_fits(tier: &dyn Tier) {
    let longest = "n".repeat(255);
    tier.write(path(&longest), b"bytes").unwrap();
    assert_eq!(tier.read(path(&longest)).unwrap(), b"bytes");
    tier.write(&path(NESTED).join(&longest), b"bytes").unwrap();
    let error = tier.write(path(&"n".repeat(256)), b"bytes").unwrap_err();
    assert_eq!((error.errno(), error.next()), (libc::ENAMETOOLONG, Next::FixInput));
    assert_eq!(listed(tier, "").len(), 2, "what was refused left nothing");
}

fn directories_may_nest(tier: &dyn Tier) {
    tier.write(path("nested/file"), b"below").unwrap();
    tier.write(path("file"), b"above").unwrap();
    assert_eq!(tier.read(path("nested/file")).unwrap(), b"below");
    assert_eq!(tier.read(path("./nested//file")).unwrap(), b"below");
    assert_eq!(listed(tier, NESTED), [path("nested/file")]);
}

fn names_stay_below_the_tier(tier: &dyn Tier) {
    for name in ["", ".", "..", "../file", "nested/../../file", "/etc/passwd", "a\0b"] {
        let refused = |error: Option<Error>| {
            let error = error.unwrap_or_else(|| panic!("{name:?} was accepted"));
            assert!(matches!(error, Error::Name { .. }), "{name:?}: {error}");
            assert_eq!(error.next(), Next::FixInput);
        };
        refused(tier.create(path(name)).err());
        refused(tier.open(path(name)).err());
        refused(tier.remove(path(name)).err());
        refused(tier.sync_name(path(name)).err());
        refused(tier.create(path("file")).unwrap().commit(path(name)).err());
    }
    assert_eq!(listed(tier, ""), [path(NESTED)]);
}

fn a_temporary_takes_any_name_at_its_commit(tier: &dyn Tier) {
    let writing: Box<dyn Writing> = tier.create(path("before")).unwrap();
    writing.commit(path("nested/after")).unwrap();
    assert!(tier.exists(path("nested/after")).unwrap());
    assert!(!tier.exists(path("before")).unwrap());
}

fn listings_tell_files_from_directories(tier: &dyn Tier) {
    tier.write(path("file"), b"").unwrap();
    let mut entries = tier.list(path("")).unwrap();
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let found: Vec<_> = entries.iter().map(|entry| (entry.name.as_path(), entry.kind)).collect();
    assert_eq!(found, [(path("file"), EntryKind::File), (path(NESTED), EntryKind::Directory)]);
}

fn walk_finds_every_file_once(tier: &dyn Tier) {
    let names: Vec<PathBuf> =
        (0..300).map(|i| path(if i % 2 == 0 { "" } else { NESTED }).join(i.to_string())).collect();
    for name in &names {
        tier.write(name, b"").unwrap();
    }
    let mut found: Vec<PathBuf> = tier.walk(path("")).unwrap().into_iter().map(|entry| entry.name).collect();
    found.sort();
    let mut expected = names;
    expected.sort();
    assert_eq!(found, expected);
}
