//! Paths in JSON: text where they are text, else the list of their bytes, so that a name of any bytes survives.
//!
//! Reason: serde refuses to write a path that is not UTF-8, and a file's name may be any bytes.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

#[derive(Serialize)]
#[serde(untagged)]
enum Borrowed<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Owned {
    Text(String),
    Bytes(Vec<u8>),
}

impl<'a> From<&'a Path> for Borrowed<'a> {
    fn from(path: &'a Path) -> Self {
        path.to_str().map_or(Borrowed::Bytes(path.as_os_str().as_bytes()), Borrowed::Text)
    }
}

impl From<Owned> for PathBuf {
    fn from(owned: Owned) -> Self {
        match owned {
            Owned::Text(text) => text.into(),
            Owned::Bytes(bytes) => OsString::from_vec(bytes).into(),
        }
    }
}

pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    Borrowed::from(path).serialize(serializer)
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    Owned::deserialize(deserializer).map(PathBuf::from)
}

/// The same for `Vec<PathBuf>`.
pub mod list {
    use super::*;

    pub fn serialize<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(paths.iter().map(|path| Borrowed::from(path.as_path())))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
        Ok(Vec::<Owned>::deserialize(deserializer)?.into_iter().map(PathBuf::from).collect())
    }
}

/// The same for `Option<PathBuf>`.
pub mod option {
    use super::*;

    pub fn serialize<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
        path.as_deref().map(Borrowed::from).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
        Ok(Option::<Owned>::deserialize(deserializer)?.map(PathBuf::from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct Holder {
        #[serde(with = "super")]
        one: PathBuf,
        #[serde(with = "super::list")]
        many: Vec<PathBuf>,
        #[serde(with = "super::option")]
        maybe: Option<PathBuf>,
    }

    #[test]
    fn text_stays_text() {
        let holder = Holder { one: "/a b/ü".into(), many: vec!["x".into()], maybe: None };
        assert_eq!(serde_json::to_string(&holder).unwrap(), r#"{"one":"/a b/ü","many":["x"],"maybe":null}"#);
    }

    proptest! {
        #[test]
        fn a_path_of_any_bytes_comes_back_as_it_was(bytes in proptest::collection::vec(1u8.., 0..40)) {
            let path = PathBuf::from(OsString::from_vec(bytes));
            let holder = Holder { one: path.clone(), many: vec![path.clone(), "t".into()], maybe: Some(path) };
            let text = serde_json::to_string(&holder).unwrap();
            prop_assert_eq!(serde_json::from_str::<Holder>(&text).unwrap(), holder);
        }
    }
}
