//! What env(1) runs: its options and assignments are passed over, and the text of `-S` is split as it splits it.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The program that env(1) looks up and replaces itself by. `None`: none is named, or its text can't be split.
pub fn names(words: &[&OsStr]) -> Option<OsString> {
    let mut words: VecDeque<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    while let Some(word) = words.pop_front() {
        if word == b"--" {
            return words.into_iter().find(|word| !word.contains(&b'=')).map(OsString::from_vec);
        }
        match word.strip_prefix(b"-") {
            Some(option) => match option.strip_prefix(b"-") {
                Some(long) => take_long(long, &mut words)?,
                None => take_short(option, &mut words)?,
            },
            None if word.contains(&b'=') => {}
            None => return Some(OsString::from_vec(word)),
        }
    }
    None
}

/// `--split-string=TEXT`, `--unset NAME`, …
fn take_long(option: &[u8], words: &mut VecDeque<Vec<u8>>) -> Option<()> {
    let mut parts = option.splitn(2, |byte| *byte == b'=');
    let (name, value) = (parts.next()?, parts.next());
    match name {
        b"split-string" => put_in_front(&value.map(<[u8]>::to_vec).or_else(|| words.pop_front())?, words),
        b"unset" | b"chdir" | b"argv0" if value.is_none() => words.pop_front().map(drop),
        _ => Some(()),
    }
}

/// `-iS TEXT`, `-uNAME`, …: letters together; the value of the last one follows at once, or is the next word.
fn take_short(letters: &[u8], words: &mut VecDeque<Vec<u8>>) -> Option<()> {
    for (at, letter) in letters.iter().enumerate() {
        let rest = &letters[at + 1..];
        match letter {
            b'S' if rest.is_empty() => return put_in_front(&words.pop_front()?, words),
            b'S' => return put_in_front(rest, words),
            b'u' | b'C' | b'a' if rest.is_empty() => return words.pop_front().map(drop),
            b'u' | b'C' | b'a' => return Some(()),
            _ => {}
        }
    }
    Some(())
}

fn put_in_front(text: &[u8], words: &mut VecDeque<Vec<u8>>) -> Option<()> {
    for word in split(text)?.into_iter().rev() {
        words.push_front(word);
    }
    Some(())
}

/// Words as env(1)'s manual has them: quotes, backslashes, `${NAME}`, `#` for the rest of the text.
fn split(text: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = vec![];
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut rest = text.iter().copied().peekable();
    while let Some(byte) = rest.next() {
        match (byte, quote) {
            (b'\'' | b'"', None) => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            (_, Some(mark)) if byte == mark => quote = None,
            (b'\\', Some(b'\'')) => match rest.peek() {
                Some(b'\\' | b'\'') => word.get_or_insert_default().push(rest.next()?),
                _ => word.get_or_insert_default().push(byte),
            },
            (b'\\', _) => match (rest.next()?, quote) {
                (b'c', None) => break,
                (b'_', None) => words.extend(word.take()),
                (b'_', _) => word.get_or_insert_default().push(b' '),
                (escaped, _) => word.get_or_insert_default().push(plain(escaped)?),
            },
            (b'$', None | Some(b'"')) => {
                let name: Vec<u8> =
                    (rest.next()? == b'{').then(|| rest.by_ref().take_while(|byte| *byte != b'}').collect())?;
                let value = std::env::var_os(OsStr::from_bytes(&name)).unwrap_or_default();
                word.get_or_insert_default().extend(value.as_bytes());
            }
            (b'#', None) if word.is_none() => break,
            (byte, None) if byte.is_ascii_whitespace() => words.extend(word.take()),
            (byte, _) => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

fn plain(escaped: u8) -> Option<u8> {
    Some(match escaped {
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 0x0b,
        b'#' | b'$' | b'"' | b'\'' | b'\\' => escaped,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(words: &[&str]) -> Option<String> {
        let words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
        names(&words).map(|name| name.into_string().unwrap())
    }

    #[test]
    fn options_and_assignments_are_passed_over() {
        let commands: [&[&str]; 8] = [
            &["sh"],
            &["-i", "sh", "-c", "true"],
            &["-u", "HOME", "A=b", "sh"],
            &["-uHOME", "sh"],
            &["--unset=HOME", "--chdir", "/", "sh"],
            &["-i", "--", "A=b", "sh"],
            &["-", "sh"],
            &["-vC", "/", "sh"],
        ];
        for command in commands {
            assert_eq!(named(command).as_deref(), Some("sh"), "{command:?}");
        }
        assert_eq!(named(&["A=b", "-i"]), None);
    }

    #[test]
    fn the_text_of_s_is_split() {
        let commands: [&[&str]; 7] = [
            &["-S", "sh -c 'a b'"],
            &["-Ssh -e"],
            &["-S sh -e"],
            &["-iS", "A='x y' sh"],
            &["--split-string=-i sh"],
            &["--split-string", "\"s\"h"],
            &["-S", r"A=\tb sh # sh2"],
        ];
        for command in commands {
            assert_eq!(named(command).as_deref(), Some("sh"), "{command:?}");
        }
        assert_eq!(named(&["-S", "A=b", "sh"]).as_deref(), Some("sh"));
        assert_eq!(named(&["-S", "'sh"]), None);
        assert_eq!(split(br"a\_b 'c\'d' ''"), Some(vec![b"a".to_vec(), b"b".to_vec(), b"c'd".to_vec(), vec![]]));
    }
}
