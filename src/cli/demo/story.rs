//! The three acts, as they are told. Every number in it comes from the reports.

use std::fmt::{self, Display, Write};

use anstyle::Style;
use coeval::report::{CallResult, SetReport, VerdictKind};
use serde_json::Value;

use super::Acts;
use super::database::Databases;
use crate::cli::terminal::{BAD, DOUBT, FAINT, GOOD, Paint, STRONG, wrapped};

/// What fits beside what it is called.
const WIDTH: usize = 84;

/// The order that waits for the amendment, and the invoice for it.
const ORDER: &str = "SO-12009";
const INVOICE: &str = "INV-12009";

/// Whole cents, as dollars.
struct Money(i64);

impl Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (dollars, cents) = (self.0 / 100, self.0 % 100);
        match (dollars / 1000, dollars % 1000) {
            (0, rest) => write!(f, "${rest}.{cents:02}"),
            (thousands, rest) => write!(f, "${thousands},{rest:03}.{cents:02}"),
        }
    }
}

/// What an agent takes from the answers.
struct Seen {
    threshold: i64,
    percent: i64,
    subtotal: i64,
    discount: i64,
    invoiced: Option<i64>,
}

impl Seen {
    fn of(report: &SetReport) -> Option<Self> {
        let contract = row(report, "get_contract", |_| true)?;
        let order = row(report, "list_orders", |row| row["order_id"] == ORDER)?;
        let invoice = row(report, "list_invoices", |row| row["invoice_id"] == INVOICE);
        Some(Self {
            threshold: contract["threshold_cents"].as_i64()?,
            percent: contract["discount_percent"].as_i64()?,
            subtotal: order["subtotal_cents"].as_i64()?,
            discount: order["discount_cents"].as_i64()?,
            invoiced: invoice.and_then(|row| row["amount_cents"].as_i64()),
        })
    }

    /// What the contract takes off the order.
    fn due(&self) -> i64 {
        if self.subtotal >= self.threshold {
            self.subtotal * self.percent / 100
        } else {
            0
        }
    }

    fn agrees(&self) -> bool {
        self.discount == self.due()
    }

    fn taken_off(&self) -> String {
        match self.discount {
            0 => "nothing taken off".to_owned(),
            discount => format!("{} taken off", Money(discount)),
        }
    }
}

/// The first row of a tool's answer that fits.
fn row<'a>(report: &'a SetReport, tool: &str, fits: impl Fn(&Value) -> bool) -> Option<&'a Value> {
    let value = result(report, tool)?.value.as_ref()?;
    value["rows"].as_array()?.iter().find(|row| fits(row))
}

fn result<'a>(report: &'a SetReport, tool: &str) -> Option<&'a CallResult> {
    report.results.iter().find(|result| *result.tool == *tool)
}

/// Whether everything came as the story says.
pub(super) fn is_as_told(acts: &Acts) -> bool {
    let agrees = |report| Seen::of(report).map(|seen| seen.agrees());
    let claimed = |report: &SetReport| report.consistency.comparable;
    let verdict = |report: &SetReport| report.consistency.verdict;
    let pair = |report: &SetReport| {
        report
            .consistency
            .groups
            .first()
            .is_some_and(|group| *group == [0, 1])
    };
    agrees(&acts.naive) == Some(false)
        && claimed(&acts.naive) == Some(false)
        && acts.naive.consistency.spread_exceeded == Some(false)
        && agrees(&acts.one_view) == Some(true)
        && claimed(&acts.one_view) == Some(true)
        && verdict(&acts.one_view) == VerdictKind::SameView
        && claimed(&acts.outside) == Some(false)
        && verdict(&acts.outside) == VerdictKind::Unproven
        && pair(&acts.outside)
}

/// The whole story.
pub(super) fn tell(acts: &Acts, databases: &Databases, kept: bool, paint: Paint) -> String {
    let mut story = Story {
        out: String::new(),
        paint,
    };
    story.opening();
    story.naive(&acts.naive);
    story.one_view(&acts.one_view);
    story.outside(&acts.outside);
    story.close(databases, kept, is_as_told(acts));
    story.out
}

struct Story {
    out: String,
    paint: Paint,
}

impl Story {
    fn line(&mut self, text: impl Display) {
        // Writing to a string can't fail.
        let _ = writeln!(self.out, "{text}");
    }

    fn heading(&mut self, text: &str) {
        let heading = self.paint.with(STRONG, text).to_string();
        self.line("");
        self.line(heading);
        self.line("");
    }

    fn event(&mut self, what: &str, text: impl Display) {
        let what = self.paint.with(FAINT, format_args!("{what:<16}")).to_string();
        self.line(format_args!("  {what}{text}"));
    }

    /// A text of several lines, each in this style.
    fn told(&mut self, what: &str, text: &str, style: Style) {
        for (number, line) in wrapped(text, WIDTH).iter().enumerate() {
            let line = self.paint.with(style, line).to_string();
            self.event(if number == 0 { what } else { "" }, line);
        }
    }

    fn opening(&mut self) {
        let title = self
            .paint
            .with(STRONG, "Is Henderson's discount being applied?")
            .to_string();
        self.line(title);
        self.line("");
        self.line("Henderson's contract takes 12 percent off every order from $25,000.00 on. Sales has agreed to lower");
        self.line("that to $15,000.00, and order SO-12009, of $18,400.00, waits for it. Contract, order and invoice are");
        self.line("amended in one transaction: at no moment is one of them true without the others.");
        self.line("");
        self.line("An agent is asked the question. Its model wants three reads at once: contract, orders, invoices.");
        self.line(
            "They are made here on a real SQLite database, with the transaction committing after the first.",
        );
    }

    /// The reads of an act, with the transaction where it was.
    fn reads(&mut self, seen: &Seen) {
        let contract = format!("{} percent off from {} on", seen.percent, Money(seen.threshold));
        self.event("get_contract", contract);
        let amended = self
            .paint
            .with(DOUBT, "the amendment commits: contract, order and invoice")
            .to_string();
        self.event("   writer", amended);
        self.event(
            "list_orders",
            format_args!("{ORDER}: {}, {}", Money(seen.subtotal), seen.taken_off()),
        );
        if let Some(invoiced) = seen.invoiced {
            self.event("list_invoices", format_args!("{INVOICE}: {}", Money(invoiced)));
        }
        self.line("");
    }

    fn naive(&mut self, report: &SetReport) {
        self.heading("1. Three separate reads, as most agents make them");
        let Some(seen) = Seen::of(report) else {
            return self.missing(report);
        };
        self.reads(&seen);
        let told = match seen.agrees() {
            true => "No discrepancy.".to_owned(),
            false => format!(
                "\"{ORDER} was given {} that the contract does not grant: {} is less than {}.\"",
                Money(seen.discount),
                Money(seen.subtotal),
                Money(seen.threshold)
            ),
        };
        self.told("agent says", &told, BAD);
        self.event(
            "",
            "That never was. It holds the contract of before against the order of after.",
        );
        let spread = report.consistency.spread_ms.unwrap_or_default();
        let tolerance = report.consistency.tolerance_ms / 1000.0;
        let alarm = match report.consistency.spread_exceeded {
            Some(true) => "alarm",
            _ => "no alarm",
        };
        self.event(
            "usual check",
            format_args!("read within {tolerance} s of each other? {spread:.1} ms apart: {alarm}."),
        );
    }

    fn one_view(&mut self, report: &SetReport) {
        self.heading("2. The same three reads, the same transaction between them, through Coeval");
        let Some(seen) = Seen::of(report) else {
            return self.missing(report);
        };
        self.reads(&seen);
        let told = match seen.agrees() {
            true => {
                format!("\"{ORDER} is below the threshold and was given no discount: the contract is kept.\"")
            }
            false => "A discrepancy.".to_owned(),
        };
        self.told("agent says", &told, GOOD);
        self.event(
            "",
            "True when it was read, and true together. The next question sees the amendment.",
        );
        self.verdict(report, GOOD);
        self.proof(report);
    }

    fn outside(&mut self, report: &SetReport) {
        self.heading("3. With an answer from outside the database: the sales team's notes, from a service");
        let threshold = |tool| row(report, tool, |_| true).and_then(|row| row["threshold_cents"].as_i64());
        let noted = result(report, "get_customer_card")
            .and_then(|card| card.value.as_ref())
            .and_then(|value| value["threshold_cents"].as_i64());
        let (Some(threshold), Some(noted), Some(seen)) = (threshold("get_contract"), noted, Seen::of(report))
        else {
            return self.missing(report);
        };
        self.event(
            "get_contract",
            format_args!("discount from {} on", Money(threshold)),
        );
        self.event(
            "list_orders",
            format_args!("{ORDER}: {}, {}", Money(seen.subtotal), seen.taken_off()),
        );
        let copied = self.paint.with(FAINT, "(last night's copy)").to_string();
        self.event(
            "customer_card",
            format_args!("discount from {} on {copied}", Money(noted)),
        );
        self.line("");
        self.event(
            "",
            "They differ, and it may mean nothing. Coeval cannot know, and does not claim to:",
        );
        self.verdict(report, DOUBT);
        let together: Vec<String> = report
            .consistency
            .groups
            .iter()
            .map(|group| {
                let tools = group
                    .iter()
                    .filter_map(|&call| report.results.get(call))
                    .map(|result| &*result.tool);
                tools.collect::<Vec<_>>().join(" and ")
            })
            .collect();
        if !together.is_empty() {
            let together = self.paint.with(GOOD, together.join("; ")).to_string();
            self.event("still together", together);
        }
    }

    fn verdict(&mut self, report: &SetReport, style: Style) {
        let consistency = &report.consistency;
        let verdict = word(&consistency.verdict);
        let reason = consistency
            .reason
            .as_ref()
            .map(|reason| format!(" ({})", word(reason)))
            .unwrap_or_default();
        let verdict = self
            .paint
            .with(style, format_args!("{verdict}{reason}"))
            .to_string();
        self.event("verdict", verdict);
        self.told("note", &report.note, Style::new());
    }

    /// What the claim rests on.
    fn proof(&mut self, report: &SetReport) {
        let views: Vec<_> = report
            .results
            .iter()
            .filter_map(|result| result.view.as_ref())
            .collect();
        let Some((stamp, view)) = report
            .results
            .first()
            .and_then(|result| Some((result.stamp.as_ref()?, result.view.as_ref()?)))
        else {
            return;
        };
        let same = views.iter().filter(|other| **other == view).count();
        self.event(
            "proof",
            format_args!(
                "{same} of {} readings carry the view {view}",
                report.results.len()
            ),
        );
        if let Some(witness) = &stamp.witness {
            self.event("", format_args!("witness: {witness}"));
        }
        let (earliest, latest) = (word(&stamp.earliest), word(&stamp.latest));
        self.event("", format_args!("fixed between {earliest} and {latest}"));
    }

    fn missing(&mut self, report: &SetReport) {
        for result in &report.results {
            if let Some(error) = &result.error {
                let message = self.paint.with(BAD, &error.message).to_string();
                self.event(&result.tool, message);
            }
        }
    }

    fn close(&mut self, databases: &Databases, kept: bool, as_told: bool) {
        self.line("");
        if !as_told {
            let warning = self
                .paint
                .with(BAD, "This did not go as it should have: see the numbers above.")
                .to_string();
            self.line(warning);
        }
        if kept {
            let folder = databases.folder().display();
            self.line(format_args!(
                "The databases are in {folder}. Try:  coeval run {folder}/set.json"
            ));
        } else {
            self.line(
                "Try it yourself:  coeval run examples/henderson/set.json   or   coeval demo --keep DIR",
            );
        }
    }
}

/// A word of the contract, as it stands in JSON.
fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        Ok(value) => value.to_string(),
        Err(_) => String::new(),
    }
}
