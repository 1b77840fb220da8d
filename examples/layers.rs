//! Taking single layers into a stack of one's own: `cargo run --example layers`
//!
//! A host that already has its own service stack wants two things of Coeval's: a bound on calls in flight to one API,
//! shared by everything in the process, and a deadline that covers the wait for it. The layers are ordinary `tower` layers
//! and need no coordinator.

use std::sync::Arc;
use std::time::Duration;

use coeval::clock::{SystemClock, Timeline};
use coeval::layer::{admit::AdmitLayer, deadline::DeadlineLayer, stamp::StampLayer};
use coeval::limit::Limits;
use coeval::registry::Registry;
use coeval::request::{CallRequest, SetContext};
use coeval::tool::{Tool, ToolSpec};
use coeval::{BoxError, Call, CallSet};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::{ServiceBuilder, ServiceExt};

async fn order_status(arguments: Value) -> Result<Value, std::io::Error> {
    tokio::time::sleep(Duration::from_millis(100)).await;
    Ok(json!({"order": arguments["order"], "status": "shipped"}))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let registry = Registry::new();
    registry.register(Tool::from_fn(
        ToolSpec::read("order_status").dependency("shop-api"),
        order_status,
    ))?;
    let tool = registry.get("order_status").ok_or("it was registered just now")?;

    // The shop takes two calls at once, whoever makes them.
    let limits = Limits::builder().allowance("shop-api", 2).build()?;
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new())
        .layer(AdmitLayer::new(limits))
        // One's own layers go wherever they belong.
        .map_err(|error| {
            eprintln!("the shop said: {error}");
            error
        })
        .layer(StampLayer::new())
        .service(tool.service().clone());

    let set = CallSet::new((1..=6).map(|order| Call::new("", "order_status", json!({"order": order}))));
    let context = Arc::new(SetContext::alone(
        Timeline::start(Arc::new(SystemClock::new())),
        set.calls.len(),
    ));
    let begin = Instant::now();
    let deadline = begin + Duration::from_millis(250);
    let answers = join_all(registry.resolve(&set).into_iter().map(|resolved| {
        stack.clone().oneshot(CallRequest::new(
            resolved.call,
            Arc::clone(&context),
            Some(deadline),
        ))
    }))
    .await;
    for answer in answers {
        match answer {
            Ok(reading) => println!("{} in {:?}", reading.value, reading.elapsed),
            // The third pair would have started after 200 ms and ended after 300: too late.
            Err(error) => println!("{:?}: {error}", error.code()),
        }
    }
    println!("after {:?}", begin.elapsed());
    Ok(())
}
