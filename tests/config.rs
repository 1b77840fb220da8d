use std::collections::BTreeMap;
use std::time::Duration;

use coeval::config::{Config, ConfigFaults};
use coeval::tool::{Effect, Keys, PerCall};
use serde_json::{Map, json};

mod build; // configurations that run

const REFERENCE: &str = include_str!("../src/config/reference.yaml");

fn parse(text: &str) -> Result<Config, ConfigFaults> {
    parse_with(text, &[])
}

fn parse_with(text: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigFaults> {
    let variables: BTreeMap<_, _> = variables.iter().copied().collect();
    Config::parse("tools.yaml", text.as_bytes(), &|name| {
        variables.get(name).map(|value| (*value).to_owned())
    })
}

/// The faults as they are printed, without the snippets.
fn faults(text: &str) -> Vec<String> {
    let faults = parse(text).expect_err("it should be refused");
    faults
        .iter()
        .map(|fault| fault.to_string().lines().next().unwrap_or_default().to_owned())
        .collect()
}

fn warnings(text: &str) -> Vec<String> {
    let config = parse(text).unwrap_or_else(|faults| panic!("{faults}"));
    config
        .warnings
        .iter()
        .map(|fault| fault.to_string().lines().next().unwrap_or_default().to_owned())
        .collect()
}

const SHOP: &str = "kind: source\nname: shop\ntype: sqlite\ndatabase: shop.db\n---\n";

/// A shop with one tool, whose document ends with these lines.
fn tool(rest: &str) -> String {
    format!("{SHOP}kind: tool\nname: t\ntype: sqlite-sql\nsource: shop\ndescription: d\n{rest}")
}

/// Everything a configuration says, as far as the crate shows it.
fn everything(config: &Config) -> String {
    let mut lines = Vec::new();
    for s in &config.sources {
        lines.push(format!(
            "{:?}",
            (
                &s.name,
                &s.database,
                &s.origin,
                &s.time_zone,
                s.never_changes,
                s.all_writers_log,
                &s.trusted
            )
        ));
    }
    for t in &config.tools {
        lines.push(format!(
            "{:?}",
            (&t.name, &t.description, &t.source, &t.statement, t.input_schema())
        ));
        lines.push(format!("{:?}", t.coordination));
        for p in &t.parameters {
            lines.push(format!(
                "{:?} {:?} {:?} {:?} {:?}",
                p, p.description, p.default, p.allowed, p.excluded
            ));
        }
    }
    lines.push(format!(
        "{:?} {:?} {:?}",
        config.toolsets, config.dependencies, config.settings
    ));
    for s in &config.snapshots {
        lines.push(format!("{:?} {:?}", s, s.description));
    }
    lines.join("\n")
}

fn reference(text: &str) -> Result<Config, ConfigFaults> {
    parse_with(text, &[])
}

/// A field that is read and then dropped would leave the configuration as it is without the field.
#[test]
fn every_line_of_the_reference_file_matters() {
    let whole = everything(&reference(REFERENCE).unwrap_or_else(|faults| panic!("{faults}")));
    // Toolbox's own, read and meaning nothing here.
    let idle = [
        "sqlCommenter",
        "destructiveHint",
        "idempotentHint",
        "openWorldHint",
    ];
    let lines: Vec<&str> = REFERENCE.lines().collect();
    let mut tried = 0;
    for (index, line) in lines.iter().enumerate() {
        let Some((field, rest)) = line.trim_start().trim_start_matches("- ").split_once(':') else {
            continue;
        };
        let is_field = field.chars().all(char::is_alphanumeric) && !line.trim_start().starts_with('#');
        let opens_a_block =
            rest.split('#').next().unwrap_or_default().trim().is_empty() || rest.trim() == "|";
        // The first field of an item carries the dash.
        if !is_field || opens_a_block || idle.contains(&field) || line.trim_start().starts_with('-') {
            continue;
        }
        tried += 1;
        let mut without = lines.clone();
        without.remove(index);
        if let Ok(config) = reference(&without.join("\n")) {
            assert_ne!(everything(&config), whole, "line {}: {line}", index + 1);
        }
        let misspelt = line.replacen(field, &format!("{field}x"), 1);
        let mut with = lines.clone();
        with[index] = &misspelt;
        assert!(
            reference(&with.join("\n")).is_err(),
            "line {}: {misspelt}",
            index + 1
        );
    }
    assert!(tried > 80, "{tried}");
}

#[test]
fn the_reference_file_says_what_it_says() {
    let config = reference(REFERENCE).unwrap_or_else(|faults| panic!("{faults}"));
    let tool = config.tool("search_orders").unwrap();
    let c = &tool.coordination;
    assert_eq!(
        (c.effect, c.trusted, c.exclusive),
        (Some(Effect::Read), true, true)
    );
    assert_eq!(c.timeout, Some(Duration::from_secs(5)));
    let retry = c.retry.unwrap();
    assert_eq!(
        (retry.attempts.get(), retry.backoff),
        (3, Duration::from_millis(50))
    );
    let spec = tool.spec();
    assert_eq!(
        spec.dependency.as_ref().map(|d| format!("{d:?}")),
        Some("\"crm-api\"".to_owned())
    );
    assert_eq!(spec.as_of_field.as_deref(), Some("loaded_at"));
    assert!(spec.one_state && spec.is_final);
    let PerCall::Decide(keys) = &spec.keys else {
        panic!("keys are decided per call")
    };
    let expected = Keys {
        reads: vec!["account:henderson".into()],
        writes: vec!["audit:henderson".into()],
    };
    assert_eq!(
        keys(json!({"account_id": "henderson"}).as_object().unwrap()).unwrap(),
        expected
    );
    assert!(
        keys(&Map::new()).is_err(),
        "a call without the argument has no known key"
    );

    let schema = tool.input_schema();
    let names: Vec<_> = schema["properties"].as_object().unwrap().keys().collect();
    assert_eq!(
        names,
        [
            "account_id",
            "status",
            "least",
            "discount",
            "paid",
            "tags",
            "labels"
        ]
    );
    assert_eq!(schema["required"], json!(["account_id"]));
    assert_eq!(
        schema["properties"]["status"]["enum"],
        json!(["open", "closed", null])
    );
    assert_eq!(schema["properties"]["least"]["minimum"], json!(1));
    assert_eq!(schema["properties"]["tags"]["default"], json!([20, 30]));

    assert_eq!(
        config
            .tool("set_status")
            .unwrap()
            .spec()
            .effect
            .map(|e| format!("{e:?}")),
        Some("Write".to_owned())
    );
    let snapshot = &config.snapshots[0];
    assert_eq!(&*snapshot.source, "shop");
    let covered: Vec<_> = snapshot
        .covers
        .iter()
        .map(|c| (&*c.tool, c.part.as_deref(), c.arguments.len()))
        .collect();
    assert_eq!(
        covered,
        [
            ("get_contract", Some("/get_contract"), 1),
            ("search_orders", Some("/orders"), 2)
        ]
    );
    let parameters: Vec<_> = snapshot.parameters.iter().map(|p| &*p.name).collect();
    assert_eq!(parameters, ["account_id", "least_quantity"]);
    let quota = config.dependencies[1].quota.unwrap();
    assert_eq!(
        (quota.limit, quota.per, quota.burst),
        (10, Duration::from_secs(60), 5)
    );
}

/// The whole report of a file with many faults, as it is printed.
#[test]
fn every_fault_is_told_in_one_report() {
    let text = "\
kind: source
name: shop
type: sqlite
path: shop.db
---
kind: tool
name: list_orders
type: sqlite-sql
source: shpo
description: Orders.
parameters:
  - name: account_id
    type: strnig
    description: The account.
  - name: limit
    type: integer
    description: At most so many.
    minValue: ten
satement: SELECT 1
---
kind: tol
name: x
---
kind: coordination
tool: list_order
timeoutMs: 5s
key: {reads: ['a:{b']}
---
kind: dependency
name: crm
allowance: 0
quota: {limit: -1, per: fortnight}
---
kind: toolset
name: empty
tools: []
---
kind: policy
policy: standart
maxConcurrency: many
maxConcurrency: 4
---
broken: [
";
    let report = parse(text).unwrap_err().to_string();
    let expected = "\
tools.yaml:4:1: source \"shop\" has no field \"path\"; did you mean \"database\"?
     4 | path: shop.db
tools.yaml:13:11: `type` can't be \"strnig\"; did you mean \"string\"?
    13 |     type: strnig
tools.yaml:18:15: `minValue` needs a whole number
    18 |     minValue: ten
tools.yaml:19:1: tool \"list_orders\" has no field \"satement\"; did you mean \"statement\"?
    19 | satement: SELECT 1
tools.yaml:21:7: there is no kind \"tol\"; did you mean \"tool\"?
    21 | kind: tol
tools.yaml:25:7: coordination for the tool \"list_order\", which is not declared; did you mean \"list_orders\"?
    25 | tool: list_order
tools.yaml:26:12: `timeoutMs` needs a whole number, not \"5s\"; write the number without a unit
    26 | timeoutMs: 5s
tools.yaml:27:15: a single \"{\" in \"a:{b\"; write {parameter}, and {{ for a brace
    27 | key: {reads: ['a:{b']}
tools.yaml:31:12: `allowance` is 0, but must be at least 1
    31 | allowance: 0
tools.yaml:32:16: `limit` is -1, but must be at least 1
    32 | quota: {limit: -1, per: fortnight}
tools.yaml:32:25: `per` can't be \"fortnight\"; known: second, minute, hour, day
    32 | quota: {limit: -1, per: fortnight}
tools.yaml:36:8: `tools` is an empty list; fill it, or leave it out
    36 | tools: []
tools.yaml:39:9: `policy` can't be \"standart\"; did you mean \"standard\"?
    39 | policy: standart
tools.yaml:40:17: `maxConcurrency` needs a whole number, not \"many\"
    40 | maxConcurrency: many
tools.yaml:41:1: \"maxConcurrency\" is already given on line 40; keep one of them
    41 | maxConcurrency: 4
tools.yaml:43:9: this is not YAML: unclosed bracket '['
    43 | broken: [";
    assert_eq!(report, expected, "{report}");
}

#[test]
fn substituted_values_never_become_structure() {
    let text = "kind: source\nname: shop\ntype: sqlite\ndatabase: ${DB}\norigin: \"${ORIGIN}\"\n";
    let nasty = "x\ntrusted: [evil]\n---\nkind: policy # {a: b} \"'";
    let config = parse_with(text, &[("DB", nasty), ("ORIGIN", "null")]).unwrap();
    assert_eq!(&*config.sources[0].database, nasty);
    assert_eq!(config.sources[0].origin.as_deref(), Some("null"));
    assert!(config.sources[0].trusted.is_empty());
}

#[test]
fn a_variable_may_be_a_number_or_a_flag() {
    let text = format!(
        "{SHOP}kind: dependency\nname: shop\nallowance: ${{N}}\n---\nkind: policy\nmaxRows: ${{ROWS:-50}}\n"
    );
    let config = parse_with(&text, &[("N", "12")]).unwrap();
    assert_eq!(config.dependencies[0].allowance, Some(12));
    assert_eq!(config.settings.max_rows, 50);
}

/// Neither a fault nor the debug form shows what came from the environment.
#[test]
fn values_of_the_environment_are_never_printed() {
    let secret = "hunter2-5ecret";
    let text = format!(
        "{SHOP}kind: policy\nmaxRows: ${{S}}\npolicy: ${{S}}\nminimumPurpose: ${{S}}\n---\nkind: dependency\nname: shop\nallowance: '${{S}}'\nquota: ${{S}}\n---\n\
         kind: tool\nname: ${{S}} x\ntype: ${{S}}\n---\nkind: ${{S}}\n---\nkind: toolset\nname: a\ntools: [\"${{S}}\"]\n"
    );
    let faults = parse_with(&text, &[("S", secret)]).unwrap_err();
    assert!(faults.iter().count() >= 8, "{faults}");
    assert!(!faults.to_string().contains(secret), "{faults}");
    assert!(!format!("{faults:?}").contains(secret));

    let text = tool(
        "parameters:\n  - {name: p, type: string, description: x, default: '${S}', allowedValues: ['${S}']}\nstatement: SELECT '${S}', $1\n",
    )
    .replace("shop.db", "${S}");
    let config = parse_with(&text, &[("S", secret)]).unwrap();
    assert!(config.tools[0].statement.sql().contains(secret));
    assert!(!format!("{config:?}").contains(secret), "{config:?}");
}

#[test]
fn an_unset_variable_is_told_with_its_place_and_only_if_it_is_used() {
    let text = format!(
        "# ${{IN_A_COMMENT}}\n{SHOP}kind: policy\nmaxRows: ${{ROWS}}\ndrainMs: ${{DRAIN:?how long may a drain take}}\n"
    );
    assert_eq!(
        faults(&text),
        [
            "tools.yaml:8:10: `maxRows` needs the environment variable ROWS, which is not set; set it, or write ${ROWS:-a default}",
            "tools.yaml:9:10: `drainMs` needs the environment variable DRAIN, which is not set; how long may a drain take",
        ]
    );
}

#[test]
fn placeholders_and_parameters_must_fit() {
    let p = "parameters:\n  - {name: a, type: string, description: x}\n  - {name: b, type: string, description: x}\n";
    for (statement, expected) in [
        (
            "SELECT $1, $2, $3",
            "the statement uses $3, and 2 parameters are declared",
        ),
        (
            "SELECT ?",
            "parameter 2, \"b\", is declared and the statement never uses it",
        ),
        (
            "SELECT :a, :c",
            "the statement uses :c and no parameter is called \"c\"",
        ),
        (
            "SELECT ?, :b",
            "the statement mixes ? with named placeholders; use one kind",
        ),
        (
            "SELECT $1, $2; SELECT 1",
            "it is several statements; a tool runs one",
        ),
        ("SELECT load_extension($1), $2", "load_extension"),
    ] {
        let told = faults(&tool(&format!("{p}statement: '{statement}'\n")));
        assert!(told.len() == 1 && told[0].contains(expected), "{told:?}");
        assert!(told[0].starts_with("tools.yaml:14:12: tool \"t\": "), "{told:?}");
    }
    assert!(parse(&tool(&format!("{p}statement: SELECT :b, @a\n"))).is_ok());
    assert!(parse(&tool(&format!("{p}statement: SELECT $2 || '$9', $1\n"))).is_ok());
}

#[test]
fn what_belongs_to_a_later_version_is_named() {
    let text = "\
kind: source
name: pg
type: postgres
host: ${PGHOST}
password: hunter2
---
kind: tool
name: q
type: postgres-sql
source: pg
statement: SELECT 1
---
kind: toolset
name: all
tools: [q]
---
kind: prompt
name: p
";
    assert_eq!(
        faults(text),
        [
            "tools.yaml:3:7: not supported yet by this version: source type \"postgres\"; this version reads SQLite files: `type: sqlite`",
            "tools.yaml:9:7: not supported yet by this version: tool type \"postgres-sql\"; this version runs statements on SQLite: `type: sqlite-sql`",
            "tools.yaml:17:7: not supported yet by this version: kind \"prompt\"; leave the document out",
        ]
    );
    let told = faults(&tool(
        "statement: SELECT '{{.x}}'\ntemplateParameters:\n  - {name: x, type: string, description: x}\n",
    ));
    assert_eq!(
        told,
        [
            "tools.yaml:12:1: not supported yet by this version: \"templateParameters\"; write the statement out, with parameters"
        ]
    );
}

/// The two forms of one file are one configuration.
#[test]
fn the_older_nested_form_loads_to_the_same() {
    let flat = tool(
        "parameters:\n  - {name: a, type: string, description: x}\nstatement: SELECT $1\n---\nkind: toolset\nname: s\ntools: [t]\n",
    );
    let nested = "\
sources:
  shop:
    kind: sqlite
    database: shop.db
tools:
  t:
    kind: sqlite-sql
    source: shop
    description: d
    parameters:
      - name: a
        type: string
        description: x
    statement: SELECT $1
toolsets:
  s: [t]
";
    assert_eq!(
        everything(&parse(nested).unwrap()),
        everything(&parse(&flat).unwrap())
    );
    assert_eq!(
        faults(&nested.replace("    database: shop.db", "    path: shop.db")),
        ["tools.yaml:4:5: source \"shop\" has no field \"path\"; did you mean \"database\"?"]
    );
}

#[test]
fn names_must_exist_and_be_unique() {
    let base = tool("statement: SELECT 1\n");
    for (rest, expected) in [
        (
            "kind: tool\nname: t\ntype: sqlite-sql\nsource: shop\ndescription: d\nstatement: SELECT 1\n",
            "there is already a tool \"t\"; the first is in tools.yaml:7",
        ),
        (
            "kind: tool\nname: u\ntype: sqlite-sql\nsource: shpo\ndescription: d\nstatement: SELECT 1\n",
            "tool \"u\" reads the source \"shpo\", which is not declared; did you mean \"shop\"?",
        ),
        (
            "kind: toolset\nname: s\ntools: [t, tt]\n",
            "toolset \"s\" names the tool \"tt\", which is not declared; known: t",
        ),
        (
            "kind: toolset\nname: s\ntools: []\n",
            "`tools` is an empty list; fill it, or leave it out",
        ),
        (
            "kind: coordination\ntool: u\n",
            "coordination for the tool \"u\", which is not declared; known: t",
        ),
        (
            "kind: coordination\ntool: t\npreconditions: [u]\n",
            "a precondition names the tool \"u\", which is not declared; known: t",
        ),
        (
            "kind: coordination\ntool: t\npreconditions: [t]\n",
            "tool \"t\" can't be its own precondition",
        ),
        (
            "kind: coordination\ntool: t\nkey: {reads: ['x:{id}']}\n",
            "tool \"t\" has no parameter \"id\" for a key; there are none",
        ),
        (
            "kind: snapshot\nname: s\ndescription: d\ncovers: [{tool: u}]\n",
            "snapshot \"s\" covers the tool \"u\", which is not declared; known: t",
        ),
        (
            "kind: snapshot\nname: t\ndescription: d\ncovers: [{tool: t}]\n",
            "there is already a tool \"t\"; the first is in tools.yaml:7",
        ),
        (
            "kind: snapshot\nname: s\ndescription: d\ncovers: [{tool: t}]\n---\nkind: coordination\ntool: s\n",
            "\"s\" is a snapshot, whose coordination is that of the tools it covers; leave the document out",
        ),
        (
            "kind: policy\n---\nkind: policy\n",
            "there is already a policy; the first is in tools.yaml:13",
        ),
    ] {
        let told = faults(&format!("{base}---\n{rest}"));
        assert!(
            told.len() == 1 && told[0].ends_with(expected),
            "{told:?}\n{expected}"
        );
    }
}

#[test]
fn an_effect_may_tighten_and_loosens_only_when_trusted() {
    let write = tool("statement: DELETE FROM orders\n");
    let effect = |text: &str| parse(text).map(|config| config.tools[0].effect());
    assert_eq!(effect(&write), Ok(Effect::Write));
    assert_eq!(effect(&tool("statement: SELECT 1\n")), Ok(Effect::Read));
    assert_eq!(
        effect(&tool("statement: SELECT 1\nannotations: {readOnlyHint: false}\n")),
        Ok(Effect::Write)
    );
    assert_eq!(
        effect(&format!(
            "{}---\nkind: coordination\ntool: t\neffect: write\n",
            tool("statement: SELECT 1\n")
        )),
        Ok(Effect::Write)
    );
    let loosened = format!("{write}---\nkind: coordination\ntool: t\neffect: read\n");
    assert_eq!(
        faults(&loosened),
        [
            "tools.yaml:15:9: tool \"t\" is declared a read, but its statement writes; \
          leave `effect` out, or add `trusted: true` if what it writes concerns nobody"
        ]
    );
    assert_eq!(effect(&format!("{loosened}trusted: true\n")), Ok(Effect::Read));
    let hinted = tool("statement: DELETE FROM orders\nannotations: {readOnlyHint: true}\n");
    assert_eq!(effect(&hinted), Ok(Effect::Write));
    assert!(warnings(&hinted)[0].contains("is said to only read, but its statement writes"));
    let covered = format!("{write}---\nkind: snapshot\nname: s\ndescription: d\ncovers: [{{tool: t}}]\n");
    assert!(
        faults(&covered)[0].ends_with("snapshot \"s\" covers \"t\", which is a write; a snapshot only reads")
    );
}

#[test]
fn what_is_probably_not_meant_is_a_warning() {
    let base = tool("statement: SELECT 1\n");
    for (rest, expected) in [
        (
            "kind: dependency\nname: crm\n",
            "nothing leans on the dependency \"crm\"; name it in a `kind: coordination`, or leave it out",
        ),
        (
            "kind: coordination\ntool: t\ndependency: crm\n",
            "the dependency \"crm\" has no limits of its own; it gets the default allowance; declare it with `kind: dependency`",
        ),
        (
            "kind: coordination\ntool: t\nasOf: {field: updated_at}\n",
            "\"updated_at\" sounds like when a row was changed last, not as of when the data is; name a field that says when everything was loaded, or leave it out",
        ),
        (
            "kind: coordination\ntool: t\neffect: write\nretry: {attempts: 2, backoffMs: 1}\n",
            "a write is never tried again; leave `retry` out",
        ),
        (
            "kind: coordination\ntool: t\npartitionKey: x\n",
            "`partitionKey` says nothing about a read; leave it out",
        ),
        (
            "kind: authService\nname: login\ntype: google\nclientId: x\n",
            "tokens are not checked here; check the caller's token in front of Coeval and put its claims into the set's `scope`",
        ),
    ] {
        let told = warnings(&format!("{base}---\n{rest}"));
        assert!(
            told.len() == 1 && told[0].ends_with(expected),
            "{told:?}\n{expected}"
        );
    }
    let allowed = |values: &str| {
        warnings(&tool(&format!(
            "parameters:\n  - {{name: a, type: string, description: x, allowedValues: [{values}]}}\nstatement: SELECT $1\n"
        )))
    };
    assert_eq!(allowed("'a.*'").len(), 1);
    assert_eq!(allowed("open, in-progress, '^a.*$'"), Vec::<String>::new());
}

#[test]
fn values_out_of_range_are_refused() {
    for (rest, expected) in [
        (
            "maxConcurrency: 0",
            "`maxConcurrency` is 0, but must be at least 1",
        ),
        ("maxRows: -5", "`maxRows` is -5, but must be at least 1"),
        ("maxRows: 1.5", "`maxRows` needs a whole number, not \"1.5\""),
        (
            "maxRows: '5'",
            "`maxRows` needs a whole number, not \"5\"; leave the quotes out",
        ),
        ("viewMaxMs: 99999999999999999999", "can be at most 86400000"),
        (
            "drainMs: 99999999999",
            "`drainMs` is 99999999999, but can be at most 86400000",
        ),
        (
            "toleranceMs: [5]",
            "`toleranceMs` needs a whole number, not a list; leave the brackets or the dash out",
        ),
        (
            "minimumPurpose: Compare",
            "`minimumPurpose` can't be \"Compare\"; did you mean \"compare\"?",
        ),
    ] {
        let told = faults(&format!("kind: policy\n{rest}\n"));
        assert!(
            told.len() == 1 && told[0].contains(expected),
            "{told:?}\n{expected}"
        );
    }
    assert_eq!(
        parse("kind: policy\ntoleranceMs: 0\ndrainMs: 0\n")
            .unwrap()
            .settings
            .tolerance,
        Duration::ZERO
    );
}

#[test]
fn files_and_folders_are_one_configuration() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.yaml"), tool("statement: SELECT 1\n")).unwrap();
    std::fs::write(
        folder.path().join("b.yml"),
        "\u{feff}kind: coordination\ntool: t\ntimeoutMs: 7\n",
    )
    .unwrap();
    std::fs::write(folder.path().join("notes.txt"), "not: [yaml").unwrap();
    let environment = |_: &str| None;
    let config = Config::load(&[folder.path()], &environment).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(
        config.tools[0].coordination.timeout,
        Some(Duration::from_millis(7))
    );

    let (a, b) = (folder.path().join("a.yaml"), folder.path().join("missing.yaml"));
    std::fs::write(folder.path().join("c.yaml"), tool("statement: SELECT 2\n")).unwrap();
    let c = folder.path().join("c.yaml");
    let faults = Config::load(&[a, b, c], &environment).unwrap_err();
    let told: Vec<_> = faults.iter().map(|fault| fault.message().to_owned()).collect();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told[0].starts_with("can't be read: "), "{told:?}");
    assert_eq!(
        told[1..],
        [
            "there is already a source \"shop\"",
            "there is already a tool \"t\""
        ]
    );
    let empty = tempfile::tempdir().unwrap();
    assert!(Config::load(&[empty.path()], &environment).is_err());
}
