//! Sessions, containers, and what can be done to objects by their names.

use crate::call::{Failure, Outcome, call, call_close, call_open, out, space, text, used};
use crate::handles::handle;
use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;
use terrace_client::{Create, Kind, ObjectKind, Session, Status};

/// One root, seen by one program.
#[allow(non_camel_case_types)]
pub struct terrace_session {
    _private: (),
}

/// What becomes of an object that is there already.
#[repr(C)]
#[allow(non_camel_case_types)]
pub enum terrace_create {
    /// It is an error.
    TERRACE_NEW = 0,
    /// It is emptied, or made anew.
    TERRACE_REPLACE = 1,
    /// It is used as it is (an array must have the same type and shape).
    TERRACE_IF_MISSING = 2,
}

/// What a name leads to.
#[repr(C)]
#[allow(non_camel_case_types)]
pub enum terrace_kind {
    TERRACE_CONTAINER = 0,
    TERRACE_BYTES = 1,
    TERRACE_ARRAY = 2,
}

/// What is known of an object.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct terrace_info {
    /// One of terrace_kind.
    pub kind: c_int,
    /// Nothing of it is in a faster tier only.
    pub is_durable: bool,
    /// A bytes object's length; an array's size when all cells are written; 0 for a container.
    pub bytes: u64,
    /// The tiers that have its bytes, that of the newest first: "tier 0", "root", or "tier 0, root".
    pub tier: [c_char; 32],
}

handle!(terrace_session, Session, "the session", "sessions");

pub fn create_from(how: c_int) -> Outcome<Create> {
    match how {
        0 => Ok(Create::New),
        1 => Ok(Create::Replace),
        2 => Ok(Create::IfMissing),
        _ => Err(Failure::invalid(format!("{how} is not one of terrace_create"))),
    }
}

fn kind_number(kind: ObjectKind) -> c_int {
    (match kind {
        ObjectKind::Container => terrace_kind::TERRACE_CONTAINER,
        ObjectKind::Bytes => terrace_kind::TERRACE_BYTES,
        ObjectKind::Array => terrace_kind::TERRACE_ARRAY,
    }) as c_int
}

impl terrace_info {
    fn of(status: &Status) -> terrace_info {
        let mut tier = [0; 32];
        for (to, from) in tier.iter_mut().take(31).zip(status.tier.bytes()) {
            *to = from as c_char;
        }
        terrace_info { kind: kind_number(status.kind), is_durable: status.is_durable, bytes: status.bytes, tier }
    }
}

/// Begins a session with the agent of a root. `target`: the root's path; or "" (or NULL) for the root of the run that this
/// program belongs to, or that TERRACE_ROOT names.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_connect(target: *const c_char, session: *mut *mut terrace_session) -> c_int {
    call_open(session, || {
        let target = if target.is_null() { "" } else { text(target, "the target")? };
        Ok(Session::connect(target)?)
    })
}

/// Ends a session. Objects that were opened in it stay open.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_disconnect(session: *mut terrace_session) -> c_int {
    call_close(session)
}

/// The root's path, with a zero byte at its end, into `path`, which has room for `size` bytes.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_root(session: *const terrace_session, path: *mut c_char, size: usize) -> c_int {
    call(|| {
        let session = used(session)?;
        let root = std::os::unix::ffi::OsStrExt::as_bytes(session.root().as_os_str());
        let space = space(path.cast::<u8>(), size, "the place for the root's path")?;
        if space.len() <= root.len() {
            let message = format!("the root's path needs {} bytes, and there is room for {size}", root.len() + 1);
            return Err(Failure::new(Kind::OutOfBounds, message));
        }
        space[..root.len()].copy_from_slice(root);
        space[root.len()] = 0;
        Ok(())
    })
}

/// Makes a container (a directory), with those that it lies in. `how`: one of terrace_create.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_container_create(session: *const terrace_session, name: *const c_char, how: c_int) -> c_int {
    call(|| Ok(used(session)?.create_container(text(name, "the container's name")?, create_from(how)?)?))
}

type Visit = unsafe extern "C" fn(name: *const c_char, kind: c_int, context: *mut c_void) -> c_int;

/// Until `visit` returns something else than 0.
fn visit_all(
    visit: Option<Visit>,
    context: *mut c_void,
    all: impl IntoIterator<Item = (String, c_int)>,
) -> Outcome<()> {
    let visit = visit.ok_or_else(|| Failure::invalid("the function to call is NULL"))?;
    for (name, kind) in all {
        let name = std::ffi::CString::new(name).expect("a file's name has no zero byte");
        // SAFETY: the caller gave a function of this type.
        if unsafe { visit(name.as_ptr(), kind, context) } != 0 {
            break;
        }
    }
    Ok(())
}

/// Calls `visit` with the name (without its container) and the kind of all that a container holds, sorted by name, until
/// it returns something else than 0; `context` is handed on to it.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_list(
    session: *const terrace_session,
    container: *const c_char,
    visit: Option<unsafe extern "C" fn(name: *const c_char, kind: c_int, context: *mut c_void) -> c_int>,
    context: *mut c_void,
) -> c_int {
    call(|| {
        let entries = used(session)?.list(text(container, "the container's name")?)?;
        visit_all(visit, context, entries.into_iter().map(|entry| (entry.name, kind_number(entry.kind))))
    })
}

/// Makes an array or a bytes object a member of one more container. One that is a member already stays so.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_member_add(
    session: *const terrace_session,
    container: *const c_char,
    object: *const c_char,
) -> c_int {
    call(|| {
        let (container, object) = (text(container, "the container's name")?, text(object, "the object's name")?);
        Ok(used(session)?.add_member(container, object)?)
    })
}

/// Ends what terrace_member_add began; the object stays. TERRACE_NOT_FOUND: it is no member.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_member_remove(
    session: *const terrace_session,
    container: *const c_char,
    object: *const c_char,
) -> c_int {
    call(|| {
        let (container, object) = (text(container, "the container's name")?, text(object, "the object's name")?);
        Ok(used(session)?.remove_member(container, object)?)
    })
}

/// Calls `visit` with the name (from the root on) and the kind of each array and bytes object that lies in a container or was added to
/// it, sorted by name, until it returns something else than 0; `context` is handed on to it.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_members(
    session: *const terrace_session,
    container: *const c_char,
    visit: Option<unsafe extern "C" fn(name: *const c_char, kind: c_int, context: *mut c_void) -> c_int>,
    context: *mut c_void,
) -> c_int {
    call(|| {
        let members = used(session)?.members(text(container, "the container's name")?)?;
        visit_all(visit, context, members.into_iter().map(|(name, status)| (name, kind_number(status.kind))))
    })
}

/// Calls `visit` with the name of each container that an object is in, sorted, until it returns something else than 0; `context` is
/// handed on to it. The root is "".
#[unsafe(no_mangle)]
pub extern "C" fn terrace_containers_of(
    session: *const terrace_session,
    object: *const c_char,
    visit: Option<unsafe extern "C" fn(name: *const c_char, kind: c_int, context: *mut c_void) -> c_int>,
    context: *mut c_void,
) -> c_int {
    call(|| {
        let containers = used(session)?.containers_of(text(object, "the object's name")?)?;
        let kind = kind_number(ObjectKind::Container);
        visit_all(visit, context, containers.into_iter().map(|name| (name, kind)))
    })
}

/// What is known of an object; TERRACE_NOT_FOUND if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_stat(session: *const terrace_session, name: *const c_char, info: *mut terrace_info) -> c_int {
    call(|| {
        let info = out(info, "what is known")?;
        *info = terrace_info::of(&used(session)?.stat(text(name, "the object's name")?)?);
        Ok(())
    })
}

/// Removes an object; a container only when it is empty, unless `with_contents`.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_remove(session: *const terrace_session, name: *const c_char, with_contents: bool) -> c_int {
    call(|| Ok(used(session)?.remove(text(name, "the object's name")?, with_contents)?))
}

/// Waits until there is an object of this name, for so many seconds (less than 0: for as long as it takes). `info` may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_wait_for(
    session: *const terrace_session,
    name: *const c_char,
    seconds: f64,
    info: *mut terrace_info,
) -> c_int {
    call(|| {
        let found = used(session)?.wait_for(text(name, "the object's name")?, patience(seconds)?)?;
        if !info.is_null() {
            *out(info, "what is known")? = terrace_info::of(&found);
        }
        Ok(())
    })
}

/// Makes durable in the root what lies at and below this name.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_flush(session: *const terrace_session, name: *const c_char) -> c_int {
    call(|| Ok(used(session)?.flush(text(name, "the object's name")?)?))
}

/// Frees the faster tiers of what lies at and below this name, flushing first what is not durable.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_evict(session: *const terrace_session, name: *const c_char) -> c_int {
    call(|| Ok(used(session)?.evict(text(name, "the object's name")?)?))
}

/// Brings what lies at and below this name into the faster tiers.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_prefetch(session: *const terrace_session, name: *const c_char) -> c_int {
    call(|| Ok(used(session)?.prefetch(text(name, "the object's name")?)?))
}

/// Gives an object another name, with its tags and all that lies below it. TERRACE_EXISTS if there is an object of that name. Arrays that
/// are open are to be opened again.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_rename(session: *const terrace_session, from: *const c_char, to: *const c_char) -> c_int {
    call(|| Ok(used(session)?.rename(text(from, "the object's name")?, text(to, "the new name")?)?))
}

/// Less than 0: no end.
pub fn patience(seconds: f64) -> Outcome<Option<Duration>> {
    if seconds < 0.0 {
        return Ok(None);
    }
    Duration::try_from_secs_f64(seconds)
        .map(Some)
        .map_err(|_| Failure::invalid(format!("{seconds} seconds can't be waited for")))
}
