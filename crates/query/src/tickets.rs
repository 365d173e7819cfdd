//! Tickets of Flight SQL: a query's text behind a mark, so that a client that has a ticket can end the query that it asked by it.
//!
//! Nothing is kept of a ticket that nobody redeems.

use arrow_flight::FlightInfo;
use arrow_flight::sql::{Any, CommandPreparedStatementQuery, TicketStatementQuery};
use prost::Message;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use terrace_analysis::{Control, End};

/// Of a mark's digits; a line's end follows them.
const MARK_LENGTH: usize = 16;

#[derive(Default)]
pub struct Tickets {
    next: AtomicU64,
    running: Mutex<HashMap<String, Vec<Weak<Control>>>>,
}

impl Tickets {
    /// A text that is told from all others.
    pub fn marked(&self, text: &[u8]) -> Vec<u8> {
        let mark = format!("{:016x}\n", self.next.fetch_add(1, Relaxed));
        [mark.as_bytes(), text].concat()
    }

    pub fn redeemed(&self, mark: Option<&str>, control: &Arc<Control>) {
        let Some(mark) = mark else { return };
        let mut running = self.running.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        running.retain(|_, controls| controls.iter().any(|control| control.strong_count() > 0));
        running.entry(mark.to_owned()).or_default().push(Arc::downgrade(control));
    }

    /// Ends what was asked by the tickets of this answer; whether anything was.
    pub fn cancel(&self, info: &FlightInfo) -> bool {
        let running = self.running.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut any = false;
        for ticket in info.endpoint.iter().filter_map(|endpoint| endpoint.ticket.as_ref()) {
            let handle = handle(&ticket.ticket);
            let mark = handle.as_deref().and_then(|handle| parted(handle).0);
            for control in mark.and_then(|mark| running.get(mark)).into_iter().flatten().filter_map(Weak::upgrade) {
                control.end(End::Cancelled);
                any = true;
            }
        }
        any
    }
}

/// The mark, where there is one, and the text.
pub fn parted(handle: &[u8]) -> (Option<&str>, &[u8]) {
    let is_mark = |mark: &[u8]| mark.iter().all(|digit| digit.is_ascii_hexdigit());
    match handle.split_at_checked(MARK_LENGTH) {
        Some((mark, [b'\n', text @ ..])) if is_mark(mark) => (std::str::from_utf8(mark).ok(), text),
        _ => (None, handle),
    }
}

fn handle(ticket: &[u8]) -> Option<Vec<u8>> {
    let any = Any::decode(ticket).ok()?;
    if let Ok(Some(statement)) = any.unpack::<TicketStatementQuery>() {
        return Some(statement.statement_handle.to_vec());
    }
    let prepared = any.unpack::<CommandPreparedStatementQuery>().ok()??;
    Some(prepared.prepared_statement_handle.to_vec())
}
