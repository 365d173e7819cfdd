//! Where objects lie: containers that are missing are made, links lead nothing out of the root, and a status says all places.

use terrace_client::{ArraySpec, Create, DataType, Kind, Region, Session, TagMatch, TagQuery, TagValue};
use terrace_tests::{Served, Wish, Workplace};

#[test]
fn an_object_is_made_with_the_containers_that_it_is_to_lie_in() {
    let place = Workplace::new();
    let served = Served::begin(&place, &[]);
    let here = Session::open(&served.index).unwrap();
    let there = Session::connect_to(&served.address, Served::TOKEN).unwrap();
    let spec = ArraySpec::new(DataType::UInt8, &[4]);
    for (name, session) in [("here", &here), ("there", &there)] {
        let array = session.create_array(&format!("{name}/a/b/array"), &spec, Create::New).unwrap();
        array.put(&Region::whole(&[4]).unwrap(), &[1, 2, 3, 4]).unwrap();
        session.create_bytes(&format!("{name}/c/d/file"), Create::New).unwrap().close().unwrap();
        // A file is no container.
        let refused = session.create_array(&format!("{name}/c/d/file/array"), &spec, Create::New).err().unwrap();
        assert!(refused.message.contains("file"), "{refused}");
        let refused = session.create_array(&format!("{name}/a/b/array"), &spec, Create::New).err().unwrap();
        assert_eq!(refused.kind, Kind::Exists);
    }
    assert!(place.root().join("there/a/b/array").is_dir());
    drop((here, there));
    served.end();
}

#[test]
fn a_symbolic_link_leads_no_object_out_of_the_root() {
    let place = Workplace::new();
    let served = Served::begin(&place, &[]);
    let outside = place.scratch().join("outside");
    std::fs::create_dir_all(&outside).unwrap();
    std::fs::create_dir_all(place.root().join("inside")).unwrap();
    std::os::unix::fs::symlink(&outside, place.root().join("out")).unwrap();
    std::os::unix::fs::symlink(place.root().join("inside"), place.root().join("in")).unwrap();
    let here = Session::open(&served.index).unwrap();
    let there = Session::connect_to(&served.address, Served::TOKEN).unwrap();
    let spec = ArraySpec::new(DataType::UInt8, &[4]);
    for session in [&here, &there] {
        let refusals = [
            session.create_array("out/a", &spec, Create::New).err().unwrap(),
            session.create_array("out/deeper/a", &spec, Create::New).err().unwrap(),
            session.create_bytes("out/f", Create::New).err().unwrap(),
            session.create_container("out/c", Create::New).err().unwrap(),
        ];
        for refused in refusals {
            assert!(refused.kind == Kind::Invalid && refused.message.contains("symbolic link"), "{refused}");
        }
        session.create_array("in/a", &spec, Create::Replace).unwrap();
    }
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
    drop((here, there));
    served.end();
}

#[test]
fn the_status_of_an_array_that_is_partly_in_the_root_says_so() {
    let place = Wish::default().tier("ram", "1MiB").build();
    let served = Served::begin(&place, &[]);
    let session = Session::open(&served.index).unwrap();
    let spec = ArraySpec::new(DataType::UInt8, &[30, 100_000]).chunks(&[1, 100_000]);
    let array = session.create_array("a", &spec, Create::New).unwrap();
    array.put(&Region::block(&[0, 0], &[1, 100_000]).unwrap(), &[7; 100_000]).unwrap();
    assert_eq!(session.stat("a").unwrap().tier, "tier 0");
    for row in 0..30 {
        array.put(&Region::block(&[row, 0], &[1, 100_000]).unwrap(), &[7; 100_000]).unwrap();
    }
    let tier = session.stat("a").unwrap().tier;
    assert!(tier.contains("root"), "three times as much as the tier holds is in `{tier}`");
    session.evict("a").unwrap();
    assert_eq!(session.stat("a").unwrap().tier, "root");
    drop((array, session));
    served.end();
}

#[test]
fn an_object_has_twenty_thousand_tags() {
    let place = Workplace::new();
    let served = Served::begin(&place, &[]);
    let session = Session::open(&served.index).unwrap();
    session.create_container("c", Create::New).unwrap();
    session.put_tag("c", "before", TagValue::Int(-1)).unwrap();
    session.flush("c").unwrap();
    for number in 0..20_000 {
        session.put_tag("c", &format!("key{number}"), TagValue::Int(number)).unwrap();
    }
    for number in [0, 777, 19_999] {
        assert_eq!(session.get_tag("c", &format!("key{number}")).unwrap(), Some(TagValue::Int(number)));
    }
    assert_eq!(session.get_tag("c", "key20000").unwrap(), None);
    assert_eq!(session.tags("c").unwrap().len(), 20_001);
    let query = TagQuery { key: "key777".into(), matches: TagMatch::Exact(TagValue::Int(777)), below: String::new() };
    assert_eq!(session.query(&query).unwrap(), ["c"]);
    drop(session);
    served.end();
}

#[test]
fn an_object_of_a_name_that_was_removed_by_others_has_no_tags_of_it() {
    let place = Workplace::new();
    let served = Served::begin(&place, &[]);
    let here = Session::open(&served.index).unwrap();
    let there = Session::connect_to(&served.address, Served::TOKEN).unwrap();
    let spec = ArraySpec::new(DataType::UInt8, &[4]);
    let old = || TagValue::Text("old".into());
    for (name, session) in [("here", &here), ("there", &there)] {
        let array = format!("{name}/array");
        let is_tagged = |path: &str| !session.tags(path).unwrap().is_empty();
        let make = || {
            session.create_container(name, Create::IfMissing).unwrap();
            session.create_array(&array, &spec, Create::New).unwrap();
        };
        let tag = || {
            session.put_tag(name, "of", old()).unwrap();
            session.put_tag(&array, "of", old()).unwrap();
        };
        make();
        tag();
        // As `rm -rf` does: nobody tells the agent.
        std::fs::remove_dir_all(place.root().join(name)).unwrap();
        make();
        assert!(!is_tagged(name) && !is_tagged(&array), "{name}: old tags of what `rm -rf` removed");
        tag();
        std::fs::remove_dir_all(place.root().join(&array)).unwrap();
        session.create_array(&array, &spec, Create::New).unwrap();
        assert!(is_tagged(name) && !is_tagged(&array), "{name}: of the array only");
        session.put_tag(&array, "of", old()).unwrap();
        // The container is made with the array.
        std::fs::remove_dir_all(place.root().join(name)).unwrap();
        session.create_array(&array, &spec, Create::New).unwrap();
        assert!(!is_tagged(name) && !is_tagged(&array), "{name}: of a container that is made on the way");
        tag();
        // What is there keeps its tags.
        session.create_container(name, Create::IfMissing).unwrap();
        session.create_array(&array, &spec, Create::IfMissing).unwrap();
        assert!(is_tagged(name) && is_tagged(&array));
        // An empty container is removed with its tags, whoever makes the next one.
        let empty = format!("{name}/empty");
        session.create_container(&empty, Create::New).unwrap();
        session.put_tag(&empty, "of", old()).unwrap();
        session.remove(&empty, false).unwrap();
        std::fs::create_dir(place.root().join(&empty)).unwrap();
        assert!(!is_tagged(&empty), "{name}: of an empty container");
    }
    drop((here, there));
    served.end();
}
