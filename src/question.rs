//! What a question's readings are for: told each on its own, or held against each other.
//!
//! The test is whether an answer can be wrong although each reading was true when it was read. A count, a list or a
//! status can't be; a difference, a trend, a check against a rule or of one record against another can. Pure, and quick
//! enough for every set: one pass over the words, each weighed as a cue for one side or the other.
//!
//! Where the words don't tell, the answer is [`Purpose::Compare`]: asking too much of a set costs little, asking too
//! little lets a false comparison through. Cues are English; any other question is taken for a comparison.

use crate::call::Purpose;

/// What a question was taken for, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Classified {
    /// What the readings are for.
    pub purpose: Purpose,
    /// How sure that is, from 0.5 (the words don't tell) to 1.
    pub confidence: f64,
    /// The cue that decided, in a sentence.
    pub because: String,
}

/// What the readings of a set are for, and why that is thought.
///
/// The caller's word is taken as it is. Without it the question decides, which may ask for more than `minimum` but never
/// for less; without either it is a comparison.
pub fn purpose(given: Option<Purpose>, question: Option<&str>, minimum: Purpose) -> (Purpose, String) {
    if let Some(given) = given {
        return (given, "The caller said so.".into());
    }
    let Some(question) = question.filter(|question| !question.trim().is_empty()) else {
        return (
            Purpose::Compare,
            "Neither a purpose nor a question was given.".into(),
        );
    };
    let found = classify(question);
    if found.purpose < minimum {
        return (minimum, format!("The configured minimum is {minimum}."));
    }
    (found.purpose, found.because)
}

/// Reads a question.
///
/// ```
/// use coeval::call::Purpose;
/// use coeval::question::classify;
///
/// assert_eq!(classify("Is Henderson's discount being applied?").purpose, Purpose::Compare);
/// assert_eq!(classify("List all open orders for vendor 302").purpose, Purpose::Report);
/// ```
pub fn classify(question: &str) -> Classified {
    let text = without_quotes(question);
    let lower = text.to_lowercase();
    let words = Words {
        lower: split(&lower).collect(),
        written: split(&text).collect(),
    };

    let mut score = LEAN;
    let mut strongest: [Option<(Cue, &str)>; 2] = [None, None];
    let mut weigh = |cue: Option<Cue>, word| {
        let Some(cue) = cue else { return };
        score += cue.weight;
        let side = &mut strongest[usize::from(cue.weight > 0)];
        if side
            .as_ref()
            .is_none_or(|(best, _)| best.weight.abs() < cue.weight.abs())
        {
            *side = Some((cue, word));
        }
    };
    let (first, cue_of_first) = opening(&words);
    weigh(cue_of_first, words.at(first));
    for position in 0..words.lower.len() {
        if !words.is_name(position) {
            weigh(cue(&words, position), words.at(position));
        }
    }

    let purpose = if score >= 0 {
        Purpose::Compare
    } else {
        Purpose::Report
    };
    let [report, compare] = strongest;
    let because = match if purpose == Purpose::Compare {
        compare
    } else {
        report
    } {
        Some((cue, word)) => format!("\"{word}\" {}.", cue.says),
        None => "Nothing in the question says that its parts stand alone.".into(),
    };
    let confidence = 1.0 - 0.5 * (-f64::from(score.abs()) / 20.0).exp();
    Classified {
        purpose,
        confidence,
        because,
    }
}

/// What no cue is worth: a little, for the side that is safe.
const LEAN: i32 = 5;

#[derive(Clone, Copy, Debug)]
struct Cue {
    /// Positive for a comparison, negative for a report.
    weight: i32,
    /// What it says, after the word itself.
    says: &'static str,
}

const CONTRAST: &str = "sets things against each other";
const AGREE: &str = "asks whether records agree";
const REPEAT: &str = "asks for the same thing twice";
const TREND: &str = "asks how something moved";
const LIMIT: &str = "holds something against what was set";
const RULE: &str = "asks whether something is as it should be";
const ENOUGH: &str = "asks whether one thing suffices for another";
const CHECK: &str = "asks for a check";
const FACT: &str = "asks for a fact";
const LIST: &str = "asks for a list";
const SUM: &str = "asks for a plain figure";
const ACT: &str = "asks for something to be done";

fn for_compare(weight: i32, says: &'static str) -> Option<Cue> {
    Some(Cue { weight, says })
}

fn for_report(weight: i32, says: &'static str) -> Option<Cue> {
    Some(Cue {
        weight: -weight,
        says,
    })
}

struct Words<'a> {
    lower: Vec<&'a str>,
    /// The same words as they were written.
    written: Vec<&'a str>,
}

impl<'a> Words<'a> {
    fn at(&self, position: usize) -> &'a str {
        self.lower.get(position).copied().unwrap_or_default()
    }

    fn before(&self, position: usize) -> &'a str {
        position
            .checked_sub(1)
            .map(|position| self.at(position))
            .unwrap_or_default()
    }

    /// Whether the word is a part of a name: capitalised within the text, beside another such word.
    fn is_name(&self, position: usize) -> bool {
        let capitalised = |position: usize| {
            let word = self.written.get(position).copied().unwrap_or_default();
            let mut letters = word.chars();
            letters.next().is_some_and(char::is_uppercase) && letters.any(char::is_lowercase)
        };
        position > 0
            && capitalised(position)
            && (capitalised(position + 1) || (position > 1 && capitalised(position - 1)))
    }

    fn any(&self, near: std::ops::Range<usize>, of: &[&str]) -> bool {
        near.clone().any(|position| of.contains(&self.at(position)))
    }
}

/// What is quoted is a name: of a dashboard, a tag, a survey.
fn without_quotes(text: &str) -> String {
    let text = text.replace(['“', '”'], "\"");
    let parts: Vec<&str> = text.split('"').collect();
    if parts.len().is_multiple_of(2) {
        return text.replace('"', " ");
    }
    parts.into_iter().step_by(2).collect::<Vec<_>>().join(" it ")
}

fn split(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split(|c: char| {
        !(c.is_alphanumeric() || matches!(c, '\'' | '’' | '-' | '_' | '!' | '=' | '%' | '$'))
    });
    let parts = parts.map(|word| word.trim_matches(|c| matches!(c, '\'' | '’' | '-' | '_')));
    let parts = parts.map(|word| {
        if word == "!=" {
            word
        } else {
            word.trim_end_matches(['!', '='])
        }
    });
    parts.filter(|word| !word.is_empty())
}

fn is_number(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit() || c == '$')
        || matches!(
            word,
            "one"
                | "two"
                | "three"
                | "four"
                | "five"
                | "six"
                | "seven"
                | "eight"
                | "nine"
                | "ten"
                | "twenty"
                | "fifty"
                | "hundred"
                | "thousand"
                | "million"
                | "zero"
                | "half"
        )
}

/// Where the question opens, and what it opens with.
fn opening(words: &Words<'_>) -> (usize, Option<Cue>) {
    let polite = |word: &&&str| {
        matches!(
            **word,
            "please" | "hi" | "hey" | "hello" | "yo" | "so" | "and" | "ok"
        )
    };
    let first = words.lower.iter().take_while(polite).count();
    let (word, next) = (words.at(first), words.at(first + 1));
    let cue = match word {
        "show" | "list" | "display" | "return" | "retrieve" | "fetch" | "pull" => for_report(20, LIST),
        "give" | "send" | "print" | "open" | "look" | "get" | "share" => for_report(20, FACT),
        "find" | "which" => for_report(10, LIST),
        "what's" | "what’s" | "whats" | "what" => for_report(18, FACT),
        "who" | "who's" | "who’s" | "whose" => for_report(14, FACT),
        "where" | "when" | "where's" => for_report(25, FACT),
        "how" => match next {
            "many" => for_report(20, SUM),
            "much" => for_report(14, SUM),
            "long" | "old" | "often" => for_report(20, FACT),
            "do" | "would" | "can" | "to" | "should" => for_report(22, FACT),
            _ => None,
        },
        "count" | "sum" | "total" | "number" | "average" => for_report(18, SUM),
        "calculate" | "tell" | "summarize" | "summarise" | "describe" | "provide" | "break" => {
            for_report(12, SUM)
        }
        "can" | "could" if next == "you" => for_report(10, ACT),
        "move" | "create" | "add" | "cancel" | "update" | "delete" | "make" | "set" => for_report(14, ACT),
        "is" | "are" | "was" | "were" | "do" | "does" | "did" | "has" | "have" | "will" | "would" | "am"
        | "any" | "isn't" | "aren't" | "why" => for_compare(10, CHECK),
        _ => None,
    };
    (first, cue)
}

/// What stands for a limit that was set.
const LIMITS: [&str; 18] = [
    "budget",
    "budgets",
    "quota",
    "quotas",
    "target",
    "targets",
    "plan",
    "forecast",
    "limit",
    "allowance",
    "cap",
    "threshold",
    "benchmark",
    "goal",
    "goals",
    "capacity",
    "entitlement",
    "license",
];

/// What a word within the question says.
fn cue(words: &Words<'_>, position: usize) -> Option<Cue> {
    let (word, next, before) = (words.at(position), words.at(position + 1), words.before(position));
    match word {
        // Against each other.
        "compare" | "compares" | "compared" | "comparing" | "comparison" | "vs" | "versus" | "difference"
        | "differences" | "diff" | "differ" | "differs" | "gap" => for_compare(30, CONTRAST),
        "different" if matches!(next, "from" | "than" | "to") => for_compare(25, CONTRAST),
        "against" | "ratio" | "relation" | "relationship" | "correlation" | "correlate" | "impact"
        | "effect" => for_compare(22, CONTRAST),
        // "more than 10" is a filter; "more than they pay for" isn't.
        "than" if !is_number(if next == "a" { words.at(position + 2) } else { next }) => {
            for_compare(25, CONTRAST)
        }
        "higher" | "lower" | "larger" | "bigger" | "smaller" | "earlier" | "better" | "cheaper"
        | "longer" | "cheapest" | "relative"
            if next != "than" =>
        {
            for_compare(14, CONTRAST)
        }
        "more" if before == "many" || before == "much" => for_compare(22, CONTRAST),
        "save" | "saves" => for_compare(20, CONTRAST),
        "same" if before == "the" || next == "as" => for_compare(18, CONTRAST),
        "or" if words.any(0..position, &["which", "was", "is", "do", "does", "did"]) => {
            for_compare(8, CONTRAST)
        }
        "first" if words.any(0..position, &["which", "who"]) => for_compare(8, CONTRAST),

        // Do records agree?
        "reconcile" | "reconciles" | "reconciled" | "reconciliation" | "mismatch" | "mismatches"
        | "mismatched" | "discrepancy" | "discrepancies" | "!=" | "sync" | "inconsistent" => {
            for_compare(30, AGREE)
        }
        "match" | "matches" | "matching" | "matched" if !matches!(before, "a" | "the" | "to") => {
            for_compare(25, AGREE)
        }
        "agree" | "agrees" | "consistent" | "equal" | "equals" | "balances" => for_compare(22, AGREE),
        "tie" | "ties" | "stack" | "stacks" | "add" | "adds" | "line" | "lines" | "square"
            if matches!(next, "out" | "up" | "to" | "with") =>
        {
            for_compare(25, AGREE)
        }
        "nobody" | "everyone" | "everything" | "all" | "every" | "both"
            if words.any(
                0..1,
                &[
                    "is", "are", "did", "do", "does", "have", "has", "was", "were", "am",
                ],
            ) =>
        {
            for_compare(12, AGREE)
        }
        "duplicate" | "duplicates" | "duplicated" | "twice" | "double-billed" | "double-charged"
        | "double-booked" | "repeated" => for_compare(28, REPEAT),

        // How did it move?
        "increase" | "increases" | "increased" | "decrease" | "decreases" | "decreased" | "growth"
        | "grew" | "grow" | "growing" | "grown" | "drop" | "dropped" | "decline" | "declined"
        | "declining" | "rose" | "fell" | "rising" | "falling" | "trend" | "trends" | "trending"
        | "improve" | "improved" | "improvement" | "improving" | "worse" | "widening" | "shrinking"
        | "yoy" | "qoq" | "fastest" | "slowest" => for_compare(22, TREND),
        "change" | "changes" | "changed"
            if matches!(next, "in" | "between" | "from" | "over" | "since")
                || matches!(
                    before,
                    "percentage" | "percent" | "%" | "monthly" | "yearly" | "annual" | "daily"
                ) =>
        {
            for_compare(22, TREND)
        }
        "before" if next == "and" && words.at(position + 2) == "after" => for_compare(25, TREND),
        "year-over-year" | "month-over-month" | "week-over-week" => for_compare(28, TREND),
        "over" if before == "year" || before == "month" => match next {
            "year" | "month" => for_compare(25, TREND),
            _ => None,
        },

        // Against what was set.
        "over" | "under" | "within" | "above" | "below" | "beyond" | "exceed" | "exceeds" | "exceeded"
        | "exceeding" | "hit" | "meet" | "meets" | "met" | "reach" | "make" | "making" | "slipping"
        | "left"
            if words.any(position + 1..position + 6, &LIMITS)
                || (word == "left" && words.any(0..position, &LIMITS)) =>
        {
            for_compare(26, LIMIT)
        }
        "attainment" | "overloaded" | "overbooked" | "underperforming" | "outperforming" | "overdrawn"
        | "overspent" | "overspending" | "utilization" => for_compare(24, LIMIT),
        "track" if before == "on" => for_compare(30, LIMIT),
        "pace" => for_compare(22, LIMIT),
        "budget" | "quota" | "benchmark" | "forecast" => for_compare(8, LIMIT),
        "enough" | "suffice" | "sufficient" | "afford" => for_compare(24, ENOUGH),
        "cover" | "covers" if matches!(before, "to" | "will" | "can" | "would" | "account" | "it") => {
            for_compare(14, ENOUGH)
        }
        "room" if matches!(next, "on" | "in" | "for" | "left") => for_compare(14, ENOUGH),

        // As it should be?
        "entitled" | "eligible" | "promised" | "supposed" | "honoring" | "honouring" | "honor" | "honour"
        | "honored" | "comply" | "complies" | "complying" | "compliance" | "compliant" | "sticking"
        | "breach" | "breached" | "violate" | "violates" | "violating" | "overcharged" | "undercharged"
        | "overpaid" | "underpaid" | "overbilled" => for_compare(24, RULE),
        "applied" | "applying" | "honoured" | "enforced" | "respected" | "followed"
            if matches!(
                before,
                "being" | "been" | "is" | "was" | "are" | "were" | "getting" | "correctly"
            ) =>
        {
            for_compare(24, RULE)
        }
        "shouldn't" | "shouldn’t" => for_compare(22, RULE),
        "should" => for_compare(8, RULE),
        "correct" | "correctly" | "wrong" | "incorrect" | "wrongly" => for_compare(18, RULE),
        "right" if matches!(before, "look" | "looks" | "that" | "the" | "it") => for_compare(16, RULE),
        "off" if matches!(before, "far" | "little" | "bit" | "way") => for_compare(20, RULE),
        "unusual" | "anomaly" | "anomalies" | "anomalous" | "outlier" | "outliers" | "abnormal" => {
            for_compare(26, RULE)
        }
        "double-check" | "dispute" | "disputing" | "disputed" => for_compare(18, CHECK),
        "billed" | "charged" | "booked" | "received" | "invoiced" | "delivered" => for_compare(7, CHECK),
        "pay" | "paid" | "asked" if next == "for" => for_compare(12, CHECK),

        // Facts, lists and figures.
        "names" | "list" | "display" => for_report(8, LIST),
        "by" | "per" if position > 0 && !next.is_empty() && !is_number(next) => for_report(8, SUM),
        "average" | "total" | "count" | "sum" => for_report(5, SUM),
        "number" if next == "of" => for_report(6, SUM),
        "phone" | "email" | "address" | "contact" | "link" | "description" | "password" | "called"
        | "log" | "owns" | "maintains" | "named" => for_report(12, FACT),
        "latest" | "oldest" | "newest" | "recent" => for_report(12, FACT),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(expected: Purpose, questions: &[&str]) {
        for question in questions {
            let found = classify(question);
            assert_eq!(found.purpose, expected, "{question}: {}", found.because);
            assert!(
                (0.5..=1.0).contains(&found.confidence),
                "{question}: {}",
                found.confidence
            );
        }
    }

    /// AT-14.
    #[test]
    fn a_check_of_one_thing_against_another_is_a_comparison() {
        is(
            Purpose::Compare,
            &[
                "Is the contract's discount applied to these orders?",
                "Do the invoices match the payments?",
                "What is the difference between plan and actual hours?",
                "Which customers spent more than they did in May?",
                "Are we within the credit limit?",
                "Who is over their quota?",
                "How did revenue grow since spring?",
                "Find duplicate invoices",
                "Show the duplicate invoices and who they were sent to",
                "invoices vs payments",
            ],
        );
    }

    /// AT-15.
    #[test]
    fn a_plain_fact_list_or_figure_is_a_report() {
        is(
            Purpose::Report,
            &[
                "List the open tickets of Henderson",
                "How many orders came in yesterday?",
                "What's the phone number of Acme?",
                "Show me accounts with more than 10 open orders",
                "Show total sales by region",
                "Who owns the Globex account?",
                "Open the \"Budget versus actuals\" dashboard",
                "Show the account of Versus Match Ltd",
            ],
        );
    }

    #[test]
    fn where_the_words_do_not_tell_it_is_a_comparison_and_not_a_sure_one() {
        for question in [
            "",
            "Henderson",
            "Welche Kunden kommen aus Portugal?",
            "直近の注文の追跡番号は？",
            "\"\"\"",
            "!= =!",
        ] {
            is(Purpose::Compare, &[question]);
        }
        assert!(classify("Henderson").confidence < 0.7);
        assert!(classify("invoices vs payments").confidence > 0.9);
    }

    #[test]
    fn it_says_which_word_decided() {
        assert_eq!(
            classify("Do the books match?").because,
            "\"match\" asks whether records agree."
        );
        assert_eq!(
            classify("Please list all users").because,
            "\"list\" asks for a list."
        );
    }

    #[test]
    fn the_caller_is_believed_and_the_question_never_asks_for_less_than_the_minimum() {
        let (compare, report) = (Purpose::Compare, Purpose::Report);
        let of = |given, question, minimum| purpose(given, question, minimum).0;
        assert_eq!(of(None, None, report), compare);
        assert_eq!(of(None, Some("  "), report), compare);
        assert_eq!(of(None, Some("list all users"), report), report);
        assert_eq!(of(None, Some("list all users"), compare), compare);
        assert_eq!(of(None, Some("do they match?"), report), compare);
        assert_eq!(of(Some(report), Some("do they match?"), compare), report);
        assert_eq!(of(Some(compare), Some("list all users"), report), compare);
    }
}
