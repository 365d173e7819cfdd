//! Tags of objects, and questions about them.

use crate::call::{Failure, Outcome, call, given, out, space, text, used};
use crate::session::terrace_session;
use std::ffi::{CString, c_char, c_int, c_void};
use terrace_client::{Kind, TagMatch, TagQuery, TagValue};

/// What a tag says.
#[repr(C)]
#[allow(non_camel_case_types)]
pub enum terrace_tag_type {
    TERRACE_TAG_NONE = 0,
    TERRACE_TAG_BOOL = 1,
    TERRACE_TAG_INT = 2,
    TERRACE_TAG_FLOAT = 3,
    TERRACE_TAG_TEXT = 4,
    TERRACE_TAG_INTS = 5,
    TERRACE_TAG_FLOATS = 6,
}

/// A tag's value. `tag_type` says which of the others counts.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types)]
pub struct terrace_tag {
    /// One of terrace_tag_type.
    pub tag_type: c_int,
    pub boolean: bool,
    pub integer: i64,
    pub real: f64,
    /// Ends with a zero byte.
    pub text: *const c_char,
    pub integers: *const i64,
    pub reals: *const f64,
    /// Of `integers` or `reals`.
    pub count: usize,
}

/// Which values are meant.
#[repr(C)]
#[allow(non_camel_case_types)]
pub enum terrace_match {
    /// The key is there, whatever its value.
    TERRACE_ANY = 0,
    /// The value is `low`.
    TERRACE_EXACT = 1,
    /// From `low` to `high`, both included; TERRACE_TAG_NONE: no bound.
    TERRACE_RANGE = 2,
    /// A text that begins with that of `low`.
    TERRACE_PREFIX = 3,
    /// A text that ends with that of `low`.
    TERRACE_SUFFIX = 4,
    /// A text that has that of `low` in it.
    TERRACE_INFIX = 5,
    /// One that, as it is written, fits the pattern of `low`: `*` is any text, `?` one character. The key is a pattern, too.
    TERRACE_LIKE = 6,
}

/// A question about tags.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct terrace_query {
    pub key: *const c_char,
    /// One of terrace_match.
    pub matches: c_int,
    pub low: terrace_tag,
    pub high: terrace_tag,
    /// Only objects below this container; NULL or "": all.
    pub below: *const c_char,
}

const NONE: terrace_tag = terrace_tag {
    tag_type: 0,
    boolean: false,
    integer: 0,
    real: 0.0,
    text: std::ptr::null(),
    integers: std::ptr::null(),
    reals: std::ptr::null(),
    count: 0,
};

fn value_from(tag: &terrace_tag) -> Outcome<Option<TagValue>> {
    Ok(Some(match tag.tag_type {
        0 => return Ok(None),
        1 => TagValue::Bool(tag.boolean),
        2 => TagValue::Int(tag.integer),
        3 => TagValue::Float(tag.real),
        4 => TagValue::Text(text(tag.text, "the tag's text")?.into()),
        5 => TagValue::Ints(given(tag.integers, tag.count, "the tag's numbers")?.into()),
        6 => TagValue::Floats(given(tag.reals, tag.count, "the tag's numbers")?.into()),
        other => return Err(Failure::invalid(format!("{other} is not one of terrace_tag_type"))),
    }))
}

fn tag_text(tag: &terrace_tag) -> Outcome<String> {
    match value_from(tag)? {
        Some(TagValue::Text(text)) => Ok(text),
        _ => Err(Failure::invalid("a part of a text is asked for, but `low` is no text")),
    }
}

/// Lends a value to C; a text's copy with its zero byte is in `words`.
fn lend(value: &TagValue, words: &mut CString) -> terrace_tag {
    match value {
        TagValue::Bool(boolean) => terrace_tag { tag_type: 1, boolean: *boolean, ..NONE },
        TagValue::Int(integer) => terrace_tag { tag_type: 2, integer: *integer, ..NONE },
        TagValue::Float(real) => terrace_tag { tag_type: 3, real: *real, ..NONE },
        TagValue::Text(text) => {
            *words = CString::new(text.replace('\0', "")).expect("zero bytes were taken out");
            terrace_tag { tag_type: 4, text: words.as_ptr(), ..NONE }
        }
        TagValue::Ints(numbers) => {
            terrace_tag { tag_type: 5, integers: numbers.as_ptr(), count: numbers.len(), ..NONE }
        }
        TagValue::Floats(numbers) => terrace_tag { tag_type: 6, reals: numbers.as_ptr(), count: numbers.len(), ..NONE },
    }
}

/// Sets a tag of an object; one that is there is replaced.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_tag_put(
    session: *const terrace_session,
    name: *const c_char,
    key: *const c_char,
    tag: *const terrace_tag,
) -> c_int {
    call(|| {
        let tag = given(tag, usize::from(!tag.is_null()), "the tag")?.first().map(value_from).transpose()?.flatten();
        let value = tag.ok_or_else(|| Failure::invalid("the tag is NULL or has no value"))?;
        let (name, key) = (text(name, "the object's name")?, text(key, "the key")?);
        Ok(used(session)?.put_tag(name, key, value)?)
    })
}

/// A tag of an object. A text, or numbers, are copied into `buffer`, which has room for `size` bytes, and `tag` leads there;
/// TERRACE_OUT_OF_BOUNDS: there is not room enough.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_tag_get(
    session: *const terrace_session,
    name: *const c_char,
    key: *const c_char,
    tag: *mut terrace_tag,
    buffer: *mut c_void,
    size: usize,
) -> c_int {
    call(|| {
        let tag = out(tag, "the tag")?;
        let (name, key) = (text(name, "the object's name")?, text(key, "the key")?);
        let value = used(session)?
            .get_tag(name, key)?
            .ok_or_else(|| Failure::new(Kind::NotFound, format!("`{name}` has no tag `{key}`")))?;
        let mut words = CString::default();
        let mut lent = lend(&value, &mut words);
        let (from, bytes) = match lent.tag_type {
            4 => (lent.text.cast::<u8>(), words.as_bytes_with_nul().len()),
            5 => (lent.integers.cast::<u8>(), lent.count * size_of::<i64>()),
            6 => (lent.reals.cast::<u8>(), lent.count * size_of::<f64>()),
            _ => (std::ptr::null(), 0),
        };
        if bytes > 0 {
            if bytes > size {
                let message = format!("the tag `{key}` needs {bytes} bytes, and there is room for {size}");
                return Err(Failure::new(Kind::OutOfBounds, message));
            }
            space(buffer.cast::<u64>(), size / 8, "the buffer")?;
            let place = space(buffer.cast::<u8>(), bytes, "the buffer")?;
            place.copy_from_slice(given(from, bytes, "the value")?);
        }
        match lent.tag_type {
            4 => lent.text = buffer.cast(),
            5 => lent.integers = buffer.cast(),
            6 => lent.reals = buffer.cast(),
            _ => {}
        }
        *tag = lent;
        Ok(())
    })
}

/// Removes a tag.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_tag_delete(
    session: *const terrace_session,
    name: *const c_char,
    key: *const c_char,
) -> c_int {
    call(|| Ok(used(session)?.delete_tag(text(name, "the object's name")?, text(key, "the key")?)?))
}

/// Calls `visit` with all tags of an object, by key, until it returns something else than 0. What `tag` leads to is there
/// during that call only.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_tags(
    session: *const terrace_session,
    name: *const c_char,
    visit: Option<unsafe extern "C" fn(key: *const c_char, tag: *const terrace_tag, context: *mut c_void) -> c_int>,
    context: *mut c_void,
) -> c_int {
    call(|| {
        let visit = visit.ok_or_else(|| Failure::invalid("the function to call is NULL"))?;
        for (key, value) in used(session)?.tags(text(name, "the object's name")?)? {
            let mut words = CString::default();
            let tag = lend(&value, &mut words);
            let key = CString::new(key).expect("a key has no zero byte");
            // SAFETY: the caller gave a function of this type.
            if unsafe { visit(key.as_ptr(), &tag, context) } != 0 {
                break;
            }
        }
        Ok(())
    })
}

/// Calls `visit` with the names of all objects whose tag matches, sorted, until it returns something else than 0.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_find(
    session: *const terrace_session,
    query: *const terrace_query,
    visit: Option<unsafe extern "C" fn(name: *const c_char, context: *mut c_void) -> c_int>,
    context: *mut c_void,
) -> c_int {
    call(|| {
        let visit = visit.ok_or_else(|| Failure::invalid("the function to call is NULL"))?;
        let query = given(query, usize::from(!query.is_null()), "the query")?;
        let query = query.first().ok_or_else(|| Failure::invalid("the query is NULL"))?;
        let matches = match query.matches {
            0 => TagMatch::Any,
            1 => TagMatch::Exact(value_from(&query.low)?.ok_or_else(|| Failure::invalid("`low` has no value"))?),
            2 => TagMatch::Range { low: value_from(&query.low)?, high: value_from(&query.high)? },
            3 => TagMatch::Prefix(tag_text(&query.low)?),
            4 => TagMatch::Suffix(tag_text(&query.low)?),
            5 => TagMatch::Infix(tag_text(&query.low)?),
            6 => TagMatch::Wild(tag_text(&query.low)?),
            other => return Err(Failure::invalid(format!("{other} is not one of terrace_match"))),
        };
        let below = if query.below.is_null() { "" } else { text(query.below, "the container's name")? };
        let query = TagQuery { key: text(query.key, "the key")?.into(), matches, below: below.into() };
        for name in used(session)?.query(&query)? {
            let name = CString::new(name).expect("a file's name has no zero byte");
            // SAFETY: the caller gave a function of this type.
            if unsafe { visit(name.as_ptr(), context) } != 0 {
                break;
            }
        }
        Ok(())
    })
}
