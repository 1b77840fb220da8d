//! Coeval's own documents: what is known about running tools together.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::{Declared, LONGEST_MS, count, flag, millis, named, values};
use crate::call::Purpose;
use crate::config::fields::{Fields, Reader, Spanned};
use crate::config::key::KeyTemplate;
use crate::config::yaml::{Key, Kind, Node};
use crate::limit::Quota;
use crate::plan::PolicyName;
use crate::tool::{Effect, RetryPolicy};

pub(in crate::config) struct Dependency {
    pub(in crate::config) name: Spanned<Arc<str>>,
    pub(in crate::config) allowance: Option<usize>,
    pub(in crate::config) quota: Option<Quota>,
}

pub(in crate::config) struct Coordination {
    pub(in crate::config) tool: Spanned<Arc<str>>,
    pub(in crate::config) effect: Option<Spanned<Effect>>,
    pub(in crate::config) trusted: bool,
    pub(in crate::config) exclusive: bool,
    pub(in crate::config) dependency: Option<Spanned<Arc<str>>>,
    pub(in crate::config) output_fields: Option<Vec<Arc<str>>>,
    pub(in crate::config) preconditions: Vec<Spanned<Arc<str>>>,
    pub(in crate::config) reads: Vec<Spanned<KeyTemplate>>,
    pub(in crate::config) writes: Vec<Spanned<KeyTemplate>>,
    pub(in crate::config) partition_key: Option<Spanned<KeyTemplate>>,
    pub(in crate::config) as_of_field: Option<Spanned<Arc<str>>>,
    pub(in crate::config) one_state: bool,
    pub(in crate::config) timeout: Option<Duration>,
    pub(in crate::config) retry: Option<Spanned<RetryPolicy>>,
    pub(in crate::config) is_final: bool,
}

pub(in crate::config) struct Snapshot {
    pub(in crate::config) name: Spanned<Arc<str>>,
    pub(in crate::config) description: Arc<str>,
    pub(in crate::config) covers: Vec<Cover>,
}

pub(in crate::config) struct Cover {
    pub(in crate::config) tool: Spanned<Arc<str>>,
    pub(in crate::config) part: Option<Spanned<Arc<str>>>,
    /// The covered tool's argument, and the snapshot's. `None`: each under its own name.
    pub(in crate::config) arguments: Option<Vec<Mapped>>,
}

/// An argument of a covered tool, and the argument of the snapshot it comes from.
pub(in crate::config) type Mapped = (Spanned<Arc<str>>, Spanned<Arc<str>>);

#[derive(Default)]
pub(in crate::config) struct Policy {
    pub(in crate::config) policy: Option<PolicyName>,
    pub(in crate::config) max_concurrency: Option<usize>,
    pub(in crate::config) default_allowance: Option<usize>,
    pub(in crate::config) tolerance: Option<Duration>,
    pub(in crate::config) max_rows: Option<usize>,
    pub(in crate::config) view_max: Option<Duration>,
    pub(in crate::config) drain: Option<Duration>,
    pub(in crate::config) minimum_purpose: Option<Purpose>,
}

impl Declared {
    pub(super) fn dependency(&mut self, reader: &mut Reader<'_>, mut fields: Fields<'_>) -> Option<()> {
        let name = named(reader, &mut fields, "dependency");
        let allowance = count(reader, &mut fields, "allowance");
        let quota = fields.take("quota").and_then(|node| quota(reader, node));
        fields.finish(reader);
        self.dependencies.push(Dependency {
            name: name?,
            allowance,
            quota,
        });
        Some(())
    }

    pub(super) fn coordination(&mut self, reader: &mut Reader<'_>, mut fields: Fields<'_>) -> Option<()> {
        let tool = fields
            .require(reader, "tool")
            .and_then(|node| reader.name(node, "`tool`"));
        fields.owner = tool.as_ref().map_or("coordination".into(), |tool| {
            format!("coordination of {:?}", &*tool.value)
        });
        let effects = [("read", Effect::Read), ("write", Effect::Write)];
        let effect = fields
            .take("effect")
            .and_then(|node| reader.choice(node, "`effect`", &effects));
        let trusted = flag(reader, &mut fields, "trusted");
        let exclusive = flag(reader, &mut fields, "exclusive");
        let dependency = fields
            .take("dependency")
            .and_then(|node| reader.name(node, "`dependency`"));
        let output_fields = fields
            .take("outputFields")
            .map(|node| values(reader.texts(node, "`outputFields`")));
        let preconditions = fields
            .take("preconditions")
            .map_or_else(Vec::new, |node| reader.texts(node, "`preconditions`"));
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        if let Some(node) = fields.take("key")
            && let Some(mut key) = Fields::of(reader, node, "key")
        {
            for (name, list) in [("reads", &mut reads), ("writes", &mut writes)] {
                if let Some(node) = key.take(name) {
                    let texts = reader.texts(node, &format!("`{name}`"));
                    list.extend(texts.into_iter().filter_map(|text| template(reader, text)));
                }
            }
            key.finish(reader);
        }
        let partition_key = fields
            .take("partitionKey")
            .and_then(|node| reader.text(node, "`partitionKey`"));
        let partition_key = partition_key.and_then(|text| template(reader, text));
        let mut as_of_field = None;
        if let Some(node) = fields.take("asOf")
            && let Some(mut as_of) = Fields::of(reader, node, "asOf")
        {
            as_of_field = as_of
                .require(reader, "field")
                .and_then(|node| reader.text(node, "`field`"));
            as_of.finish(reader);
        }
        let one_state = flag(reader, &mut fields, "oneState");
        let timeout = millis(reader, &mut fields, "timeoutMs", 1);
        let retry = fields.take("retry").and_then(|node| retry(reader, node));
        let is_final = flag(reader, &mut fields, "final");
        fields.finish(reader);
        self.coordinations.push(Coordination {
            tool: tool?,
            effect,
            trusted,
            exclusive,
            dependency,
            output_fields,
            preconditions,
            reads,
            writes,
            partition_key,
            as_of_field,
            one_state,
            timeout,
            retry,
            is_final,
        });
        Some(())
    }

    pub(super) fn snapshot(&mut self, reader: &mut Reader<'_>, mut fields: Fields<'_>) -> Option<()> {
        let name = named(reader, &mut fields, "snapshot");
        let description = fields
            .require(reader, "description")
            .and_then(|node| reader.text(node, "`description`"));
        let covers = fields
            .require(reader, "covers")
            .and_then(|node| reader.items(node, "`covers`"));
        let covers = covers.map(|items| items.iter().filter_map(|item| cover(reader, item)).collect());
        fields.finish(reader);
        self.snapshots.push(Snapshot {
            name: name?,
            description: description?.value,
            covers: covers?,
        });
        Some(())
    }

    pub(super) fn policy(&mut self, reader: &mut Reader<'_>, mut fields: Fields<'_>) -> Option<()> {
        fields.owner = "policy".to_owned();
        let policies = [
            ("standard", PolicyName::Standard),
            ("atlas", PolicyName::Atlas),
            ("harness", PolicyName::Harness),
            ("go", PolicyName::Go),
            ("loopctl", PolicyName::Loopctl),
        ];
        let purposes = [("report", Purpose::Report), ("compare", Purpose::Compare)];
        let policy = Policy {
            policy: fields
                .take("policy")
                .and_then(|node| Some(reader.choice(node, "`policy`", &policies)?.value)),
            max_concurrency: count(reader, &mut fields, "maxConcurrency"),
            default_allowance: count(reader, &mut fields, "defaultAllowance"),
            tolerance: millis(reader, &mut fields, "toleranceMs", 0),
            max_rows: count(reader, &mut fields, "maxRows"),
            view_max: millis(reader, &mut fields, "viewMaxMs", 1),
            drain: millis(reader, &mut fields, "drainMs", 0),
            minimum_purpose: fields
                .take("minimumPurpose")
                .and_then(|node| Some(reader.choice(node, "`minimumPurpose`", &purposes)?.value)),
        };
        let at = fields.at;
        fields.finish(reader);
        self.policies.push((at, policy));
        Some(())
    }
}

fn template(reader: &mut Reader<'_>, text: Spanned<Arc<str>>) -> Option<Spanned<KeyTemplate>> {
    match KeyTemplate::parse(&text.value) {
        Ok(value) => Some(Spanned { value, at: text.at }),
        Err(why) => {
            reader.fault_with(text.at, why, "write {parameter}, and {{ for a brace");
            None
        }
    }
}

fn quota(reader: &mut Reader<'_>, node: &Node) -> Option<Quota> {
    /// A year: what the arithmetic of quotas can hold.
    const LONGEST: u64 = 365 * 86_400;
    let mut fields = Fields::of(reader, node, "quota")?;
    let limit = fields.require(reader, "limit");
    let limit = limit.and_then(|node| reader.count(node, "`limit`", 1, u64::from(u32::MAX)));
    let units = [("second", 1), ("minute", 60), ("hour", 3_600), ("day", 86_400)];
    let per = fields
        .require(reader, "per")
        .and_then(|node| reader.choice(node, "`per`", &units));
    let most = (LONGEST / per.as_ref().map_or(1, |per| per.value)) - 1;
    let burst = match fields.take("burst") {
        Some(node) => reader.count(node, "`burst`", 1, most),
        None => Some(1),
    };
    fields.finish(reader);
    let [limit, burst] = [limit?, burst?].map(u32::try_from);
    Some(Quota::new(limit.ok()?, Duration::from_secs(per?.value)).burst(burst.ok()?))
}

fn retry(reader: &mut Reader<'_>, node: &Node) -> Option<Spanned<RetryPolicy>> {
    let mut fields = Fields::of(reader, node, "retry")?;
    let attempts = fields.require(reader, "attempts");
    let attempts = attempts.and_then(|node| reader.count(node, "`attempts`", 1, 100));
    let backoff = fields.require(reader, "backoffMs");
    let backoff = backoff.and_then(|node| reader.count(node, "`backoffMs`", 0, LONGEST_MS));
    fields.finish(reader);
    let attempts = u32::try_from(attempts?).ok().and_then(NonZeroU32::new)?;
    Some(Spanned {
        value: RetryPolicy {
            attempts,
            backoff: Duration::from_millis(backoff?),
        },
        at: node.at,
    })
}

fn cover(reader: &mut Reader<'_>, node: &Node) -> Option<Cover> {
    let mut fields = Fields::of(reader, node, "an item of covers")?;
    let tool = fields
        .require(reader, "tool")
        .and_then(|node| reader.name(node, "`tool`"));
    let part = fields.take("part").and_then(|node| reader.text(node, "`part`"));
    let arguments = fields.take("arguments").and_then(|node| match &node.kind {
        Kind::Map(entries) => {
            let pair = |(key, value): &(Key, Node)| {
                let theirs = Spanned {
                    value: Arc::clone(&key.name),
                    at: key.at,
                };
                Some((theirs, reader.name(value, "an argument of the snapshot")?))
            };
            entries.iter().map(pair).collect::<Option<Vec<_>>>()
        }
        _ => {
            let message = format!(
                "`arguments` must map the covered tool's arguments to the snapshot's, not {}",
                node.description()
            );
            reader.fault(node.at, message);
            None
        }
    });
    fields.finish(reader);
    Some(Cover {
        tool: tool?,
        part,
        arguments,
    })
}
