//! Keys: who holds a resource, and in which order.

use coeval::plan::{Edge, EdgeReason};
use coeval::reading::ErrorCode;

use super::{conditions, plan};
use crate::support::resolved::{Made, edge, read, refused, write};

fn key(before: &[usize], after: &[usize], key: &str) -> Edge {
    edge(before, after, EdgeReason::Key, key)
}

#[test]
fn readers_of_a_key_share_it_and_writers_wait_in_the_models_order() {
    let (r, w) = (|| read("r").reads("k"), || read("w").writes("k"));
    assert_eq!(plan([r(), r(), read("x").writes("other")]).edges, []);
    let edges = plan([r(), r(), w(), r(), w(), w(), r(), r()]).edges;
    assert_eq!(
        edges,
        [
            key(&[0, 1], &[2], "k"),
            key(&[2], &[3], "k"),
            key(&[3], &[4], "k"),
            key(&[4], &[5], "k"),
            key(&[5], &[6, 7], "k"),
        ]
    );
    // Keys are no condition: they cost order, not parallelism.
    assert_eq!(conditions([w(), w()]), []);
}

/// A call that reads and writes a key, or names it twice, doesn't wait for itself.
#[test]
fn a_call_never_waits_for_itself_by_key() {
    let both = || {
        read("b")
            .reads("k")
            .writes("k")
            .writes("k")
            .reads("k/x")
            .writes("k/x/y")
            .reads("j")
    };
    assert_eq!(plan([both()]).edges, []);
    let edges = plan([both(), both()]).edges;
    assert!(
        edges.iter().all(|edge| edge.before == [0] && edge.after == [1]),
        "{edges:?}"
    );
}

/// B43: a directory and what is in it are the same resource, two things in it are not.
#[test]
fn a_path_stands_for_everything_below_it() {
    let waits = |first: Made, second: Made| !plan([first, second]).edges.is_empty();
    let (r, w) = (|key| read("r").reads(key), |key| read("w").writes(key));
    assert!(
        waits(w("dir/x"), r("dir")),
        "a scan sees the file that was written before"
    );
    assert!(waits(r("dir"), w("dir/x")));
    assert!(waits(w("dir"), r("dir/x/y")));
    assert!(waits(w("dir/x/"), w("dir/x")));
    assert!(waits(w("/"), r("/dir/x")));
    assert!(!waits(w("dir/x"), w("dir/y")));
    assert!(!waits(w("dir/x"), r("dir/xy")));
    assert!(!waits(r("dir"), r("dir/x")));
    assert!(!waits(w("a:b"), w("a:b:c")), "only a slash makes a path");
    assert!(!waits(w("dir"), w("/dir")));
    assert_eq!(plan([w("dir/x"), r("dir")]).edges, [key(&[0], &[1], "dir")]);
    // Whatever is deeper than anybody's tree is one thing with its 64th ancestor.
    let deep = |end: &str| format!("{}{end}", "d/".repeat(70));
    assert!(waits(w(&deep("x")), w(&deep("y"))));
}

/// A write before a barrier has ended: no edge is needed across it (B42, B79).
#[test]
fn keys_count_within_a_stage_only() {
    let plan = plan([
        read("r").reads("k"),
        write("w").writes("k"),
        read("r").reads("k"),
        read("s").writes("k"),
    ]);
    assert_eq!(plan.stages, [vec![0], vec![1], vec![2, 3]]);
    assert_eq!(plan.edges, [key(&[2], &[3], "k")]);
}

/// Calls that never run hold no key, so that the order goes on around them.
#[test]
fn the_order_of_a_key_leads_around_refused_calls() {
    let w = |id: &str| read("w").id(id).writes("k");
    let faulty = w("b").fault(ErrorCode::InvalidArguments);
    assert_eq!(plan([w("a"), faulty, w("c")]).edges, [key(&[0], &[2], "k")]);
    // Refused for a reason that is found later: `b` and `c` need each other.
    let cyclic = plan([w("a"), w("b").after("c"), w("c"), w("d")]);
    assert_eq!(
        refused(&cyclic),
        [(1, ErrorCode::DependencyCycle), (2, ErrorCode::DependencyCycle)]
    );
    assert_eq!(cyclic.edges, [key(&[0], &[3], "k")]);
}
