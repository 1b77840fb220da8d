//! `coeval demo`: the story, and that it is true.

use serde_json::json;

use super::{Folder, Ran};
use crate::contract::read_strictly;

#[test]
fn the_demo_shows_a_discrepancy_that_never_was() {
    let folder = Folder::new();
    let mut command = folder.command(["demo", "--format", "json"]);
    let ran = Ran::from(
        command
            .env("TMPDIR", folder.0.path())
            .output()
            .expect("the command starts"),
    )
    .exits(0);
    assert_eq!(ran.stderr, "");
    let acts = ran.json();
    for (_, report) in acts.as_object().unwrap() {
        read_strictly(&report.to_string());
    }
    let threshold = |act: &str| acts[act]["results"][0]["value"]["rows"][0]["threshold_cents"].clone();
    let discount = |act: &str| {
        let rows = acts[act]["results"][1]["value"]["rows"].as_array().unwrap();
        rows.iter().find(|row| row["order_id"] == "SO-12009").unwrap()["discount_cents"].clone()
    };
    let known = |act: &str, what: &str| acts[act]["consistency"][what].clone();

    // The contract of before, the order of after.
    assert_eq!([threshold("naive"), discount("naive")], [2_500_000, 220_800]);
    assert_eq!(known("naive", "spreadExceeded"), false);
    assert_eq!(known("naive", "comparable"), false);
    // Both of before, although the same transaction committed in between.
    assert_eq!([threshold("oneView"), discount("oneView")], [2_500_000, 0]);
    assert_eq!(known("oneView", "verdict"), "same_view");
    assert_eq!(known("oneView", "comparable"), true);
    // It did commit: both of after. The answer from elsewhere joins nothing.
    assert_eq!([threshold("outside"), discount("outside")], [1_500_000, 220_800]);
    assert_eq!(known("outside", "verdict"), "unproven");
    assert_eq!(known("outside", "reason"), "undeclared_source");
    assert_eq!(known("outside", "groups"), json!([[0, 1]]));

    let left: Vec<_> = std::fs::read_dir(folder.0.path()).unwrap().collect();
    assert!(left.is_empty(), "the temporary databases are gone: {left:?}");
}

#[test]
fn the_demo_tells_its_story() {
    let folder = Folder::new();
    let ran = folder.run("demo").exits(0);
    ran.prints(&[
        "the amendment commits",
        "\"SO-12009 was given $2,208.00 that the contract does not grant",
        "That never was.",
        "no alarm",
        "same_view",
        "3 of 3 readings carry the view",
        "unproven (undeclared_source)",
        "get_contract and list_orders",
    ]);
    assert!(!ran.stdout.contains("did not go as it should"));
    assert!(
        ran.stdout.lines().all(|line| line.chars().count() <= 110),
        "it fits a terminal"
    );
}

#[test]
fn the_demo_s_databases_can_be_kept_and_used() {
    let folder = Folder::new();
    folder
        .run("demo --keep atlas")
        .exits(0)
        .prints(&["atlas/set.json"]);
    let report = folder.run("run --format json atlas/set.json").exits(0).json();
    assert_eq!(report["consistency"]["verdict"], "same_view");
    assert_eq!(
        report["results"][0]["value"]["rows"][0]["threshold_cents"],
        1_500_000
    );
    folder.run("demo --keep atlas").refuses(&["atlas", "not empty"]);
}
