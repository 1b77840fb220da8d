//! A report as text for people: what each call returned, then what may be made of it together.
//!
//! What tools return is printed with its control characters escaped, so that no answer can drive the terminal.

use std::fmt::{self, Write};

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;

use super::{CallResult, Consistency, ErrorReport, SetReport, Status};
use crate::plan::{Edge, Plan};
use crate::reading::Outcome;

mod value;

use value::inline;

/// How parts of the text are set off: escape sequences, or nothing.
///
/// Whether the reader is a terminal that understands them is for the caller to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Palette {
    good: &'static str,
    bad: &'static str,
    doubtful: &'static str,
    strong: &'static str,
    faint: &'static str,
    end: &'static str,
}

impl Palette {
    /// Text alone.
    pub const PLAIN: Self = Self {
        good: "",
        bad: "",
        doubtful: "",
        strong: "",
        faint: "",
        end: "",
    };

    /// The sixteen colours every terminal has.
    pub const COLOURS: Self = Self {
        good: "\x1b[32m",
        bad: "\x1b[31m",
        doubtful: "\x1b[33m",
        strong: "\x1b[1m",
        faint: "\x1b[2m",
        end: "\x1b[0m",
    };
}

/// How wide anything else may be.
const LINE: usize = 100;

/// Writes a report as text.
pub fn render(report: &SetReport, palette: &Palette) -> String {
    let mut text = Text {
        out: String::new(),
        palette,
    };
    text.report(report)
        .expect("a string takes all that is written to it");
    text.out
}

struct Text<'a> {
    out: String,
    palette: &'a Palette,
}

impl Text<'_> {
    fn report(&mut self, report: &SetReport) -> fmt::Result {
        let Palette { faint, bad, end, .. } = *self.palette;
        write!(
            self.out,
            "{faint}set {}, issued {}",
            clean(&report.set_id),
            at(report.issued_at.wall)
        )?;
        write!(
            self.out,
            ", took {}, policy {}{end}",
            Millis(report.elapsed_ms),
            word(&report.policy)
        )?;
        if report.status != Status::Complete {
            write!(self.out, ", {bad}{}{end}", word(&report.status))?;
        }
        self.out.push('\n');

        self.calls(report)?;

        self.out.push('\n');
        self.plan(report)?;
        self.consistency(report)?;
        if !report.note.is_empty() {
            writeln!(self.out, "\n{}", clean(&report.note))?;
        }
        Ok(())
    }

    /// The calls, one below the other, what is known of each in columns.
    fn calls(&mut self, report: &SetReport) -> fmt::Result {
        let rows: Vec<[String; 7]> = report
            .results
            .iter()
            .enumerate()
            .map(|call| cells(report, call))
            .collect();
        let mut widths = [0; 7];
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let Palette {
            good,
            bad,
            doubtful,
            strong,
            faint,
            end,
        } = *self.palette;
        for (row, result) in rows.iter().zip(&report.results) {
            let colour = match result.outcome {
                Outcome::Ok if result.withheld || !result.complete => doubtful,
                Outcome::Ok => good,
                _ => bad,
            };
            let colours = [faint, faint, strong, colour, "", faint, faint];
            let mut line = String::from("\n");
            for (number, (cell, width)) in row.iter().zip(widths).enumerate() {
                let pad = " ".repeat(width - cell.chars().count());
                let gap = if number == 0 || width == 0 { "" } else { "  " };
                let colour = if cell.is_empty() { "" } else { colours[number] };
                let end = if colour.is_empty() { "" } else { end };
                // Numbers stand at the right.
                match number {
                    0 | 5 | 6 => write!(line, "{gap}{pad}{colour}{cell}{end}")?,
                    _ => write!(line, "{gap}{colour}{cell}{end}{pad}")?,
                }
            }
            self.out.push_str(line.trim_end());
            self.out.push('\n');
            self.call(result)?;
        }
        Ok(())
    }

    /// What lies below a call's line.
    fn call(&mut self, result: &CallResult) -> fmt::Result {
        let Palette {
            doubtful, faint, end, ..
        } = *self.palette;
        for remark in remarks(result) {
            writeln!(self.out, "    {doubtful}{remark}{end}")?;
        }
        if let Some(value) = &result.value {
            self.value(value)?;
        }
        if let Some(error) = &result.error {
            self.error(error)?;
        }
        if let Some(replaced) = &result.replaced {
            writeln!(
                self.out,
                "    {faint}It was {} when it was read first.{end}",
                inline(&replaced.old, LINE)
            )?;
        }
        Ok(())
    }

    fn error(&mut self, error: &ErrorReport) -> fmt::Result {
        let Palette { bad, faint, end, .. } = *self.palette;
        writeln!(
            self.out,
            "    {bad}{}: {}{end}",
            word(&error.code),
            clean(&error.message)
        )?;
        if error.may_have_happened {
            writeln!(
                self.out,
                "    {faint}It may have happened all the same: look before it is asked again.{end}"
            )?;
        }
        match (error.retryable, error.retry_after_ms) {
            (true, Some(wait)) => writeln!(
                self.out,
                "    {faint}Worth asking again after {}.{end}",
                Millis(wait)
            ),
            (true, None) => writeln!(self.out, "    {faint}Worth asking again.{end}"),
            (false, _) => Ok(()),
        }
    }

    fn plan(&mut self, report: &SetReport) -> fmt::Result {
        write!(self.out, "plan     {}", Stages(&report.plan))?;
        if let Some(reason) = &report.decision.reason {
            write!(self.out, " ({}", word(reason))?;
            if let Some(dependency) = &report.decision.dependency {
                write!(self.out, " of {}", clean(dependency))?;
            }
            self.out.push(')');
        }
        self.out.push('\n');
        for Edge {
            before,
            after,
            reason,
            detail,
        } in &report.plan.edges
        {
            let waits = if after.len() == 1 { "waits" } else { "wait" };
            write!(
                self.out,
                "         {} {waits} for {}: {}",
                List(after),
                List(before),
                word(reason)
            )?;
            writeln!(
                self.out,
                "{}{}",
                if detail.is_empty() { "" } else { ", " },
                clean(detail)
            )?;
        }
        writeln!(
            self.out,
            "route    {}, for purpose {}: {}",
            word(&report.route.taken),
            report.route.purpose,
            clean(&report.route.because)
        )
    }

    fn consistency(&mut self, report: &SetReport) -> fmt::Result {
        let found: &Consistency = &report.consistency;
        let Palette {
            good,
            bad,
            doubtful,
            faint,
            end,
            ..
        } = *self.palette;
        let (colour, claim) = match found.comparable {
            Some(true) => (good, "comparable"),
            Some(false) => (bad, "not comparable"),
            None if found.issue.is_some() => (doubtful, "can't be told"),
            None => (doubtful, "nothing to compare"),
        };
        write!(
            self.out,
            "verdict  {colour}{claim}{end}: {}",
            word(&found.verdict)
        )?;
        if let Some(reason) = &found.reason {
            write!(self.out, ", {}", word(reason))?;
        }
        if let Some(spread) = found.spread_ms {
            write!(self.out, "; spread {}", Millis(spread))?;
        }
        writeln!(self.out, "\n         {}", clean(&found.because))?;
        if let Some(help) = &found.would_help {
            writeln!(self.out, "         {faint}{}{end}", clean(help))?;
        }
        if let Some(issue) = &found.issue {
            writeln!(
                self.out,
                "issue    {doubtful}{}{end}: {}",
                word(&issue.kind),
                clean(&issue.message)
            )?;
        }
        Ok(())
    }
}

fn cells(report: &SetReport, (position, result): (usize, &CallResult)) -> [String; 7] {
    let as_of = result.as_of.map_or_else(String::new, |as_of| {
        let same_day = as_of.wall.date_naive() == report.issued_at.wall.date_naive();
        let time = if same_day {
            as_of.wall.format("%H:%M:%S%.3f").to_string()
        } else {
            at(as_of.wall)
        };
        format!("as of {time}")
    });
    // A call that never ran has no times to show.
    let ran = result.attempts > 0 || result.is_ok();
    let time = |label: &str, ms: f64| {
        if ran {
            format!("{label}{}", Millis(ms))
        } else {
            String::new()
        }
    };
    [
        position.to_string(),
        shortened(&clean(&result.id), 16),
        shortened(&clean(&result.tool), 40),
        word(&result.outcome),
        as_of,
        time("queued ", result.queued_ms),
        time("ran ", result.elapsed_ms),
    ]
}

/// What a reader must know of a result besides its value.
fn remarks(result: &CallResult) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(leader) = result.shared_with {
        remarks.push(format!("the same call as {leader}, run once"));
    }
    if let Some(tool) = &result.via {
        remarks.push(format!("answered by {}", clean(tool)));
    }
    if result.attempts > 1 {
        remarks.push(format!("asked {} times", result.attempts));
    }
    if result.withheld {
        remarks.push("withheld: it may not be compared, and comparable readings were required".into());
    }
    if result.is_ok() && !result.complete {
        remarks.push("only a part of the answer".into());
    }
    if !result.unverified.is_empty() {
        remarks.push(format!(
            "looks guessed and could not be checked: {}",
            clean(&result.unverified.join(", "))
        ));
    }
    remarks
}

fn shortened(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        None => text.to_owned(),
        Some(_) => text.chars().take(width - 1).chain(['…']).collect(),
    }
}

/// Text that only prints: what controls a terminal, or turns the direction of what follows, is spelled out.
fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => clean.push(' '),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' => {
                clean.extend(c.escape_unicode())
            }
            c if c.is_control() => clean.extend(c.escape_unicode()),
            c => clean.push(c),
        }
    }
    clean
}

/// A contract's word for something, as it is in the JSON.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        _ => String::new(),
    }
}

fn at(time: DateTime<Utc>) -> String {
    time.format("%Y-%m-%d %H:%M:%S%.3f UTC").to_string()
}

/// A time in milliseconds, as people read it.
struct Millis(f64);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ms if ms < 9.95 => write!(f, "{ms:.1} ms"),
            ms if ms < 999.5 => write!(f, "{ms:.0} ms"),
            ms => write!(f, "{:.1} s", ms / 1e3),
        }
    }
}

/// Positions, with commas.
struct List<'a>(&'a [usize]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, position) in self.0.iter().enumerate() {
            write!(f, "{}{position}", if number == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// The stages of a plan in a line.
struct Stages<'a>(&'a Plan);

impl fmt::Display for Stages<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, stage) in self.0.stages.iter().enumerate() {
            write!(f, "{}{}", if number == 0 { "" } else { " | " }, List(stage))?;
        }
        match self.0.stages.as_slice() {
            [] => f.write_str("nothing to run"),
            [all] if all.len() > 1 && self.0.edges.is_empty() => f.write_str(" at once"),
            _ => Ok(()),
        }
    }
}
