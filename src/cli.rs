//! The command line: what was typed, and where it goes.
//!
//! The result goes to stdout, everything else to stderr. The exit code is a contract:
//!
//! - 0: every call was answered ok, and the readings may be compared if that was asked;
//! - 1: it ran, but something failed or the comparison is not safe;
//! - 2: it could not run: a bad file, a bad flag.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use coeval::call::Purpose;
use coeval::config::{Assembly, Config};
use coeval::coordinator::Coordinator;
use coeval::plan::PolicyName;
use coeval::source::sqlite::SqliteSource;

mod check;
mod classify;
mod demo;
mod failure;
mod input;
mod plan;
mod run;
mod terminal;

use failure::Failure;
use terminal::Terminal;

/// It could not run.
const CANNOT_RUN: u8 = 2;

/// How a command ended that could run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// All is well.
    Fine,
    /// Something failed, or the comparison is not safe.
    NotFine,
}

impl Ending {
    /// Fine if this holds.
    fn fine_if(fine: bool) -> Self {
        if fine { Self::Fine } else { Self::NotFine }
    }
}

#[derive(Debug, Parser)]
#[command(
    name = "coeval",
    version,
    about = "Runs the tool calls of one turn together, and says which of their results may be compared.",
    after_help = "\
Examples:
  coeval demo                                       see what goes wrong, and how it is mended
  coeval run examples/henderson/set.json            run a set with the coeval.yaml beside it
  coeval plan set.json                              in which order it would run, and why
  coeval check --config tools.yaml                  what each tool was found to be
  coeval classify \"Is the discount being applied?\"  is this a comparison?

Exit codes: 0 all calls ok, and comparable if that was asked; 1 something failed or the comparison is not safe;
2 it could not run."
)]
struct Cli {
    /// Colours: when stdout is a terminal and NO_COLOR is not set, or as said.
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = Color::Auto, global = true)]
    color: Color,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Run),
    Plan(Plan),
    Check(Check),
    Demo(Demo),
    Classify(Classify),
}

/// Run sets and print their reports.
///
/// A SET is the calls of one turn as JSON: {"question": "…", "calls": [{"id": "c1", "tool": "get_contract", "arguments":
/// {…}}, …]}, or a message of Anthropic, OpenAI or Gemini with its tool calls. Every call is answered, in its place,
/// with the time it was true; the report says which answers may be compared, and how that is known.
///
/// Several sets are one session: each is told which tools have succeeded before, and its readings are held against those
/// of the sets before it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  coeval run set.json                                with the coeval.yaml or tools.yaml beside it, or here
  coeval run --config tools.yaml --format json - < message.json
  coeval run --require comparable set.json           keep back what may not be compared
  coeval run --earlier report.json follow-up.json    hold it against what was read before

With one set, JSON is one document; with several, one compact document a line.
Ctrl-C cancels the set: every call is still answered. A second one ends at once.

Exit codes: 0 all calls ok, and comparable if the set is read to compare; 1 a call was not answered ok, the set did not
run to its end, or the comparison is not safe; 2 it could not run.")]
struct Run {
    #[command(flatten)]
    sets: Sets,
    /// Keep back readings that may not be compared.
    #[arg(long, value_name = "WHAT", value_parser = ["comparable"])]
    require: Option<String>,
    /// The report of an earlier set whose values will be compared with these. Repeatable.
    #[arg(long, value_name = "REPORT")]
    earlier: Vec<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// Say in which order sets would run, and why. Runs nothing.
///
/// First whether all calls may run at once (the four conditions: no write, no dependency between them, no allowance
/// exceeded, no precondition to be met by a sibling), with every reason why not; then the stages and what waits for what.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  coeval plan set.json
  coeval plan --policy atlas --format json set.json

JSON is {\"decision\": …, \"plan\": …}: one document, or with several sets one a line.

Exit codes: 0 every call would run; 1 a call would be answered without running; 2 it could not be planned.")]
struct Plan {
    #[command(flatten)]
    sets: Sets,
    #[command(flatten)]
    output: Output,
}

/// Say what each tool was found to be, and what can't be proved.
///
/// For each tool: read or write and how that is known, what it leans on and how much of it, what it returns, what must
/// have succeeded before it; then what keeps its readings from being compared.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  coeval check                                       the coeval.yaml and tools.yaml here
  coeval check --config tools.yaml --config coeval.yaml --format json

Exit codes: 0 the configuration can be used, whatever the warnings; 2 it can't.")]
struct Check {
    #[command(flatten)]
    config: ConfigFiles,
    #[command(flatten)]
    output: Output,
}

/// Watch a discrepancy appear that never existed, and not appear.
///
/// On a real SQLite database in a temporary folder, a contract and an order are amended in one transaction between two
/// reads: first with two separate reads, then through one view, then with an answer from outside the database.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  coeval demo
  coeval demo --keep /tmp/atlas                      and leave the database there, with its config and its sets

JSON is {\"naive\": report, \"oneView\": report, \"outside\": report}.")]
struct Demo {
    /// Make the database in this new or empty folder and leave it there.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// Say what the readings for a question are for: to report each, or to compare them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  coeval classify \"Is Henderson's discount being applied?\"
  coeval classify --format json - < questions.txt    one question a line, one answer a line")]
struct Classify {
    /// The question; - reads one a line from stdin.
    question: String,
    #[command(flatten)]
    output: Output,
}

/// What `run` and `plan` take.
#[derive(Debug, Args)]
struct Sets {
    /// Files with sets; - is stdin.
    #[arg(value_name = "SET", required = true)]
    sets: Vec<PathBuf>,
    #[command(flatten)]
    config: ConfigFiles,
    /// The policy to run under, instead of the configured one.
    #[arg(long, value_name = "POLICY", value_parser = policy())]
    policy: Option<PolicyName>,
    /// What the readings are for, instead of what the set or its question says.
    #[arg(long, value_name = "PURPOSE", value_parser = purpose())]
    purpose: Option<Purpose>,
    /// How long each set may take, in milliseconds.
    #[arg(long, value_name = "MS")]
    deadline: Option<u64>,
}

#[derive(Debug, Args)]
struct ConfigFiles {
    /// A configuration file, or a folder of them. Repeatable. By default coeval.yaml and tools.yaml beside the set, else
    /// in the current folder.
    #[arg(long, value_name = "FILE|DIR")]
    config: Vec<PathBuf>,
}

#[derive(Debug, Args)]
struct Output {
    /// For people, or by contract.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    format: Format,
    /// JSON on one line.
    #[arg(long)]
    compact: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Color {
    Auto,
    Always,
    Never,
}

fn policy() -> impl TypedValueParser<Value = PolicyName> {
    PossibleValuesParser::new(["standard", "atlas", "harness", "go", "loopctl"]).map(named)
}

fn purpose() -> impl TypedValueParser<Value = Purpose> {
    PossibleValuesParser::new(["report", "compare"]).map(named)
}

/// A word that was checked, as what it means in JSON.
fn named<T: serde::de::DeserializeOwned>(word: String) -> T {
    serde_json::from_value(serde_json::Value::String(word))
        .expect("only words of the contract are possible values")
}

/// Runs the command that was typed.
pub(crate) fn main() -> ExitCode {
    let Cli { color, command } = Cli::parse();
    let terminal = Terminal::new(color);
    let ended = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new("the runtime could not be started").because(&error))
        .and_then(|runtime| runtime.block_on(dispatch(command, &terminal)));
    match ended {
        Ok(Ending::Fine) => ExitCode::SUCCESS,
        Ok(Ending::NotFine) => ExitCode::FAILURE,
        Err(failure) => {
            terminal.failure(&failure);
            ExitCode::from(CANNOT_RUN)
        }
    }
}

async fn dispatch(command: Command, terminal: &Terminal) -> Result<Ending, Failure> {
    match command {
        Command::Run(command) => run::run(command, terminal).await,
        Command::Plan(command) => plan::plan(command, terminal).await,
        Command::Check(command) => check::check(command, terminal).await,
        Command::Demo(command) => demo::demo(command, terminal).await,
        Command::Classify(command) => classify::classify(command, terminal),
    }
}

/// Opens what the configuration names, and tells what is probably not meant as it is said.
async fn build(config: &Config, terminal: &Terminal) -> Result<Assembly, Failure> {
    let assembly = config
        .build()
        .await
        .map_err(|faults| Failure::unusable(&faults))?;
    for warning in &assembly.warnings {
        terminal.warn(warning);
    }
    Ok(assembly)
}

/// Ends when nothing runs any more and every database is closed.
async fn shut_down(coordinator: Coordinator, sources: &[SqliteSource]) {
    coordinator.shutdown().await;
    for source in sources {
        source.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_well_formed() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
