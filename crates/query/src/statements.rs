//! Queries in a text: ended by semicolons that are not in a string, a name or a comment.

pub fn split(text: &str) -> Vec<&str> {
    let mut found = vec![];
    let mut start = 0;
    for end in ends(text) {
        found.push(&text[start..end]);
        start = end + 1;
    }
    found.push(&text[start..]);
    found.retain(|query| !is_blank(query));
    found
}

/// Whether the text ends a query, so that a prompt need not ask for more.
pub fn is_complete(text: &str) -> bool {
    let last = ends(text).last().copied();
    last.is_some_and(|last| is_blank(&text[last + 1..]))
}

/// Positions of semicolons that end a query.
fn ends(text: &str) -> Vec<usize> {
    let bytes = text.as_bytes();
    let mut ends = vec![];
    let mut at = 0;
    while at < bytes.len() {
        let skip_past =
            |from: usize, mark: &str| text[from..].find(mark).map_or(bytes.len(), |found| from + found + mark.len());
        at = match bytes[at] {
            b'\'' => skip_past(at + 1, "'"),
            b'"' => skip_past(at + 1, "\""),
            b'-' if bytes.get(at + 1) == Some(&b'-') => skip_past(at, "\n"),
            b'/' if bytes.get(at + 1) == Some(&b'*') => skip_past(at + 2, "*/"),
            b';' => {
                ends.push(at);
                at + 1
            }
            _ => at + 1,
        };
    }
    ends
}

fn is_blank(query: &str) -> bool {
    query.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with("--"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_semicolon_in_a_string_a_name_or_a_comment_ends_nothing() {
        let text = "SELECT ';' AS \"a;b\" -- c;d\n FROM t; /* e;f */ SELECT 'it''s;' ;\n-- nothing\n";
        assert_eq!(split(text), ["SELECT ';' AS \"a;b\" -- c;d\n FROM t", " /* e;f */ SELECT 'it''s;' "]);
        assert!(is_complete("SELECT 1;") && !is_complete("SELECT ';") && !is_complete("SELECT 1; SELECT"));
        assert!(split(" \n-- only a comment").is_empty());
    }
}
