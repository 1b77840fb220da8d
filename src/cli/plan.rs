//! `coeval plan`: in which order a set would run, and why.

use std::sync::Arc;

use coeval::config::Assembly;
use coeval::layer::plan::Planned;
use coeval::plan::{Decision, text};
use serde::Serialize;

use super::input::Named;
use super::{Ending, Failure, Plan, Terminal, run::heading};

/// The answer, by contract.
#[derive(Serialize)]
struct Answer<'a> {
    decision: &'a Decision,
    plan: &'a coeval::plan::Plan,
}

pub(super) async fn plan(command: Plan, terminal: &Terminal) -> Result<Ending, Failure> {
    let sets = command.sets.read()?;
    let several = sets.len() > 1;
    let Assembly {
        coordinator, sources, ..
    } = super::build(&command.sets.config(terminal)?, terminal).await?;
    let coordinator = coordinator.build();
    let mut ending = Ending::Fine;
    for (number, Named { from, set }) in sets.into_iter().enumerate() {
        let planned = coordinator
            .plan(set)
            .map_err(|error| Failure::new(format!("{from} can't be planned")).because(&error))?;
        if unrunnable(&planned).next().is_some() {
            ending = Ending::NotFine;
        }
        if command.output.is_json() {
            for (call, message) in unrunnable(&planned) {
                terminal.warn(format_args!(
                    "{from}: call {call} would be answered without running: {message}"
                ));
            }
            let answer = Answer {
                decision: &planned.decision,
                plan: &planned.plan,
            };
            terminal.print_json(&answer, &command.output, several)?;
        } else {
            let heading = heading(&from, number, several, terminal);
            let calls: Vec<_> = planned
                .calls
                .iter()
                .map(|resolved| Arc::clone(&resolved.call))
                .collect();
            let shown = text::render(&calls, &planned.decision, &planned.plan);
            terminal.print(&format!("{heading}{shown}"))?;
        }
        if terminal.is_unread() {
            break;
        }
    }
    super::shut_down(coordinator, &sources).await;
    Ok(ending)
}

/// The calls that would be answered without running, and with what.
fn unrunnable(planned: &Planned) -> impl Iterator<Item = (usize, &str)> {
    let faults = planned.calls.iter().filter_map(|resolved| {
        let fault = resolved.call.fault.as_ref()?;
        Some((resolved.call.position, fault.message()))
    });
    let refused = planned
        .plan
        .refused
        .iter()
        .map(|(position, error)| (*position, error.message()));
    faults.chain(refused)
}
