use coeval::reading::{Basis, ErrorClass, ErrorCode, UnprovenReason};
use coeval::tool::http::{MAX_BODY, http_tool};
use http_body_util::Full;

use super::*;

type Body = Full<&'static [u8]>;

/// A service that answers everything with one response, after 10 ms.
fn answering(spec: ToolSpec, status: u16, headers: &[(&str, &str)], body: &'static [u8]) -> Tool {
    let mut response = ::http::Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    let response = response.body(Body::new(body)).unwrap();
    let service = tower::service_fn(move |_: ::http::Request<()>| {
        let response = response.clone();
        async move {
            tokio::time::sleep(ms(10)).await;
            Ok::<_, std::io::Error>(response)
        }
    });
    http_tool(spec, service, |_: Value, _: &CallRequest| {
        ::http::Request::get("/").body(())
    })
}

async fn answered(status: u16, headers: &[(&str, &str)], body: &'static [u8]) -> Result<Reading, CallError> {
    let tool = answering(ToolSpec::read("get").source("shop"), status, headers, body);
    Bench::new(tool, 1, Limits::default()).run(0).await
}

const JSON: (&str, &str) = ("content-type", "application/json; charset=utf-8");
const DATE: (&str, &str) = ("date", "Fri, 02 Jan 2026 03:04:00 GMT");

#[tokio::test(start_paused = true)]
async fn a_body_is_json_text_bytes_or_nothing() {
    for (headers, body, expected) in [
        (&[JSON][..], &b"{\"a\": [1]}"[..], json!({"a": [1]})),
        (&[("content-type", "application/problem+json")], b"[]", json!([])),
        (&[("content-type", "text/plain")], b"{}", json!("{}")),
        (&[], b"\xff\x00", json!("/wA=")),
        (&[JSON], b"", Value::Null),
    ] {
        assert_eq!(value(answered(200, headers, body).await), expected);
    }
    let error = answered(200, &[JSON], b"{").await.unwrap_err();
    assert_eq!(
        (error.code(), error.error_class()),
        (ErrorCode::CallFailed, ErrorClass::Internal)
    );
}

/// Each status is of the class that a caller acts on.
#[tokio::test(start_paused = true)]
async fn a_status_says_what_kind_of_trouble_it_is() {
    use ErrorClass::{Conflict, Denied, Internal, Invalid, RateLimited, Timeout, Unavailable};
    for (status, class, retryable) in [
        (302, Invalid, false),
        (304, Invalid, false),
        (400, Invalid, false),
        (401, Denied, false),
        (403, Denied, false),
        (404, Invalid, false),
        (408, Timeout, true),
        (409, Conflict, false),
        (422, Invalid, false),
        (423, Conflict, true),
        (429, RateLimited, true),
        (500, Internal, true),
        (501, Internal, false),
        (502, Unavailable, true),
        (503, Unavailable, true),
        (504, Timeout, true),
    ] {
        let error = answered(status, &[], b"no such order").await.unwrap_err();
        assert_eq!(
            (error.error_class(), error.is_retryable()),
            (class, retryable),
            "{status}"
        );
        assert_eq!(error.code(), ErrorCode::CallFailed);
        assert!(
            error
                .message()
                .starts_with(&format!("Could not complete get: the service answered {status} ")),
            "{error}"
        );
        assert!(error.message().ends_with(": no such order"), "{error}");
    }
    let moved = answered(302, &[("location", "/login")], b"").await.unwrap_err();
    assert!(
        moved
            .message()
            .ends_with("302 Found, which leads to /login and was not followed"),
        "{moved}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_error_says_when_to_come_back() {
    for (headers, wait) in [
        (&[("retry-after", "7")][..], Some(ms(7_000))),
        (
            &[DATE, ("retry-after", "Fri, 02 Jan 2026 03:05:30 GMT")],
            Some(ms(90_000)),
        ),
        (
            &[DATE, ("retry-after", "Fri, 02 Jan 2026 03:00:00 GMT")],
            Some(ms(0)),
        ),
        (&[("retry-after", "soon")], None),
        (&[], None),
    ] {
        assert_eq!(
            answered(429, headers, b"").await.unwrap_err().retry_wait(),
            wait,
            "{headers:?}"
        );
    }
    // By our own clock, which reads 03:04:05.010 then, if the service doesn't say what time it is.
    let error = answered(503, &[("retry-after", "Fri, 02 Jan 2026 03:04:06 GMT")], b"")
        .await
        .unwrap_err();
    assert_eq!(error.retry_wait(), Some(ms(990)));
}

/// A service that failed while it wrote may have written; one that refused has not.
#[tokio::test(start_paused = true)]
async fn a_write_that_a_service_failed_at_may_have_happened() {
    for (status, happened) in [
        (400, false),
        (409, false),
        (429, false),
        (408, true),
        (500, true),
        (502, true),
    ] {
        let tool = answering(ToolSpec::write("put"), status, &[], b"");
        let error = Bench::new(tool, 1, Limits::default()).run(0).await.unwrap_err();
        assert_eq!(error.happened_perhaps(), happened, "{status}");
    }
}

/// The interval is from the request to the last byte, on our clock; the service's own time is only shown.
#[tokio::test(start_paused = true)]
async fn an_answer_is_stamped_with_the_services_own_time() {
    let stamp = answered(200, &[DATE], b"").await.unwrap().stamp;
    assert_eq!(stamp.basis, Basis::Source);
    assert_eq!(stamp.source_time, "2026-01-02T03:04:00Z".parse().ok());
    assert_eq!(stamp.source.as_deref(), Some("shop"));
    let (earliest, latest) = (stamp.earliest.unwrap(), stamp.latest.unwrap());
    assert_eq!(latest.mono.unwrap().since(earliest.mono.unwrap()), ms(10));
    let stamp = answered(200, &[], b"").await.unwrap().stamp;
    assert_eq!((stamp.basis, stamp.source_time), (Basis::Receipt, None));
}

/// Hole 13: an answer that a cache may have given has no earliest time and is no one state, whatever was declared.
#[tokio::test(start_paused = true)]
async fn an_answer_from_a_cache_may_predate_the_request() {
    for (status, header) in [
        (200, ("age", "30")),
        (200, ("age", "0")),
        (200, ("age", "unreadable")),
        (200, ("x-cache", "HIT from edge")),
        (200, ("cache-status", "Edge; hit; ttl=5")),
        (200, ("cf-cache-status", "REVALIDATED")),
        (203, ("x-any", "thing")),
    ] {
        let tool = answering(ToolSpec::read("get").one_state(), status, &[DATE, header], b"");
        let reading = Bench::new(tool, 1, Limits::default()).run(0).await.unwrap();
        assert_eq!(
            (reading.stamp.earliest, reading.unsound),
            (None, Some(UnprovenReason::UndeclaredSource)),
            "{header:?}"
        );
        let shown = match header.1 {
            "30" => Some("2026-01-02T03:03:30Z"),
            "unreadable" => None,
            _ => Some("2026-01-02T03:04:00Z"),
        };
        assert_eq!(
            reading.stamp.source_time,
            shown.map(|time| time.parse().unwrap()),
            "{header:?}"
        );
    }
    let fresh = answered(
        200,
        &[DATE, ("x-cache", "MISS"), ("cache-status", "Edge; fwd=miss")],
        b"",
    )
    .await
    .unwrap();
    assert!(fresh.stamp.earliest.is_some() && fresh.unsound.is_none());
}

/// An `ETag` is no witness: equal ones say nothing about two resources, or two moments.
#[tokio::test(start_paused = true)]
async fn an_etag_attests_nothing() {
    let headers = [
        ("etag", "\"v1\""),
        ("last-modified", "Fri, 02 Jan 2026 03:04:00 GMT"),
    ];
    let reading = answered(200, &headers, b"").await.unwrap();
    assert_eq!(
        (reading.stamp.witness, reading.view, reading.stamp.source_time),
        (None, None, None)
    );
}

/// Hole 16: a page is not the whole answer.
#[tokio::test(start_paused = true)]
async fn a_page_is_not_the_whole_answer() {
    for (status, header, complete) in [
        (200, ("link", "</orders?page=2>; rel=\"next\""), false),
        (
            200,
            ("link", "</a>; rel=prev, </b>; title=x; rel=\"last next\""),
            false,
        ),
        (206, ("content-range", "bytes 0-9/100"), false),
        (200, ("link", "</orders?page=1>; rel=\"prev\""), true),
        (200, ("link", "</next>; rel=\"author\""), true),
    ] {
        assert_eq!(
            answered(status, &[header], b"").await.unwrap().complete,
            complete,
            "{header:?}"
        );
    }
}

/// G12: a body without end is not read to its end.
#[tokio::test(start_paused = true)]
async fn a_body_that_is_too_long_is_refused() {
    static LONG: [u8; MAX_BODY + 1] = [b'x'; MAX_BODY + 1];
    assert!(answered(200, &[], &LONG[..MAX_BODY]).await.is_ok());
    let error = answered(200, &[], &LONG).await.unwrap_err();
    assert_eq!(
        (error.error_class(), error.is_retryable()),
        (ErrorClass::Invalid, false)
    );
    assert!(error.message().contains("ask for less at a time"), "{error}");
    let error = answered(500, &[], &LONG[..100_000]).await.unwrap_err();
    assert!(error.message().len() < 500);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_be_made_is_the_arguments_fault() {
    let service = tower::service_fn(|_: ::http::Request<()>| async {
        Ok::<_, std::io::Error>(::http::Response::new(Body::default()))
    });
    let tool = http_tool(ToolSpec::read("get"), service, |_: Value, call: &CallRequest| {
        ::http::Request::get(format!("/{} bad uri", call.position())).body(())
    });
    let error = Bench::new(tool, 1, Limits::default()).run(0).await.unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (
            ErrorCode::InvalidArguments,
            "The arguments of get make no HTTP request: invalid uri character."
        )
    );
}
