//! Words for a shell on another host.

/// Nothing in it has a meaning.
pub fn quoted(bytes: &[u8]) -> String {
    format!("'{}'", String::from_utf8_lossy(bytes).replace('\'', "'\\''"))
}
