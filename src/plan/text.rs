//! A decision and a plan as text: every reason, and the order as a diagram.
//!
//! ```text
//! not all at once: contains_write
//!   contains_write  c3        cancel_order may write
//!
//! ┌ 1 ──────────────────────────────────────┐
//! │ c1 get_contract                         │
//! │ c2 list_orders  after c1 (guess: id)    │
//! └────────────────────▼────────────────────┘
//! ┌ 2 ──────────────────────────────────────┐
//! │ c3 cancel_order                         │
//! └─────────────────────────────────────────┘
//! ```

use std::borrow::Borrow;
use std::fmt::Write;

use foldhash::{HashMap, HashMapExt};

use super::{Decision, Edge, Plan};
use crate::reading::CallError;
use crate::tool::ResolvedCall;

/// Calls that are named where many are meant.
const NAMED: usize = 4;

/// Characters of a name that are shown.
const SHOWN: usize = 40;

/// Renders them for people, without colour. `calls` are those that were planned.
pub fn render<C: Borrow<ResolvedCall>>(calls: &[C], decision: &Decision, plan: &Plan) -> String {
    let text = Text::new(calls.iter().map(Borrow::borrow).collect());
    let mut out = String::new();
    text.decision(&mut out, decision);
    if !plan.stages.is_empty() {
        out.push('\n');
        text.stages(&mut out, plan);
    }
    text.remarks(&mut out, plan);
    out
}

struct Text {
    /// How each call is named: by its id if that is unique, else by its position.
    labels: Vec<String>,
    tools: Vec<String>,
}

impl Text {
    fn new(calls: Vec<&ResolvedCall>) -> Self {
        let mut holders: HashMap<&str, usize> = HashMap::with_capacity(calls.len());
        calls
            .iter()
            .for_each(|call| *holders.entry(&call.id).or_default() += 1);
        let label = |(position, call): (usize, &&ResolvedCall)| {
            if call.id.is_empty() || holders[&*call.id] > 1 {
                format!("#{position}")
            } else {
                plain(&call.id)
            }
        };
        let labels = calls.iter().enumerate().map(label).collect();
        Self {
            labels,
            tools: calls.iter().map(|call| plain(&call.tool)).collect(),
        }
    }

    fn label(&self, call: usize) -> &str {
        self.labels.get(call).map_or("?", |label| label)
    }

    fn named(&self, calls: &[usize]) -> String {
        let mut names: Vec<&str> = calls.iter().take(NAMED).map(|&call| self.label(call)).collect();
        let more = calls.len().saturating_sub(NAMED);
        let rest = format!("and {more} more");
        if more > 0 {
            names.push(&rest);
        }
        names.join(" ")
    }

    fn decision(&self, out: &mut String, decision: &Decision) {
        match decision.reason {
            None => out.push_str("all at once: no condition fails\n"),
            Some(reason) => {
                let dependency = decision
                    .dependency
                    .as_ref()
                    .map(|name| format!(" ({})", plain(name)));
                line(
                    out,
                    format_args!(
                        "not all at once: {}{}",
                        reason.as_str(),
                        dependency.unwrap_or_default()
                    ),
                );
            }
        }
        let called: Vec<String> = decision
            .evidence
            .iter()
            .map(|evidence| self.named(&evidence.calls))
            .collect();
        let wide = width(called.iter());
        let conditions = decision
            .evidence
            .iter()
            .map(|evidence| evidence.condition.as_str());
        let first = width(conditions);
        for (evidence, called) in decision.evidence.iter().zip(&called) {
            let (condition, detail) = (evidence.condition.as_str(), plain_text(&evidence.detail));
            line(
                out,
                format_args!("  {condition:first$}  {called:wide$}  {detail}"),
            );
        }
        match decision.disjoint_writes {
            Some(true) => out.push_str("  the writes are confined to different things\n"),
            Some(false) => out.push_str("  the writes may touch the same things\n"),
            None => {}
        }
    }

    fn stages(&self, out: &mut String, plan: &Plan) {
        let mut waits: Vec<Vec<&Edge>> = vec![Vec::new(); self.labels.len()];
        for edge in &plan.edges {
            for &call in &edge.after {
                if let Some(waits) = waits.get_mut(call) {
                    waits.push(edge);
                }
            }
        }
        let mut refused: HashMap<usize, &CallError> = HashMap::new();
        refused.extend(plan.refused.iter().map(|(call, error)| (*call, error)));
        let (label_width, tool_width) = (width(self.labels.iter()), width(self.tools.iter()));
        let row = |&call: &usize| {
            let tool = self.tools.get(call).map_or("?", |tool| tool);
            let mut row = format!("{:label_width$} {tool:tool_width$}", self.label(call));
            for edge in waits.get(call).into_iter().flatten() {
                let before = self.named(&edge.before);
                let _ = write!(
                    row,
                    "  after {before} ({}: {})",
                    edge.reason.as_str(),
                    plain(&edge.detail)
                );
            }
            if let Some(error) = refused.get(&call) {
                let _ = write!(row, "  doesn't run ({})", code(error));
            }
            row.trim_end().to_owned()
        };
        let stages: Vec<Vec<String>> = plan
            .stages
            .iter()
            .map(|stage| stage.iter().map(row).collect())
            .collect();
        // A number in the top line needs its room, too.
        let inner = width(stages.iter().flatten()).max(16) + 2;
        for (index, rows) in stages.iter().enumerate() {
            let title = format!(" {} ", index + 1);
            line(
                out,
                format_args!("┌{title}{}┐", "─".repeat(inner.saturating_sub(title.len()))),
            );
            for row in rows {
                line(out, format_args!("│ {row:width$} │", width = inner - 2));
            }
            let last = index + 1 == stages.len();
            let left = "─".repeat(inner / 2);
            let right = "─".repeat(inner - inner / 2 - 1);
            line(
                out,
                format_args!("└{left}{}{right}┘", if last { "─" } else { "▼" }),
            );
        }
    }

    fn remarks(&self, out: &mut String, plan: &Plan) {
        if !plan.refused.is_empty() {
            out.push_str("\nanswered without running:\n");
        }
        for (call, error) in &plan.refused {
            let message = plain_text(error.message());
            line(
                out,
                format_args!("  {} {}: {message}", self.label(*call), code(error)),
            );
        }
        if !plan.guesses.is_empty() {
            out.push_str("\nlooked up before they run:\n");
        }
        for guess in &plan.guesses {
            let (label, field, makers) = (
                self.label(guess.consumer),
                plain(&guess.field),
                plain(&guess.returned_by),
            );
            line(out, format_args!("  {label} {field}, in what {makers} returns"));
        }
        if !plan.unverified.is_empty() {
            out.push_str("\nlook guessed and can't be looked up:\n");
        }
        for (call, field) in &plan.unverified {
            line(out, format_args!("  {} {}", self.label(*call), plain(field)));
        }
    }
}

/// The code as it is written in JSON.
fn code(error: &CallError) -> String {
    let code = serde_json::to_value(error.code());
    code.ok()
        .as_ref()
        .and_then(|code| code.as_str())
        .unwrap_or("error")
        .to_owned()
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = writeln!(out, "{text}");
}

fn width<S: AsRef<str>>(texts: impl Iterator<Item = S>) -> usize {
    texts.map(|text| text.as_ref().chars().count()).max().unwrap_or(0)
}

/// A name that can't break the picture or the terminal: on one line, without control characters, and not too long.
fn plain(name: &str) -> String {
    let mut text: String = name
        .chars()
        .take(SHOWN)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if name.chars().nth(SHOWN).is_some() {
        text.push('…');
    }
    text
}

/// A sentence without control characters.
fn plain_text(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}
