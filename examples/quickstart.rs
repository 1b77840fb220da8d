//! Two SQL statements and a `tower` service become tools; what a model asked for in one turn is run as a set.
//!
//! ```sh
//! cargo run --example quickstart
//! ```

use std::sync::Arc;

use coeval::registry::Registry;
use coeval::source::sqlite::{SqliteOptions, SqliteSource};
use coeval::tool::{IntoTool, Tool, ToolSpec};
use coeval::{Call, CallSet, Coordinator};
use serde_json::json;

const CONTRACT: &str =
    "SELECT discount_percent, threshold_cents FROM contracts WHERE account_id = :account_id";
const ORDERS: &str =
    "SELECT order_id, subtotal_cents, discount_cents FROM orders WHERE account_id = :account_id";

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Customer {
    account_id: String,
}

#[tokio::main]
async fn main() -> Result<(), coeval::BoxError> {
    // A database. What is read through it in one set is read through one view.
    let atlas = SqliteSource::open(SqliteOptions::new("atlas", "examples/henderson/atlas.db"))?;
    let registry = Registry::new();
    for (name, statement) in [("get_contract", CONTRACT), ("list_orders", ORDERS)] {
        let (spec, statement) = atlas.tool(name, statement, ["account_id"]).await?;
        registry.register(Tool::raw(spec, statement))?;
    }

    // Any `tower` service: here a function, as well a client of an API with layers of its own.
    let rating = tower::service_fn(|customer: Customer| async move {
        Ok::<_, std::io::Error>(json!({"account_id": customer.account_id, "rating": "A-"}))
    });
    registry.register(rating.into_tool(ToolSpec::read("get_rating").input::<Customer>()))?;

    let coordinator = Coordinator::builder(registry).source(Arc::new(atlas)).build();
    let set = CallSet::new([
        Call::new("c1", "get_contract", json!({"account_id": "henderson"})),
        Call::new("c2", "list_orders", json!({"account_id": "henderson"})),
        Call::new("c3", "get_rating", json!({"account_id": "henderson"})),
    ])
    .question("Is Henderson's discount being applied?");
    let report = coordinator.run(set).await?;

    for result in &report.results {
        println!("{:<13} {:?}", result.tool, result.outcome);
    }
    // Contract and orders may be compared with each other, the rating with neither.
    println!(
        "comparable: {:?}, groups: {:?}",
        report.consistency.comparable, report.consistency.groups
    );
    println!("{}", report.note);
    coordinator.shutdown().await;
    Ok(())
}
