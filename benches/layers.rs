//! What a call costs on its way: a tool that does nothing, asked bare and through the whole call stack; and what it costs
//! to find out what a call is.

use std::hint::black_box;
use std::sync::Arc;

use coeval::clock::{SystemClock, Timeline};
use coeval::layer::CallStack;
use coeval::limit::Limits;
use coeval::reading::{Answer, CallError};
use coeval::registry::Registry;
use coeval::request::{CallRequest, SetContext};
use coeval::tool::{Tool, ToolSpec};
use coeval::{Call, CallSet};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use futures_util::FutureExt;
use serde_json::json;
use tower::ServiceExt;

const CALLS: usize = 16;

fn registry() -> Registry {
    let registry = Registry::new();
    let schema = json!({"type": "object", "required": ["account_id"], "additionalProperties": false,
        "properties": {"account_id": {"type": "string"}, "limit": {"type": "integer", "minimum": 1}}});
    let no_op = |_: CallRequest| std::future::ready(Ok::<_, CallError>(Answer::new(serde_json::Value::Null)));
    registry
        .register(Tool::raw_fn(ToolSpec::read("any"), no_op))
        .unwrap();
    registry
        .register(Tool::raw_fn(
            ToolSpec::read("checked").input_schema(schema),
            no_op,
        ))
        .unwrap();
    registry
}

fn set(tool: &str) -> CallSet {
    CallSet::new((0..CALLS).map(|index| {
        Call::new(
            format!("c{index}"),
            tool,
            json!({"account_id": "henderson", "limit": 10}),
        )
    }))
}

fn layers(c: &mut Criterion) {
    let registry = registry();
    let resolved = registry.resolve(&set("any"));
    let tool = resolved[0].tool.as_ref().unwrap();
    let context = Arc::new(SetContext::alone(
        Timeline::start(Arc::new(SystemClock::new())),
        CALLS,
    ));
    let request = CallRequest::new(Arc::clone(&resolved[0].call), context, None);
    let stack = CallStack::new(Limits::default()).compose(tool);

    let mut group = c.benchmark_group("call");
    group.bench_function("bare", |b| {
        b.iter(|| black_box(tool.service().clone().oneshot(request.clone()).now_or_never()));
    });
    group.bench_function("stack", |b| {
        b.iter(|| black_box(stack.clone().oneshot(request.clone()).now_or_never()));
    });
    group.finish();
}

fn resolve(c: &mut Criterion) {
    let registry = registry();
    let mut group = c.benchmark_group("resolve");
    group.throughput(Throughput::Elements(CALLS as u64));
    for tool in ["any", "checked"] {
        let set = set(tool);
        group.bench_function(tool, |b| b.iter(|| black_box(registry.resolve(&set))));
    }
    group.finish();
}

criterion_group!(benches, layers, resolve);
criterion_main!(benches);
