//! Tools from HTTP-shaped services: a client, a router called in process, anything that turns a request into a response.
//!
//! The status says what kind of trouble it is, the headers say how old the answer may be. Nothing here claims that answers
//! may be compared: an `ETag` attests nothing about other resources, `Last-Modified` nothing about now, and how an API
//! puts an answer together is known to its owner alone ([`ToolSpec::one_state`]). What headers can do is take away:
//!
//! | header | what follows |
//! |---|---|
//! | `Date` | the source's own time, as of which the answer is shown; with an `Age`, that much earlier |
//! | `Age`, or a cache that says it answered | it may be older than the request: no `earliest`, and no one state |
//! | `Link` with `rel="next"`, `206` | not the whole answer |
//! | `Retry-After` | when it is worth asking again |

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine as _;
use chrono::{DateTime, TimeDelta, Utc};
use futures_util::future::BoxFuture;
use http::header::{AGE, CONTENT_TYPE, DATE, LINK, LOCATION, RETRY_AFTER};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tower::Service;
use tower::util::BoxCloneSyncService;

use super::service::{failure, typed};
use crate::BoxError;
use crate::clock::Mono;
use crate::reading::{Answer, Basis, CallError, ErrorClass, ErrorCode, Stamp, UnprovenReason};
use crate::request::CallRequest;
use crate::tool::{Class, Tool, ToolSpec};

/// The largest body that is read, in bytes.
pub const MAX_BODY: usize = 16 * 1024 * 1024;

/// What is quoted of an error's body, at most, in characters.
const QUOTED: usize = 300;

/// Headers in which caches say that they answered.
const CACHE_HEADERS: [&str; 5] = [
    "cache-status",
    "x-cache",
    "x-cache-status",
    "cf-cache-status",
    "x-proxy-cache",
];

/// A tool from an HTTP-shaped service.
///
/// `request` makes the HTTP request from the arguments; it is also shown the call, whose scope may be needed. A body that
/// says it is JSON is its value, other text is a string, bytes are base64, none is `null`; more than [`MAX_BODY`] is an
/// error. Any status but a success is an error of the fitting class; redirects are the client's to follow.
///
/// ```
/// use coeval::tool::{http::http_tool, ToolSpec};
/// use http::{Request, Response};
///
/// #[derive(serde::Deserialize)]
/// struct Of { order: u32 }
///
/// let client = tower::service_fn(|request: Request<String>| async move {
///     Ok::<_, std::io::Error>(Response::new(format!("you asked for {}", request.uri())))
/// });
/// let tool = http_tool(ToolSpec::read("get_order").source("shop-api"), client, |of: Of, _| {
///     Request::get(format!("/orders/{}", of.order)).body(String::new())
/// });
/// ```
pub fn http_tool<S, T, F, E, B, R>(spec: ToolSpec, service: S, request: F) -> Tool
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    T: DeserializeOwned + 'static,
    F: Fn(T, &CallRequest) -> Result<Request<B>, E> + Clone + Send + Sync + 'static,
    E: Into<BoxError>,
    B: 'static,
    R: Body + Send + 'static,
    R::Data: Send,
    R::Error: Into<BoxError>,
{
    let name = Arc::clone(&spec.name);
    let prepare = move |call: &CallRequest| {
        request(typed::<T>(call.tool(), &call.arguments)?, call).map_err(|error| {
            let error = error.into();
            let message = format!("The arguments of {} make no HTTP request: {error}.", call.tool());
            CallError::new(ErrorCode::InvalidArguments, message).caused_by(error)
        })
    };
    Tool::from_service(
        spec,
        BoxCloneSyncService::new(Http {
            name,
            inner: service,
            prepare,
        }),
    )
}

#[derive(Clone)]
struct Http<S, P> {
    name: Arc<str>,
    inner: S,
    prepare: P,
}

impl<S, P, B, R> Service<CallRequest> for Http<S, P>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    P: Fn(&CallRequest) -> Result<Request<B>, CallError>,
    R: Body + Send + 'static,
    R::Data: Send,
    R::Error: Into<BoxError>,
{
    type Response = Answer;
    type Error = CallError;
    type Future = BoxFuture<'static, Result<Answer, CallError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        self.inner
            .poll_ready(cx)
            .map_err(|error| failure(&self.name, false, error.into()))
    }

    fn call(&mut self, call: CallRequest) -> Self::Future {
        let asked = call.set.timeline.mono();
        let response = (self.prepare)(&call).map(|request| self.inner.call(request));
        Box::pin(async move {
            let writes = call.call.facts.class != Class::Read;
            let response = response?
                .await
                .map_err(|error| failure(call.tool(), writes, error.into()))?;
            answer(&call, asked, response).await
        })
    }
}

/// What a response says, in answer to a request that was sent after `asked`.
async fn answer<R>(call: &CallRequest, asked: Mono, response: Response<R>) -> Result<Answer, CallError>
where
    R: Body,
    R::Error: Into<BoxError>,
{
    let (tool, writes) = (call.tool(), call.call.facts.class != Class::Read);
    let (head, body) = response.into_parts();
    let body = match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            let message = format!(
                "Could not complete {tool}: the answer is longer than {MAX_BODY} bytes; ask for less at a time."
            );
            let error = CallError::new(ErrorCode::CallFailed, message)
                .class(ErrorClass::Invalid)
                .retryable(false);
            return Err(if writes { error.may_have_happened() } else { error });
        }
        Err(error) => return Err(failure(tool, writes, error)),
    };
    // The answer is as of no later than when all of it was here.
    let received = call.set.timeline.mono();
    let headers = &head.headers;
    if !head.status.is_success() {
        let wall = date(headers).unwrap_or(call.set.timeline.at(received).wall);
        return Err(refusal(tool, writes, head.status, headers, wall, &body));
    }
    let value = value(headers, &body).map_err(|error| {
        let message = format!("Could not complete {tool}: the answer says it is JSON and is not: {error}.");
        let error = CallError::new(ErrorCode::CallFailed, message)
            .class(ErrorClass::Internal)
            .retryable(false);
        if writes { error.may_have_happened() } else { error }
    })?;

    let timeline = &call.set.timeline;
    let mut stamp = Stamp::receipt(timeline.at(asked), timeline.at(received));
    stamp.source = call.call.facts.source.clone();
    stamp.source_time = source_time(headers);
    if stamp.source_time.is_some() {
        stamp.basis = Basis::Source;
    }
    let from_cache = may_predate(head.status, headers);
    if from_cache {
        stamp.earliest = None;
    }
    let mut answer = Answer::new(value).stamp(stamp);
    if from_cache {
        // Whatever was declared of the API, this answer is of some cache's making.
        answer = answer.unsound(UnprovenReason::UndeclaredSource);
    }
    if head.status == StatusCode::PARTIAL_CONTENT || has_next(headers) {
        answer = answer.incomplete();
    }
    Ok(answer)
}

fn value(headers: &HeaderMap, body: &[u8]) -> serde_json::Result<Value> {
    let kind = text(headers, CONTENT_TYPE)
        .unwrap_or_default()
        .to_ascii_lowercase();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if body.is_empty() {
        Ok(Value::Null)
    } else if kind == "application/json" || kind == "text/json" || kind.ends_with("+json") {
        serde_json::from_slice(body)
    } else {
        Ok(match std::str::from_utf8(body) {
            Ok(text) => text.into(),
            Err(_) => base64::engine::general_purpose::STANDARD.encode(body).into(),
        })
    }
}

/// Whether the response may have been made before it was asked for.
fn may_predate(status: StatusCode, headers: &HeaderMap) -> bool {
    let cache_says = |name: &&str| {
        headers.get_all(*name).iter().any(|value| {
            let value = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
            ["hit", "stale", "updating", "revalidated"]
                .iter()
                .any(|word| value.contains(word))
        })
    };
    // An age of 0 is one too: a cache rounds down, and only a cache writes it.
    headers.contains_key(AGE)
        || status == StatusCode::NON_AUTHORITATIVE_INFORMATION
        || CACHE_HEADERS.iter().any(cache_says)
}

/// `Date`, less the time that the answer lay in caches.
fn source_time(headers: &HeaderMap) -> Option<DateTime<Utc>> {
    let date = date(headers)?;
    match headers.get(AGE) {
        None => Some(date),
        // An age that can't be read leaves the time unknown.
        Some(age) => {
            let seconds: u32 = age.to_str().ok()?.trim().parse().ok()?;
            date.checked_sub_signed(TimeDelta::seconds(seconds.into()))
        }
    }
}

fn date(headers: &HeaderMap) -> Option<DateTime<Utc>> {
    http_date(text(headers, DATE)?)
}

fn http_date(text: &str) -> Option<DateTime<Utc>> {
    Some(DateTime::parse_from_rfc2822(text.trim()).ok()?.to_utc())
}

/// Whether there is a next page.
fn has_next(headers: &HeaderMap) -> bool {
    let links = headers
        .get_all(LINK)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut parameters = links.flat_map(|links| links.split([';', ',']));
    parameters.any(|parameter| {
        let Some((name, value)) = parameter.split_once('=') else {
            return false;
        };
        let mut relations = value.trim().trim_matches('"').split_ascii_whitespace();
        name.trim().eq_ignore_ascii_case("rel")
            && relations.any(|relation| relation.eq_ignore_ascii_case("next"))
    })
}

/// The error of any status but a success.
fn refusal(
    tool: &str,
    writes: bool,
    status: StatusCode,
    headers: &HeaderMap,
    now: DateTime<Utc>,
    body: &[u8],
) -> CallError {
    use ErrorClass::{Conflict, Denied, Internal, Invalid, RateLimited, Timeout, Unavailable};
    let (class, retryable) = match status.as_u16() {
        401 | 403 | 407 | 451 => (Denied, false),
        408 => (Timeout, true),
        409 | 412 | 428 => (Conflict, false),
        423 => (Conflict, true),
        425 => (Unavailable, true),
        429 => (RateLimited, true),
        501 | 505 => (Internal, false),
        502 | 503 => (Unavailable, true),
        504 => (Timeout, true),
        500.. => (Internal, true),
        // All that is left is a request, or a client, that is not made for this service.
        _ => (Invalid, false),
    };
    let mut message = format!("Could not complete {tool}: the service answered {status}");
    if status.is_redirection()
        && let Some(place) = text(headers, LOCATION)
    {
        message.push_str(&format!(", which leads to {place} and was not followed"));
    }
    let said = String::from_utf8_lossy(body);
    let said = said.trim();
    if !said.is_empty() {
        let end = said.char_indices().nth(QUOTED).map_or(said.len(), |(end, _)| end);
        let rest = if end < said.len() { "…" } else { "" };
        message.push_str(&format!(": {}{rest}", &said[..end]));
    }
    let mut error = CallError::new(ErrorCode::CallFailed, message)
        .class(class)
        .retryable(retryable);
    if let Some(wait) = text(headers, RETRY_AFTER).and_then(|after| retry_after(after, now)) {
        error = error.retry_after(wait);
    }
    // A service that failed, or gave up, while it wrote may have written.
    let unknown = status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT;
    if writes && unknown {
        error.may_have_happened()
    } else {
        error
    }
}

/// Seconds, or a date by the clock of whoever wrote it.
fn retry_after(after: &str, now: DateTime<Utc>) -> Option<Duration> {
    match after.trim().parse::<u32>() {
        Ok(seconds) => Some(Duration::from_secs(seconds.into())),
        Err(_) => Some((http_date(after)? - now).to_std().unwrap_or_default()),
    }
}

fn text(headers: &HeaderMap, name: http::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}
