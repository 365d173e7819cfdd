//! What a request's path names: parts, decoded, of which none leads anywhere but down.

use crate::refusal::{Answer, Refusal};

/// More than any name of the root has.
const LENGTH_MAX: usize = 8192;

/// The decoded parts of a path; a `/` at either end says nothing.
pub fn parts(path: &str) -> Answer<Vec<String>> {
    if path.len() > LENGTH_MAX {
        return Err(Refusal::bad("the path is too long"));
    }
    let path = path.strip_prefix('/').unwrap_or(path);
    let path = path.strip_suffix('/').unwrap_or(path);
    if path.is_empty() {
        return Ok(vec![]);
    }
    path.split('/').map(part).collect()
}

fn part(text: &str) -> Answer<String> {
    let wrong = |why: &str| Err(Refusal::bad(format!("a part of the path {why}")));
    let Some(decoded) = decode(text).and_then(|bytes| String::from_utf8(bytes).ok()) else {
        return wrong("is not percent-encoded UTF-8");
    };
    match decoded.as_str() {
        "" => wrong("is empty"),
        "." | ".." => wrong("leads elsewhere"),
        name if name.contains(['/', '\0']) => wrong("has a character that no name has"),
        name if name == terrace_index::PRIVATE_DIR => Err(Refusal::not_found("that directory is Terrace's own")),
        _ => Ok(decoded),
    }
}

/// `None`: a `%` without two hexadecimal digits.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut decoded = vec![];
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                (digit()? << 4 | digit()?) as u8
            }
            byte => byte,
        });
    }
    Some(decoded)
}

/// The value of a query's parameter, decoded.
pub fn parameter(query: Option<&str>, name: &str) -> Option<String> {
    let pairs = query?.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.into_iter().find(|(key, _)| *key == name)?;
    String::from_utf8(decode(&value.replace('+', " "))?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_path_names_what_lies_below_and_nothing_else() {
        assert_eq!(parts("/a/b%20c/").unwrap(), ["a", "b c"]);
        assert_eq!(parts("/").unwrap(), [""; 0]);
        assert_eq!(parts("/%C3%A4").unwrap(), ["ä"]);
        for wrong in
            ["/a//b", "///", "/..", "/a/%2e%2e/b", "/%2e", "/a%2fb", "/a%00", "/%", "/%zz", "/%4", "/%ff", "/.terrace"]
        {
            assert!(parts(wrong).is_err(), "{wrong}");
        }
        assert!(parts(&"/a".repeat(5000)).is_err());
        assert_eq!(parameter(Some("a=1&at=0%2C2+x&b"), "at").as_deref(), Some("0,2 x"));
        assert_eq!(parameter(Some("at"), "at"), None);
    }

    proptest! {
        #[test]
        fn no_path_leads_up(path in "[a./%2eEfF0\\\\]{0,40}") {
            for part in parts(&path).unwrap_or_default() {
                prop_assert!(!["", ".", ".."].contains(&part.as_str()) && !part.contains(['/', '\0']));
            }
        }
    }
}
