//! What coordinating costs: the whole coordinator over tools that do nothing, beside `join_all` and a serial loop over the
//! same tools, in one run. Figures are for a whole set; divide by the number of calls.

use std::sync::Arc;

use coeval::coordinator::Coordinator;
use coeval::limit::Limits;
use coeval::registry::Registry;
use coeval::request::{CallRequest, SetContext};
use coeval::tool::{Tool, ToolSpec};
use coeval::{BoxError, Call, CallSet};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tower::ServiceExt;

fn nothing() -> Tool {
    let spec = ToolSpec::read("nothing").dependency("plenty");
    Tool::raw_fn(spec, |request: CallRequest| async move {
        Ok::<_, BoxError>(Value::Object((*request.arguments).clone()))
    })
}

fn bench(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let registry = Registry::new();
    registry.register(nothing()).expect("the name is free");
    let limits = Limits::builder()
        .allowance("plenty", 100_000)
        .build()
        .expect("no limit is zero");
    let coordinator = Coordinator::builder(registry.clone()).limits(limits).build();
    let tool = registry.get("nothing").expect("it was registered");

    let mut group = c.benchmark_group("no-op tools");
    for calls in [1_usize, 4, 16, 256, 4096] {
        group.throughput(Throughput::Elements(calls as u64));
        let set = CallSet::new((0..calls).map(|i| Call::new(format!("c{i}"), "nothing", json!({"n": i}))));
        let clock = Arc::new(coeval::clock::SystemClock::new());
        let context = Arc::new(SetContext::alone(coeval::clock::Timeline::start(clock), calls));
        let requests: Vec<_> = registry
            .resolve(&set)
            .into_iter()
            .map(|resolved| CallRequest::new(resolved.call, Arc::clone(&context), None))
            .collect();
        group.bench_with_input(BenchmarkId::new("join_all", calls), &requests, |b, requests| {
            b.to_async(&runtime).iter(|| async {
                join_all(
                    requests
                        .iter()
                        .map(|request| tool.service().clone().oneshot(request.clone())),
                )
                .await
            });
        });
        group.bench_with_input(
            BenchmarkId::new("serial loop", calls),
            &requests,
            |b, requests| {
                b.to_async(&runtime).iter(|| async {
                    let mut answers = Vec::with_capacity(requests.len());
                    for request in requests {
                        answers.push(tool.service().clone().oneshot(request.clone()).await);
                    }
                    answers
                });
            },
        );
        group.bench_with_input(BenchmarkId::new("coordinator", calls), &set, |b, set| {
            b.to_async(&runtime).iter_batched(
                || set.clone(),
                |set| async { coordinator.run(set).await.expect("the set runs") },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
