//! Cells between an agent and a client elsewhere by libfabric. A process of its own: a variable says which provider.

use terrace_client::{ArraySpec, Create, DataType, Region, Session};
use terrace_tests::{Random, Served, Workplace, skipped};

const ALONE: &str = "TERRACE_TEST_ALONE";

fn choose(provider: &str) {
    // SAFETY: the one test of this process, and its sessions have no threads.
    unsafe { std::env::set_var("TERRACE_FABRIC", provider) };
}

#[test]
fn cells_go_by_libfabric_where_it_is_and_are_the_same() {
    // Other tests of this process would have the variable, too.
    if std::env::var_os(ALONE).is_none() {
        let name = "objects_fabric::cells_go_by_libfabric_where_it_is_and_are_the_same";
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let done = alone.args(["--exact", name, "--nocapture"]).env(ALONE, "1").status().unwrap();
        assert!(done.success(), "{done}");
        return;
    }
    let place = Workplace::new();
    let served = Served::begin(&place, &[]);
    let here = Session::open(&served.index).unwrap();
    let cells = Random::new(23).bytes(3_000_017);
    let whole = Region::whole(&[cells.len() as u64]).unwrap();
    let spec = ArraySpec::new(DataType::UInt8, &[cells.len() as u64]).chunks(&[700_000]);

    // Who names a fabric is told when it can't be had: what works below went by it.
    choose("nobodys");
    let there = Session::connect_to(&served.address, Served::TOKEN).unwrap();
    let array = there.create_array("a", &spec, Create::New).unwrap();
    let refused = array.put(&whole, &cells).unwrap_err();
    assert!(refused.message.contains("libfabric"), "{refused}");
    if refused.message.contains("without libfabric") || refused.message.contains("can't be loaded") {
        drop((here, there, array));
        served.end();
        return skipped("libfabric is not there (tests/setup.sh installs it)");
    }
    drop((there, array));
    choose("tcp");
    let there = Session::connect_to(&served.address, Served::TOKEN).unwrap();
    let array = there.create_array("b", &spec, Create::New).unwrap();
    array.put(&whole, &cells).unwrap();
    assert!(here.open_array("b", false).unwrap().get_values::<u8>(&whole).unwrap() == cells, "put");
    assert!(array.get_values::<u8>(&whole).unwrap() == cells, "got");
    // Flushed and gone from the tier: then it is sent from a copy.
    here.evict("b").unwrap();
    let part = Region::block(&[650_000], &[1_500_000]).unwrap();
    assert!(array.get_values::<u8>(&part).unwrap() == cells[650_000..2_150_000], "got from the root");
    drop((there, array, here));
    served.end();
}
