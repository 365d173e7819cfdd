//! Symbolic links in a placed directory that lead out of it by `..`, as they are stored.
//!
//! The kernel would follow `..` into the tier. So the tier's link has another text, which leads to the same place, and from which the
//! program's own can be told again:
//!
//!   directory of the link   ROOT/out/work/x          its name in the root
//!   the program's text      ../../input/a
//!   stored                  ROOT/out/././input/a     two directories up, `MARK`, and the rest
//!
//! A link that comes to another depth by a rename, or whose placed directory gets a name elsewhere, goes on to lead where it led.

/// Nobody writes this into a text of his own, and the kernel goes through it.
pub const MARK: &[u8] = b"/././";

/// What is stored for `text` before and after `MARK`. `below`: so many directories lie between the placed directory's top and the link's
/// directory. `None`: it does not climb beyond the top.
pub fn stored<'a>(directory: &'a [u8], below: usize, text: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let (ups, rest) = climbed(text);
    (ups > below).then(|| (above(directory, ups), rest))
}

/// The program's text, as a number of `..` and what follows them, of a link in this directory. `None`: the stored text is the program's, or
/// leads from a place that is not above any more.
pub fn told<'a>(directory: &[u8], stored: &'a [u8]) -> Option<(usize, &'a [u8])> {
    let at = stored.windows(MARK.len()).position(|part| part == MARK)?;
    let (base, rest) = (&stored[..at], &stored[at + MARK.len()..]);
    let way = directory.strip_prefix(base).filter(|way| way.first() == Some(&b'/'))?;
    Some((way.iter().filter(|&&byte| byte == b'/').count(), rest))
}

/// How many `..` a text begins with, and what follows them.
fn climbed(text: &[u8]) -> (usize, &[u8]) {
    let (mut ups, mut rest) = (0, text);
    loop {
        match rest.strip_prefix(b"../") {
            Some(further) => {
                rest = further;
                ups += 1;
            }
            None if rest == b".." => return (ups + 1, b""),
            None => return (ups, rest),
        }
    }
}

fn above(directory: &[u8], ups: usize) -> &[u8] {
    let mut left = directory;
    for _ in 0..ups {
        left = &left[..left.iter().rposition(|&byte| byte == b'/').unwrap_or(0)];
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both_ways(directory: &str, below: usize, text: &str) -> Option<(String, String)> {
        let (base, rest) = stored(directory.as_bytes(), below, text.as_bytes())?;
        let made = [base, MARK, rest].concat();
        let (ups, rest) = told(directory.as_bytes(), &made).expect("what was made is understood");
        let mut back = vec![b"..".as_slice(); ups];
        if !rest.is_empty() {
            back.push(rest);
        }
        let back = String::from_utf8(back.join(&b'/')).unwrap();
        Some((String::from_utf8(made).unwrap(), back))
    }

    #[test]
    fn a_text_that_climbs_out_leads_to_the_same_place_and_is_told_as_it_was() {
        for (below, text, led) in [
            (1, "../../input/a", "/root/out/././input/a"),
            (0, "../input/a", "/root/out/work/././input/a"),
            (1, "../../..", "/root/././"),
            (1, "../../../../etc", "/././etc"),
            (1, "../../a/../b/", "/root/out/././a/../b/"),
        ] {
            assert_eq!(both_ways("/root/out/work/x", below, text), Some((led.into(), text.into())));
        }
    }

    #[test]
    fn above_the_root_there_is_the_root() {
        let led = both_ways("/root/out/work/x", 1, "../../../../../../etc");
        assert_eq!(led, Some(("/././etc".into(), "../../../../etc".into())));
    }

    #[test]
    fn a_text_that_stays_below_is_nobodys_business() {
        for text in ["a", "../a", "..", "/abs/../..", "a/../../..", "...", "../.../x"] {
            assert_eq!(both_ways("/root/out/work/x", 1, text), None, "{text}");
        }
    }

    #[test]
    fn a_link_whose_directory_is_elsewhere_now_is_told_as_it_is_stored() {
        assert_eq!(told(b"/root/other/x", b"/root/out/././input/a"), None);
        assert_eq!(told(b"/root/outer/x", b"/root/out/././input/a"), None);
        assert_eq!(told(b"/root/out/work", b"/plain/text"), None);
    }
}
