//! One statement as a tool.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use tower::Service;

use super::SqliteSource;
use super::statement::CheckedSql;
use super::value::Column;
use super::view::SqliteView;
use crate::reading::{Answer, CallError, ErrorCode};
use crate::request::CallRequest;
use crate::source::Source as _;
use crate::tool::{ArgumentMap, Effect, FieldOrigin, OutputField, ToolSpec};

/// A parameter of a statement, filled from the argument of its name.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SqlParameter {
    /// The argument's name; `:name` in the statement, or its place in the list.
    pub name: Arc<str>,
    /// What is bound when the argument is missing or null.
    pub default: Value,
}

impl SqlParameter {
    /// A parameter that is NULL when its argument is missing.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            default: Value::Null,
        }
    }

    /// Another value for a missing argument.
    #[must_use]
    pub fn default(mut self, value: impl Into<Value>) -> Self {
        self.default = value.into();
        self
    }

    /// What is bound for these arguments.
    pub fn value(&self, arguments: &ArgumentMap) -> Value {
        match arguments.get(&*self.name) {
            None | Some(Value::Null) => self.default.clone(),
            Some(value) => value.clone(),
        }
    }
}

impl From<&str> for SqlParameter {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl AsRef<str> for SqlParameter {
    fn as_ref(&self) -> &str {
        &self.name
    }
}

/// A statement that runs for each call: a read through the set's view, a write in a transaction of its own.
#[derive(Clone, Debug)]
pub struct SqliteTool {
    source: SqliteSource,
    statement: CheckedSql,
    parameters: Arc<[SqlParameter]>,
}

impl SqliteTool {
    pub(super) fn new(source: SqliteSource, statement: CheckedSql, parameters: Arc<[SqlParameter]>) -> Self {
        Self {
            source,
            statement,
            parameters,
        }
    }

    /// The statement.
    pub fn statement(&self) -> &CheckedSql {
        &self.statement
    }

    /// What is declared about it: effect, source and the names of its arguments.
    pub fn spec(&self, name: impl Into<Arc<str>>) -> ToolSpec {
        let properties = self.parameters.iter().map(|parameter| {
            let about = match &parameter.default {
                Value::Null => json!({}),
                default => json!({ "default": default }),
            };
            (parameter.name.to_string(), about)
        });
        let properties: Map<String, Value> = properties.collect();
        ToolSpec::new(name)
            .effect(self.statement.effect())
            .source(Arc::clone(self.source.name()))
            .input_schema(
                json!({ "type": "object", "properties": properties, "additionalProperties": false }),
            )
    }

    /// The same, with the columns of its result as derived output fields.
    pub fn described(&self, name: impl Into<Arc<str>>, columns: &[Column]) -> ToolSpec {
        let fields = columns.iter().map(|column| OutputField {
            name: Arc::clone(&column.name),
            origin: FieldOrigin::Derived,
        });
        self.spec(name)
            .output_fields_from(fields.collect::<Arc<[OutputField]>>())
    }
}

impl Service<CallRequest> for SqliteTool {
    type Response = Answer;
    type Error = CallError;
    type Future = BoxFuture<'static, Result<Answer, CallError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: CallRequest) -> Self::Future {
        let values: Vec<Value> = self
            .parameters
            .iter()
            .map(|parameter| parameter.value(&request.arguments))
            .collect();
        let (source, statement) = (self.source.clone(), self.statement.clone());
        async move { source.answer(&request, &statement, &values).await }.boxed()
    }
}

impl SqliteSource {
    /// Answers a call with a checked statement: a read through the set's view of this source, a write in a transaction
    /// of its own. What [`SqliteTool`] does; for tools whose statement is made per call.
    ///
    /// # Errors
    /// - what opening the view answered, or what [`SqliteView::read`] and [`SqliteSource::write`] say;
    /// - `cancelled`, `deadline_exceeded`: the request was, before the answer was there.
    ///
    /// # Cancel safety
    /// Safe: a read is stopped, a write that has begun goes on to its end.
    pub async fn answer(
        &self,
        request: &CallRequest,
        statement: &CheckedSql,
        values: &[Value],
    ) -> Result<Answer, CallError> {
        let tool = request.tool();
        let work = async {
            match statement.effect() {
                Effect::Write => self.write_keeping(tool, statement, values, request.clone()).await,
                Effect::Read => {
                    let lease = request.view(self.name()).await?;
                    let Some(view) = lease.get::<SqliteView>() else {
                        let text = format!(
                            "Could not complete {tool}: {} is not this SQLite source.",
                            self.name()
                        );
                        return Err(CallError::new(ErrorCode::ViewUnavailable, text).retryable(false));
                    };
                    view.read_keeping(tool, statement, values, request.admission.clone())
                        .await
                }
            }
        };
        // A write that has begun is waited for: its end is what the caller must know.
        if statement.effect() == Effect::Write {
            return work.await;
        }
        let late = async {
            match request.deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            answer = work => answer,
            () = request.cancelled() => {
                Err(CallError::new(ErrorCode::Cancelled, format!("{tool} was cancelled while it ran.")))
            }
            () = late => {
                Err(CallError::new(ErrorCode::DeadlineExceeded, format!("{tool} was not done by the deadline.")))
            }
        }
    }
}
