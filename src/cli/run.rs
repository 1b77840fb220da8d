//! `coeval run`: sets in, reports out.

use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use coeval::call::{CallSet, Purpose, Require};
use coeval::config::Assembly;
use coeval::coordinator::Coordinator;
use coeval::report::{SetReport, Status, text};
use coeval::run::{Event, Events};
use futures_util::FutureExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::input::{self, Named};
use super::terminal::STRONG;
use super::{Ending, Failure, Run, Terminal};

/// How long a set may take before its progress is shown: shorter ones would only flicker.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often the progress is shown anew.
const PROGRESS: Duration = Duration::from_millis(200);

/// What the shell says of a program that was ended by Ctrl-C.
const INTERRUPTED: i32 = 130;

pub(super) async fn run(command: Run, terminal: &Terminal) -> Result<Ending, Failure> {
    let sets = command.sets.read()?;
    let several = sets.len() > 1;
    let mut session = Session {
        called: Vec::new(),
        earlier: input::earlier(&command.earlier)?,
    };
    let Assembly {
        coordinator, sources, ..
    } = super::build(&command.sets.config(terminal)?, terminal).await?;
    let coordinator = coordinator.build();
    let interrupted = interrupts();
    let mut ending = Ending::Fine;
    for (number, Named { from, mut set }) in sets.into_iter().enumerate() {
        if command.require.is_some() {
            set.require = Some(Require::Comparable);
        }
        session.enter(&mut set);
        let asked = is_asked(&set);
        let report = one(&coordinator, set, &interrupted, terminal)
            .await
            .map_err(|error| Failure::new(format!("{from} could not be run")).because(&error))?;
        if !is_fine(&report, asked) {
            ending = Ending::NotFine;
        }
        if command.output.is_json() {
            terminal.print_json(&report, &command.output, several)?;
        } else {
            let heading = heading(&from, number, several, terminal);
            let text = text::render(&report, terminal.paint.palette());
            terminal.print(&format!("{heading}{text}"))?;
        }
        session.leave(report);
        if interrupted.is_cancelled() {
            ending = Ending::NotFine;
            break;
        }
        if terminal.is_unread() {
            break;
        }
    }
    super::shut_down(coordinator, &sources).await;
    Ok(ending)
}

/// What stands above the text of a set, if it is one of several.
pub(super) fn heading(from: &str, number: usize, several: bool, terminal: &Terminal) -> String {
    let gap = if number > 0 { "\n" } else { "" };
    match several {
        true => format!("{gap}{}\n\n", terminal.paint.with(STRONG, from)),
        false => String::new(),
    }
}

/// What the sets of one run know of those before them.
struct Session {
    called: Vec<std::sync::Arc<str>>,
    earlier: Vec<SetReport>,
}

impl Session {
    fn enter(&self, set: &mut CallSet) {
        for tool in &self.called {
            if !set.called.contains(tool) {
                set.called.push(tool.clone());
            }
        }
        set.earlier.extend(self.earlier.iter().cloned());
    }

    fn leave(&mut self, report: SetReport) {
        self.called.clone_from(&report.called);
        self.earlier.push(report);
    }
}

/// Whether the caller named a comparison, or insists on one.
fn is_asked(set: &CallSet) -> bool {
    set.require.is_some() || !set.compare.is_empty()
}

/// Whether every call was answered ok, and the readings may be compared if that was asked or is what they are for.
fn is_fine(report: &SetReport, asked: bool) -> bool {
    let answered = report
        .results
        .iter()
        .all(|result| result.is_ok() && !result.withheld);
    let to_compare = asked || report.route.purpose == Purpose::Compare;
    let safe = match report.consistency.comparable {
        Some(comparable) => comparable,
        // Nothing to compare is no fault, unless it is because something is missing.
        None => report.consistency.issue.is_none(),
    };
    report.status == Status::Complete && answered && (safe || !to_compare)
}

/// Runs one set, cancelled by Ctrl-C, with its progress shown if it takes long.
async fn one(
    coordinator: &Coordinator,
    set: CallSet,
    interrupted: &CancellationToken,
    terminal: &Terminal,
) -> Result<SetReport, coeval::run::SetError> {
    let mut progress = Progress::of(set.calls.len());
    let mut run = coordinator.start(set);
    let mut events = terminal.watched.then(|| run.events());
    let control = run.control();
    let report = run.report();
    tokio::pin!(report);
    let mut ticks = tokio::time::interval_at(progress.since + PATIENCE, PROGRESS);
    let report = loop {
        tokio::select! {
            report = &mut report => break report,
            () = interrupted.cancelled(), if !control.is_cancelled() => {
                control.cancel();
                progress.clear(terminal);
                terminal.say("cancelling; every call will still be answered. Ctrl-C again ends at once.");
            }
            event = next(&mut events) => progress.note(&event),
            _ = ticks.tick(), if terminal.watched => progress.show(terminal),
        }
    };
    progress.clear(terminal);
    report
}

/// The next event; never, once there are no more.
async fn next(events: &mut Option<Events>) -> Event {
    if let Some(open) = events
        && let Some(event) = open.next().await
    {
        return event;
    }
    pending().await
}

/// The first Ctrl-C is told by the token; the second ends the process at once.
fn interrupts() -> CancellationToken {
    let token = CancellationToken::new();
    let told = token.clone();
    tokio::spawn(async move {
        // Where Ctrl-C can't be listened to, it does what it always does.
        if tokio::signal::ctrl_c().await.is_err() {
            return;
        }
        let mut again = pin!(tokio::signal::ctrl_c());
        // Asked once so that it listens before anybody is told that there may be a second.
        let already = again.as_mut().now_or_never();
        told.cancel();
        let ended = match already {
            Some(ended) => ended,
            None => again.await,
        };
        if ended.is_ok() {
            std::process::exit(INTERRUPTED);
        }
    });
    token
}

/// The line that is shown while a set takes long.
struct Progress {
    calls: usize,
    done: usize,
    running: usize,
    since: Instant,
    shown: bool,
}

impl Progress {
    fn of(calls: usize) -> Self {
        Self {
            calls,
            done: 0,
            running: 0,
            since: Instant::now(),
            shown: false,
        }
    }

    fn note(&mut self, event: &Event) {
        match event {
            Event::Started { .. } => self.running += 1,
            Event::Finished { .. } => {
                self.done += 1;
                // A call may be answered without having started.
                self.running = self.running.saturating_sub(1);
            }
            _ => {}
        }
    }

    fn show(&mut self, terminal: &Terminal) {
        self.shown = true;
        let Self {
            calls, done, running, ..
        } = self;
        let seconds = self.since.elapsed().as_secs_f64();
        terminal.progress(&format!(
            "{done} of {calls} calls answered, {running} running, {seconds:.1} s"
        ));
    }

    fn clear(&mut self, terminal: &Terminal) {
        if std::mem::take(&mut self.shown) {
            terminal.progress("");
        }
    }
}
