//! Says of each answer when it was true.
//!
//! The innermost layer, right around the tool: whatever waits (a place, a quota, a retry) lies outside, so waiting never
//! widens a stamp. Above it there are only [`Reading`]s.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tower::{Layer, Service};

use crate::reading::{self, Answer, Basis, CallError, Reading, as_of};
use crate::request::CallRequest;

/// Makes [`Stamp`]s.
#[derive(Clone, Debug, Default)]
pub struct StampLayer {
    as_of_field: Option<Arc<str>>,
}

impl StampLayer {
    /// For a tool whose output says nothing about its age.
    pub fn new() -> Self {
        Self::default()
    }

    /// For a tool whose output may have a field that says as of when it is; see [`as_of::field`] for how it is read.
    #[must_use]
    pub fn as_of_field(mut self, field: Option<Arc<str>>) -> Self {
        self.as_of_field = field;
        self
    }
}

impl<S> Layer<S> for StampLayer {
    type Service = Stamp<S>;

    fn layer(&self, inner: S) -> Stamp<S> {
        Stamp {
            inner,
            as_of_field: self.as_of_field.clone(),
        }
    }
}

/// Stamps what its inner service answers.
///
/// - An answer's own stamp is kept.
/// - Without one, the stamp is what our clock saw: from just before the request to just after the answer.
/// - A declared field is shown as the source's time. Data that says its own age may be older than the request, so
///   unless the answer has a stamp of its own there is no `earliest` then, whatever the field says. If it can't be read,
///   when the answer was true is unknown.
#[derive(Clone, Debug)]
pub struct Stamp<S> {
    inner: S,
    as_of_field: Option<Arc<str>>,
}

impl<S> Service<CallRequest> for Stamp<S>
where
    S: Service<CallRequest, Response = Answer, Error = CallError> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Reading;
    type Error = CallError;
    type Future = BoxFuture<'static, Result<Reading, CallError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: CallRequest) -> Self::Future {
        let Self {
            mut inner,
            as_of_field,
        } = self.clone();
        Box::pin(async move {
            // Waiting for the tool to be ready is waiting: the clock starts after it.
            poll_fn(|context| inner.poll_ready(context)).await?;
            let set = Arc::clone(&request.set);
            let source = request.call.facts.source.clone();
            let before = set.timeline.mono();
            let mut answer = inner.call(request).await?;
            let after = set.timeline.mono();

            let mut stamp = answer.stamp.take().unwrap_or_else(|| {
                let mut receipt = reading::Stamp::receipt(set.timeline.at(before), set.timeline.at(after));
                if as_of_field.is_some() {
                    receipt.earliest = None;
                }
                receipt
            });
            if let Some(field) = &as_of_field
                && let Some(time) = as_of::field(&answer.value, field)
            {
                // Data is no fresher than the older of what its source and its own field say.
                stamp.source_time = Some(stamp.source_time.map_or(time, |own| own.min(time)));
                if stamp.basis == Basis::Receipt {
                    stamp.basis = Basis::Field;
                }
            }
            stamp.source = stamp.source.or(source);
            Ok(Reading::new(answer, stamp, after.since(before)))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};
    use tower::ServiceExt;

    use super::*;
    use crate::clock::{Timeline, VirtualClock};
    use crate::registry::Registry;
    use crate::request::SetContext;
    use crate::tool::{Tool, ToolSpec};
    use crate::{Call, CallSet};

    /// A tool that takes 20 ms to become ready and 5 ms to answer, and must be polled ready before each call.
    #[derive(Debug)]
    struct Slow {
        answer: Answer,
        becoming: Option<std::pin::Pin<Box<tokio::time::Sleep>>>,
        ready: bool,
    }

    impl Slow {
        fn new(answer: Answer) -> Self {
            Self {
                answer,
                becoming: None,
                ready: false,
            }
        }
    }

    impl Clone for Slow {
        fn clone(&self) -> Self {
            Self::new(self.answer.clone())
        }
    }

    impl Service<CallRequest> for Slow {
        type Response = Answer;
        type Error = CallError;
        type Future = BoxFuture<'static, Result<Answer, CallError>>;

        fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
            let wait = || Box::pin(tokio::time::sleep(Duration::from_millis(20)));
            std::task::ready!(self.becoming.get_or_insert_with(wait).as_mut().poll(context));
            self.ready = true;
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: CallRequest) -> Self::Future {
            assert!(std::mem::take(&mut self.ready), "called without being ready");
            let answer = self.answer.clone();
            Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(5)).await;
                Ok(answer)
            })
        }
    }

    async fn stamped(answer: Answer, field: Option<&str>) -> Reading {
        let registry = Registry::new();
        let spec = ToolSpec::read("t").source("atlas");
        let tool = Tool::from_fn(spec, |value: Value| async { Ok::<_, std::io::Error>(value) });
        registry.register(tool).unwrap();
        let call = Arc::clone(&registry.resolve(&CallSet::new([Call::new("c1", "t", json!({}))]))[0].call);
        let clock = VirtualClock::starting_at("2026-01-02T03:04:05Z".parse().unwrap());
        let set = Arc::new(SetContext::alone(Timeline::start(Arc::new(clock)), 1));
        let stamp = StampLayer::new()
            .as_of_field(field.map(Into::into))
            .layer(Slow::new(answer));
        stamp.oneshot(CallRequest::new(call, set, None)).await.unwrap()
    }

    fn printed(stamp: &reading::Stamp) -> Value {
        serde_json::to_value(stamp).unwrap()
    }

    /// B91, G9.
    #[tokio::test(start_paused = true)]
    async fn a_stamp_spans_the_answering_and_not_the_wait_for_readiness() {
        let reading = stamped(Answer::new(7), None).await;
        assert_eq!(
            printed(&reading.stamp),
            json!({
                "earliest": "2026-01-02T03:04:05.020000Z", "latest": "2026-01-02T03:04:05.025000Z", "basis": "receipt",
                "source": "atlas", "sourceTime": null, "witness": null,
            })
        );
        assert_eq!(reading.elapsed, Duration::from_millis(5));
        assert!(reading.stamp.earliest.unwrap().mono < reading.stamp.latest.unwrap().mono);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answers_own_stamp_is_kept() {
        let at = |ms| crate::clock::Moment {
            mono: None,
            wall: chrono::DateTime::from_timestamp_millis(ms).unwrap(),
        };
        let own = reading::Stamp {
            basis: Basis::Snapshot,
            source: Some("mirror".into()),
            ..reading::Stamp::receipt(at(1), at(2))
        };
        let reading = stamped(Answer::new(7).stamp(own.clone()), None).await;
        assert_eq!(reading.stamp, own);
        // A declared field is shown beside it, and changes nothing it rests on.
        let answer = Answer::new(json!({"at": "2026-01-01 00:00:00"})).stamp(own.clone());
        let reading = stamped(answer, Some("at")).await;
        let shown = "2026-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(
            reading.stamp,
            reading::Stamp {
                source_time: Some(shown),
                ..own
            }
        );
    }

    /// AT-22: data that says its own age may be older than the request, and what can't be read isn't now.
    #[tokio::test(start_paused = true)]
    async fn a_declared_field_is_shown_and_takes_the_earliest_away() {
        let reading = stamped(
            Answer::new(json!({"at": "2026-01-02T03:00:00+01:00"})),
            Some("at"),
        )
        .await;
        let stamp = printed(&reading.stamp);
        assert_eq!(
            (&stamp["basis"], &stamp["earliest"]),
            (&json!("field"), &json!(null))
        );
        assert_eq!(stamp["sourceTime"], "2026-01-02T02:00:00.000000Z");
        for value in [
            json!({"at": "last night"}),
            json!({"at": null}),
            json!({}),
            json!(7),
        ] {
            let reading = stamped(Answer::new(value), Some("at")).await;
            assert_eq!(
                (reading.stamp.as_of(), reading.stamp.basis),
                (None, Basis::Receipt)
            );
            assert!(reading.stamp.latest.is_some());
        }
    }
}
