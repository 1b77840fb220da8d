//! `coeval demo`: a discrepancy that never existed, and how it is kept from being told.
//!
//! Everything in it happens: a real database, a real transaction between two real reads. The only thing that is arranged
//! is *when* the transaction commits, so that nobody has to wait for bad luck.

use std::sync::Arc;

use coeval::call::CallSet;
use coeval::config::Config;
use coeval::hook::Hook;
use coeval::reading::CallError;
use coeval::registry::Registry;
use coeval::report::{CallResult, SetReport};
use coeval::request::CallRequest;
use coeval::tool::{ArgumentMap, IntoTool, Tool, ToolSpec};
use coeval::{BoxError, Coordinator};
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::{Demo, Ending, Failure, Terminal};

mod database;
mod story;

use database::{CONFIG, Databases, SET, WITH_CRM, read_plainly};

/// The reports of the three acts, by contract.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Acts {
    /// Separate reads, one connection each.
    naive: SetReport,
    /// The same reads through one view.
    one_view: SetReport,
    /// With an answer from outside the database.
    outside: SetReport,
}

pub(super) async fn demo(command: Demo, terminal: &Terminal) -> Result<Ending, Failure> {
    let databases = Arc::new(Databases::create(command.keep.as_deref()).await?);
    let acts = tokio::select! {
        acts = play(&databases) => acts?,
        // Ended like this, so that the temporary folder goes too.
        _ = tokio::signal::ctrl_c() => return Ok(Ending::NotFine),
    };
    if command.output.is_json() {
        terminal.print_json(&acts, &command.output, false)?;
    } else {
        terminal.print(&story::tell(
            &acts,
            &databases,
            command.keep.is_some(),
            terminal.paint,
        ))?;
    }
    if let Some(databases) = Arc::into_inner(databases) {
        databases.close().await;
    }
    Ok(Ending::fine_if(story::is_as_told(&acts)))
}

async fn play(databases: &Arc<Databases>) -> Result<Acts, Failure> {
    let config = Config::parse("coeval.yaml", CONFIG.as_bytes(), &|name| match name {
        "ATLAS_DB" => Some(databases.atlas().display().to_string()),
        "CRM_DB" => Some(databases.crm().display().to_string()),
        _ => None,
    })
    .map_err(|faults| Failure::new("the demo's own configuration can't be used").because(&faults))?;
    let failed = |error: &dyn std::error::Error| Failure::new("the demo could not be played").because(error);

    let plain = Registry::new();
    for tool in plain_tools(&config, databases) {
        plain.register(tool).map_err(|error| failed(&error))?;
    }
    let amending = || Arc::new(Amending::new(Arc::clone(databases)));
    let naive = Coordinator::builder(plain).hook(amending()).build();
    let naive = naive.run(set(SET)).await.map_err(|error| failed(&error))?;

    databases.revert().await.map_err(|error| failed(&error))?;
    let assembly = config.build().await.map_err(|faults| failed(&faults))?;
    let coeval = assembly.coordinator.hook(amending()).build();
    let one_view = coeval.run(set(SET)).await.map_err(|error| failed(&error))?;

    coeval
        .registry()
        .replace(customer_cards())
        .map_err(|error| failed(&error))?;
    let outside = coeval.run(set(WITH_CRM)).await.map_err(|error| failed(&error))?;
    super::shut_down(coeval, &assembly.sources).await;
    Ok(Acts {
        naive,
        one_view,
        outside,
    })
}

fn set(json: &str) -> CallSet {
    CallSet::from_json(json).expect("the sets in examples/henderson are sets")
}

/// The same tools as any program would write them: each read with a connection of its own.
fn plain_tools(config: &Config, databases: &Arc<Databases>) -> Vec<Tool> {
    let tools = config.tools.iter().filter(|tool| *tool.source == *"atlas");
    tools
        .map(|tool| {
            let spec = ToolSpec::read(Arc::clone(&tool.name))
                .description(&*tool.description)
                .input_schema(tool.input_schema());
            let (tool, databases) = (tool.clone(), Arc::clone(databases));
            Tool::from_fn(spec, move |arguments: ArgumentMap| {
                let (tool, databases) = (tool.clone(), Arc::clone(&databases));
                async move { read_plainly(&databases.atlas(), &tool, &arguments).await }
            })
        })
        .collect()
}

#[derive(Clone, Deserialize, JsonSchema)]
struct Of {
    account_id: String,
}

/// What the sales team has noted about an account, with a copy of its terms.
#[derive(Serialize)]
struct Card {
    account_id: String,
    next_step: &'static str,
    threshold_cents: u32,
    copied_at: &'static str,
}

/// A service outside the database: a cache of notes, which are copied every night.
fn customer_cards() -> Tool {
    let service = tower::service_fn(|of: Of| async move {
        Ok::<_, BoxError>(Card {
            account_id: of.account_id,
            next_step: "Lower the threshold as agreed",
            threshold_cents: 2_500_000,
            copied_at: "2026-11-30T02:00:00Z",
        })
    });
    let spec = ToolSpec::read("get_customer_card")
        .description("What sales notes about an account. Its contract terms are last night's copy.")
        .input::<Of>()
        .dependency("crm")
        .as_of_field("copied_at");
    service.into_tool(spec)
}

/// Commits the amendment once: when the first read has been answered and before the second starts.
struct Amending {
    databases: Arc<Databases>,
    /// Closed once it is committed.
    committed: Semaphore,
}

impl Amending {
    fn new(databases: Arc<Databases>) -> Self {
        Self {
            databases,
            committed: Semaphore::new(0),
        }
    }
}

impl Hook for Amending {
    fn before<'a>(&'a self, request: &'a CallRequest) -> BoxFuture<'a, Result<(), CallError>> {
        Box::pin(async move {
            if request.position() > 0 && !self.committed.is_closed() {
                // It has no permits: this ends when it is closed.
                let _ = self.committed.acquire().await;
            }
            Ok(())
        })
    }

    fn after<'a>(&'a self, _: usize, _: &'a CallResult) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if !self.committed.is_closed() {
                // If it fails the story isn't as it is told, and the command says so.
                let _ = self.databases.amend().await;
                self.committed.close();
            }
        })
    }
}
