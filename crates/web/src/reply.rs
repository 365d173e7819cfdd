//! Answers: whole, a part (`Range`), or that nothing has changed (`ETag`).
//!
//! An entity's tag is made of its bytes, so it is strong whatever became of the object meanwhile.

use axum::body::{Body, Bytes};
use axum::http::header::*;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::Response;
use std::hash::{DefaultHasher, Hasher};

/// Scripts, styles and pictures of this program alone; no other page may show this one.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

pub struct Reply {
    pub status: StatusCode,
    pub kind: &'static str,
    pub bytes: Bytes,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Parts of it may be asked for.
    pub has_parts: bool,
}

impl Reply {
    pub fn new(kind: &'static str, bytes: impl Into<Bytes>) -> Reply {
        Reply { status: StatusCode::OK, kind, bytes: bytes.into(), headers: vec![], has_parts: false }
    }
    /// What is kept by others: with a tag, and in parts where they are asked for.
    pub fn entity(kind: &'static str, bytes: impl Into<Bytes>) -> Reply {
        Reply { has_parts: true, ..Reply::new(kind, bytes) }
    }
    pub fn status(self, status: StatusCode) -> Reply {
        Reply { status, ..self }
    }
    pub fn header(mut self, name: HeaderName, value: &str) -> Reply {
        self.headers.extend(HeaderValue::from_str(value).ok().map(|value| (name, value)));
        self
    }

    /// As it is sent to who asked so.
    pub fn response(self, method: &Method, asked: &HeaderMap) -> Response {
        let mut response = Response::new(Body::empty());
        let whole = self.bytes.len();
        let mut bytes = self.bytes;
        let mut status = self.status;
        if self.has_parts {
            let tag = entity_tag(&bytes);
            let headers = response.headers_mut();
            if let Ok(value) = HeaderValue::from_str(&tag) {
                headers.insert(ETAG, value);
            }
            headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
            let text = |name: HeaderName| asked.get(name).and_then(|value| value.to_str().ok());
            if text(IF_NONE_MATCH).is_some_and(|known| names(known, &tag)) {
                *response.status_mut() = StatusCode::NOT_MODIFIED;
                return dressed(response);
            }
            let is_of_this = text(IF_RANGE).is_none_or(|known| known == tag);
            let range = text(RANGE).filter(|_| is_of_this).map_or(Part::Whole, |range| part(range, whole as u64));
            match range {
                Part::Whole => {}
                Part::Nothing => {
                    status = StatusCode::RANGE_NOT_SATISFIABLE;
                    insert(&mut response, CONTENT_RANGE, format!("bytes */{whole}"));
                    bytes = Bytes::new();
                }
                Part::Bytes(first, last) => {
                    status = StatusCode::PARTIAL_CONTENT;
                    insert(&mut response, CONTENT_RANGE, format!("bytes {first}-{last}/{whole}"));
                    bytes = bytes.slice(first as usize..last as usize + 1);
                }
            }
        }
        *response.status_mut() = status;
        insert(&mut response, CONTENT_LENGTH, bytes.len().to_string());
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(self.kind));
        response.headers_mut().extend(self.headers);
        if method != Method::HEAD {
            *response.body_mut() = Body::from(bytes);
        }
        dressed(response)
    }
}

pub fn json(value: &serde_json::Value) -> Reply {
    Reply::new("application/json", value.to_string())
}

fn insert(response: &mut Response, name: HeaderName, value: String) {
    if let Ok(value) = HeaderValue::from_str(&value) {
        response.headers_mut().insert(name, value);
    }
}

/// What every answer says to browsers.
pub fn dressed(mut response: Response) -> Response {
    let fixed = [
        (CACHE_CONTROL, "private, no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    let headers = response.headers_mut();
    for (name, value) in fixed {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// 64 bits of the bytes: an accident that makes two states of one entity equal takes 2^32 of them. Not a cryptographic digest,
/// which would take longer than reading.
fn entity_tag(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    format!("\"{:016x}-{:x}\"", hasher.finish(), bytes.len())
}

/// Whether a list of tags, or `*`, has this one.
fn names(list: &str, tag: &str) -> bool {
    list.split(',').map(str::trim).any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
}

#[derive(PartialEq, Debug)]
enum Part {
    Whole,
    /// First and last.
    Bytes(u64, u64),
    Nothing,
}

/// One range of bytes; several, or what is no range, are answered with the whole, as the standard allows.
fn part(text: &str, length: u64) -> Part {
    let Some((first, last)) = text.strip_prefix("bytes=").and_then(|range| range.split_once('-')) else {
        return Part::Whole;
    };
    let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => text.parse::<u64>().ok(),
        false => None,
    };
    match (first.trim(), last.trim()) {
        ("", "") => Part::Whole,
        ("", count) => match number(count) {
            None => Part::Whole,
            Some(_) if length == 0 => Part::Nothing,
            Some(0) => Part::Nothing,
            Some(count) => Part::Bytes(length - count.min(length), length - 1),
        },
        (first, last) => {
            let last = if last.is_empty() { Some(u64::MAX) } else { number(last) };
            match (number(first), last) {
                (Some(first), Some(last)) if first > last => Part::Whole,
                (Some(first), Some(_)) if first >= length => Part::Nothing,
                (Some(first), Some(last)) => Part::Bytes(first, last.min(length - 1)),
                _ => Part::Whole,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_are_read_as_the_standard_says() {
        let read = |text: &str| part(text, 10);
        assert_eq!(read("bytes=0-0"), Part::Bytes(0, 0));
        assert_eq!(read("bytes=3-"), Part::Bytes(3, 9));
        assert_eq!(read("bytes=3-99"), Part::Bytes(3, 9));
        assert_eq!(read("bytes=-4"), Part::Bytes(6, 9));
        assert_eq!(read("bytes=-40"), Part::Bytes(0, 9));
        for nothing in ["bytes=10-", "bytes=10-12", "bytes=-0"] {
            assert_eq!(read(nothing), Part::Nothing, "{nothing}");
        }
        for whole in
            ["", "bytes=", "bytes=-", "bytes=a-b", "bytes=5-2", "bytes=0-1,4-5", "rows=0-1", "bytes=+1-2", "bytes=1"]
        {
            assert_eq!(read(whole), Part::Whole, "{whole}");
        }
        assert_eq!(part("bytes=0-", 0), Part::Nothing);
        assert_eq!(part("bytes=-1", 0), Part::Nothing);
    }

    #[test]
    fn tags_are_found_in_lists() {
        assert!(names("\"a\", W/\"b\"", "\"b\"") && names("*", "\"b\"") && !names("\"a\"", "\"b\""));
    }

    proptest! {
        #[test]
        fn a_part_lies_inside(text in "bytes=[0-9]{0,21}-[0-9]{0,21}", length in 0u64..1000) {
            if let Part::Bytes(first, last) = part(&text, length) {
                prop_assert!(first <= last && last < length);
            }
        }
    }
}
