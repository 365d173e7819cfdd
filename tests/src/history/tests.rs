//! The checker tells good histories from bad ones: each bad one here is one that a file system of several nodes may well give.

use super::model::Rules;
use super::{History, Killed, Unreachable};

const NAMES: &[&str] = &["a0", "b0", "s/c0", "a1", "b1"];

/// Lines of `NODE-CLIENT START-END CALL = RESULT`; without `= RESULT` the client was killed meanwhile.
fn history(text: &str) -> History {
    let mut logs: std::collections::BTreeMap<(u8, u32), String> = Default::default();
    for (number, line) in text.lines().map(str::trim).filter(|line| !line.is_empty()).enumerate() {
        let mut words = line.splitn(3, ' ');
        let (who, when, what) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
        let (node, client) = who.split_once('-').unwrap();
        let (start, end) = when.split_once('-').unwrap();
        let log = logs.entry((node.parse().unwrap(), client.parse().unwrap())).or_default();
        match what.split_once(" = ") {
            Some((call, result)) => {
                log.push_str(&format!("> {number} {start} {call}\n< {number} {end} {result}\n"));
            }
            None => log.push_str(&format!("> {number} {start} {what}\n\ndead {end}\n")),
        }
    }
    let mut history = History { names: NAMES.iter().map(|name| name.to_string()).collect(), ..History::default() };
    for ((node, client), log) in logs {
        history.add(&log, node, client);
    }
    history.mark_torn();
    history.mark_raced_links();
    history
}

#[track_caller]
fn good(text: &str) {
    good_by(&Rules::default(), text);
}

#[track_caller]
fn good_by(rules: &Rules, text: &str) {
    if let Err(wrong) = history(text).check(rules) {
        panic!("{wrong}");
    }
}

#[track_caller]
fn bad(text: &str) -> String {
    bad_by(&Rules::default(), text)
}

#[track_caller]
fn bad_by(rules: &Rules, text: &str) -> String {
    match history(text).check(rules) {
        Ok(_) => panic!("the checker takes this for good:\n{text}"),
        Err(wrong) => wrong,
    }
}

/// Client 1 on node 0 writes 11 into a0, then closes it.
const WRITTEN: &str = "0-1 0-1 open a0 wc 1 = ok
    0-1 2-3 write 1 0 11 = ok
    0-1 4-5 close 1 = ok\n";

#[test]
fn what_was_closed_is_seen_elsewhere() {
    good(&format!("{WRITTEN} 1-2 6-7 open a0 r 1 = ok\n1-2 8-9 read 1 = ok 11\n1-2 10-11 stat a0 = ok 1 640 1"));
}

#[test]
fn a_stale_read_is_refused_and_shown_with_its_writer() {
    let text = format!(
        "{WRITTEN} 0-1 6-7 open a0 wt 2 = ok\n0-1 8-9 write 2 0 12 = ok\n0-1 10-11 close 2 = ok
         1-2 12-13 open a0 r 1 = ok\n1-2 14-15 read 1 = ok 11"
    );
    let wrong = bad(&text);
    assert!(wrong.contains("read 1 = ok 11") && wrong.contains("11 was written by"), "{wrong}");
}

#[test]
fn a_read_during_a_write_may_see_either() {
    for seen in ["11", "12"] {
        good(&format!(
            "{WRITTEN} 0-1 6-7 open a0 w 2 = ok\n1-2 6-7 open a0 r 1 = ok
             0-1 8-20 write 2 0 12 = ok\n1-2 9-15 read 1 = ok {seen}"
        ));
    }
    // Once seen, it stays.
    bad(&format!(
        "{WRITTEN} 0-1 6-7 open a0 w 2 = ok\n1-2 6-7 open a0 r 1 = ok
         0-1 8-20 write 2 0 12 = ok\n1-2 9-10 read 1 = ok 12\n1-2 11-12 read 1 = ok 11"
    ));
}

#[test]
fn a_name_that_is_not_found_though_it_is_there_is_refused() {
    bad(&format!("{WRITTEN} 1-2 6-7 open a0 r 1 = 2"));
    bad(&format!("{WRITTEN} 1-2 6-7 stat a0 = 2"));
    bad(&format!("{WRITTEN} 1-2 6-7 list = ok"));
    bad(&format!("{WRITTEN} 1-2 6-7 list = ok a0 b0"));
    bad(&format!("{WRITTEN} 1-2 6-7 list = ok a0 .strange"));
    good(&format!("{WRITTEN} 1-2 6-7 list = ok a0"));
    good(&format!("{WRITTEN} 1-2 6-7 list s = ok"));
}

#[test]
fn two_exclusive_creations_cannot_both_succeed() {
    bad("0-1 0-10 open a0 wcx 1 = ok\n1-2 0-10 open a0 wcx 1 = ok");
    good("0-1 0-10 open a0 wcx 1 = ok\n1-2 0-10 open a0 wcx 1 = 17");
    good("0-1 0-10 open a0 wcx 1 = ok\n1-2 0-10 open a0 wcx 1 = ok\n0-3 0-10 unlink a0 = ok");
}

#[test]
fn an_append_that_is_overwritten_is_refused() {
    let both = "0-1 0-1 open a0 wca 1 = ok\n1-2 2-3 open a0 wa 1 = ok
        0-1 4-9 append 1 11 = ok\n1-2 4-9 append 1 22 = ok\n2-3 10-11 open a0 r 1 = ok\n";
    good(&format!("{both} 2-3 12-13 read 1 = ok 11 22"));
    good(&format!("{both} 2-3 12-13 read 1 = ok 22 11"));
    bad(&format!("{both} 2-3 12-13 read 1 = ok 22"));
    bad(&format!("{both} 2-3 12-13 read 1 = ok 22 0"));
    bad(&format!("{both} 2-3 12-13 read 1 = ok 11 22 11"));
}

#[test]
fn half_of_an_n_to_one_file_is_refused() {
    let text = "0-1 0-1 open a0 wc 1 = ok\n1-2 2-3 open a0 wc 1 = ok
        0-1 4-5 write 1 0 11 = ok\n1-2 4-5 write 1 1 22 = ok\n0-1 6-7 close 1 = ok\n1-2 6-7 close 1 = ok
        2-3 8-9 open a0 r 1 = ok\n";
    good(&format!("{text} 2-3 10-11 read 1 = ok 11 22"));
    bad(&format!("{text} 2-3 10-11 read 1 = ok 0 22"));
    bad(&format!("{text} 2-3 10-11 read 1 = ok 11"));
}

#[test]
fn a_rename_that_is_undone_is_refused() {
    let renamed = format!("{WRITTEN} 1-2 6-7 rename a0 s/c0 = ok\n");
    good(&format!("{renamed} 0-1 8-9 stat a0 = 2\n0-1 10-11 stat s/c0 = ok 1 640 1"));
    bad(&format!("{renamed} 0-1 8-9 stat a0 = ok 1 640 1"));
    bad(&format!("{renamed} 0-1 8-9 stat s/c0 = 2"));
    bad(&format!("{renamed} 0-1 8-9 list s = ok"));
    // Two looks while it happens may see both, one or none; each of them is one moment.
    good(&format!("{WRITTEN} 1-2 6-20 rename a0 b0 = ok\n0-1 7-9 list = ok a0 b0\n0-3 10-11 stat b0 = ok 1 640 1"));
}

#[test]
fn renames_with_flags_and_links_count_names() {
    let two = format!("{WRITTEN} 0-1 6-7 link a0 b0 = ok\n");
    good(&format!("{two} 1-2 8-9 stat b0 = ok 1 640 2\n1-2 10-11 rename a0 b0 = ok\n1-2 12-13 stat a0 = ok 1 640 2"));
    bad(&format!("{two} 1-2 8-9 stat b0 = ok 1 640 1"));
    bad(&format!("{two} 1-2 8-9 unlink a0 = ok\n1-2 10-11 stat b0 = ok 1 640 2"));
    good(&format!("{two} 1-2 8-9 rename-keep a0 b0 = 17\n1-2 10-11 rename-exchange a0 s/c0 = 2"));
    bad(&format!("{two} 1-2 8-9 rename-keep a0 b0 = ok"));
    // A write by one name is seen by the other.
    let written = format!(
        "{two} 1-2 8-9 open b0 w 1 = ok\n1-2 10-11 write 1 0 12 = ok\n1-2 12-13 close 1 = ok\n0-1 14-15 open a0 r 2 = ok\n"
    );
    good(&format!("{written} 0-1 16-17 read 2 = ok 12"));
    bad(&format!("{written} 0-1 16-17 read 2 = ok 11"));
}

#[test]
fn a_removed_file_lives_on_for_who_has_it_open_and_for_nobody_else() {
    let text = format!("{WRITTEN} 1-2 6-7 open a0 r 1 = ok\n0-1 8-9 unlink a0 = ok\n");
    good(&format!("{text} 1-2 10-11 read 1 = ok 11\n1-2 12-13 fstat 1 = ok 1 640 0"));
    bad(&format!("{text} 1-2 10-11 read 1 = ok"));
    bad(&format!("{text} 2-3 10-11 open a0 r 1 = ok"));
    bad(&format!("{text} 2-3 10-11 open a0 wc 1 = ok\n2-3 12-13 fstat 1 = ok 1 640 1"));
}

#[test]
fn modes_lengths_and_holes_are_seen() {
    let text = format!(
        "{WRITTEN} 1-2 6-7 chmod a0 600 = ok\n1-2 8-9 truncate a0 3 = ok\n0-1 10-11 open a0 w 2 = ok\n0-1 12-13 write 2 4 12 = ok\n"
    );
    good(&format!(
        "{text} 2-3 14-15 open a0 r 1 = ok\n2-3 16-17 read 1 = ok 11 0 0 0 12\n2-3 18-19 fstat 1 = ok 5 600 1"
    ));
    bad(&format!("{text} 2-3 14-15 stat a0 = ok 5 640 1"));
    bad(&format!("{text} 2-3 14-15 stat a0 = ok 3 600 1"));
    bad(&format!("{text} 2-3 14-15 open a0 r 1 = ok\n2-3 16-17 read 1 = ok 11 11 0 0 12"));
}

#[test]
fn what_a_killed_client_did_last_may_have_happened_or_not() {
    let text = format!("{WRITTEN} 1-2 6-7 open a0 w 1 = ok\n1-2 8-9 write 1 0 12\n2-3 20-21 open a0 r 1 = ok\n");
    good(&format!("{text} 2-3 22-23 read 1 = ok 11"));
    good(&format!("{text} 2-3 22-23 read 1 = ok 12"));
    bad(&format!("{text} 2-3 22-23 read 1 = ok 12\n2-3 24-25 read 1 = ok 11"));
    // What had returned has happened.
    bad(&format!(
        "{WRITTEN} 1-2 6-7 open a0 w 1 = ok\n1-2 8-9 write 1 0 12 = ok\n1-2 10-11 stat a0\n2-3 20-21 open a0 r 1 = ok\n2-3 22-23 read 1 = ok 11"
    ));
}

#[test]
fn a_torn_slot_is_good_only_while_it_is_written() {
    let text = format!("{WRITTEN} 1-2 6-7 open a0 w 1 = ok\n2-3 6-7 open a0 r 1 = ok\n1-2 8-20 write 1 0 12 = ok\n");
    good(&format!("{text} 2-3 9-10 read 1 = ok 12|11"));
    bad(&format!("{text} 2-3 21-22 read 1 = ok 12|11"));
}

#[test]
fn a_slot_may_read_as_zeroes_only_while_it_is_cut_off() {
    let text = format!("{WRITTEN} 1-2 6-7 open a0 w 1 = ok\n2-3 6-7 open a0 r 1 = ok\n1-2 8-20 ftruncate 1 0 = ok\n");
    good(&format!("{text} 2-3 9-10 read 1 = ok 0"));
    bad(&format!("{text} 2-3 21-22 read 1 = ok 0"));
}

#[test]
fn refusals_are_for_what_another_node_may_have() {
    let refused = libc::EREMOTE;
    let text = format!("{WRITTEN} 1-2 6-7 open a0 r 1 = {refused}\n1-2 8-9 stat a0 = {refused}");
    bad(&text);
    let rules = Rules { foreign_is_refused: true, ..Rules::default() };
    good_by(&rules, &text);
    // Not for one's own, and not for what is not there; and what was refused has not happened.
    bad_by(&rules, &format!("{WRITTEN} 0-2 6-7 open a0 r 1 = {refused}"));
    bad_by(&rules, &format!("1-2 6-7 open a0 wc 1 = {refused}"));
    bad_by(&rules, &format!("{WRITTEN} 1-2 6-7 open a0 wt 1 = {refused}\n0-3 8-9 stat a0 = ok 0 640 1"));
    // Whoever opened it for writing since is the one that may have it.
    let taken = format!("{WRITTEN} 1-2 6-7 open a0 w 1 = ok\n1-2 8-9 close 1 = ok\n");
    bad_by(&rules, &format!("{taken} 1-2 10-11 stat a0 = {refused}"));
    good_by(&rules, &format!("{taken} 0-1 10-11 stat a0 = {refused}"));
}

#[test]
fn errors_are_allowed_while_the_node_that_may_have_it_cannot_be_reached() {
    let rules = Rules { unreachable: vec![Unreachable { node: 0, from: 6, to: 20 }], ..Rules::default() };
    good_by(&rules, &format!("{WRITTEN} 1-2 7-9 open a0 r 1 = 5"));
    bad_by(&rules, &format!("{WRITTEN} 1-2 21-22 open a0 r 1 = 5"));
    bad_by(&rules, &format!("{WRITTEN} 1-2 7-9 open a0 r 1 = 2"));
    bad_by(&rules, &format!("{WRITTEN} 0-2 7-9 open a0 r 1 = 5"));
    // Never an older version.
    let rewritten = format!("{WRITTEN} 0-1 6-7 open a0 wt 2 = ok\n0-1 8-9 write 2 0 12 = ok\n0-1 10-11 close 2 = ok\n");
    bad_by(&rules, &format!("{rewritten} 1-2 12-13 open a0 r 1 = ok\n1-2 14-15 read 1 = ok 11"));
}

#[test]
fn a_file_without_a_name_may_be_lost_when_the_agent_of_its_descriptors_node_was_killed() {
    let rules = Rules { agents_killed: vec![Killed { node: 1, at: 10 }], ..Rules::default() };
    let open = format!("{WRITTEN} 1-2 6-7 open a0 rw 1 = ok\n");
    let gone = format!("{open} 2-3 8-9 unlink a0 = ok\n");
    good_by(&rules, &format!("{gone} 1-2 11-12 write 1 0 13 = 5\n1-2 13-14 read 1 = 5"));
    // Not before, nor on another node; not while it has a name, and not by one that was opened later.
    bad_by(&rules, &format!("{gone} 1-2 8-9 write 1 0 13 = 5"));
    bad_by(&Rules::default(), &format!("{gone} 1-2 11-12 write 1 0 13 = 5"));
    bad_by(&rules, &format!("{open} 1-2 11-12 write 1 0 13 = 5"));
    bad_by(&rules, &format!("{WRITTEN} 1-2 11-12 open a0 rw 1 = ok\n2-3 13-14 unlink a0 = ok\n1-2 15-16 read 1 = 5"));
    // Never an older version, and what failed was not done.
    bad_by(&rules, &format!("{gone} 1-2 11-12 write 1 0 13 = 5\n1-2 13-14 read 1 = ok 13"));
}

#[test]
fn a_descriptor_may_keep_its_version_by_rule_and_only_since_it_was_opened() {
    let text = format!(
        "{WRITTEN} 0-1 6-7 open a0 w 2 = ok\n0-1 8-9 write 2 0 12 = ok\n1-2 10-11 open a0 r 1 = ok\n0-1 12-13 write 2 0 13 = ok\n"
    );
    let rules = Rules { descriptors_keep_versions: true, ..Rules::default() };
    let old = format!("{text} 1-2 14-15 read 1 = ok 12");
    bad(&old);
    good_by(&rules, &old);
    bad_by(&rules, &format!("{text} 1-2 14-15 read 1 = ok 11"));
    bad_by(&rules, &format!("{text} 1-2 14-15 open a0 r 2 = ok\n1-2 16-17 read 2 = ok 12"));
}

#[test]
fn groups_of_names_are_checked_apart() {
    good("0-1 0-1 open a0 wc 1 = ok\n1-2 0-1 open a1 wc 1 = ok\n1-2 2-3 list = ok a0 a1");
    let wrong = bad("0-1 0-1 open a0 wc 1 = ok\n1-2 0-1 open a1 wc 1 = ok\n1-2 2-3 list = ok a0");
    assert!(wrong.starts_with("names of group 1"), "{wrong}");
}

#[test]
fn what_is_shown_of_a_long_bad_history_is_short() {
    let mut text = WRITTEN.to_owned();
    for round in 1..200 {
        let at = round * 100;
        text.push_str(&format!(
            "1-2 {}-{} open a0 w {round} = ok\n1-2 {}-{} write {round} 0 {} = ok\n1-2 {}-{} close {round} = ok
             2-3 {}-{} stat a0 = ok 1 640 1\n2-3 {}-{} list = ok a0\n",
            at,
            at + 1,
            at + 2,
            at + 3,
            at + 4,
            at + 4,
            at + 5,
            at + 6,
            at + 7,
            at + 8,
            at + 9
        ));
    }
    text.push_str("0-9 50000-50001 open a0 r 1 = ok\n0-9 50002-50003 read 1 = ok 120\n");
    let wrong = bad(&text);
    assert!(wrong.lines().count() < 20, "{wrong}");
    assert!(wrong.contains("120 was written by nobody"), "{wrong}");
}

/// A kill ends a write(2) between two pages of the log: a time without its last digits would be an end before its start.
#[test]
fn a_line_that_a_kill_has_cut_is_no_line() {
    for cut in ["< 1 10", "< 1 105", "< 1 1050", "< 1 1050 ok"] {
        let mut history = history("1-2 2000-2001 list = ok a0");
        history.add(&format!("> 1 1000 open a0 wc 1\n{cut}\ndead 1100\n"), 0, 1);
        if let Err(wrong) = history.check(&Rules::default()) {
            panic!("{cut}: {wrong}");
        }
        assert_eq!(history.calls.get("open killed"), Some(&1), "{cut}");
    }
}
