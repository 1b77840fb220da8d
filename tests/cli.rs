//! The command, run as a program: output, exit codes, bad input.
//!
//! Each test runs the real binary in a fresh folder of its own; none writes into the repository.
#![cfg(feature = "cli")]

mod demo; // the story, and that it is true
mod look; // what is told without running: plan, check, classify
mod run; // sets in, reports out, and the exit codes

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

/// A fresh folder to run the command in.
struct Folder(TempDir);

/// What came of a run.
struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("stdout is UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("stderr is UTF-8"),
        }
    }
}

impl Ran {
    #[track_caller]
    fn exits(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "\nstdout:\n{}\nstderr:\n{}",
            self.stdout,
            self.stderr
        );
        self
    }

    /// It could not run: nothing on stdout, and these words on stderr.
    #[track_caller]
    fn refuses(self, words: &[&str]) {
        let ran = self.exits(2);
        assert_eq!(ran.stdout, "");
        ran.says(words);
    }

    #[track_caller]
    fn says(&self, words: &[&str]) {
        for word in words {
            assert!(
                self.stderr.contains(word),
                "{word:?} is not in stderr:\n{}",
                self.stderr
            );
        }
    }

    #[track_caller]
    fn prints(&self, words: &[&str]) {
        for word in words {
            assert!(
                self.stdout.contains(word),
                "{word:?} is not in stdout:\n{}",
                self.stdout
            );
        }
    }

    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error} in stdout:\n{}", self.stdout))
    }

    #[track_caller]
    fn json_lines(&self) -> Vec<Value> {
        self.stdout
            .lines()
            .map(|line| serde_json::from_str(line).expect("a document a line"))
            .collect()
    }
}

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    /// With a copy of `examples/henderson` in `henderson`.
    fn with_henderson() -> Self {
        let folder = Self::new();
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/henderson");
        std::fs::create_dir(folder.path("henderson")).expect("a new folder");
        for name in [
            "coeval.yaml",
            "set.json",
            "with-crm.json",
            "lookup.json",
            "atlas.db",
            "crm.db",
        ] {
            std::fs::copy(from.join(name), folder.path("henderson").join(name))
                .expect("the example is there");
        }
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> &Self {
        std::fs::write(self.path(name), content).expect("the folder can be written to");
        self
    }

    fn command(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_coeval"));
        command
            .current_dir(self.0.path())
            .args(arguments)
            .stdin(Stdio::null());
        for name in ["NO_COLOR", "CLICOLOR_FORCE", "ATLAS_DB", "CRM_DB"] {
            command.env_remove(name);
        }
        command
    }

    /// Runs a command line, whose words are parted by spaces.
    fn run(&self, line: &str) -> Ran {
        self.command(line.split_whitespace())
            .output()
            .expect("the command starts")
            .into()
    }

    /// The same with this on stdin.
    fn feed(&self, line: &str, stdin: impl AsRef<[u8]>) -> Ran {
        let mut command = self.command(line.split_whitespace());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the command starts");
        // It may have ended without reading it.
        let _ = child.stdin.take().expect("it is piped").write_all(stdin.as_ref());
        child.wait_with_output().expect("the command ends").into()
    }
}

/// A database with one table and one statement that would take hours.
const SLOW: &str = "
kind: source
name: memory
type: sqlite
database: ':memory:'
---
kind: tool
name: count_forever
type: sqlite-sql
source: memory
description: Counts.
statement: WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) AS counted FROM n
---
kind: tool
name: one
type: sqlite-sql
source: memory
description: One.
statement: SELECT 1 AS one
";

// ===== what may be typed =====

#[test]
fn help_and_version_are_results() {
    let folder = Folder::new();
    let version = folder.run("--version").exits(0);
    assert_eq!(version.stdout, format!("coeval {}\n", env!("CARGO_PKG_VERSION")));
    let help = folder.run("--help").exits(0);
    help.prints(&[
        "run",
        "plan",
        "check",
        "demo",
        "classify",
        "Examples:",
        "Exit codes:",
    ]);
    for command in ["run", "plan", "check", "demo", "classify"] {
        let help = folder.run(&format!("{command} --help")).exits(0);
        help.prints(&["Usage:", "Examples:"]);
        assert_eq!(help.stderr, "");
    }
}

#[test]
fn what_was_mistyped_is_told_with_what_was_meant() {
    let folder = Folder::new();
    folder.run("chek").refuses(&["'chek'", "'check'"]);
    folder
        .run("run --polcy atlas set.json")
        .refuses(&["--polcy", "--policy"]);
    folder
        .run("run --policy atlass set.json")
        .refuses(&["atlass", "atlas", "loopctl"]);
    folder
        .run("run --format xml set.json")
        .refuses(&["xml", "text", "json"]);
    folder.run("run --deadline soon set.json").refuses(&["soon"]);
    folder
        .run("run --require luck set.json")
        .refuses(&["luck", "comparable"]);
    folder
        .run("run --purpose fun set.json")
        .refuses(&["fun", "compare"]);
    folder.run("run").refuses(&["<SET>"]);
    folder.run("").refuses(&["Usage:"]);
}

// ===== what can't be read =====

#[test]
fn a_file_that_is_not_there_is_named() {
    let folder = Folder::with_henderson();
    folder
        .run("run nowhere/set.json")
        .refuses(&["nowhere/set.json", "can't be read"]);
    folder
        .run("run henderson")
        .refuses(&["henderson", "can't be read"]);
    let line = "run --config nowhere.yaml henderson/set.json";
    folder.run(line).refuses(&["nowhere.yaml", "can't be read"]);
    folder
        .run("run --earlier nowhere.json henderson/set.json")
        .refuses(&["nowhere.json"]);
}

#[test]
fn a_set_that_is_none_is_told_with_its_place() {
    let folder = Folder::with_henderson();
    let refuses = |content: &[u8], words: &[&str]| {
        folder
            .write("henderson/bad.json", content)
            .run("run henderson/bad.json")
            .refuses(words);
        folder.run("plan henderson/bad.json").refuses(words);
        folder
            .feed("run --config henderson/coeval.yaml -", content)
            .exits(2)
            .says(&["stdin"]);
    };
    refuses(b"{\"calls\": [", &["henderson/bad.json", "line 1"]);
    refuses(b"{\"calls\": [{\"tol\": \"one\"}]}", &["\"tol\"", "\"tool\""]);
    refuses(b"", &["empty"]);
    refuses(b"\xff\xfe", &["UTF-8"]);
    refuses(b"[1, 2]", &["henderson/bad.json"]);
    refuses(b"{\"calls\": []} trailing", &["henderson/bad.json"]);
}

#[test]
fn every_fault_of_a_configuration_is_told_with_its_line() {
    let folder = Folder::with_henderson();
    folder.write(
        "bad.yaml",
        "kind: source\nname: a\ntype: sqlight\ndatabase: x.db\n---\nkind: toool\nname: b\n",
    );
    folder.run("run --config bad.yaml henderson/set.json").refuses(&[
        "bad.yaml:3:",
        "sqlight",
        "bad.yaml:6:",
        "toool",
        "tool",
    ]);
    folder
        .run("check --config bad.yaml")
        .refuses(&["bad.yaml:3:", "bad.yaml:6:"]);
    folder.write("broken.yaml", "kind: [source\n");
    folder
        .run("check --config broken.yaml")
        .refuses(&["broken.yaml:"]);
}

#[test]
fn a_configuration_is_found_beside_the_set_and_then_here() {
    let folder = Folder::with_henderson();
    let beside = folder.run("run henderson/set.json").exits(0);
    assert_eq!(beside.stderr, "config: henderson/coeval.yaml\n");
    let named = folder.run("run --config henderson henderson/set.json").exits(0);
    assert_eq!(named.stderr, "");

    let set = json!({"calls": [{"tool": "one"}]}).to_string();
    folder
        .feed("run -", &set)
        .refuses(&["coeval.yaml", "tools.yaml", "--config"]);
    folder.write("tools.yaml", SLOW);
    let here = folder.feed("run -", &set).exits(0);
    assert_eq!(here.stderr, "config: tools.yaml\n");
    std::fs::create_dir(folder.path("sets")).expect("a new folder");
    folder.write("sets/set.json", &set);
    assert_eq!(
        folder.run("run sets/set.json").exits(0).stderr,
        "config: tools.yaml\n"
    );
}

#[test]
fn a_database_that_is_not_there_is_told() {
    let folder = Folder::with_henderson();
    std::fs::remove_file(folder.path("henderson/atlas.db")).expect("it was copied");
    let ran = folder.run("run henderson/set.json");
    let told = format!("{}{}", ran.stdout, ran.stderr);
    assert!(told.contains("atlas"), "{told}");
    assert_ne!(ran.code, Some(0));
}

// ===== streams =====

#[test]
fn colours_are_for_terminals_or_for_those_who_ask() {
    let folder = Folder::with_henderson();
    let coloured = |ran: &Ran| ran.stdout.contains('\x1b');
    assert!(!coloured(
        &folder.run("run --color auto henderson/set.json").exits(0)
    ));
    assert!(!coloured(
        &folder.run("run --color never henderson/set.json").exits(0)
    ));
    assert!(coloured(
        &folder.run("run --color always henderson/set.json").exits(0)
    ));
    assert!(coloured(
        &folder.run("--color always check --config henderson").exits(0)
    ));
    assert!(
        !coloured(
            &folder
                .run("--color always run --format json henderson/set.json")
                .exits(0)
        ),
        "JSON never is"
    );
}

/// A pager that was closed has seen enough.
#[test]
fn a_reader_that_goes_away_is_no_fault() {
    let folder = Folder::with_henderson();
    for line in [
        "run --format json henderson/set.json",
        "check --config henderson",
        "demo",
    ] {
        let mut command = folder.command(line.split_whitespace());
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        drop(child.stdout.take());
        let ran = Ran::from(child.wait_with_output().expect("the command ends")).exits(0);
        assert!(
            !ran.stderr.contains("error") && !ran.stderr.contains("panicked"),
            "{}",
            ran.stderr
        );
    }
}
