//! What stands between the calls of a set: everything that is found out about them before an order is made.
//!
//! One pass over the calls and their arguments. What calls of one tool have in common ([`Facts`], shared by pointer) is
//! looked at once for all of them, so that many calls of few tools cost next to nothing each.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt, HashSet};
use serde_json::Value;

use super::{Context, Policy};
use crate::call::{CallRef, OnGuess};
use crate::dependency::grounds::{Needle, Search};
use crate::dependency::placeholder::{self, Piece};
use crate::dependency::{is_identifier, token_text, visit};
use crate::reading::{CallError, ErrorCode};
use crate::tool::{Class, Facts, FieldOrigin, ResolvedCall};

/// Everything that was found.
pub(super) struct Findings<'a> {
    pub(super) calls: &'a [&'a ResolvedCall],
    pub(super) refusals: Refusals,
    /// Dependencies, in the order they are first asked.
    pub(super) loads: Vec<Load<'a>>,
    pub(super) kinds: Vec<Kind<'a>>,
    pub(super) kind_of: Vec<u32>,
    /// (producer, consumer), by consumer.
    pub(super) after: Vec<(usize, usize)>,
    /// By consumer, then head, then text.
    pub(super) mentions: Vec<Mention<'a>>,
    pub(super) needs: Vec<Need<'a>>,
    pub(super) suspicions: Vec<Suspicion<'a>>,
    /// What the coarse rule calls a dependency, if the policy has that rule.
    pub(super) coarse: Vec<Coarse<'a>>,
    pub(super) leans_on_earlier: Vec<usize>,
}

/// What calls with the same facts have in common.
pub(super) struct Kind<'a> {
    pub(super) facts: &'a Arc<Facts>,
    pub(super) load: usize,
    needs: Vec<usize>,
}

/// How many calls lean on a dependency.
pub(super) struct Load<'a> {
    pub(super) dependency: &'a Arc<str>,
    pub(super) calls: usize,
}

/// A placeholder and the call it means.
pub(super) struct Mention<'a> {
    pub(super) consumer: usize,
    pub(super) producer: usize,
    pub(super) head: Cow<'a, str>,
    pub(super) text: &'a str,
}

/// A precondition that no earlier turn has met.
pub(super) struct Need<'a> {
    pub(super) tool: &'a Arc<str>,
    pub(super) requirers: Vec<usize>,
    pub(super) callers: Vec<usize>,
}

/// A field that is returned by some calls and guessed by others.
pub(super) struct Suspicion<'a> {
    pub(super) field: &'a Arc<str>,
    pub(super) producers: Vec<usize>,
    /// Consumer and value, by consumer.
    pub(super) guesses: Vec<(usize, &'a Value)>,
}

/// A field that some calls return and others are given; or braces in arguments.
pub(super) struct Coarse<'a> {
    pub(super) field: Option<&'a Arc<str>>,
    pub(super) producers: Vec<usize>,
    pub(super) consumers: Vec<usize>,
}

/// Calls that are answered without running; the first reason counts.
pub(super) struct Refusals {
    flags: Vec<bool>,
    pub(super) errors: Vec<(usize, CallError)>,
}

impl Refusals {
    fn new(calls: usize) -> Self {
        Self {
            flags: vec![false; calls],
            errors: Vec::new(),
        }
    }

    pub(super) fn has(&self, call: usize) -> bool {
        self.flags[call]
    }

    pub(super) fn add(&mut self, call: usize, error: impl FnOnce() -> CallError) {
        if !std::mem::replace(&mut self.flags[call], true) {
            self.errors.push((call, error()));
        }
    }
}

/// How a call takes part in a plan of this policy.
pub(super) fn class(call: &ResolvedCall, policy: &Policy) -> Class {
    match &call.fault {
        Some(fault) if policy.faults_are_exclusive || fault.code() == ErrorCode::UnknownTool => {
            Class::Exclusive
        }
        None if policy.final_is_alone && call.facts.is_final => Class::Exclusive,
        _ => call.facts.class,
    }
}

/// An output field by name.
struct Field<'a> {
    name: &'a Arc<str>,
    /// Kinds whose field counts: declared, or named like an identifier.
    kinds: Vec<u32>,
    /// Kinds whose field counts by the coarse rule only.
    coarse_kinds: Vec<u32>,
    /// Calls that are given an argument of that name, and its value.
    given: Vec<(usize, &'a Value)>,
}

pub(super) fn find<'a>(calls: &'a [&'a ResolvedCall], context: &Context<'a>) -> Findings<'a> {
    let mut findings = Findings {
        calls,
        refusals: Refusals::new(calls.len()),
        loads: Vec::new(),
        kinds: Vec::new(),
        kind_of: Vec::with_capacity(calls.len()),
        after: Vec::new(),
        mentions: Vec::new(),
        needs: Vec::new(),
        suspicions: Vec::new(),
        coarse: Vec::new(),
        leans_on_earlier: Vec::new(),
    };
    for (position, call) in calls.iter().enumerate() {
        if let Some(fault) = &call.fault {
            findings.refusals.add(position, || fault.clone());
        }
    }
    findings.sort_into_kinds(context);
    findings.count_needs();
    findings.read_arguments(context);
    findings
}

impl<'a> Findings<'a> {
    /// Whether the call itself can't run, whatever the others are.
    pub(super) fn is_faulty(&self, call: usize) -> bool {
        self.calls[call].fault.is_some()
    }

    fn sort_into_kinds(&mut self, context: &Context<'a>) {
        let calls = self.calls;
        let mut by_facts: HashMap<*const Facts, u32> = HashMap::new();
        let mut by_dependency: HashMap<&str, usize> = HashMap::new();
        let mut by_tool: HashMap<&str, usize> = HashMap::new();
        let called: OnceCell<HashSet<&str>> = OnceCell::new();
        let called = || called.get_or_init(|| context.called.iter().map(|tool| &**tool).collect());
        let mut last: Option<(*const Facts, u32)> = None;
        for (position, call) in calls.iter().enumerate() {
            let facts = &call.facts;
            let pointer = Arc::as_ptr(facts);
            let kind = match last {
                Some((known, kind)) if known == pointer => kind,
                _ => *by_facts.entry(pointer).or_insert_with(|| {
                    let load = *by_dependency.entry(&facts.dependency).or_insert_with(|| {
                        self.loads.push(Load {
                            dependency: &facts.dependency,
                            calls: 0,
                        });
                        self.loads.len() - 1
                    });
                    let missing = facts
                        .preconditions
                        .iter()
                        .filter(|tool| !called().contains(&***tool));
                    let needs = missing
                        .map(|tool| {
                            *by_tool.entry(tool).or_insert_with(|| {
                                self.needs.push(Need {
                                    tool,
                                    requirers: Vec::new(),
                                    callers: Vec::new(),
                                });
                                self.needs.len() - 1
                            })
                        })
                        .collect();
                    self.kinds.push(Kind { facts, load, needs });
                    u32::try_from(self.kinds.len() - 1).expect("fewer than 2^32 calls fit into memory")
                }),
            };
            last = Some((pointer, kind));
            self.kind_of.push(kind);
            if self.is_faulty(position) {
                continue;
            }
            let kind = &self.kinds[kind as usize];
            self.loads[kind.load].calls += 1;
            for &need in &kind.needs {
                let requirers = &mut self.needs[need].requirers;
                // A tool may name the same precondition twice.
                if requirers.last() != Some(&position) {
                    requirers.push(position);
                }
            }
        }
    }

    fn count_needs(&mut self) {
        self.needs.retain(|need| !need.requirers.is_empty());
        if self.needs.is_empty() {
            return;
        }
        let by_tool: HashMap<&str, usize> = self
            .needs
            .iter()
            .enumerate()
            .map(|(index, need)| (&**need.tool, index))
            .collect();
        for (position, call) in self
            .calls
            .iter()
            .enumerate()
            .filter(|(_, call)| call.fault.is_none())
        {
            if let Some(&need) = by_tool.get(&*call.tool) {
                self.needs[need].callers.push(position);
            }
        }
    }

    fn fields(&self, coarse: bool) -> (HashMap<&'a str, usize>, Vec<Field<'a>>) {
        let mut by_name: HashMap<&str, usize> = HashMap::new();
        let mut fields: Vec<Field<'a>> = Vec::new();
        for (kind, facts) in (0_u32..).zip(self.kinds.iter().map(|kind| kind.facts)) {
            for output in facts.outputs.iter() {
                let counts = output.origin == FieldOrigin::Declared || is_identifier(&output.name);
                if !counts && !coarse {
                    continue;
                }
                let index = *by_name.entry(&output.name).or_insert_with(|| {
                    let (kinds, coarse_kinds, given) = (Vec::new(), Vec::new(), Vec::new());
                    fields.push(Field {
                        name: &output.name,
                        kinds,
                        coarse_kinds,
                        given,
                    });
                    fields.len() - 1
                });
                let field = &mut fields[index];
                let kinds = if counts {
                    &mut field.kinds
                } else {
                    &mut field.coarse_kinds
                };
                if kinds.last() != Some(&kind) {
                    kinds.push(kind);
                }
            }
        }
        (by_name, fields)
    }

    fn read_arguments(&mut self, context: &Context<'a>) {
        let coarse = context.policy.coarse_dependencies;
        let (by_name, mut fields) = self.fields(coarse);
        let mut templates: Vec<(usize, &'a str, &'a str)> = Vec::new();
        let calls = self.calls;
        for (position, call) in calls.iter().enumerate().filter(|(_, call)| call.fault.is_none()) {
            visit(&call.arguments, &mut |name, value| {
                if let Value::String(text) = value
                    && placeholder::has_braces(text)
                {
                    templates.push((position, name, text));
                }
                if !by_name.is_empty()
                    && !value.is_null()
                    && let Some(&field) = by_name.get(name)
                {
                    fields[field].given.push((position, value));
                }
            });
        }
        if !templates.is_empty() || calls.iter().any(|call| !call.after.is_empty()) {
            let names = Names::new(calls);
            self.read_after(&names);
            self.read_templates(&templates, &names, coarse);
        }
        if coarse && !templates.is_empty() {
            let mut consumers: Vec<usize> = templates.iter().map(|&(consumer, ..)| consumer).collect();
            consumers.dedup();
            self.coarse.push(Coarse {
                field: None,
                producers: Vec::new(),
                consumers,
            });
        }
        fields.retain(|field| !field.given.is_empty());
        if !fields.is_empty() {
            self.suspect(&fields, context);
        }
    }

    fn read_after(&mut self, names: &Names<'a>) {
        for (consumer, call) in self
            .calls
            .iter()
            .enumerate()
            .filter(|(_, call)| call.fault.is_none())
        {
            for reference in &call.after {
                let producer = match reference {
                    CallRef::Position(position) if *position < self.calls.len() => *position,
                    CallRef::Position(position) => {
                        self.refusals
                            .add(consumer, || unresolved_after(call, &format!("#{position}")));
                        continue;
                    }
                    CallRef::Id(id) => match names.ids.get(&**id) {
                        Some(Holders { first, second: None }) => *first,
                        Some(_) => {
                            self.refusals.add(consumer, || {
                                CallError::new(
                                    ErrorCode::ReferenceAmbiguous,
                                    format!(
                                        "{} is to come after {id:?}, but several calls of this set have that id. Name \
                                         the call by its position.",
                                        call.tool
                                    ),
                                )
                            });
                            continue;
                        }
                        None => {
                            self.refusals
                                .add(consumer, || unresolved_after(call, &format!("{id:?}")));
                            continue;
                        }
                    },
                };
                if producer == consumer {
                    self.refusals.add(consumer, || waits_for_itself(call));
                } else {
                    self.after.push((producer, consumer));
                }
            }
        }
    }

    fn read_templates(&mut self, templates: &[(usize, &'a str, &'a str)], names: &Names<'a>, coarse: bool) {
        for &(consumer, name, text) in templates {
            let call = self.calls[consumer];
            for piece in placeholder::pieces(text) {
                let Piece::Placeholder(found) = piece else {
                    continue;
                };
                let about = |code, why: &str| {
                    CallError::new(
                        code,
                        format!(
                            "Argument {name:?} of {} refers to {:?}, but {why}",
                            call.tool, found.head
                        ),
                    )
                };
                match names.meant(&found.head, consumer) {
                    Meant::Call(producer) if producer == consumer => {
                        self.refusals.add(consumer, || waits_for_itself(call));
                    }
                    Meant::Call(producer) => {
                        self.mentions.push(Mention {
                            consumer,
                            producer,
                            head: found.head,
                            text: found.text,
                        });
                    }
                    Meant::Several => self.refusals.add(consumer, || {
                        let why = "several calls of this set answer to that. Refer to one by its own id.";
                        about(ErrorCode::ReferenceAmbiguous, why)
                    }),
                    Meant::Nobody if found.text.len() == text.len() && !coarse => {
                        self.refusals.add(consumer, || {
                            let why = "no call of this set has that id, or calls a tool of that name. Write {{{{ for \
                                       braces that are meant as they are.";
                            about(ErrorCode::ReferenceUnresolved, why)
                        });
                    }
                    Meant::Nobody => {}
                }
            }
        }
        let place = |mention: &Mention<'a>| (mention.consumer, mention.text);
        self.mentions
            .sort_by(|a, b| (a.consumer, &a.head, a.text).cmp(&(b.consumer, &b.head, b.text)));
        self.mentions.dedup_by(|a, b| place(a) == place(b));
    }

    /// Which arguments look guessed.
    ///
    /// A producer that was itself given an argument of that name is none: it says again what it was told. (So the
    /// producers of a field are the same for all its consumers, and no call is its own producer, AT-19.)
    fn suspect(&mut self, fields: &[Field<'a>], context: &Context<'a>) {
        let by_kind = ByKind::new(self.kinds.len(), &self.kind_of, |call| !self.is_faulty(call));
        let mut candidates = Vec::new();
        let mut mark = vec![usize::MAX; self.calls.len()];
        for (index, field) in fields.iter().enumerate() {
            if context.policy.coarse_dependencies {
                self.coarse.extend(coarse(field, &by_kind));
            }
            field.given.iter().for_each(|&(call, _)| mark[call] = index);
            let mut producers: Vec<usize> = by_kind
                .calls(&field.kinds)
                .filter(|&call| mark[call] != index)
                .collect();
            if producers.is_empty() {
                continue;
            }
            producers.sort_unstable();
            let guesses: Vec<_> = field
                .given
                .iter()
                .filter(|&&(consumer, value)| {
                    !self.calls[consumer].facts.filters.contains(field.name)
                        && match value {
                            Value::String(text) => !placeholder::has_braces(text),
                            value => value.is_i64() || value.is_u64(),
                        }
                })
                .copied()
                .collect();
            if !guesses.is_empty() {
                candidates.push(Suspicion {
                    field: field.name,
                    producers,
                    guesses,
                });
            }
        }
        if candidates.is_empty() {
            return;
        }
        self.ground(&mut candidates, context);
        if context.on_guess == OnGuess::Refuse {
            for Suspicion {
                field,
                producers,
                guesses,
            } in &candidates
            {
                for &(consumer, _) in guesses {
                    self.refusals.add(consumer, || {
                        let (tool, makers) = (&self.calls[consumer].tool, tools(self.calls, producers));
                        CallError::new(
                            ErrorCode::GuessedArgument,
                            format!(
                                "The value for {field:?} of {tool} looks guessed: {makers} of the same set returns \
                                 {field:?}, and nothing said before has this value. Call {tool} when {makers} has \
                                 answered, or give the value in `known`."
                            ),
                        )
                    });
                }
            }
        }
        self.suspicions = candidates;
    }

    /// Drops what is grounded from the candidates, and notes who leans on an earlier result.
    fn ground(&mut self, candidates: &mut Vec<Suspicion<'a>>, context: &Context<'a>) {
        let mut search = Search::new();
        let needles: Vec<Vec<Option<Needle>>> = candidates
            .iter()
            .map(|suspicion| {
                let needle =
                    |&(_, value): &(usize, &Value)| token_text(value).and_then(|text| search.add(&text));
                suspicion.guesses.iter().map(needle).collect()
            })
            .collect();
        let said = |search: &Search| {
            let found = |needle: &Option<Needle>| needle.is_none_or(|needle| search.is_found(needle));
            needles
                .iter()
                .map(|needles| needles.iter().map(found).collect())
                .collect::<Vec<Vec<bool>>>()
        };
        if let Some(question) = context.grounds.question {
            search.read(question);
        }
        context
            .grounds
            .known
            .iter()
            .for_each(|value| search.read_value(value));
        let by_people = said(&search);
        for value in &context.grounds.earlier {
            if search.is_done() {
                break;
            }
            search.read_value(value);
        }
        let at_all = said(&search);
        for ((suspicion, by_people), at_all) in candidates.iter_mut().zip(by_people).zip(at_all) {
            let mut index = 0;
            suspicion.guesses.retain(|&(consumer, _)| {
                let (by_people, at_all) = (by_people[index], at_all[index]);
                index += 1;
                if at_all && !by_people {
                    self.leans_on_earlier.push(consumer);
                }
                !at_all
            });
        }
        candidates.retain(|suspicion| !suspicion.guesses.is_empty());
        self.leans_on_earlier.sort_unstable();
        self.leans_on_earlier.dedup();
    }
}

/// The published rule: the name alone counts. Only a call's own outputs are left out (AT-19).
fn coarse<'a>(field: &Field<'a>, by_kind: &ByKind) -> Option<Coarse<'a>> {
    let mut producers: Vec<usize> = by_kind
        .calls(&field.kinds)
        .chain(by_kind.calls(&field.coarse_kinds))
        .collect();
    producers.sort_unstable();
    let mut consumers: Vec<usize> = field.given.iter().map(|&(consumer, _)| consumer).collect();
    consumers.dedup();
    consumers.retain(|consumer| {
        producers.len() > 1 || producers.first().is_some_and(|producer| producer != consumer)
    });
    let found = !producers.is_empty() && !consumers.is_empty();
    found.then_some(Coarse {
        field: Some(field.name),
        producers,
        consumers,
    })
}

/// The calls of each kind.
struct ByKind {
    starts: Vec<usize>,
    calls: Vec<usize>,
}

impl ByKind {
    fn new(kinds: usize, kind_of: &[u32], counts: impl Fn(usize) -> bool) -> Self {
        let mut starts = vec![0; kinds + 1];
        for &kind in kind_of {
            starts[kind as usize + 1] += 1;
        }
        for kind in 0..kinds {
            starts[kind + 1] += starts[kind];
        }
        let mut ends = starts.clone();
        let mut calls = vec![usize::MAX; kind_of.len()];
        for (call, &kind) in kind_of.iter().enumerate().filter(|&(call, _)| counts(call)) {
            calls[ends[kind as usize]] = call;
            ends[kind as usize] += 1;
        }
        Self { starts, calls }
    }

    fn calls<'k>(&'k self, kinds: &'k [u32]) -> impl Iterator<Item = usize> + 'k {
        kinds
            .iter()
            .flat_map(|&kind| &self.calls[self.starts[kind as usize]..self.starts[kind as usize + 1]])
            .copied()
            .filter(|&call| call != usize::MAX)
    }
}

/// Who answers to a name. More than two don't matter: what counts is whether there is one before the consumer only.
#[derive(Clone, Copy)]
struct Holders {
    first: usize,
    second: Option<usize>,
}

/// Ids and tools of the set.
struct Names<'a> {
    ids: HashMap<&'a str, Holders>,
    tools: HashMap<&'a str, Holders>,
}

enum Meant {
    Call(usize),
    Several,
    Nobody,
}

impl<'a> Names<'a> {
    fn new(calls: &[&'a ResolvedCall]) -> Self {
        let mut names = Self {
            ids: HashMap::with_capacity(calls.len()),
            tools: HashMap::new(),
        };
        let hold = |map: &mut HashMap<&'a str, Holders>, name: &'a str, position| {
            map.entry(name)
                .and_modify(|holders| holders.second = holders.second.or(Some(position)))
                .or_insert(Holders {
                    first: position,
                    second: None,
                });
        };
        for (position, call) in calls.iter().enumerate() {
            if !call.id.is_empty() {
                hold(&mut names.ids, &call.id, position);
            }
            hold(&mut names.tools, &call.tool, position);
        }
        names
    }

    fn meant(&self, head: &str, consumer: usize) -> Meant {
        match self.ids.get(head).or_else(|| self.tools.get(head)) {
            Some(Holders { first, second: None }) => Meant::Call(*first),
            Some(Holders {
                first,
                second: Some(second),
            }) if *first < consumer && *second >= consumer => Meant::Call(*first),
            Some(_) => Meant::Several,
            None => Meant::Nobody,
        }
    }
}

/// The tools of some calls, each once and the first few only.
pub(super) fn tools(calls: &[&ResolvedCall], positions: &[usize]) -> String {
    const SHOWN: usize = 3;
    let mut shown: Vec<&str> = Vec::new();
    let mut more = false;
    for &position in positions {
        let tool = &*calls[position].tool;
        if !shown.contains(&tool) {
            if shown.len() == SHOWN {
                more = true;
                break;
            }
            shown.push(tool);
        }
    }
    let names = shown.join(", ");
    if more {
        format!("{names} and others")
    } else {
        names
    }
}

/// The error of calls that need each other.
pub(super) fn waits_for_itself(call: &ResolvedCall) -> CallError {
    CallError::new(
        ErrorCode::DependencyCycle,
        format!(
            "{} waits for its own answer, directly or through other calls of this set. Break the circle.",
            call.tool
        ),
    )
}

fn unresolved_after(call: &ResolvedCall, what: &str) -> CallError {
    CallError::new(
        ErrorCode::ReferenceUnresolved,
        format!(
            "{} is to come after {what}, but there is no such call in this set.",
            call.tool
        ),
    )
}
