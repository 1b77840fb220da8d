//! G5: limits hold across all sets of the process.

use std::num::NonZeroUsize;
use std::time::Duration;

use coeval::CallSet;
use coeval::limit::{Limits, Quota};
use coeval::tool::ToolSpec;
use proptest::prelude::*;
use serde_json::json;

use super::{FOR_EVER, ms, paused};
use crate::support::lab::{Lab, Span, call};

/// How many of these bodies ran at once, at most.
fn peak(spans: &[Span]) -> usize {
    let at_once = |tick: usize| {
        spans
            .iter()
            .filter(|span| (span.began_at..span.ended_at).contains(&tick))
            .count()
    };
    spans.iter().map(|span| at_once(span.began_at)).max().unwrap_or(0)
}

#[derive(Clone, Debug)]
struct Asked {
    /// When the set comes, and when it is dropped, if it is.
    at: u64,
    dropped: Option<u64>,
    calls: Vec<(bool, u64)>,
    places: usize,
}

fn any_asked() -> impl Strategy<Value = Asked> {
    let calls = prop::collection::vec((prop::bool::weighted(0.8), 0..30_u64), 1..12);
    let dropped = prop::option::weighted(0.2, 0..300_u64);
    (0..120_u64, dropped, calls, 1..6_usize).prop_map(|(at, dropped, calls, places)| Asked {
        at,
        dropped,
        calls,
        places,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Several sets at once, some dropped midway: never more of a dependency's calls in flight than its allowance, and no
    /// half-open window of `per` with more than `limit + burst - 1` starts.
    #[test]
    fn allowances_and_quotas_hold_over_all_sets(
        sets in prop::collection::vec(any_asked(), 1..4),
        allowance in 1..4_usize,
        limit in prop::sample::select(vec![1_u32, 2, 4, 5, 10]),
        burst in 1..5_u32,
    ) {
        paused(async {
            let lab = Lab::new();
            lab.tool(ToolSpec::read("crm").dependency("crm"));
            lab.tool(ToolSpec::read("other").dependency("other"));
            let quota = Quota::new(limit, Duration::from_millis(100)).burst(burst);
            let limits = Limits::builder().allowance("crm", allowance).quota("crm", quota).build().unwrap();
            let running = sets.iter().enumerate().map(|(number, asked)| {
                // One coordinator a width, one set of limits for all.
                let places = NonZeroUsize::new(asked.places).unwrap();
                let coordinator = lab.builder().limits(limits.clone()).max_concurrency(places).build();
                let calls = asked.calls.iter().enumerate().map(|(n, (crm, ms))| {
                    call("", if *crm { "crm" } else { "other" }, json!({"ms": ms, "n": [number, n]}))
                });
                let set = CallSet::new(calls);
                async move {
                    tokio::time::sleep(ms(asked.at)).await;
                    let patience = asked.dropped.map_or(FOR_EVER, ms);
                    let report = tokio::time::timeout(patience, coordinator.run(set)).await;
                    assert!(report.is_ok() || asked.dropped.is_some(), "what waits for a limit gets its turn");
                    assert!(report.iter().flatten().flat_map(|report| &report.results).all(|result| result.is_ok()));
                }
            });
            futures_util::future::join_all(running).await;
            let spans: Vec<Span> = lab.log.spans().into_iter().filter(|span| span.tool == "crm").collect();
            assert!(peak(&spans) <= allowance, "{} of {allowance} at once", peak(&spans));
            let starts: Vec<u64> = spans.iter().map(|span| span.began).collect();
            let most = usize::try_from(limit + burst - 1).unwrap();
            for window in starts.windows(most + 1) {
                assert!(window[most] - window[0] >= 100, "{most} and one more within 100 ms: {window:?}");
            }
        });
    }
}
