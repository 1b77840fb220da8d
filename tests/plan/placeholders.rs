//! Placeholders: whom they mean.

use coeval::plan::EdgeReason;
use coeval::reading::ErrorCode;
use serde_json::{Value, json};

use super::plan;
use crate::support::resolved::{World, edge, read, refused};

fn text(argument: &str) -> Value {
    json!({ "x": argument })
}

#[test]
fn a_head_is_an_id_else_a_tool_and_the_single_one_before_if_several_fit() {
    let plan = plan([
        read("find").id("c1"),
        read("list"),
        read("use").with(json!({"deep": [{"y": "{{c1.id}} and {{list.n}}"}]})),
        read("use").with(text("{{c1.id}}")),
        read("list"),
        read("late").with(text("{{list.n}}")),
        // An id comes before a tool.
        read("other").id("find"),
        read("use").with(text("{{find.z}}")),
    ]);
    assert_eq!(refused(&plan), [(5, ErrorCode::ReferenceAmbiguous)]);
    assert_eq!(
        plan.edges,
        [
            edge(&[0], &[2, 3], EdgeReason::Placeholder, "{{c1.id}}"),
            edge(&[1], &[2], EdgeReason::Placeholder, "{{list.n}}"),
            edge(&[6], &[7], EdgeReason::Placeholder, "{{find.z}}"),
        ]
    );
    let heads = |consumer| {
        let references = plan.references_of(consumer).iter();
        references
            .map(|reference| (&*reference.head, reference.producer))
            .collect::<Vec<_>>()
    };
    assert_eq!(heads(2), [("c1", 0), ("list", 1)]);
    assert_eq!(heads(7), [("find", 6)]);
    assert_eq!(heads(5), []);
}

/// The last of several calls of one tool means the one before it, not itself.
#[test]
fn a_tool_may_follow_itself() {
    let plan = plan([read("page"), read("page").with(text("{{page.next}}"))]);
    assert_eq!(
        plan.edges,
        [edge(&[0], &[1], EdgeReason::Placeholder, "{{page.next}}")]
    );
}

/// An unknown head is an error if it is the whole string, else it is text; `$15` and escapes are text (B55, AT-20).
#[test]
fn unknown_heads_alone_are_errors_and_in_text_are_text() {
    let (decision, plan) = World::standard().of([
        read("a").with(text("{{nobody.x}}")),
        read("b").with(text("Dear {{name}}, ")),
        read("c").with(text("$15 {{{{a}} {{ {{}} {{a b}}")),
        read("d").with(text(" {{nobody}}")),
    ]);
    assert_eq!(refused(&plan), [(0, ErrorCode::ReferenceUnresolved)]);
    assert!(
        plan.refused[0].1.message().contains("{{{{"),
        "it says how to mend it"
    );
    assert!(decision.parallel);
}

#[test]
fn a_placeholder_for_itself_is_a_cycle() {
    let plan = plan([
        read("a").with(text("{{a.x}}")),
        read("b").id("b").with(text("see {{b}}")),
    ]);
    assert_eq!(
        refused(&plan),
        [(0, ErrorCode::DependencyCycle), (1, ErrorCode::DependencyCycle)]
    );
}
