//! One snapshot of the database, read through one connection or several that see the same version.
//!
//! How several are shown to agree: the monitor's count of commits is asked before the first transaction is opened and
//! after the last one has fixed its snapshot. If it stood still nobody committed in between, so all see the state that
//! held all the while. If it moved, the transactions are rolled back and opened again; after some tries the view has one
//! connection, and its reads take turns. They are never given a snapshot of their own.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::catalogue::{Shape, Tainted};
use super::connection::{Bounds, Connection, Stop};
use super::error::{Fault, SqliteError};
use super::file::Written;
use super::generation::Generation;
use super::statement::{CheckedSql, means_now};
use super::value::{Bound, Rows};
use super::{Shared, lock};
use crate::clock::{Moment, Mono, Timeline};
use crate::reading::{Answer, Basis, CallError, ErrorCode, Stamp, UnprovenReason, ViewId};
use crate::source::{Unsound, View};
use crate::tool::Effect;

mod opened;

use opened::{Opened, is_stale};

/// How long a statement that was told to stop may take before its connection is given up.
const GRACE: Duration = Duration::from_secs(5);

/// How often, and after how many milliseconds, the log is asked whether it explains a write to the file: a copying that is under way
/// is entered only when it is done.
const LOG_QUESTIONS: [u64; 6] = [0, 2, 10, 40, 160, 320];

/// A snapshot of a SQLite database.
pub struct SqliteView(Arc<Inner>);

struct Inner {
    id: ViewId,
    source: Arc<Shared>,
    generation: Arc<Generation>,
    timeline: Timeline,
    window: (Mono, Mono),
    /// What the statements of this view are told when they ask for the time.
    time: String,
    witness: Arc<str>,
    schema: i64,
    /// What the monitor had counted before the snapshot was fixed.
    count: i64,
    /// The file when the snapshot was fixed.
    written: Option<Written>,
    /// How many frames of the log had been copied into it by then.
    copied: Option<i64>,
    /// Connections nobody reads through, each for one permit.
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
    connections: AtomicUsize,
    /// How many reads were announced.
    width: usize,
    /// Nobody may be added: it was tried, or it is no use.
    settled: AtomicBool,
    state: AtomicU8,
    stops: Mutex<Vec<Arc<Stop>>>,
    places: Mutex<Vec<OwnedSemaphorePermit>>,
    ended: CancellationToken,
    verdict: OnceCell<Result<(), Unsound>>,
}

const OPEN: u8 = 0;
const CLOSED: u8 = 1;
const EXPIRED: u8 = 2;
const LOST: u8 = 3;

impl fmt::Debug for SqliteView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteView")
            .field("id", &self.0.id)
            .field("source", &self.0.source.name)
            .field("witness", &self.0.witness)
            .field("connections", &self.0.connections)
            .finish_non_exhaustive()
    }
}

impl View for SqliteView {
    fn id(&self) -> &ViewId {
        &self.0.id
    }

    fn window(&self) -> (Mono, Mono) {
        self.0.window
    }

    fn witness(&self) -> Option<Arc<str>> {
        Some(Arc::clone(&self.0.witness))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for SqliteView {
    fn drop(&mut self) {
        // Closed already, this does nothing. Otherwise its opener went away, and its connections must go back.
        if !self.0.verdict.initialized() && tokio::runtime::Handle::try_current().is_ok() {
            let inner = Arc::clone(&self.0);
            self.0
                .source
                .tasks
                .spawn(async move { inner.finish(CLOSED).await });
        }
    }
}

impl SqliteView {
    /// Opens a view for so many reads at once.
    pub(super) async fn open(source: Arc<Shared>, width: usize, timeline: Timeline) -> Result<Self, Fault> {
        let turn = tokio::time::timeout(
            source.options.view_max,
            Arc::clone(&source.places).acquire_owned(),
        )
        .await;
        let Ok(Ok(place)) = turn else {
            let held = format!(
                "all {} connections are held by other views",
                source.options.connections
            );
            return Err(Fault::Busy(held));
        };
        let mut places = vec![place];
        let opened = Opened::settle(&source, width, &timeline, &mut places).await?;
        let (begun, leader) = (opened.begun, &opened.connections[0]);
        let number = opened.generation.number;
        let inner = Arc::new(Inner {
            id: ViewId::fresh(),
            window: opened.window,
            time: timeline
                .at(opened.window.1)
                .wall
                .format("%Y-%m-%d %H:%M:%S%.3fZ")
                .to_string(),
            // The leader's own count, with its number: equal again, nobody but itself committed, and it never does.
            witness: format!("sqlite {number}.{}.{}", leader.number, begun.data).into(),
            schema: begun.schema,
            count: opened.count,
            written: opened.written,
            copied: begun.copied,
            stops: Mutex::new(
                opened
                    .connections
                    .iter()
                    .map(|connection| Arc::clone(&connection.stop))
                    .collect(),
            ),
            permits: Arc::new(Semaphore::new(opened.connections.len())),
            connections: AtomicUsize::new(opened.connections.len()),
            idle: Mutex::new(opened.connections),
            settled: AtomicBool::new(!opened.generation.shared || opened.gave_up),
            generation: opened.generation,
            width,
            state: AtomicU8::new(OPEN),
            places: Mutex::new(places),
            ended: CancellationToken::new(),
            verdict: OnceCell::new(),
            timeline,
            source,
        });
        let watched = Arc::clone(&inner);
        inner.source.tasks.spawn(async move {
            tokio::select! {
                () = watched.ended.cancelled() => {}
                () = tokio::time::sleep(watched.source.options.view_max) => {
                    let _ = watched.finish(EXPIRED).await;
                }
            }
        });
        Ok(Self(inner))
    }

    /// How many connections its reads may run on at once.
    pub fn connections(&self) -> usize {
        self.0.connections.load(Ordering::SeqCst)
    }

    /// Runs a read in this snapshot, its values in the order of its parameters, and says what may be known of the
    /// answer.
    ///
    /// # Errors
    /// - `not_read_only`: the statement writes.
    /// - `invalid_arguments`: values that don't fit.
    /// - `statement_failed`: the engine refused it; the view is as good as before.
    /// - `view_lost`: the view was open for too long, or the database can't be read any more.
    ///
    /// # Cancel safety
    /// Safe: dropping it stops the statement. Its connection comes back to the view by itself.
    pub async fn read(&self, statement: &CheckedSql, values: &[Value]) -> Result<Answer, CallError> {
        self.read_keeping(&self.0.source.name, statement, values, ())
            .await
    }

    /// The same, for a tool; `kept` is dropped when the statement is over, even if the caller is gone by then.
    pub(super) async fn read_keeping(
        &self,
        tool: &str,
        statement: &CheckedSql,
        values: &[Value],
        kept: impl Send + 'static,
    ) -> Result<Answer, CallError> {
        let inner = &self.0;
        if statement.effect() != Effect::Read {
            let text = format!("Could not complete {tool}: its statement writes, and a view is read.");
            return Err(CallError::new(ErrorCode::NotReadOnly, text));
        }
        let mut bound = bound(statement, values)?;
        let mut steady = !(statement.takes_time()
            && bound
                .iter()
                .any(|value| matches!(value, Bound::Text(text) if means_now(text))));
        if statement.clocked() {
            bound.push(Bound::Text(inner.time.clone()));
        }
        let arguments = Bound::arguments(bound)?;
        let permit = inner.permit().await?;
        let Some(mut connection) = lock(&inner.idle).pop() else {
            return Err(inner.lost());
        };
        let job = connection.stop.next_job();
        // From here on dropping the future stops the statement, whose task goes on to its end.
        let stop = StopOnDrop {
            stop: Arc::clone(&connection.stop),
            job,
        };
        let (owner, statement) = (Arc::clone(inner), statement.clone());
        let task = inner.source.tasks.spawn(async move {
            let _kept = kept;
            let result = owner.run(&mut connection, job, &statement, arguments).await;
            owner.take_back(connection, permit, &result).await;
            result
        });
        let result = task.await;
        drop(stop);
        let (rows, shape) = match result {
            Ok(Ok(read)) => read,
            Ok(Err(Fault::Lost(_) | Fault::Stopped)) if !inner.is_open() => return Err(inner.lost()),
            Ok(Err(fault)) => return Err(fault.into_call(tool)),
            Err(_) => return Err(inner.lost()),
        };
        steady &= shape.steady;
        let complete = shape.whole && !rows.truncated;
        let mut answer = Answer::new(rows.into_json(&shape.columns))
            .view(inner.id.clone())
            .stamp(inner.stamp());
        if !complete {
            answer = answer.incomplete();
        }
        if !steady {
            answer = answer.unsound(UnprovenReason::NoWitness);
        }
        Ok(answer)
    }

    /// A statement's shape in this snapshot.
    pub(super) async fn describe(&self, statement: &CheckedSql) -> Result<Arc<Shape>, Fault> {
        let connection = lock(&self.0.idle).pop();
        let Some(mut connection) = connection else {
            return Err(Fault::Lost("the view is in use".into()));
        };
        let shape = self.0.shape(&mut connection, statement).await;
        lock(&self.0.idle).push(connection);
        shape
    }

    pub(super) async fn close(&self) -> Result<(), Unsound> {
        self.0.finish(CLOSED).await
    }
}

/// Stops a job if its caller goes away; one that has ended is past stopping.
struct StopOnDrop {
    stop: Arc<Stop>,
    job: u64,
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.stop.stop(self.job);
    }
}

pub(super) fn bound(statement: &CheckedSql, values: &[Value]) -> Result<Vec<Bound>, SqliteError> {
    let names = statement.parameters();
    if names.len() != values.len() {
        let why = format!(
            "{} values were given for {} parameters",
            values.len(),
            names.len()
        );
        return Err(SqliteError::parameters(why));
    }
    names
        .iter()
        .zip(values)
        .map(|(name, value)| Bound::from_json(name, value))
        .collect()
}

impl Inner {
    fn is_open(&self) -> bool {
        self.state.load(Ordering::SeqCst) == OPEN
    }

    /// Why nothing can be read through it any more.
    fn lost(&self) -> CallError {
        let name = &self.source.name;
        let why = match self.state.load(Ordering::SeqCst) {
            EXPIRED => format!(
                "it was open for {} ms, the longest a view may be",
                self.source.options.view_max.as_millis()
            ),
            CLOSED => "it was closed".to_owned(),
            _ => "its transaction was lost".to_owned(),
        };
        CallError::new(
            ErrorCode::ViewLost,
            format!("The view of {name} can't be read: {why}."),
        )
    }

    fn stamp(&self) -> Stamp {
        let (earliest, latest) = self.window;
        let earliest: Moment = self.timeline.at(earliest);
        Stamp {
            earliest: Some(earliest),
            latest: Some(self.timeline.at(latest)),
            basis: Basis::Snapshot,
            source: Some(Arc::clone(&self.source.name)),
            source_time: Some(earliest.wall),
            witness: Some(Arc::clone(&self.witness)),
        }
    }

    /// A turn on one of the connections, first come first served.
    async fn permit(self: &Arc<Self>) -> Result<OwnedSemaphorePermit, CallError> {
        let turn = Arc::clone(&self.permits).acquire_owned();
        tokio::pin!(turn);
        let patience = (self.source.fan.cost() * 2).max(Duration::from_millis(1));
        let wider =
            self.connections.load(Ordering::SeqCst) < self.width && !self.settled.load(Ordering::SeqCst);
        let permit = if wider {
            tokio::select! {
                biased;
                permit = &mut turn => permit,
                () = tokio::time::sleep(patience) => {
                    // Its reads turn out slow. In a task, so that it ends well without us.
                    self.source.tasks.spawn(Arc::clone(self).widen());
                    turn.await
                }
            }
        } else {
            turn.await
        };
        match permit {
            Ok(permit) if self.is_open() => Ok(permit),
            _ => Err(self.lost()),
        }
    }

    /// Adds a connection, if it can be shown to see the same version: if nobody has committed since before the snapshot
    /// was fixed.
    async fn widen(self: Arc<Self>) {
        if self.connections.load(Ordering::SeqCst) >= self.source.options.most_at_once() {
            return;
        }
        let Ok(place) = Arc::clone(&self.source.places).try_acquire_owned() else {
            return;
        };
        let Ok(mut connection) = self.generation.take().await else {
            return;
        };
        // No patience: a lock in the way means that the version is about to change.
        let begun = connection.begin(self.generation.asks_log, Duration::ZERO).await;
        let agrees = match begun {
            Ok(begun) => {
                let version = self.generation.data_version().await;
                let look = self.generation.look();
                let written = look.ok().flatten().map(|look| look.written);
                let fresh = !is_stale(connection.last, written, begun);
                connection.last = written.map(|written| (written, begun));
                version.is_ok_and(|version| version == self.count)
                    && look.is_ok()
                    && fresh
                    && begun.schema == self.schema
            }
            Err(_) => false,
        };
        if agrees {
            let mut idle = lock(&self.idle);
            // Asked under the lock under which the closer counts.
            if self.is_open() {
                lock(&self.stops).push(Arc::clone(&connection.stop));
                lock(&self.places).push(place);
                idle.push(connection);
                self.connections.fetch_add(1, Ordering::SeqCst);
                self.permits.add_permits(1);
                return;
            }
        }
        self.settled.store(true, Ordering::SeqCst);
        if begun.is_ok() && connection.rollback().await.is_err() {
            return;
        }
        self.generation.give_back(connection);
    }

    /// A statement's shape, from memory or from the connection's snapshot.
    async fn shape(&self, connection: &mut Connection, statement: &CheckedSql) -> Result<Arc<Shape>, Fault> {
        let (known, views) = {
            let catalogue = lock(&self.generation.catalogue);
            (
                catalogue.shape(self.schema, statement),
                catalogue.views(self.schema),
            )
        };
        if let Some(shape) = known {
            return Ok(shape);
        }
        let views = match views {
            Some(views) => views,
            None => Arc::new(Tainted::read(connection).await?),
        };
        let shape = Arc::new(Shape::read(connection, statement, &views).await?);
        lock(&self.generation.catalogue).learn(self.schema, views, statement, Arc::clone(&shape));
        Ok(shape)
    }

    async fn run(
        &self,
        connection: &mut Connection,
        job: u64,
        statement: &CheckedSql,
        arguments: sqlx::sqlite::SqliteArguments,
    ) -> Result<(Rows, Arc<Shape>), Fault> {
        // The one who closes stops what runs, and then waits: nothing may start behind its back.
        if !self.is_open() || connection.stop.is_stopped() {
            return Err(Fault::Stopped);
        }
        let shape = self.shape(connection, statement).await?;
        let options = &self.source.options;
        let bounds = Bounds {
            rows: options.max_rows,
            bytes: options.max_bytes,
            stop: true,
        };
        let started = Instant::now();
        let rows = connection
            .run(job, statement.engine_sql(), arguments, &shape, bounds)
            .await?;
        self.source.fan.read_took(started.elapsed());
        Ok((rows, shape))
    }

    /// Puts a connection back among the idle ones, unless its snapshot is gone.
    async fn take_back<T>(
        &self,
        mut connection: Connection,
        permit: OwnedSemaphorePermit,
        result: &Result<T, Fault>,
    ) {
        connection.stop.next_job();
        // An error may have ended the transaction. What is read on the connection then is read in no snapshot.
        if result.is_ok() || connection.is_in_transaction().await {
            lock(&self.idle).push(connection);
        } else {
            let _ = self
                .state
                .compare_exchange(OPEN, LOST, Ordering::SeqCst, Ordering::SeqCst);
        }
        // Also without its connection: whoever waits for a turn must learn that the view is lost.
        drop(permit);
    }

    /// Ends the view, once: rolls everything back, gives the connections back, and says whether what was read holds.
    async fn finish(&self, how: u8) -> Result<(), Unsound> {
        self.verdict.get_or_init(|| self.end(how)).await.clone()
    }

    async fn end(&self, how: u8) -> Result<(), Unsound> {
        let (lost, stops) = {
            let _idle = lock(&self.idle);
            (
                self.state.swap(how, Ordering::SeqCst) == LOST,
                lock(&self.stops).clone(),
            )
        };
        self.ended.cancel();
        for stop in stops {
            stop.stop_running();
        }
        let all = u32::try_from(self.connections.load(Ordering::SeqCst)).unwrap_or(u32::MAX);
        // Readers in the queue before us are answered that the view is lost.
        let back = tokio::time::timeout(GRACE, self.permits.acquire_many(all)).await;
        let mut connections = std::mem::take(&mut *lock(&self.idle));
        for connection in &connections {
            connection.stop.next_job();
        }
        // The last look comes before the locks are given up: until then no honest writer can have changed the file
        // unseen.
        let held = self.holds().await;
        let ended = join_all(connections.iter_mut().map(Connection::rollback)).await;
        let in_transaction = ended.iter().all(Result::is_ok);
        for (connection, ended) in connections.into_iter().zip(ended) {
            if ended.is_ok() {
                self.generation.give_back(connection);
            }
        }
        if back.is_ok() {
            lock(&self.places).clear();
        }
        // Else its place is held until the statement ends after all, and with it the last owner of this view.
        let message = match (held, in_transaction, lost, back) {
            (Ok(()), true, false, Ok(_)) => return Ok(()),
            (Err(why), ..) => why.to_owned(),
            (_, false, ..) | (_, _, true, _) => "a transaction ended before its view".to_owned(),
            (_, _, _, Err(_)) => "a statement didn't stop".to_owned(),
        };
        Err(Unsound {
            reason: UnprovenReason::NoWitness,
            message: format!("{}: {message}", self.source.name),
        })
    }

    /// Whether the file is still the one that was read, and was written by nothing but the engine's copying of its log.
    async fn holds(&self) -> Result<(), &'static str> {
        let Some(before) = self.written else { return Ok(()) };
        for wait in LOG_QUESTIONS {
            // A timer of no time at all still waits for the next tick.
            if wait > 0 {
                tokio::time::sleep(Duration::from_millis(wait)).await;
            }
            let Some(look) = self.generation.look()? else {
                return Ok(());
            };
            if look.names > 1 {
                return Err(
                    "its file has a second name (a hard link), through which it may be written unseen",
                );
            }
            if look.written == before {
                return Ok(());
            }
            // While we read, the log can't start anew, so what was copied only grows.
            match (self.copied, self.generation.copied().await) {
                (Some(before), Some(now)) if before != now => return Ok(()),
                (Some(_), Some(_)) => {}
                _ => break,
            }
        }
        self.generation.end();
        Err("the database's file was written past the engine")
    }
}
