//! Telling a user that two answers may not be compared, and withholding them where that is asked.
//!
//! ```sh
//! cargo run --example warning
//! ```

use coeval::registry::Registry;
use coeval::report::SetReport;
use coeval::tool::{Tool, ToolSpec};
use coeval::{BoxError, Call, CallSet, Coordinator};
use serde_json::{Value, json};

/// What a chat shows below an answer: nothing, or why the figures above should not be held against each other.
fn footnote(report: &SetReport) -> Option<String> {
    let consistency = &report.consistency;
    if consistency.comparable != Some(false) {
        return None;
    }
    let mut text = match &consistency.issue {
        Some(issue) => format!("Note: {}", issue.message),
        None => format!("Note: {}", report.note),
    };
    for excluded in &consistency.excluded {
        let result = &report.results[excluded.call];
        let as_of = result.as_of.map_or("at an unknown time".to_owned(), |moment| {
            format!("as of {moment}")
        });
        text.push_str(&format!("\n  - {} ({as_of}): {}", result.tool, excluded.why));
    }
    if let Some(help) = &consistency.would_help {
        text.push_str(&format!("\n  What would help: {help}"));
    }
    Some(text)
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // Two APIs: of neither is it known which state of its data it answered from.
    let registry = Registry::new();
    registry.register(Tool::from_fn(ToolSpec::read("get_stock"), |_: Value| async {
        Ok::<_, BoxError>(json!({"units": 120}))
    }))?;
    registry.register(Tool::from_fn(ToolSpec::read("get_reserved"), |_: Value| async {
        Ok::<_, BoxError>(json!({"units": 130}))
    }))?;
    let coordinator = Coordinator::new(registry);
    let set = || {
        let calls = [
            Call::new("c1", "get_stock", json!({})),
            Call::new("c2", "get_reserved", json!({})),
        ];
        CallSet::new(calls).question("Is more reserved than there is in stock?")
    };

    let report = coordinator.run(set()).await?;
    let footnote = footnote(&report).expect("they may not be compared");
    println!("120 in stock, 130 reserved.\n{footnote}");

    // A host that would rather show nothing says so; the calls are answered, their values kept back.
    let report = coordinator.run(set().require_comparable()).await?;
    assert!(
        report
            .results
            .iter()
            .all(|result| result.withheld && result.value.is_none())
    );
    println!("\n{}", report.note);
    Ok(())
}
