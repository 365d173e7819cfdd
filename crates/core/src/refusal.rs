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

/// An error that people read: its text says what failed on what, and this says what to do about it.
pub trait Explained: std::fmt::Display {
    fn hint(&self) -> Option<String>;
    /// True: nothing was done, for what was asked makes no sense.
    fn is_bad_input(&self) -> bool {
        false
    }
}

impl Explained for Refusal {
    fn hint(&self) -> Option<String> {
        Some(self.hint.clone())
    }
    fn is_bad_input(&self) -> bool {
        true
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

/// How many characters must be put in, taken out, changed, or swapped with their neighbour (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = changed.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_known_word_is_near() {
        assert_eq!(nearest("capcity", ["name", "path", "capacity"]), Some("capacity"));
        assert_eq!(nearest("flsh", ["flush", "evict"]), Some("flush"));
        assert_eq!(nearest("rnu", ["ls", "run"]), Some("run"));
        assert_eq!(nearest("colour", ["flush", "evict"]), None);
    }
}
