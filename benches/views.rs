//! What one version of the database costs: a set of reads through one view, beside the same reads with less or with less
//! speed.
//!
//! `cargo bench --bench views`. A SQLite file with a write-ahead log is read by sets of 2, 4 and 8 reads, each of about
//! 0.05, 1 or 20 ms:
//!
//! - `view`: by the coordinator, through one view; everything that a turn costs is in it, to the note of the report.
//! - `pool`: together, on as many plain connections as there are reads. Each sees the version that it happens to find.
//! - `transaction`: one after another in one transaction on one connection, as views are commonly had.
//!
//! The figures depend on the machine, its processors above all; a read's time is calibrated at the start, so that the cells
//! mean the same elsewhere. What counts is their ratios in one run: `view` to `pool` is the price of one version, and
//! `view` to `transaction` is what is gained over waiting in turn. Short reads run in turn in a view too, because a second
//! connection would cost more than it saves.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use coeval::registry::Registry;
use coeval::source::sqlite::{SqliteOptions, SqliteSource};
use coeval::tool::Tool;
use coeval::{Call, CallSet, Coordinator};
use criterion::{BatchSize, BenchmarkId, Criterion, SamplingMode, criterion_group, criterion_main};
use futures_util::future::join_all;
use serde_json::json;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
};
use sqlx::{Connection as _, Row as _};
use tokio::time::Instant;

const ROWS: i64 = 600_000;
const MOST_READS: u32 = 8;

const FILL: &str = "CREATE TABLE orders (order_id INTEGER PRIMARY KEY, cents INTEGER, percent INTEGER);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 600000)
    INSERT INTO orders SELECT i, i % 9973, i % 23 FROM n";
/// The read as a tool has it, and as the driver wants it.
const NAMED: &str =
    "SELECT sum(cents * (100 - percent) / 100) AS total FROM orders WHERE order_id BETWEEN :first AND :last";
const NUMBERED: &str =
    "SELECT sum(cents * (100 - percent) / 100) AS total FROM orders WHERE order_id BETWEEN ?1 AND ?2";

/// Where a read begins and ends. No two reads of a set are the same.
fn ranges(reads: i64, rows: i64) -> Vec<(i64, i64)> {
    (0..reads).map(|read| (1 + read, rows + read)).collect()
}

async fn read(connection: &mut SqliteConnection, (first, last): (i64, i64)) -> i64 {
    let query = sqlx::query(NUMBERED).bind(first).bind(last);
    query.fetch_one(connection).await.expect("the read runs").get(0)
}

async fn fill(path: &Path) {
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
    let mut connection = SqliteConnection::connect_with(&options.journal_mode(SqliteJournalMode::Wal))
        .await
        .expect("the file can be made");
    sqlx::raw_sql(FILL)
        .execute(&mut connection)
        .await
        .expect("the table is filled");
    connection.close().await.expect("it was open");
}

async fn pool(path: &Path) -> SqlitePool {
    let options = SqliteConnectOptions::new().filename(path).read_only(true);
    let pool = SqlitePoolOptions::new()
        .max_connections(MOST_READS)
        .min_connections(MOST_READS);
    pool.connect_with(options).await.expect("the file can be read")
}

/// The fastest of some runs: what else the machine does only ever adds.
async fn fastest(connection: &mut SqliteConnection, rows: i64) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..10 {
        let start = Instant::now();
        read(connection, (1, rows)).await;
        best = best.min(start.elapsed().as_secs_f64());
    }
    best
}

/// How many rows a read of so many seconds goes through, its way to the connection's thread and back included.
#[expect(clippy::cast_possible_truncation, reason = "a number of rows")]
fn rows_of(seconds: f64, shortest: f64, longest: f64) -> i64 {
    let share = (seconds - shortest).max(0.0) / (longest - shortest);
    let rows = (share * ROWS as f64) as i64;
    rows.clamp(1, ROWS - i64::from(MOST_READS))
}

async fn coordinator(path: &Path) -> (SqliteSource, Coordinator) {
    let atlas = SqliteSource::open(SqliteOptions::new("atlas", path)).expect("the path is plain");
    let registry = Registry::new();
    let (spec, tool) = atlas
        .tool("total", NAMED, ["first", "last"])
        .await
        .expect("the statement is a read");
    registry
        .register(Tool::raw(spec, tool))
        .expect("the name is free");
    let coordinator = Coordinator::builder(registry)
        .source(Arc::new(atlas.clone()))
        .build();
    (atlas, coordinator)
}

fn bench(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("atlas.db");
    let (pool, shortest, longest) = runtime.block_on(async {
        fill(&path).await;
        let pool = pool(&path).await;
        let mut connection = pool.acquire().await.expect("one is free");
        let (shortest, longest) = (
            fastest(&mut connection, 1).await,
            fastest(&mut connection, ROWS).await,
        );
        drop(connection);
        (pool, shortest, longest)
    });
    let pool = &pool;
    for (name, seconds) in [("0.05 ms", 0.05e-3), ("1 ms", 1e-3), ("20 ms", 20e-3)] {
        // A source learns how long its reads take; reads of another length are another database's.
        let (atlas, coordinator) = runtime.block_on(coordinator(&path));
        let mut group = criterion.benchmark_group(format!("reads of {name}"));
        group
            .warm_up_time(Duration::from_millis(300))
            .measurement_time(Duration::from_secs(1))
            .sample_size(15)
            .sampling_mode(SamplingMode::Flat);
        for reads in [2, 4, i64::from(MOST_READS)] {
            let ranges = ranges(reads, rows_of(seconds, shortest, longest));
            let set = CallSet::new(ranges.iter().enumerate().map(|(place, (first, last))| {
                Call::new(
                    format!("c{place}"),
                    "total",
                    json!({"first": first, "last": last}),
                )
            }));
            // Figures for anything but a set that may be compared would be figures of something else.
            let report = runtime
                .block_on(coordinator.run(set.clone()))
                .expect("the set runs");
            assert_eq!(report.consistency.comparable, Some(true), "{}", report.note);

            group.bench_with_input(BenchmarkId::new("view", reads), &set, |bench, set| {
                bench.to_async(&runtime).iter_batched(
                    || set.clone(),
                    |set| async { coordinator.run(set).await.expect("the set runs") },
                    BatchSize::SmallInput,
                );
            });
            group.bench_with_input(BenchmarkId::new("pool", reads), &ranges, |bench, ranges| {
                bench.to_async(&runtime).iter(|| {
                    join_all(ranges.iter().map(|&range| async move {
                        let mut connection = pool.acquire().await.expect("one is free");
                        read(&mut connection, range).await
                    }))
                });
            });
            group.bench_with_input(
                BenchmarkId::new("transaction", reads),
                &ranges,
                |bench, ranges| {
                    bench.to_async(&runtime).iter(|| async {
                        let mut transaction = pool.begin().await.expect("one is free");
                        let mut totals = Vec::with_capacity(ranges.len());
                        for &range in ranges {
                            totals.push(read(&mut transaction, range).await);
                        }
                        transaction.rollback().await.expect("it was open");
                        totals
                    });
                },
            );
        }
        group.finish();
        runtime.block_on(async {
            coordinator.shutdown().await;
            atlas.shutdown().await;
        });
    }
    runtime.block_on(pool.close());
}

criterion_group!(benches, bench);
criterion_main!(benches);
