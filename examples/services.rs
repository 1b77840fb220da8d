//! Wrapping services that are there already: `cargo run --example services`
//!
//! An `axum` router called in process, and a plain `service_fn`, become tools of one registry. What HTTP says about an
//! answer (its status, its age) becomes the call's error class and stamp.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::{Request, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use coeval::clock::{SystemClock, Timeline};
use coeval::layer::CallStack;
use coeval::limit::Limits;
use coeval::registry::Registry;
use coeval::request::{CallRequest, SetContext};
use coeval::tool::http::http_tool;
use coeval::tool::{IntoTool, ToolSpec};
use coeval::{BoxError, Call, CallSet};
use futures_util::future::join_all;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tower::{ServiceExt, service_fn};

/// The shop's own API, as its team wrote it.
fn shop() -> Router {
    async fn order(Path(id): Path<u32>) -> impl IntoResponse {
        match id {
            1 => (
                [(header::AGE, "30"), (header::CONTENT_TYPE, "application/json")],
                r#"{"status":"shipped"}"#,
            )
                .into_response(),
            2 => (
                StatusCode::TOO_MANY_REQUESTS,
                [(header::RETRY_AFTER, "2")],
                "slow down",
            )
                .into_response(),
            _ => (StatusCode::NOT_FOUND, "no such order").into_response(),
        }
    }
    Router::new().route("/orders/{id}", get(order))
}

#[derive(Deserialize, JsonSchema)]
struct OrderOf {
    order: u32,
}

#[derive(Deserialize, JsonSchema)]
struct DiscountOf {
    account: String,
}

#[derive(Serialize)]
struct Discount {
    percent: u32,
}

async fn discount(of: DiscountOf) -> Result<Discount, std::io::Error> {
    Ok(Discount {
        percent: if of.account == "henderson" { 10 } else { 0 },
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let registry = Registry::new();
    let order = ToolSpec::read("get_order")
        .description("One order of the shop.")
        .input::<OrderOf>();
    registry.register(http_tool(order, shop(), |of: OrderOf, _: &CallRequest| {
        Request::get(format!("/orders/{}", of.order)).body(Body::empty())
    }))?;
    let spec = ToolSpec::read("get_discount")
        .description("An account's discount.")
        .input::<DiscountOf>();
    registry.register(service_fn(discount).into_tool(spec))?;

    let set = CallSet::new([
        Call::new("c1", "get_discount", json!({"account": "henderson"})),
        Call::new("c2", "get_order", json!({"order": 1})),
        Call::new("c3", "get_order", json!({"order": 2})),
        Call::new("c4", "get_order", json!({"order": 3})),
        Call::new("c5", "get_order", json!({"order": "three"})),
        Call::new("c6", "get_ordr", json!({"order": 1})),
    ]);
    let stack = CallStack::new(Limits::default());
    let context = Arc::new(SetContext::alone(
        Timeline::start(Arc::new(SystemClock::new())),
        set.calls.len(),
    ));
    let answers = registry.resolve(&set).into_iter().map(|resolved| {
        let (stack, context) = (&stack, Arc::clone(&context));
        async move {
            match (resolved.call.fault.clone(), resolved.tool) {
                (None, Some(tool)) => {
                    stack
                        .compose(&tool)
                        .oneshot(CallRequest::new(resolved.call, context, None))
                        .await
                }
                (fault, _) => Err(fault.expect("a call without a tool has a fault")),
            }
        }
    });
    for (call, answer) in set.calls.iter().zip(join_all(answers).await) {
        match answer {
            Ok(reading) => {
                let age = if reading.stamp.earliest.is_some() {
                    "answered when asked"
                } else {
                    "may be older than the question"
                };
                println!("{}: {} ({age})", call.id, reading.value);
            }
            Err(error) => println!("{}: {:?}, {error}", call.id, error.error_class()),
        }
    }
    Ok(())
}
