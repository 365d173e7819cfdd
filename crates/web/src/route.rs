//! Which part of the program answers a request.

use crate::path::{parameter, parts};
use crate::refusal::{Answer, Refusal};
use crate::reply::{Reply, dressed};
use crate::{App, api, events, metrics, page, queries, query, zarr};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, ALLOW, LOCATION, SET_COOKIE, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use std::sync::Arc;

/// Longest form that is read.
const FORM_MAX: usize = 8192;
/// What is asked of the engine, which changes no object: SQL, and the end of a query.
const POSTED: [&str; 2] = ["/api/query", "/api/cancel"];

pub fn router(app: Arc<App>) -> Router {
    Router::new().fallback(answer).with_state(app)
}

async fn answer(State(app): State<Arc<App>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let (method, headers) = (parts.method, parts.headers);
    let (path, query) = (parts.uri.path(), parts.uri.query());
    let is_posted = POSTED.contains(&path);
    if is_posted && method == Method::POST {
        let reply = posted(&app, &headers, path, body).await.unwrap_or_else(|refusal| refusal.reply());
        return reply.response(&method, &headers);
    }
    let reply = match admitted(&app, &method, &headers, path, query, body).await {
        Some(refused) => refused,
        None if is_posted => {
            let refusal = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, format!("{path} is asked by POST"));
            refusal.reply().header(ALLOW, "POST")
        }
        None if path == "/api/events" && method == Method::GET => match events::stream(&app, query) {
            Ok(response) => return dressed(response),
            Err(refusal) => refusal.reply(),
        },
        None => routed(&app, path, query).await.unwrap_or_else(|refusal| refusal.reply()),
    };
    reply.response(&method, &headers)
}

async fn posted(app: &App, headers: &HeaderMap, path: &str, body: Body) -> Answer<Reply> {
    if !app.access.allows(headers) {
        return Err(Refusal::new(StatusCode::UNAUTHORIZED, "a token is needed"));
    }
    if !app.access.is_own(headers) {
        return Err(Refusal::new(StatusCode::FORBIDDEN, "only this server's own page may ask this with its cookie"));
    }
    let too_long = |_| Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "the query is too long");
    let body = to_bytes(body, query::TEXT_BYTES_MAX).await.map_err(too_long)?;
    let text = String::from_utf8(body.into()).map_err(|_| Refusal::bad("what is asked is not UTF-8"))?;
    if path == "/api/query" {
        return app.engine.ask(text).await;
    }
    let store = app.store.clone();
    app.store.read(move || queries::cancel(&store, text.trim())).await
}

/// `None`: whoever asks may; else what he is told.
async fn admitted(
    app: &App,
    method: &Method,
    headers: &HeaderMap,
    path: &str,
    query: Option<&str>,
    body: Body,
) -> Option<Reply> {
    if path == "/login" && method == Method::POST {
        return Some(login(app, body).await);
    }
    if method != Method::GET && method != Method::HEAD {
        let refusal = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "nothing is written by HTTP");
        return Some(refusal.reply().header(ALLOW, "GET, HEAD"));
    }
    // Only a GET of the page takes the code: programs that look at addresses beforehand don't use it up.
    if path == "/"
        && method == Method::GET
        && let Some(code) = parameter(query, "token")
    {
        return Some(match app.access.takes_code(&code) {
            true => to_page(app),
            false if app.access.allows(headers) => {
                Reply::new("text/plain", "").status(StatusCode::SEE_OTHER).header(LOCATION, "/")
            }
            false => page::login("This address was used, or is of an earlier start.").status(StatusCode::UNAUTHORIZED),
        });
    }
    if app.access.allows(headers) || page::is_public(path) {
        return None;
    }
    let wants_page = headers.get(ACCEPT).is_some_and(|value| value.as_bytes().starts_with(b"text/html"));
    let reply = match wants_page {
        true => page::login(""),
        false => Refusal {
            hint: Some(
                "send `Authorization: Bearer TOKEN`, with the token of the file that the server was given".into(),
            ),
            ..Refusal::new(StatusCode::UNAUTHORIZED, "a token is needed")
        }
        .reply(),
    };
    Some(reply.status(StatusCode::UNAUTHORIZED).header(WWW_AUTHENTICATE, "Bearer realm=\"terrace\""))
}

async fn login(app: &App, body: Body) -> Reply {
    let form = to_bytes(body, FORM_MAX).await.unwrap_or_default();
    let given = std::str::from_utf8(&form).ok().and_then(|form| parameter(Some(form), "token")).unwrap_or_default();
    match app.access.is_token(given.trim()) {
        true => to_page(app),
        false => page::login("That is not the token.").status(StatusCode::UNAUTHORIZED),
    }
}

fn to_page(app: &App) -> Reply {
    Reply::new("text/plain", "")
        .status(StatusCode::SEE_OTHER)
        .header(LOCATION, "/")
        .header(SET_COOKIE, &app.access.set_cookie())
}

async fn routed(app: &App, path: &str, query: Option<&str>) -> Answer<Reply> {
    if let Some(reply) = page::file(path) {
        return Ok(reply);
    }
    let parts = parts(path)?;
    let store = app.store.clone();
    let query = query.map(str::to_owned);
    match parts.split_first() {
        Some((first, rest)) if first == "zarr" => {
            let rest = rest.to_vec();
            app.store.read(move || zarr::key(&store, &rest)).await
        }
        Some((first, [])) if first == "metrics" => app.store.read(move || metrics::reply(&store)).await,
        Some((first, rest)) if first == "api" => {
            let (what, below) = rest.split_first().ok_or_else(|| Refusal::not_found("say what of /api/"))?;
            let (what, name) = (what.clone(), below.join("/"));
            app.store.read(move || api::answer(&store, &what, &name, query.as_deref())).await
        }
        _ => Err(Refusal::not_found(format!("there is nothing at {path}"))),
    }
}
