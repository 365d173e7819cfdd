//! What the page is told by itself (Server-Sent Events): the agent's status every second, and the shape of the array that it
//! shows, when that has changed.

use crate::App;
use crate::path::{parameter, parts};
use crate::refusal::{Answer, Refusal};
use crate::store::{Store, parent};
use crate::{api, reply};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How often an array is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// Looks from one status to the next.
const LOOKS: u64 = 5;
/// Pages that are told of changes at once.
pub const READERS_MAX: usize = 32;

struct Watch {
    store: Arc<Store>,
    array: Option<String>,
    shape: Value,
    looks: u64,
    ready: VecDeque<Event>,
    _place: OwnedSemaphorePermit,
}

pub fn stream(app: &App, query: Option<&str>) -> Answer<Response> {
    let full = || Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too many pages are open");
    let place = Semaphore::try_acquire_owned(app.watchers.clone()).map_err(|_| full())?;
    let array = parameter(query, "array").filter(|name| !name.is_empty());
    let named = array.map(|name| parts(&name.replace('%', "%25")).map(|parts| parts.join("/"))).transpose();
    let (store, ready) = (app.store.clone(), VecDeque::new());
    let mut watch = Watch { store, array: None, shape: Value::Null, looks: 0, ready, _place: place };
    match named {
        Ok(name) => watch.array = name,
        // The page goes on with all else.
        Err(refusal) => watch.tell("shape", Err(refusal)),
    }
    let events = stream::unfold(watch, |mut watch| async move {
        while watch.ready.is_empty() {
            if watch.looks > 0 {
                tokio::time::sleep(LOOK).await;
            }
            // The server is ending: so does the stream.
            watch = tokio::task::spawn_blocking(move || watch.look()).await.ok()?;
        }
        let event = watch.ready.pop_front()?;
        Some((Ok::<Event, Infallible>(event), watch))
    });
    Ok(reply::dressed(Sse::new(events).keep_alive(KeepAlive::default()).into_response()))
}

impl Watch {
    fn look(mut self) -> Watch {
        if self.looks.is_multiple_of(LOOKS) {
            self.tell("status", api::status(&self.store));
        }
        if let Some(name) = &self.array {
            let shape = shape(&self.store, name);
            let now = shape.as_ref().map_or_else(|refusal| json!(refusal.message), Clone::clone);
            if now != self.shape {
                self.shape = now;
                self.tell("shape", shape);
            }
        }
        self.looks += 1;
        self
    }

    fn tell(&mut self, name: &str, value: Answer<Value>) {
        let value = value.unwrap_or_else(|refusal| json!({"error": refusal.message}));
        self.ready.push_back(Event::default().event(name).data(value.to_string()));
    }
}

fn shape(store: &Store, name: &str) -> Answer<Value> {
    let array = store.array(name)?.ok_or_else(|| Refusal::not_found(format!("`{name}` is not there")))?;
    let shape = store.shape(&array, &store.steps(parent(name).0)?)?;
    Ok(json!({"name": name, "shape": shape, "begun": array.shape()?, "identity": store.identity(name)?}))
}
