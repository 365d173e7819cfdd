//! Claims about what travels with the bytes.

use super::{Claim, path};
use crate::tier::{Attributes, Tier, TierExt, Timestamp, Writing, WritingExt};
use std::ffi::OsString;

pub(super) const CLAIMS: &[Claim] = &[
    ("a new file is private", a_new_file_is_private),
    ("modes travel", modes_travel),
    ("times travel to the nanosecond", times_travel_to_the_nanosecond),
    ("extended attributes travel or are reported", extended_attributes_travel_or_are_reported),
    ("access lists travel or are reported", access_lists_travel_or_are_reported),
    ("the owner travels or is reported", the_owner_travels_or_is_reported),
    ("what cannot be kept is reported", what_cannot_be_kept_is_reported),
    ("reading changes no access time", reading_changes_no_access_time),
    ("an unreadable mode can still be copied by the owner", an_unreadable_mode_can_still_be_copied_by_the_owner),
];

/// Attributes that change nothing about owner and group.
fn own(writing: &dyn Writing) -> Attributes {
    let stat = writing.stat().unwrap();
    let time = Timestamp { seconds: 1_000_000_000, nanoseconds: 123_456_789 };
    Attributes { mode: 0o640, uid: stat.uid, gid: stat.gid, atime: time, mtime: time, xattrs: vec![] }
}

fn written(tier: &dyn Tier, change: impl FnOnce(&mut Attributes)) -> (Attributes, Attributes, crate::AttributesReport) {
    let mut writing = tier.create(path("file")).unwrap();
    writing.write_all_at(b"bytes", 0).unwrap();
    let mut wanted = own(&*writing);
    change(&mut wanted);
    let report = writing.set_attributes(&wanted).unwrap();
    writing.commit(path("file")).unwrap();
    let found = tier.open(path("file")).unwrap().attributes().unwrap();
    (wanted, found, report)
}

fn a_new_file_is_private(tier: &dyn Tier) {
    let writing = tier.create(path("file")).unwrap();
    assert_eq!(writing.stat().unwrap().mode & 0o777, 0o600);
}

fn modes_travel(tier: &dyn Tier) {
    for mode in [0o400, 0o644, 0o755, 0o777, 0o4755, 0o2755, 0o1644, 0o7777, 0o600] {
        let (wanted, found, report) = written(tier, |attributes| attributes.mode = mode);
        assert!(report.is_complete(), "{report}");
        assert_eq!(found.mode, wanted.mode, "{:o} became {:o}", wanted.mode, found.mode);
    }
}

fn times_travel_to_the_nanosecond(tier: &dyn Tier) {
    let times = [(0, 0), (1, 1), (1_700_000_000, 999_999_999), (-86_400, 5), (4_000_000_000, 1)];
    for (seconds, nanoseconds) in times {
        let (wanted, found, _) = written(tier, |attributes| {
            attributes.mtime = Timestamp { seconds, nanoseconds };
            attributes.atime = Timestamp { seconds: seconds + 1, nanoseconds };
        });
        assert_eq!((found.mtime, found.atime), (wanted.mtime, wanted.atime));
        assert_eq!(Timestamp::from_ns(wanted.mtime.as_ns()), wanted.mtime);
    }
}

fn kept_or_reported(wanted: &Attributes, found: &Attributes, report: &crate::AttributesReport) {
    for (name, value) in &wanted.xattrs {
        let is_kept = found.xattrs.iter().any(|(found, bytes)| found == name && bytes == value);
        let is_reported = report.lost.iter().any(|(lost, _)| name.to_str() == Some(lost));
        assert!(is_kept != is_reported, "{name:?}: kept {is_kept}, reported {is_reported}");
    }
    for (name, _) in &found.xattrs {
        let is_wanted = wanted.xattrs.iter().any(|(wanted, _)| wanted == name);
        assert!(is_wanted, "{name:?} came from nowhere");
    }
}

fn extended_attributes_travel_or_are_reported(tier: &dyn Tier) {
    let (wanted, found, report) = written(tier, |attributes| {
        attributes.xattrs = vec![
            (OsString::from("user.binary"), vec![0, 255, 10, 0]),
            (OsString::from("user.empty"), vec![]),
            (OsString::from("user.large"), vec![b'x'; 1500]),
        ];
    });
    kept_or_reported(&wanted, &found, &report);
}

/// `user::rw-, user:1234:r--, group::r--, mask::r--, other::---` as the kernel stores it.
fn access_list() -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    let nobody = u32::MAX;
    for (tag, permissions, id) in [(1u16, 6u16, nobody), (2, 4, 1234), (4, 4, nobody), (16, 4, nobody), (32, 0, nobody)]
    {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn access_lists_travel_or_are_reported(tier: &dyn Tier) {
    let (wanted, found, report) = written(tier, |attributes| {
        attributes.xattrs = vec![(OsString::from("system.posix_acl_access"), access_list())];
    });
    kept_or_reported(&wanted, &found, &report);
    assert_eq!(found.mode, 0o640);
}

fn the_owner_travels_or_is_reported(tier: &dyn Tier) {
    let (wanted, found, report) = written(tier, |attributes| {
        (attributes.uid, attributes.gid, attributes.mode) = (12345, 23456, 0o6755);
    });
    if report.is_complete() {
        assert_eq!((found.uid, found.gid, found.mode), (wanted.uid, wanted.gid, wanted.mode));
    } else {
        assert_eq!(found.mode, 0o755, "no program runs as an owner that was not meant");
    }
    assert_eq!(found.mtime, wanted.mtime);
}

fn what_cannot_be_kept_is_reported(tier: &dyn Tier) {
    let (wanted, found, report) = written(tier, |attributes| {
        attributes.xattrs = vec![(OsString::from("nonsense.name"), b"value".to_vec())];
    });
    assert_eq!(report.lost.len(), 1);
    assert_eq!(report.lost[0].0, "nonsense.name");
    assert_eq!((found.mode, found.mtime), (wanted.mode, wanted.mtime), "all else is kept");
}

fn reading_changes_no_access_time(tier: &dyn Tier) {
    let (wanted, _, _) = written(tier, |_| ());
    let bytes = tier.read(path("file")).unwrap();
    assert_eq!(bytes, b"bytes");
    assert_eq!(tier.stat(path("file")).unwrap().atime, wanted.atime);
}

fn an_unreadable_mode_can_still_be_copied_by_the_owner(tier: &dyn Tier) {
    let (_, found, _) = written(tier, |attributes| attributes.mode = 0o000);
    assert_eq!(found.mode, 0);
    assert_eq!(tier.read(path("file")).unwrap(), b"bytes");
    assert_eq!(tier.stat(path("file")).unwrap().mode & 0o7777, 0);
}
