//! What may be claimed of readings together, and what never: cases, then laws over random sets.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use coeval::call::{Call, CallRef, CallSet, Purpose};
use coeval::clock::{Moment, Mono};
use coeval::reading::{Basis, CallError, ErrorCode, Outcome, Stamp, UnprovenReason, ViewId};
use coeval::report::{Asked, CallResult, Comparison, Consistency, EarlierReading, IssueKind, VerdictKind};
use coeval::tool::Class;
use coeval::verdict::{self, Member, Settings};
use proptest::prelude::*;
use serde_json::json;

/// One call, to be varied.
#[derive(Clone, Debug)]
struct Given {
    tool: String,
    class: Class,
    outcome: Outcome,
    complete: bool,
    view: Option<ViewId>,
    stamp: Option<Stamp>,
    unsound: Option<UnprovenReason>,
    one_state: bool,
    shared_with: Option<usize>,
    leans_on: Vec<usize>,
    leans_on_earlier: bool,
    epoch: usize,
}

impl Given {
    fn member(&self) -> Member<'_> {
        Member {
            tool: &self.tool,
            class: self.class,
            outcome: self.outcome,
            complete: self.complete,
            view: self.view.as_ref(),
            stamp: self.stamp.as_ref(),
            unsound: self.unsound,
            one_state: self.one_state,
            shared_with: self.shared_with,
            leans_on: &self.leans_on,
            leans_on_earlier: self.leans_on_earlier,
            epoch: self.epoch,
        }
    }

    fn at(mut self, start_ms: i64, end_ms: i64) -> Self {
        self.stamp = Some(between(start_ms, end_ms));
        self
    }

    fn leaning_on(mut self, call: usize) -> Self {
        self.leans_on.push(call);
        self
    }
}

fn moment(ms: i64) -> Moment {
    let issued: DateTime<Utc> = "2026-01-02T14:22:01Z".parse().unwrap();
    let nanos = u64::try_from(ms + 1_000_000).unwrap() * 1_000_000;
    Moment {
        wall: issued + TimeDelta::milliseconds(ms),
        mono: Some(Mono::from_nanos(nanos)),
    }
}

fn between(start_ms: i64, end_ms: i64) -> Stamp {
    Stamp::receipt(moment(start_ms), moment(end_ms))
}

/// The `number`th of all views.
fn view(number: usize) -> ViewId {
    serde_json::from_value(json!(format!("view-{number}"))).unwrap()
}

/// A read through a view; each view has its own millisecond.
fn through(number: usize) -> Given {
    let start = i64::try_from(number).unwrap();
    let stamp = Stamp {
        basis: Basis::Snapshot,
        source: Some("atlas".into()),
        ..between(start, start + 1)
    };
    Given {
        view: Some(view(number)),
        stamp: Some(stamp),
        ..outside()
    }
}

/// A read outside every view.
fn outside() -> Given {
    Given {
        tool: "get_ticket".into(),
        class: Class::Read,
        outcome: Outcome::Ok,
        complete: true,
        view: None,
        stamp: Some(between(0, 1)),
        unsound: None,
        one_state: false,
        shared_with: None,
        leans_on: Vec::new(),
        leans_on_earlier: false,
        epoch: 0,
    }
}

fn named(tool: &str, given: Given) -> Given {
    Given {
        tool: tool.into(),
        ..given
    }
}

fn failed(given: Given) -> Given {
    Given {
        outcome: Outcome::Failed,
        view: None,
        stamp: None,
        complete: false,
        ..given
    }
}

fn write() -> Given {
    Given {
        class: Class::Write,
        ..outside()
    }
}

fn judge(calls: &[Given]) -> Consistency {
    judge_asked(calls, &Asked::default())
}

fn judge_asked(calls: &[Given], asked: &Asked) -> Consistency {
    let members: Vec<Member<'_>> = calls.iter().map(Given::member).collect();
    verdict::judge(&members, asked, &Settings::default())
}

fn comparing(groups: &[&[usize]]) -> Asked {
    let compare = groups.iter().map(|calls| Comparison {
        calls: calls.to_vec(),
        unknown: Vec::new(),
    });
    Asked {
        compare: compare.collect(),
        ..Asked::default()
    }
}

fn excluded(consistency: &Consistency) -> Vec<usize> {
    consistency
        .excluded
        .iter()
        .map(|excluded| excluded.call)
        .collect()
}

fn issue(consistency: &Consistency) -> Option<IssueKind> {
    consistency.issue.as_ref().map(|issue| issue.kind)
}

#[track_caller]
fn assert_unproven(consistency: &Consistency, reason: UnprovenReason) {
    let found = (consistency.verdict, consistency.reason, consistency.comparable);
    assert_eq!(
        found,
        (VerdictKind::Unproven, Some(reason), Some(false)),
        "{consistency:?}"
    );
}

/// AT-14, AT-17: one view is one world.
#[test]
fn readings_of_one_view_may_be_compared() {
    let found = judge(&[through(1), through(1), through(1)]);
    assert_eq!(found.verdict, VerdictKind::SameView);
    assert_eq!(found.comparable, Some(true));
    assert_eq!(found.inconsistent, Some(false));
    assert_eq!(
        (found.spread_ms, found.spread_exceeded, found.widest),
        (Some(0.0), Some(false), None)
    );
    assert_eq!(found.groups, [[0, 1, 2]]);
    assert!(found.excluded.is_empty() && found.issue.is_none() && found.would_help.is_none());
    assert_eq!(
        found.because,
        "All 3 readings come from one snapshot of atlas, taken at 2026-01-02 14:22:01.001 UTC."
    );
}

/// AT-23: two reads of the same instant may straddle a write, so nearness proves nothing.
#[test]
fn readings_of_two_views_may_not_however_close_they_are() {
    let found = judge(&[through(1).at(0, 0), through(2).at(0, 0)]);
    assert_unproven(&found, UnprovenReason::NoWitness);
    assert_eq!(
        (found.spread_ms, found.spread_exceeded, found.inconsistent),
        (Some(0.0), Some(false), None)
    );
    assert!(found.groups.is_empty());
    assert_eq!(issue(&found), Some(IssueKind::Unproven));
}

/// Three good reads stay comparable beside one opaque call.
#[test]
fn an_opaque_reading_leaves_the_others_their_group() {
    let found = judge(&[through(1), through(1), named("search", outside()), through(1)]);
    assert_unproven(&found, UnprovenReason::UndeclaredSource);
    assert_eq!(found.groups, [[0, 1, 3]]);
    assert_eq!(excluded(&found), [2]);
    assert!(
        found
            .because
            .starts_with("search was read outside every snapshot"),
        "{}",
        found.because
    );
}

/// Hole 13: one state of its own is no witness for anything else's.
#[test]
fn two_answers_that_are_one_state_each_still_lack_a_witness() {
    let one_state = Given {
        one_state: true,
        ..outside()
    };
    assert_unproven(
        &judge(&[one_state.clone(), one_state.clone()]),
        UnprovenReason::NoWitness,
    );
    assert_unproven(&judge(&[through(1), one_state]), UnprovenReason::NoWitness);
}

/// Hole 18, B42: only a call that started as a write parts the reads before it from those after it.
#[test]
fn reads_on_either_side_of_a_write_are_not_comparable_and_the_write_is_named_as_the_cause() {
    let after = Given {
        epoch: 1,
        ..through(2)
    };
    let found = judge(&[through(1), through(1), write(), after.clone(), after]);
    assert_unproven(&found, UnprovenReason::NoWitness);
    assert_eq!(found.groups, [vec![0, 1], vec![3, 4]]);
    assert_eq!(excluded(&found), [2]);
    assert!(
        found.because.contains("because a write ran between them"),
        "{}",
        found.because
    );
    assert!(found.would_help.unwrap().contains("before the write"));
}

#[test]
fn a_write_is_no_reading_and_an_exclusive_call_may_be_one() {
    let found = judge(&[through(1), through(1), write()]);
    assert_eq!((found.comparable, excluded(&found)), (Some(true), vec![2]));
    let exclusive = Given {
        class: Class::Exclusive,
        ..outside()
    };
    assert_unproven(
        &judge(&[through(1), through(1), exclusive]),
        UnprovenReason::UndeclaredSource,
    );
}

/// Hole 16.
#[test]
fn a_part_of_an_answer_joins_no_group() {
    let found = judge(&[
        through(1),
        Given {
            complete: false,
            ..through(1)
        },
        through(1),
    ]);
    assert_unproven(&found, UnprovenReason::Incomplete);
    assert_eq!(
        (found.groups.clone(), excluded(&found)),
        (vec![vec![0, 2]], vec![1])
    );
    assert_eq!(issue(&found), Some(IssueKind::Incomplete));
}

#[test]
fn an_unsound_reading_brings_its_own_reason() {
    for reason in [
        UnprovenReason::DefinitionsChanged,
        UnprovenReason::UnknownEngine,
        UnprovenReason::ReplicaLag,
    ] {
        let found = judge(&[
            through(1),
            Given {
                unsound: Some(reason),
                ..through(1)
            },
            through(1),
        ]);
        assert_unproven(&found, reason);
        assert_eq!(
            (found.groups.clone(), excluded(&found)),
            (vec![vec![0, 2]], vec![1])
        );
    }
}

/// Hole 14: the verdict follows the data.
#[test]
fn an_argument_from_another_moment_keeps_its_call_out_of_the_group() {
    let found = judge(&[through(1), through(2), through(2).leaning_on(0)]);
    assert_unproven(&found, UnprovenReason::StaleArgument);
    // Also when only the consumers are compared, and for what leans on them in turn.
    let calls = [
        outside(),
        through(1),
        through(1).leaning_on(0),
        through(1).leaning_on(2),
        through(1),
    ];
    let found = judge_asked(&calls, &comparing(&[&[1, 3]]));
    assert_unproven(&found, UnprovenReason::StaleArgument);
    assert_eq!(
        (found.groups.clone(), excluded(&found)),
        (vec![vec![1, 4]], vec![0, 2, 3])
    );
    assert_eq!(judge_asked(&calls, &comparing(&[&[1, 4]])).comparable, Some(true));
}

#[test]
fn an_argument_from_the_same_view_is_as_good_as_a_constant() {
    let found = judge(&[through(1), through(1).leaning_on(0), through(1).leaning_on(1)]);
    assert_eq!(found.comparable, Some(true));
}

#[test]
fn a_missing_reading_makes_the_question_unanswerable_not_false() {
    let found = judge(&[through(1), through(1), named("list_orders", failed(outside()))]);
    assert_eq!(
        (found.verdict, found.comparable, found.inconsistent),
        (VerdictKind::SameView, None, None)
    );
    assert_eq!(found.groups, [[0, 1]]);
    let issue = found.issue.unwrap();
    assert_eq!(issue.kind, IssueKind::MissingReading);
    assert_eq!(
        issue.message,
        "The comparison can't be made: list_orders has no value."
    );
    // A write that failed is missed by nobody.
    assert_eq!(
        judge(&[through(1), through(1), failed(write())]).comparable,
        Some(true)
    );
}

/// AT-12.
#[test]
fn fewer_than_two_readings_are_nothing_to_compare() {
    for calls in [
        vec![],
        vec![through(1)],
        vec![outside()],
        vec![write(), outside()],
        vec![failed(outside())],
    ] {
        let found = judge(&calls);
        assert_eq!(
            (found.verdict, found.comparable, found.spread_ms),
            (VerdictKind::Single, None, None),
            "{calls:?}"
        );
        assert!(found.issue.is_none() && found.groups.is_empty() && found.excluded.len() == calls.len());
    }
    let found = judge(&[through(1), failed(through(1))]);
    assert_eq!((found.verdict, found.comparable), (VerdictKind::Single, None));
    assert_eq!(issue(&found), Some(IssueKind::MissingReading));
}

/// B56: one execution that answered several calls.
#[test]
fn equal_calls_share_a_view_or_are_one_reading() {
    let again = |given| Given {
        shared_with: Some(0),
        ..given
    };
    assert_eq!(judge(&[through(1), again(through(1))]).comparable, Some(true));
    let found = judge(&[outside(), again(outside()), again(outside())]);
    assert_eq!(
        (found.verdict, found.comparable, found.spread_ms),
        (VerdictKind::Single, None, None)
    );
    assert_unproven(
        &judge(&[outside(), again(outside()), through(1)]),
        UnprovenReason::UndeclaredSource,
    );
}

#[test]
fn each_comparison_that_was_asked_for_must_lie_in_one_group() {
    let calls = [
        through(1),
        through(1),
        through(2),
        through(2),
        outside(),
        write(),
        failed(outside()),
    ];
    let of = |groups: &[&[usize]]| judge_asked(&calls, &comparing(groups)).comparable;
    assert_eq!(of(&[&[0, 1]]), Some(true));
    assert_eq!(of(&[&[0, 1], &[2, 3]]), Some(true));
    assert_eq!(of(&[&[1, 2]]), Some(false));
    assert_eq!(of(&[&[0, 1], &[1, 2]]), Some(false));
    assert_eq!(of(&[&[0, 4]]), Some(false));
    assert_eq!(of(&[&[0, 6]]), None);
    assert_eq!(of(&[&[0, 4], &[0, 6]]), None);
    assert_eq!(of(&[&[0]]), None);
    assert_eq!(of(&[&[0], &[0, 1]]), Some(true));
    assert_eq!(of(&[&[0, 99]]), None);
    // Asked by name, a write is a reading that is missing.
    let found = judge_asked(&calls, &comparing(&[&[0, 5]]));
    assert_eq!(
        (found.comparable, issue(&found)),
        (None, Some(IssueKind::MissingReading))
    );
    // The groups are those of all calls, whatever was asked.
    assert_eq!(found.groups, [[0, 1], [2, 3]]);
}

/// AT-22: three of four stamps missing is not a spread of zero.
#[test]
fn what_has_no_stamp_is_unknown_and_never_consistent() {
    let stampless = Given {
        stamp: None,
        ..outside()
    };
    let found = judge(&[outside(), stampless.clone(), stampless.clone(), stampless.clone()]);
    assert_eq!(
        (found.verdict, found.comparable, found.reason),
        (VerdictKind::Unknown, Some(false), None)
    );
    assert_eq!(
        (found.spread_ms, found.spread_exceeded, found.inconsistent),
        (None, None, None)
    );
    assert_eq!(issue(&found), Some(IssueKind::Unproven));
    // What is known of the others can't vouch for it: only what is too much already is too much.
    let found = judge(&[outside().at(0, 1), outside().at(5, 6), stampless.clone()]);
    assert_eq!((found.spread_ms, found.spread_exceeded), (None, None));
    let found = judge(&[outside().at(0, 1), outside().at(5_000, 5_001), stampless]);
    assert_eq!(
        (found.spread_ms, found.spread_exceeded, found.inconsistent),
        (Some(5_001.0), Some(true), Some(true))
    );
    // Neither does a view without an interval make a group.
    let found = judge(&[
        through(1),
        Given {
            stamp: None,
            ..through(1)
        },
    ]);
    assert_eq!((found.verdict, found.groups.len()), (VerdictKind::Unknown, 0));
}

/// AT-11, AT-13, B81: over the tolerance, and strictly.
#[test]
fn a_spread_over_the_tolerance_is_reported_with_both_calls() {
    let exact = judge(&[outside().at(0, 0), outside().at(1_000, 2_000)]);
    assert_eq!(
        (exact.spread_ms, exact.spread_exceeded, exact.inconsistent),
        (Some(2_000.0), Some(false), None)
    );
    assert_eq!(issue(&exact), Some(IssueKind::Unproven));
    let over = judge(&[
        outside().at(500, 600),
        outside().at(0, 0),
        outside().at(1_000, 2_001),
    ]);
    assert_eq!(
        (over.spread_ms, over.spread_exceeded, over.inconsistent),
        (Some(2_001.0), Some(true), Some(true))
    );
    assert_eq!(over.widest, Some([1, 2]));
    let issue = over.issue.unwrap();
    assert_eq!(
        (issue.kind, issue.spread_ms),
        (IssueKind::InconsistentViews, Some(2_001.0))
    );
    assert_eq!(
        issue.message,
        "These were read up to 2.0 s apart and may disagree."
    );
    // One reading that took long is as far from a short one.
    assert_eq!(
        judge(&[outside().at(0, 5_000), outside().at(100, 200)]).widest,
        Some([1, 0])
    );
}

/// AT-15: for a report only the published check is worth a warning.
#[test]
fn a_report_is_not_troubled_by_what_it_does_not_compare() {
    let settings = Settings {
        purpose: Purpose::Report,
        ..Settings::default()
    };
    let of = |calls: &[Given], asked: &Asked| {
        let members: Vec<Member<'_>> = calls.iter().map(Given::member).collect();
        verdict::judge(&members, asked, &settings)
    };
    let near = [outside(), outside()];
    assert_eq!(issue(&of(&near, &Asked::default())), None);
    assert_eq!(of(&near, &Asked::default()).comparable, Some(false));
    assert_eq!(
        issue(&of(&[outside(), failed(outside())], &Asked::default())),
        None
    );
    let far = [outside().at(0, 1), outside().at(3_000, 3_001)];
    assert_eq!(
        issue(&of(&far, &Asked::default())),
        Some(IssueKind::InconsistentViews)
    );
    assert_eq!(
        issue(&of(&near, &comparing(&[&[0, 1]]))),
        Some(IssueKind::Unproven)
    );
}

/// The published check measures points; a view's readings are one.
#[test]
fn the_spread_counts_a_view_once_and_is_null_under_two() {
    let long = |given: Given| given.at(0, 9_000);
    assert_eq!(
        judge(&[long(through(1)), long(through(1)), failed(outside())]).spread_ms,
        None
    );
    let found = judge(&[
        long(through(1)),
        Given {
            complete: false,
            ..long(through(1))
        },
    ]);
    assert_eq!((found.comparable, found.spread_ms), (Some(false), None));
    let points = Asked {
        spread_on_points: true,
        ..Asked::default()
    };
    let found = judge_asked(&[outside().at(0, 9_000), outside().at(1_500, 9_000)], &points);
    assert_eq!(
        (found.spread_ms, found.spread_exceeded),
        (Some(1_500.0), Some(false))
    );
}

/// A declared field is shown and measured, and proves nothing.
#[test]
fn data_that_says_its_own_age_lies_where_it_says() {
    let loaded = |ms| {
        let stamp = Stamp {
            earliest: None,
            basis: Basis::Field,
            source_time: Some(moment(ms).wall),
            ..between(0, 5)
        };
        Given {
            stamp: Some(stamp),
            ..outside()
        }
    };
    let found = judge(&[loaded(-180_000), loaded(0)]);
    assert_unproven(&found, UnprovenReason::UndeclaredSource);
    assert_eq!(
        (found.spread_ms, issue(&found)),
        (Some(180_000.0), Some(IssueKind::InconsistentViews))
    );
    let found = judge(&[loaded(-180_000), loaded(-180_000)]);
    assert_unproven(&found, UnprovenReason::UndeclaredSource);
    assert_eq!((found.spread_ms, found.inconsistent), (Some(0.0), None));
    // A cache of unknown age has no time at all.
    let cached = Given {
        stamp: Some(Stamp {
            earliest: None,
            ..between(0, 5)
        }),
        ..outside()
    };
    assert_eq!(judge(&[loaded(0), cached]).verdict, VerdictKind::Unknown);
    // Not even in a view.
    let mut in_view = through(1);
    in_view.stamp.as_mut().unwrap().earliest = None;
    assert_eq!(judge(&[through(1), in_view]).comparable, Some(false));
}

fn earlier(number: Option<usize>) -> EarlierReading {
    EarlierReading {
        view: number.map(view),
        stamp: Some(between(-60_000, -59_999)),
    }
}

/// Hole 14: an earlier result that will be compared is a member of the judged set, and nothing has confirmed it.
#[test]
fn earlier_readings_stand_in_the_way_unless_they_carry_the_same_view() {
    let asked = |earlier: &[Option<usize>]| Asked {
        earlier: earlier.iter().copied().map(self::earlier).collect(),
        ..Asked::default()
    };
    let found = judge_asked(&[through(1), through(1)], &asked(&[Some(2)]));
    assert_unproven(&found, UnprovenReason::NoWitness);
    assert_eq!(found.groups, [[0, 1]]);
    assert!(
        found
            .because
            .starts_with("Nothing confirms that the earlier readings"),
        "{}",
        found.because
    );
    assert_unproven(
        &judge_asked(&[through(1)], &asked(&[None])),
        UnprovenReason::NoWitness,
    );
    assert_unproven(
        &judge_asked(&[through(1), through(1)], &asked(&[Some(1), None])),
        UnprovenReason::NoWitness,
    );
    for calls in [vec![through(1)], vec![through(1), through(1)]] {
        let found = judge_asked(&calls, &asked(&[Some(1), Some(1)]));
        assert_eq!(
            (found.verdict, found.comparable),
            (VerdictKind::SameView, Some(true))
        );
        assert_eq!(found.groups.len(), 1);
    }
    // An argument that rests on an earlier result is as old as that.
    let leans = Given {
        leans_on_earlier: true,
        ..through(1)
    };
    assert_unproven(
        &judge(&[leans.clone(), through(1)]),
        UnprovenReason::StaleArgument,
    );
    assert_eq!(
        judge_asked(&[leans, through(1)], &asked(&[Some(1)])).comparable,
        Some(true)
    );
}

#[test]
fn what_a_set_asks_is_found_by_id_and_position_and_a_name_that_fits_no_single_call_is_not_forgotten() {
    let call = |id: &str| Call::new(id, "t", json!({}));
    let mut set = CallSet::new([call("a"), call("b"), call("b")]);
    set.compare = vec![
        vec!["a".into(), 1.into(), 0.into()],
        vec!["a".into(), "b".into()],
        vec![7.into(), "c".into()],
    ];
    let asked = Asked::of(&set);
    let of = |calls: &[usize], unknown: &[CallRef]| Comparison {
        calls: calls.to_vec(),
        unknown: unknown.to_vec(),
    };
    assert_eq!(
        asked.compare,
        [
            of(&[0, 1], &[]),
            of(&[0], &["b".into()]),
            of(&[], &[7.into(), "c".into()])
        ]
    );

    let found = judge_asked(&[through(1), through(1), through(1)], &asked);
    assert_eq!(
        (found.comparable, issue(&found)),
        (None, Some(IssueKind::MissingReading))
    );
    let message = found.issue.unwrap().message;
    assert!(
        message.contains("\"b\", #7, \"c\" are names of no call, or of several"),
        "{message}"
    );
}

/// Of an earlier report only what it let be compared, or its only reading, vouches for its view; every value counts.
#[tokio::test]
async fn an_earlier_report_lends_its_views_only_where_they_hold() {
    use crate::contract::{failed, in_view, judged, ok, report};
    let view = |number: usize, id: &str| in_view(&format!("view-{number}"), ok(id, "t", json!(id)));
    let cut = CallResult {
        complete: false,
        ..view(1, "cut")
    };
    let mut unsound = view(1, "unsound");
    unsound.unsound = Some(UnprovenReason::DefinitionsChanged);
    let mut stale = view(1, "stale");
    stale.facts.leans_on = vec![3];
    let down = failed("down", "t", &CallError::new(ErrorCode::CallFailed, "no"));

    let earlier = vec![
        view(1, "a"),
        cut.clone(),
        unsound,
        ok("outside", "t", json!(1)),
        stale,
        down,
        view(1, "b"),
    ];
    let views = async |results: Vec<CallResult>| {
        // As it comes from another process.
        let json = serde_json::to_string(&judged(report(results)).await).unwrap();
        let set = CallSet {
            earlier: vec![serde_json::from_str(&json).unwrap()],
            ..CallSet::default()
        };
        let asked = Asked::of(&set);
        asked
            .earlier
            .into_iter()
            .map(|earlier| earlier.view)
            .collect::<Vec<_>>()
    };
    let one = || Some(self::view(1));
    assert_eq!(views(earlier).await, [one(), None, None, None, None, one()]);
    assert_eq!(views(vec![view(1, "only")]).await, [one()]);
    assert_eq!(views(vec![cut]).await, [None]);
    assert_eq!(views(vec![view(1, "a"), view(2, "b")]).await, [None, None]);
    // A report nobody judged vouches for nothing.
    let set = CallSet {
        earlier: vec![report(vec![view(1, "a"), view(1, "b")])],
        ..CallSet::default()
    };
    assert!(
        Asked::of(&set)
            .earlier
            .iter()
            .all(|earlier| earlier.view.is_none())
    );
}

/// The sentences, all in one place to be read.
#[test]
fn the_reasons_are_plain_sentences() {
    let (contract, orders) = (
        named("get_contract", through(1)),
        named("list_orders", through(2)),
    );
    let mut crm = orders.clone();
    crm.stamp.as_mut().unwrap().source = Some("crm".into());
    let because = |calls: &[Given]| judge(calls).because;
    assert_eq!(
        because(&[contract.clone(), crm]),
        "get_contract and list_orders were read through different snapshots: a change in between can't be ruled out, so \
         a mismatch is not a finding."
    );
    assert_eq!(
        because(&[contract.clone(), orders.clone().leaning_on(0)]),
        "An argument of list_orders came from get_contract, which was read at another moment and may have changed since."
    );
    assert_eq!(
        because(&[
            contract.clone(),
            Given {
                complete: false,
                ..contract.clone()
            }
        ]),
        "get_contract (#1) returned only a part of the answer, and which part may differ from read to read: it can't be \
         compared."
    );
    assert_eq!(
        because(&[
            contract.clone(),
            Given {
                stamp: None,
                ..orders.clone()
            }
        ]),
        "When list_orders was true is not known."
    );
    assert_eq!(
        because(&[contract.clone(), failed(orders)]),
        "Nothing to compare with: list_orders has no value."
    );
    assert_eq!(
        because(&[contract]),
        "There is only one reading, so there is nothing to compare."
    );
    let many: Vec<Given> = (0..8)
        .map(|number| named(&format!("t{number}"), outside()))
        .collect();
    assert_eq!(
        because(&many),
        "t0, t1, t2, t3 and 4 more were read outside every snapshot: a change in between can't be ruled out, so a \
         mismatch is not a finding."
    );
}

/// A thousand calls that each lean on the next: slow if leaving is found out one by one in the wrong order.
#[test]
fn a_long_chain_of_arguments_is_followed_to_its_end() {
    let mut calls: Vec<Given> = (0..1_000)
        .map(|position| through(1).leaning_on(position + 1))
        .collect();
    calls.push(outside());
    let found = judge(&calls);
    assert!(found.groups.is_empty());
    assert_eq!(found.excluded.len(), 1_001);
}

// Laws.

fn any_call(calls: usize) -> impl Strategy<Value = Given> {
    let class = prop_oneof![8 => Just(Class::Read), 1 => Just(Class::Write), 1 => Just(Class::Exclusive)];
    let outcome = prop_oneof![12 => Just(Outcome::Ok), 1 => Just(Outcome::Failed)];
    let view = prop_oneof![6 => Just(Some(0)), 2 => Just(Some(1)), 1 => Just(None)];
    let unsound = prop_oneof![
        14 => Just(None),
        1 => Just(Some(UnprovenReason::DefinitionsChanged)),
        1 => Just(Some(UnprovenReason::ReplicaLag)),
    ];
    let stamped = prop_oneof![14 => Just(true), 1 => Just(false)];
    let complete = prop_oneof![14 => Just(true), 1 => Just(false)];
    let leans = prop_oneof![6 => Just(None), 1 => (0..calls).prop_map(Some)];
    let earlier = prop_oneof![14 => Just(false), 1 => Just(true)];
    let times = (0..4_000_i64, 0..400_i64);
    (
        class,
        outcome,
        view,
        unsound,
        stamped,
        complete,
        leans,
        earlier,
        any::<bool>(),
        times,
    )
        .prop_map(
            |(
                class,
                outcome,
                number,
                unsound,
                stamped,
                complete,
                leans,
                earlier,
                one_state,
                (start, length),
            )| {
                let base = number.map_or_else(outside, through);
                let stamp = match number {
                    Some(_) => base.stamp.clone(),
                    None => Some(between(start, start + length)),
                };
                Given {
                    class,
                    outcome,
                    complete,
                    stamp: stamp.filter(|_| stamped),
                    unsound,
                    one_state,
                    leans_on: leans.into_iter().collect(),
                    leans_on_earlier: earlier,
                    ..base
                }
            },
        )
}

fn any_set() -> impl Strategy<Value = (Vec<Given>, Asked)> {
    (1_usize..9).prop_flat_map(|size| {
        let calls = prop::collection::vec(any_call(size), size);
        let group = prop::collection::btree_set(0..size, 0..size.min(4));
        let compare = prop_oneof![
            3 => Just(Vec::new()),
            2 => prop::collection::vec(group, 1..3),
        ];
        let earlier = prop_oneof![
            6 => Just(Vec::new()),
            1 => prop::collection::vec(prop_oneof![3 => Just(Some(0)), 1 => Just(None)], 1..3),
        ];
        (calls, compare, earlier).prop_map(|(calls, compare, earlier)| {
            let compare = compare.into_iter().map(|calls| Comparison {
                calls: calls.into_iter().collect(),
                unknown: Vec::new(),
            });
            let asked = Asked {
                compare: compare.collect(),
                earlier: earlier.into_iter().map(self::earlier).collect(),
                ..Asked::default()
            };
            (calls, asked)
        })
    })
}

/// Whether a call may be compared within its view, told anew and slowly: by following every argument to its source.
fn is_clean(calls: &[Given], asked: &Asked, position: usize, seen: &mut Vec<usize>) -> bool {
    if seen.contains(&position) {
        return true;
    }
    seen.push(position);
    let call = &calls[position];
    call.class != Class::Write
        && call.outcome == Outcome::Ok
        && call.complete
        && call.unsound.is_none()
        && call.view.is_some()
        && call.stamp.is_some()
        && (!call.leans_on_earlier
            || (!asked.earlier.is_empty() && asked.earlier.iter().all(|earlier| earlier.view == call.view)))
        && call
            .leans_on
            .iter()
            .all(|on| calls[*on].view == call.view && is_clean(calls, asked, *on, seen))
}

/// What the contract says of `comparable`, told anew.
fn comparable(calls: &[Given], asked: &Asked) -> Option<bool> {
    let reads = |position: &usize| calls[*position].class != Class::Write;
    let all: Vec<usize> = (0..calls.len()).filter(reads).collect();
    let groups: Vec<&Vec<usize>> = match asked.compare.as_slice() {
        [] => vec![&all],
        given => given.iter().map(|comparison| &comparison.calls).collect(),
    };
    let groups: Vec<_> = groups
        .into_iter()
        .filter(|group| group.len() + asked.earlier.len() >= 2)
        .collect();
    let is_read = |position: &usize| reads(position) && calls[*position].outcome == Outcome::Ok;
    if groups.is_empty()
        || groups
            .iter()
            .any(|group| group.is_empty() || !group.iter().all(is_read))
    {
        let all_there = groups.iter().all(|group| group.iter().all(is_read));
        let bad = groups
            .iter()
            .filter(|group| !group.is_empty())
            .any(|group| !holds(calls, asked, group));
        return if all_there && bad { Some(false) } else { None };
    }
    Some(groups.iter().all(|group| holds(calls, asked, group)))
}

fn holds(calls: &[Given], asked: &Asked, group: &[usize]) -> bool {
    let view = &calls[group[0]].view;
    group
        .iter()
        .all(|position| calls[*position].view == *view && is_clean(calls, asked, *position, &mut Vec::new()))
        && asked.earlier.iter().all(|earlier| earlier.view == *view)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// G8: said exactly when it is true, by a second way of finding out.
    #[test]
    fn comparable_is_what_the_contract_says((calls, asked) in any_set()) {
        prop_assert_eq!(judge_asked(&calls, &asked).comparable, comparable(&calls, &asked));
    }

    #[test]
    fn groups_and_excluded_name_each_call_once((calls, asked) in any_set()) {
        let found = judge_asked(&calls, &asked);
        let mut named: Vec<usize> = found.groups.concat();
        named.extend(excluded(&found));
        named.sort_unstable();
        prop_assert_eq!(named, (0..calls.len()).collect::<Vec<_>>());
    }

    #[test]
    fn a_group_is_of_one_view_and_none_of_it_is_cut_unsound_or_stale((calls, asked) in any_set()) {
        for group in judge_asked(&calls, &asked).groups {
            let view = &calls[group[0]].view;
            prop_assert!(group.len() > 1 || asked.earlier.iter().any(|earlier| earlier.view == *view));
            prop_assert!(group.is_sorted());
            for position in group {
                prop_assert_eq!(&calls[position].view, view);
                prop_assert!(is_clean(&calls, &asked, position, &mut Vec::new()));
            }
        }
    }

    #[test]
    fn a_comparable_set_has_nothing_to_warn_of((calls, asked) in any_set()) {
        let found = judge_asked(&calls, &asked);
        if found.comparable == Some(true) {
            prop_assert_eq!(found.verdict, VerdictKind::SameView);
            prop_assert_eq!((found.inconsistent, found.spread_ms, found.spread_exceeded), (Some(false), Some(0.0), Some(false)));
            prop_assert!(found.reason.is_none() && found.issue.is_none() && found.widest.is_none() && found.would_help.is_none());
        } else {
            prop_assert_ne!(found.inconsistent, Some(false));
        }
        // Nothing here can prove these.
        prop_assert!(!matches!(found.verdict, VerdictKind::Coexisted | VerdictKind::SourceClock | VerdictKind::Fractured));
        prop_assert_eq!(found.reason.is_some(), found.verdict == VerdictKind::Unproven);
        prop_assert!(found.spread_ms.is_none_or(|spread| spread >= 0.0));
    }

    #[test]
    fn an_opaque_reading_never_makes_a_set_comparable((calls, asked) in any_set(), one_state: bool) {
        let before = judge_asked(&calls, &asked);
        let mut more = calls.clone();
        more.push(Given { one_state, ..outside() });
        let after = judge_asked(&more, &asked);
        if asked.compare.is_empty() {
            prop_assert_ne!(after.comparable, Some(true));
        } else {
            prop_assert_eq!(after.comparable, before.comparable);
        }
        prop_assert_eq!(after.groups, before.groups);
    }

    /// Whatever is no longer known of a reading, nothing more may be claimed.
    #[test]
    fn less_knowledge_never_proves_more((calls, asked) in any_set(), which: prop::sample::Index, what in 0..5_usize) {
        let mut less = calls.clone();
        let call = &mut less[which.index(calls.len())];
        match what {
            0 => call.view = None,
            1 => call.stamp = None,
            2 => call.complete = false,
            3 => call.unsound = Some(UnprovenReason::NoWitness),
            _ => call.leans_on_earlier = true,
        }
        let (before, after) = (judge_asked(&calls, &asked), judge_asked(&less, &asked));
        if after.comparable == Some(true) {
            prop_assert_eq!(before.comparable, Some(true));
        }
    }

    /// The model's order numbers the calls and says nothing else.
    #[test]
    fn another_order_changes_nothing_but_the_numbers(
        ((calls, asked), order) in any_set().prop_flat_map(|set| {
            let order: Vec<usize> = (0..set.0.len()).collect();
            (Just(set), Just(order).prop_shuffle())
        })
    ) {
        let place = |position: usize| order.iter().position(|old| *old == position).unwrap();
        let moved: Vec<Given> = order.iter().map(|old| {
            let mut call = calls[*old].clone();
            call.leans_on = call.leans_on.into_iter().map(place).collect();
            call
        }).collect();
        let mut asked_moved = asked.clone();
        for comparison in &mut asked_moved.compare {
            comparison.calls = comparison.calls.iter().copied().map(place).collect();
        }
        let (here, there) = (judge_asked(&calls, &asked), judge_asked(&moved, &asked_moved));
        let facts = |found: &Consistency| {
            (found.verdict, found.reason, found.comparable, found.inconsistent, found.spread_ms, found.spread_exceeded, issue(found))
        };
        prop_assert_eq!(facts(&here), facts(&there));
        let sorted = |groups: Vec<Vec<usize>>| {
            let mut groups: Vec<Vec<usize>> = groups.into_iter().map(|mut group| { group.sort_unstable(); group }).collect();
            groups.sort();
            groups
        };
        let renumbered = here.groups.into_iter().map(|group| group.into_iter().map(place).collect()).collect();
        prop_assert_eq!(sorted(renumbered), sorted(there.groups));
    }

    /// A coarser tolerance only takes warnings away, and never makes anything comparable.
    #[test]
    fn the_tolerance_has_no_part_in_what_is_comparable((calls, asked) in any_set(), ms in 0..5_000_u64) {
        let members: Vec<Member<'_>> = calls.iter().map(Given::member).collect();
        let settings = Settings { tolerance: Duration::from_millis(ms), ..Settings::default() };
        let (one, other) = (verdict::judge(&members, &asked, &settings), judge_asked(&calls, &asked));
        prop_assert_eq!((one.comparable, one.verdict, one.reason), (other.comparable, other.verdict, other.reason));
        if let (Some(spread), Some(exceeded)) = (one.spread_ms, one.spread_exceeded) {
            prop_assert_eq!(exceeded, spread > one.tolerance_ms);
        }
    }
}

/// Two results may be compared if they carry the same view: so a reading that may not must not carry it.
#[tokio::test]
async fn only_readings_that_may_be_compared_by_their_view_carry_it() {
    use crate::contract::{in_view, judged, ok, report};

    let part = CallResult {
        complete: false,
        ..in_view("v", ok("c2", "list_orders", json!([])))
    };
    let mut stale = in_view("v", ok("c3", "list_invoices", json!([])));
    stale.facts.leans_on = vec![4];
    let results = vec![
        in_view("v", ok("c1", "get_contract", json!({}))),
        part,
        stale,
        in_view("v", ok("c4", "list_tickets", json!([]))),
        in_view("before", ok("c5", "find_account", json!([]))),
    ];
    let report = judged(report(results)).await;
    let views: Vec<_> = report
        .results
        .iter()
        .map(|result| result.view.as_ref().map(ViewId::as_str))
        .collect();
    assert_eq!(report.consistency.groups, [[0, 3]]);
    // The last is alone in this set; what another set reads through its view may be compared with it.
    assert_eq!(views, [Some("v"), None, None, Some("v"), Some("before")]);
}
