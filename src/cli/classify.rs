//! `coeval classify`: what the readings for a question are for.

use std::io::{self, BufRead};

use coeval::call::Purpose;
use coeval::question;
use serde::Serialize;

use super::terminal::{DOUBT, FAINT, GOOD};
use super::{Classify, Ending, Failure, Output, Terminal};

/// The answer, by contract.
#[derive(Serialize)]
struct Answer {
    purpose: Purpose,
    confidence: f64,
    because: String,
}

pub(super) fn classify(command: Classify, terminal: &Terminal) -> Result<Ending, Failure> {
    let Classify { question, output } = command;
    if question != "-" {
        answer(&question, &output, false, terminal)?;
        return Ok(Ending::Fine);
    }
    for line in io::stdin().lock().lines() {
        let question = line.map_err(|error| {
            Failure::new("stdin can't be read")
                .because(&error)
                .help("give one question a line, as UTF-8")
        })?;
        if !question.trim().is_empty() {
            answer(&question, &output, true, terminal)?;
        }
        if terminal.is_unread() {
            break;
        }
    }
    Ok(Ending::Fine)
}

fn answer(question: &str, output: &Output, several: bool, terminal: &Terminal) -> Result<(), Failure> {
    let question::Classified {
        purpose,
        confidence,
        because,
    } = question::classify(question);
    if output.is_json() {
        return terminal.print_json(
            &Answer {
                purpose,
                confidence,
                because,
            },
            output,
            several,
        );
    }
    let style = match purpose {
        Purpose::Compare => DOUBT,
        Purpose::Report => GOOD,
    };
    let paint = terminal.paint;
    let sure = format!("({:.0} % sure)", confidence * 100.0);
    let asked = if several {
        format!("{question}\n  ")
    } else {
        String::new()
    };
    terminal.print(&format!(
        "{asked}{} {}  {because}",
        paint.with(style, purpose),
        paint.with(FAINT, sure)
    ))
}
