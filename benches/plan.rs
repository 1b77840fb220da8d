//! The planner, and a naive one beside it: first-fit, every call compared with every call before it.
//!
//! `cargo bench --bench plan`. Throughput is calls: what is printed as time per element should be at most 0.5 µs, and
//! the same from 16 calls to 4,096.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use coeval::plan::{self, Allowances, Context, Grounds, Policy};
use coeval::tool::{Class, Facts, FieldOrigin, Keys, OutputField, ResolvedCall};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use serde_json::{Value, json};

#[derive(Debug)]
struct Plenty;

impl Allowances for Plenty {
    fn allowance(&self, _: &str) -> usize {
        usize::MAX
    }
}

/// The facts of a tool, shared by its calls as a registry shares them.
fn facts(outputs: &[&str]) -> Arc<Facts> {
    let declared = |&name: &&str| OutputField {
        name: name.into(),
        origin: FieldOrigin::Declared,
    };
    Arc::new(Facts {
        class: Class::Read,
        because: None,
        dependency: "crm".into(),
        source: Some("crm".into()),
        outputs: outputs.iter().map(declared).collect(),
        preconditions: [].into(),
        filters: [].into(),
        timeout: None,
        is_final: false,
    })
}

fn call(position: usize, tool: &str, facts: &Arc<Facts>, arguments: Value, keys: Keys) -> Arc<ResolvedCall> {
    let Value::Object(arguments) = arguments else {
        panic!("arguments are an object")
    };
    Arc::new(ResolvedCall {
        position,
        id: format!("call_{position}").into(),
        tool: tool.into(),
        arguments: Arc::new(arguments),
        after: Vec::new(),
        facts: Arc::clone(facts),
        keys,
        partition_key: None,
        unchecked: false,
        fault: None,
    })
}

type Set = Vec<Arc<ResolvedCall>>;

fn keyed(calls: usize, keys: impl Fn(usize) -> Keys) -> Set {
    let facts = facts(&["total"]);
    let one = |position| {
        let arguments = json!({"account": position, "filter": {"status": "open"}});
        call(position, "list_orders", &facts, arguments, keys(position))
    };
    (0..calls).map(one).collect()
}

fn reads(key: String) -> Keys {
    Keys {
        reads: vec![key.into()],
        writes: Vec::new(),
    }
}

fn writes(key: String) -> Keys {
    Keys {
        reads: Vec::new(),
        writes: vec![key.into()],
    }
}

/// An eighth returns orders' ids, the rest look one up: half of them by a placeholder, half by a guess.
fn dependent(calls: usize) -> Set {
    let (list, get) = (facts(&["order_id"]), facts(&["total"]));
    let one = |position| match position % 8 {
        0 => call(
            position,
            "list_orders",
            &list,
            json!({"account": position}),
            Keys::NONE,
        ),
        n if n % 2 == 0 => {
            let head = position - n;
            let arguments = json!({"order": format!("{{{{call_{head}.order_id}}}}")});
            call(position, "get_order", &get, arguments, Keys::NONE)
        }
        _ => call(
            position,
            "get_order",
            &get,
            json!({"order_id": position}),
            Keys::NONE,
        ),
    };
    (0..calls).map(one).collect()
}

/// Waves as they are often made: a call joins the first wave in which nobody holds one of its keys.
fn naive(calls: &[Arc<ResolvedCall>]) -> Vec<Vec<usize>> {
    let clash = |a: &ResolvedCall, b: &ResolvedCall| {
        let meets = |x: &[Arc<str>], y: &[Arc<str>]| x.iter().any(|key| y.contains(key));
        meets(&a.keys.writes, &b.keys.writes)
            || meets(&a.keys.writes, &b.keys.reads)
            || meets(&a.keys.reads, &b.keys.writes)
    };
    let mut waves: Vec<Vec<usize>> = Vec::new();
    for (position, call) in calls.iter().enumerate() {
        match waves
            .iter_mut()
            .find(|wave| wave.iter().all(|&other| !clash(&calls[other], call)))
        {
            Some(wave) => wave.push(position),
            None => waves.push(vec![position]),
        }
    }
    waves
}

type Case = (&'static str, fn(usize) -> Set);

fn bench(criterion: &mut Criterion) {
    let cases: [Case; 6] = [
        ("no keys", |calls| keyed(calls, |_| Keys::NONE)),
        ("distinct keys", |calls| {
            keyed(calls, |position| writes(format!("order:{position}")))
        }),
        ("distinct paths", |calls| {
            keyed(calls, |position| {
                writes(format!("orders/{}/{position}", position % 8))
            })
        }),
        ("one key, readers", |calls| {
            keyed(calls, |_| reads("orders".to_owned()))
        }),
        ("one key, writers", |calls| {
            keyed(calls, |_| writes("orders".to_owned()))
        }),
        ("placeholders and guesses", dependent),
    ];
    let policy = Policy::standard();
    let grounds = Grounds::default();
    let context = Context::new(&policy, &Plenty, &grounds);
    for (name, make) in cases {
        let mut group = criterion.benchmark_group(name);
        group
            .warm_up_time(Duration::from_millis(200))
            .measurement_time(Duration::from_secs(1))
            .sample_size(20);
        for calls in [16, 256, 4096] {
            let set = make(calls);
            group.throughput(Throughput::Elements(calls as u64));
            group.bench_with_input(BenchmarkId::new("plan", calls), &set, |bench, set| {
                bench.iter(|| plan::plan(black_box(set), &context));
            });
            group.bench_with_input(BenchmarkId::new("naive", calls), &set, |bench, set| {
                bench.iter(|| naive(black_box(set)));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, bench);
criterion_main!(benches);
