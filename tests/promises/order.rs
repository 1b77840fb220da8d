//! What is fast and what is slow shows nowhere in what a set answers.

use std::sync::{Arc, Mutex};

use coeval::plan::PolicyName;
use coeval::request::CallRequest;
use coeval::tool::{Tool, ToolSpec};
use coeval::{BoxError, CallSet};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use serde_json::json;

use super::{ms, paused};
use crate::support::lab::call;

#[derive(Clone, Debug)]
enum Does {
    Look(u8),
    Change,
    Fail,
    /// Gets another call's value.
    Echo(usize),
    /// Needs another call's success.
    Follow(usize),
}

fn any_does() -> impl Strategy<Value = Does> {
    prop_oneof![
        5 => (0..3_u8).prop_map(Does::Look),
        2 => Just(Does::Change),
        1 => Just(Does::Fail),
        2 => (0..8_usize).prop_map(Does::Echo),
        1 => (0..8_usize).prop_map(Does::Follow),
    ]
}

/// Runs the set over a world with a counter, each body taking as long as it is told by where it stands.
async fn answers(does: &[Does], policy: PolicyName, delays: &[u64]) -> String {
    let registry = coeval::registry::Registry::new();
    let counter = Arc::new(Mutex::new(0_u32));
    for spec in [
        ToolSpec::read("look"),
        ToolSpec::write("change"),
        ToolSpec::read("fail"),
    ] {
        let (counter, delays) = (Arc::clone(&counter), delays.to_vec());
        let body = move |call: CallRequest| {
            let (counter, delay) = (Arc::clone(&counter), delays[call.position()]);
            async move {
                tokio::time::sleep(ms(delay / 2)).await;
                let seen = {
                    let mut counter = counter.lock().unwrap();
                    *counter += u32::from(&**call.tool() == "change");
                    *counter
                };
                tokio::time::sleep(ms(delay - delay / 2)).await;
                match &**call.tool() {
                    "fail" => Err(BoxError::from(format!("failed at {seen}"))),
                    _ => Ok(json!({"seen": seen, "told": call.arguments.get("told")})),
                }
            }
        };
        registry
            .register(Tool::raw_fn(spec.dependency("one"), body))
            .unwrap();
    }
    let calls = does.iter().enumerate().map(|(position, does)| {
        let id = format!("c{position}");
        match does {
            Does::Look(n) => call(&id, "look", json!({"n": n})),
            Does::Change => call(&id, "change", json!({})),
            Does::Fail => call(&id, "fail", json!({})),
            Does::Echo(other) => call(&id, "look", json!({"told": format!("{{{{c{other}}}}}")})),
            Does::Follow(other) => call(&id, "look", json!({"n": position})).after([*other]),
        }
    });
    let mut set = CallSet::new(calls);
    set.policy = Some(policy);
    let report = coeval::Coordinator::new(registry).run(set).await.unwrap();
    let told = report.results.iter().map(|result| {
        json!([
            result.id,
            result.outcome,
            result.value,
            result.error,
            result.shared_with,
            result.attempts
        ])
    });
    serde_json::to_string(&(
        told.collect::<Vec<_>>(),
        &report.called,
        &report.plan,
        &report.decision,
    ))
    .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    /// B18, B19, GO-11: the same set, a hundred times, with other delays each time: identical bytes, values included.
    #[test]
    fn delays_change_no_byte(
        does in prop::collection::vec(any_does(), 1..8),
        policy in prop::sample::select(PolicyName::ALL.to_vec()),
        seed in any::<[u8; 32]>(),
    ) {
        let slowest_last: Vec<u64> = (0..does.len() as u64).collect();
        let first = paused(answers(&does, policy, &slowest_last));
        let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
        for _ in 0..100 {
            let delays = prop::collection::vec(0..50_u64, does.len()).new_tree(&mut runner).unwrap().current();
            assert_eq!(first, paused(answers(&does, policy, &delays)), "with {delays:?}");
        }
    }
}
