//! `coeval run`: reports, sessions, exit codes, cancellation.

#[cfg(target_os = "linux")]
use std::io::{BufRead, BufReader};
#[cfg(target_os = "linux")]
use std::process::{Child, Command, Stdio};

use serde_json::json;

use super::{Folder, Ran, SLOW};
use crate::contract::read_strictly;

/// The acceptance of the example: a fresh clone, one command.
#[test]
fn henderson_is_one_view() {
    let folder = Folder::with_henderson();
    let text = folder.run("run henderson/set.json").exits(0);
    text.prints(&[
        "same_view",
        "comparable",
        "SO-12009",
        "All 3 readings may be compared with each other",
    ]);
    assert!(!text.stdout.contains('\x1b'), "a file is not coloured");

    let ran = folder.run("run --format json henderson/set.json").exits(0);
    let report = ran.json();
    assert_eq!(report["consistency"]["verdict"], "same_view");
    assert_eq!(report["consistency"]["comparable"], true);
    assert_eq!(report["consistency"]["groups"], json!([[0, 1, 2]]));
    assert_eq!(report["route"]["taken"], "shared_view");
    assert_eq!(
        report["called"],
        json!(["find_account", "get_contract", "list_orders", "list_invoices"])
    );
    let views: Vec<_> = report["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|result| &result["view"])
        .collect();
    assert!(
        views[0].is_string() && views.iter().all(|view| *view == views[0]),
        "{views:?}"
    );
    assert!(
        ran.stdout.starts_with("{\n  \"setId\""),
        "pretty, and in the order of the contract"
    );

    let compact = folder
        .run("run --format json --compact henderson/set.json")
        .exits(0);
    assert_eq!(compact.stdout.lines().count(), 1);
    assert_eq!(compact.json()["consistency"]["verdict"], "same_view");
}

/// Whatever happens in a set, its report is the contract's to the letter.
#[test]
fn what_is_printed_is_the_contract() {
    let folder = Folder::with_henderson();
    let calls =
        json!([{"tool": "get_contract", "arguments": "{}"}, {"tool": "nothing"}, {"tool": "find_account"}]);
    folder.write("henderson/bad.json", json!({"calls": calls}).to_string());
    for (file, code) in [("set", 0), ("with-crm", 1), ("lookup", 0), ("bad", 1)] {
        let ran = folder
            .run(&format!("run --format json henderson/{file}.json"))
            .exits(code);
        read_strictly(&ran.stdout);
    }
}

#[test]
fn a_comparison_that_is_not_safe_exits_1_and_is_explained() {
    let folder = Folder::with_henderson();
    let text = folder.run("run henderson/with-crm.json").exits(1);
    text.prints(&[
        "not comparable",
        "get_customer_card",
        "a change in between can't be ruled out",
    ]);
    let report = folder
        .run("run --format json henderson/with-crm.json")
        .exits(1)
        .json();
    assert_eq!(report["consistency"]["verdict"], "unproven");
    assert_eq!(report["consistency"]["comparable"], false);
    assert_eq!(report["consistency"]["groups"], json!([[0, 1]]));
}

/// Whether a comparison was asked for decides, not whether one would be safe.
#[test]
fn readings_to_report_need_not_be_comparable() {
    let folder = Folder::with_henderson();
    let calls = ["get_contract", "get_customer_card"]
        .map(|tool| json!({"tool": tool, "arguments": {"account_id": "henderson"}}));
    folder.write("henderson/both.json", json!({"calls": calls}).to_string());
    let ran = folder.run("run --format json henderson/both.json").exits(1);
    assert_eq!(
        ran.json()["route"]["purpose"],
        "compare",
        "without a purpose or a question it is a comparison"
    );
    let ran = folder
        .run("run --format json --purpose report henderson/both.json")
        .exits(0);
    assert_eq!(ran.json()["consistency"]["comparable"], false);

    let asked = json!({"calls": calls, "compare": [[0, 1]]});
    folder.write("henderson/asked.json", asked.to_string());
    folder.run("run --purpose report henderson/asked.json").exits(1);
    folder
        .run("run --purpose report --require comparable henderson/both.json")
        .exits(1);
}

#[test]
fn what_may_not_be_compared_is_kept_back_if_that_is_required() {
    let folder = Folder::with_henderson();
    let ran = folder
        .run("run --format json --require comparable henderson/with-crm.json")
        .exits(1);
    let results = ran.json()["results"].clone();
    assert_eq!(
        [&results[0]["withheld"], &results[1]["withheld"]],
        [false, false],
        "the comparable group is given"
    );
    assert_eq!(results[2]["withheld"], true);
    assert!(results[2].get("value").is_none());
    folder.run("run --require comparable henderson/set.json").exits(0);
}

#[test]
fn a_call_that_fails_leaves_its_siblings_and_exits_1() {
    let folder = Folder::with_henderson();
    let calls =
        json!([{"tool": "get_contrct"}, {"tool": "find_account", "arguments": {"name": "Henderson"}}]);
    folder.write("henderson/typo.json", json!({"calls": calls}).to_string());
    let report = folder
        .run("run --format json henderson/typo.json")
        .exits(1)
        .json();
    assert_eq!(report["results"][0]["outcome"], "unknown_tool");
    let message = report["results"][0]["error"]["message"].as_str().unwrap();
    assert!(message.contains("\"get_contract\""), "{message}");
    assert_eq!(report["results"][1]["outcome"], "ok");
}

#[test]
fn a_provider_s_message_is_a_set() {
    let folder = Folder::with_henderson();
    let message = json!({"role": "assistant", "content": [
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "toolu_1", "name": "get_contract", "input": {"account_id": "henderson"}},
        {"type": "tool_use", "id": "toolu_2", "name": "list_orders", "input": {"account_id": "henderson"}}]});
    let ran = folder
        .feed("run --format json --config henderson -", message.to_string())
        .exits(0);
    let report = ran.json();
    assert_eq!(report["results"][1]["id"], "toolu_2");
    assert_eq!(report["consistency"]["verdict"], "same_view");
    assert_eq!(ran.stderr, "");
}

/// Ids of earlier turns are known, and preconditions of earlier turns are met.
#[test]
fn several_sets_are_one_session() {
    let folder = Folder::with_henderson();
    let first = json!({"purpose": "report",
        "calls": [{"tool": "list_orders", "arguments": {"account_id": "henderson"}}]});
    let then = json!({"purpose": "report",
        "calls": [{"tool": "get_order_status", "arguments": {"order_id": "SO-12009"}}]});
    folder
        .write("henderson/first.json", first.to_string())
        .write("henderson/then.json", then.to_string());
    let alone = folder
        .run("run --format json henderson/then.json")
        .exits(1)
        .json();
    assert_eq!(alone["results"][0]["error"]["code"], "precondition_unmet");

    let ran = folder
        .run("run --format json henderson/first.json henderson/then.json")
        .exits(0);
    let reports = ran.json_lines();
    assert_eq!(reports.len(), 2);
    assert_eq!(reports[1]["results"][0]["outcome"], "ok");
    assert_eq!(reports[1]["called"], json!(["list_orders", "get_order_status"]));

    folder.write("henderson/session.jsonl", format!("{first}\n{then}\n"));
    let lines = folder
        .run("run --format json henderson/session.jsonl")
        .exits(0)
        .json_lines();
    assert_eq!(lines[1]["results"][0]["outcome"], "ok");
    folder
        .run("run henderson/first.json henderson/then.json")
        .exits(0)
        .prints(&["henderson/first.json", "henderson/then.json", "SO-12009"]);
    folder.run("run - -").refuses(&["stdin", "once"]);
}

/// Nothing confirms that an earlier reading still holds, so it may not be compared with a new one.
#[test]
fn an_earlier_report_is_compared_with_and_not_vouched_for() {
    let folder = Folder::with_henderson();
    let report = folder.run("run --format json henderson/set.json").exits(0).stdout;
    folder.write("report.json", &report);
    let ran = folder
        .run("run --format json --earlier report.json henderson/set.json")
        .exits(1);
    let consistency = ran.json()["consistency"].clone();
    assert_eq!(consistency["comparable"], false);
    assert_eq!(
        consistency["groups"],
        json!([[0, 1, 2]]),
        "among themselves they still are"
    );
    let not_one = folder.run("run --earlier henderson/set.json henderson/set.json");
    not_one.refuses(&["henderson/set.json", "report"]);
}

#[test]
fn flags_say_it_instead_of_the_set() {
    let folder = Folder::with_henderson();
    let ran = folder
        .run("run --format json --policy atlas --purpose report henderson/set.json")
        .exits(0);
    assert_eq!(
        [&ran.json()["policy"], &ran.json()["route"]["purpose"]],
        ["atlas", "report"]
    );

    folder.write("tools.yaml", SLOW);
    folder.write(
        "slow.json",
        json!({"calls": [{"tool": "count_forever"}]}).to_string(),
    );
    let ran = folder.run("run --format json --deadline 50 slow.json").exits(1);
    assert_eq!(ran.json()["results"][0]["outcome"], "timed_out");
}

#[cfg(target_os = "linux")]
#[test]
fn ctrl_c_cancels_the_set_and_every_call_is_answered() {
    let folder = Folder::new();
    folder.write("tools.yaml", SLOW);
    folder.write(
        "slow.json",
        json!({"calls": [{"tool": "one"}, {"tool": "count_forever"}]}).to_string(),
    );
    let child = start(&folder, "slow.json");
    interrupt(&child);
    let ran = Ran::from(child.wait_with_output().expect("the command ends")).exits(1);
    let report = ran.json();
    assert_eq!(report["status"], "cancelled");
    assert_eq!(report["results"].as_array().unwrap().len(), 2);
    let outcome = report["results"][1]["outcome"].as_str().unwrap();
    assert!(["cancelled", "not_started"].contains(&outcome), "{outcome}");
    ran.says(&["cancelling"]);
}

/// A write that was cancelled is waited for; who can't wait says so again.
#[cfg(target_os = "linux")]
#[test]
fn a_second_ctrl_c_ends_at_once() {
    let folder = Folder::new();
    folder.write("counted.db", "").write(
        "tools.yaml",
        "kind: source\nname: counted\ntype: sqlite\ndatabase: counted.db\n---\n\
         kind: tool\nname: keep_counting\ntype: sqlite-sql\nsource: counted\ndescription: Writes for hours.\n\
         statement: CREATE TABLE counted AS WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) \
         SELECT count(*) AS counted FROM n\n",
    );
    folder.write(
        "write.json",
        json!({"calls": [{"tool": "keep_counting"}]}).to_string(),
    );
    let mut child = start(&folder, "write.json");
    let mut stderr = BufReader::new(child.stderr.take().expect("it is piped")).lines();
    // SQLite's journal tells that the write has begun.
    while !folder.path("counted.db-journal").exists() {
        std::thread::yield_now();
    }
    interrupt(&child);
    assert!(stderr.any(|line| line.is_ok_and(|line| line.contains("cancelling"))));
    interrupt(&child);
    let ran = Ran::from(child.wait_with_output().expect("the command ends")).exits(130);
    assert_eq!(ran.stdout, "");
}

/// Starts a set, and returns when the command listens for Ctrl-C: before, the signal would just end it.
#[cfg(target_os = "linux")]
fn start(folder: &Folder, set: &str) -> Child {
    let mut command = folder.command(["run", "--format", "json", set]);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    while !listens_for_interrupt(child.id()) {
        std::thread::yield_now();
    }
    child
}

#[cfg(target_os = "linux")]
fn interrupt(child: &Child) {
    let pid = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &pid]).status();
    assert!(sent.expect("there is kill").success());
}

/// Whether a process has a handler for SIGINT, as Linux tells it.
#[cfg(target_os = "linux")]
fn listens_for_interrupt(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigCgt:"))
        .expect("Linux tells it");
    let mask = u64::from_str_radix(mask.trim(), 16).expect("it is a hexadecimal mask");
    mask & (1 << 1) != 0
}
