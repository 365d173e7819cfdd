//! Bad input: what is wrong with what, and a way out. Printed as a sentence, then the hint on its own line.

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub message: String,
    pub hint: String,
}

impl Refusal {
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Refusal {
        Refusal { message: message.into(), hint: hint.into() }
    }
}

impl From<crate::policy::PolicyError> for Refusal {
    fn from(error: crate::policy::PolicyError) -> Refusal {
        Refusal::new(error.to_string(), error.hint)
    }
}

/// The known word that `word` was probably meant to be.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).clamp(1, 3);
    known.into_iter().map(|k| (distance(word, k), k)).filter(|(d, _)| *d <= limit).min().map(|(_, k)| k)
}

/// How many characters must be put in, taken out or changed (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let changed = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_known_word_is_near() {
        assert_eq!(nearest("capcity", ["name", "path", "capacity"]), Some("capacity"));
        assert_eq!(nearest("flsh", ["flush", "evict"]), Some("flush"));
        assert_eq!(nearest("colour", ["flush", "evict"]), None);
    }
}
