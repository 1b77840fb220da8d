//! A value that looks guessed is looked up in what its producers returned, before the call runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use coeval::reading::{Answer, ErrorCode, Outcome};
use coeval::request::CallRequest;
use coeval::tool::{Tool, ToolSpec};
use coeval::{BoxError, CallSet};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{ms, paused};
use crate::support::lab::{Lab, call};

/// What a producer comes back with.
#[derive(Clone, Debug)]
enum Gives {
    Rows(Vec<u8>),
    /// Truncated: there may be more.
    Part(Vec<u8>),
    /// An answer without the field it was declared to have.
    Other,
    Fails,
}

fn any_gives() -> impl Strategy<Value = Gives> {
    let ids = || prop::collection::vec(0..6_u8, 0..4);
    prop_oneof![
        4 => ids().prop_map(Gives::Rows),
        1 => ids().prop_map(Gives::Part),
        1 => Just(Gives::Other),
        1 => Just(Gives::Fails),
    ]
}

fn rows(ids: &[u8]) -> Value {
    json!({"rows": ids.iter().map(|id| json!({"order_id": id})).collect::<Vec<_>>()})
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Found: it runs, and leans on its producers. Not found: refused. Not to be known: it runs, and says so.
    #[test]
    fn a_guess_is_looked_up_in_what_its_producers_returned(
        producers in prop::collection::vec((any_gives(), 0..30_u64), 1..4),
        guess in 0..6_u8,
        place in 0..4_usize,
    ) {
        paused(async {
            let lab = Lab::new();
            // The answers are the producers' own: what stands in a call's arguments it was only given.
            let answers: Vec<_> = producers.iter().map(|(gives, _)| match gives {
                Gives::Rows(ids) => Some(Answer::new(rows(ids))),
                Gives::Part(ids) => Some(Answer::new(rows(ids)).incomplete()),
                Gives::Other => Some(Answer::new(json!({"none": 1}))),
                Gives::Fails => None,
            }).collect();
            let gave = Arc::new(AtomicUsize::new(0));
            let ended = Arc::clone(&gave);
            let body = move |call: CallRequest| {
                let argument = |name: &str| call.arguments[name].as_u64().unwrap();
                let (n, wait, ended) = (usize::try_from(argument("n")).unwrap(), argument("ms"), Arc::clone(&ended));
                let answer = answers[n].clone().ok_or_else(|| BoxError::from("no"));
                async move {
                    tokio::time::sleep(ms(wait)).await;
                    ended.fetch_add(1, SeqCst);
                    answer
                }
            };
            let spec = ToolSpec::read("gives").output_fields(["order_id"]).dependency("plenty");
            lab.registry.register(Tool::raw_fn(spec, body)).unwrap();
            let late = Arc::clone(&gave);
            let look = move |_: CallRequest| {
                let before = late.load(SeqCst);
                async move { Ok::<_, BoxError>(json!(before)) }
            };
            lab.registry.register(Tool::raw_fn(ToolSpec::read("takes").dependency("plenty"), look)).unwrap();

            let gives = producers.iter().enumerate().map(|(n, (_, ms))| call("", "gives", json!({"ms": ms, "n": n})));
            let mut calls: Vec<_> = gives.collect();
            let place = place.min(calls.len());
            calls.insert(place, call("", "takes", json!({"order_id": guess})));
            let report = lab.coordinator().run(CallSet::new(calls)).await.unwrap();

            let found = producers.iter().any(|(gives, _)| matches!(gives, Gives::Rows(ids) | Gives::Part(ids) if ids.contains(&guess)));
            let whole = producers.iter().all(|(gives, _)| matches!(gives, Gives::Rows(_) | Gives::Other));
            let field = producers.iter().any(|(gives, _)| matches!(gives, Gives::Rows(ids) | Gives::Part(ids) if !ids.is_empty()));
            let result = &report.results[place];
            if found {
                assert_eq!((result.outcome, result.unverified.len()), (Outcome::Ok, 0), "{result:?}");
                assert_eq!(result.facts.leans_on.len(), producers.len());
            } else if whole && field {
                assert_eq!(result.error.as_ref().map(|error| error.code), Some(ErrorCode::GuessedArgument));
            } else {
                assert_eq!((result.outcome, result.unverified.join(",").as_str()), (Outcome::Ok, "order_id"), "{result:?}");
            }
            if let Some(before) = &result.value {
                assert_eq!(before, &json!(producers.len()), "it ran before its producers had ended");
            }
        });
    }
}
