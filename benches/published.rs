//! Replays, on virtual time, what was published about running four reads of a turn together, and what other plans cost.
//!
//! Published: one after another p50 2.1 s, p95 4.4 s; in parallel 0.9 s, 1.6 s. Latencies are drawn from the log-normal
//! distribution whose sum of four has the sequential column's percentiles; everything else follows. The bound of any
//! parallel plan is the slowest of the four calls. It is a replay and no measurement: the clock is virtual, so what is
//! shown is what waiting costs, not what computing costs.

use std::sync::Arc;
use std::time::Duration;

use coeval::clock::VirtualClock;
use coeval::coordinator::Coordinator;
use coeval::registry::Registry;
use coeval::request::CallRequest;
use coeval::tool::{ArgumentMap, Keys, PerCall, Tool, ToolSpec};
use coeval::{BoxError, Call, CallSet};
use serde_json::{Value, json};
use tokio::time::Instant;

const SETS: usize = 4_000;

/// A small generator that gives the same draws everywhere.
struct Draws(u64);

impl Draws {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let (a, b) = (self.uniform().max(f64::MIN_POSITIVE), self.uniform());
        (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an index into the values"
)]
fn percentile(values: &mut [f64], p: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * p).round() as usize]
}

/// Latencies of four calls a set, in seconds, whose sums have the published sequential percentiles.
fn latencies() -> Vec<[f64; 4]> {
    let mut draws = Draws(7);
    let normals: Vec<[f64; 4]> = (0..SETS)
        .map(|_| std::array::from_fn(|_| draws.normal()))
        .collect();
    let sums = |sigma: f64| -> Vec<f64> {
        normals
            .iter()
            .map(|set| set.iter().map(|n| (sigma * n).exp()).sum())
            .collect()
    };
    // The ratio of the percentiles grows with sigma, and the scale follows from the median.
    let (mut low, mut high) = (0.01, 3.0);
    for _ in 0..60 {
        let sigma = f64::midpoint(low, high);
        let mut sums = sums(sigma);
        match percentile(&mut sums, 0.95) / percentile(&mut sums, 0.5) > 4.4 / 2.1 {
            true => high = sigma,
            false => low = sigma,
        }
    }
    let scale = 2.1 / percentile(&mut sums(low), 0.5);
    normals
        .iter()
        .map(|set| set.map(|n| scale * (low * n).exp()))
        .collect()
}

fn sleeper(spec: ToolSpec) -> Tool {
    Tool::raw_fn(spec, |request: CallRequest| async move {
        let ms = request.arguments["ms"].as_f64().unwrap_or(0.0);
        tokio::time::sleep(Duration::from_secs_f64(ms / 1e3)).await;
        Ok::<_, BoxError>(Value::Null)
    })
}

fn coordinator() -> Coordinator {
    let registry = Registry::new();
    for name in ["contract", "orders", "invoices", "payments"] {
        registry
            .register(sleeper(ToolSpec::read(name)))
            .expect("the name is free");
    }
    let key = |arguments: &ArgumentMap| {
        let key = arguments["key"].as_str().ok_or("no key")?;
        Ok::<_, BoxError>(Keys {
            reads: Vec::new(),
            writes: vec![key.into()],
        })
    };
    registry
        .register(sleeper(ToolSpec::read("keyed").keys(PerCall::decide(key))))
        .expect("the name is free");
    let clock = VirtualClock::starting_at("2026-01-01T00:00:00Z".parse().expect("a timestamp"));
    Coordinator::builder(registry).clock(Arc::new(clock)).build()
}

fn main() {
    // `cargo test --benches` and tools that list tests pass flags; there is nothing to list.
    if std::env::args().any(|arg| arg == "--list" || arg == "--test") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.expect("a runtime").block_on(async {
        let coordinator = coordinator();
        let (mut serial, mut ours, mut bound) = (Vec::new(), Vec::new(), Vec::new());
        for set in latencies() {
            let names = ["contract", "orders", "invoices", "payments"];
            let calls = names
                .iter()
                .zip(&set)
                .map(|(name, s)| Call::new(*name, *name, json!({"ms": s * 1e3})));
            let began = Instant::now();
            coordinator.run(CallSet::new(calls)).await.expect("the set runs");
            ours.push(began.elapsed().as_secs_f64());
            serial.push(set.iter().sum());
            bound.push(set.iter().copied().fold(0.0, f64::max));
        }
        println!("four reads of a turn, {SETS} sets, latencies drawn to fit the sequential column; seconds");
        println!("{:<44} {:>6} {:>6}", "", "p50", "p95");
        for (name, p50, p95) in [
            ("published, one after another", 2.1, 4.4),
            ("published, parallel", 0.9, 1.6),
        ] {
            println!("{name:<44} {p50:>6.2} {p95:>6.2}");
        }
        for (name, values) in [
            ("replayed, one after another", &mut serial),
            ("Coeval", &mut ours),
            ("bound of any parallel plan (slowest call)", &mut bound),
        ] {
            println!(
                "{name:<44} {:>6.2} {:>6.2}",
                percentile(values, 0.5),
                percentile(values, 0.95)
            );
        }

        let pattern = [("a", 100.0), ("b", 1.0), ("a", 1.0), ("b", 100.0)];
        let calls = pattern
            .iter()
            .map(|(key, ms)| Call::new(*key, "keyed", json!({"key": key, "ms": ms})));
        let began = Instant::now();
        coordinator.run(CallSet::new(calls)).await.expect("the set runs");
        let ours = began.elapsed().as_secs_f64() * 1e3;
        println!("\nkeys a@100 b@1 a@1 b@100 ms: waves 202, chains 103, critical path 101, Coeval {ours:.0}");
    });
}
