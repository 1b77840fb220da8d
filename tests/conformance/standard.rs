//! Where the four disagree, and how the standard policy settles it.

mod planned {
    use coeval::plan::{Condition, EdgeReason};

    use crate::support::resolved::{World, edge, read, write};

    /// Not LC-09: nothing overtakes a barrier (B42, B44, B79).
    #[test]
    fn nothing_overtakes_a_write() {
        let stages = |calls: Vec<_>| World::standard().of(calls).1.stages;
        let (r, w) = (|| read("r").reads("f"), || write("w").writes("f"));
        assert_eq!(stages(vec![w(), r()]), [[0], [1]]);
        assert_eq!(stages(vec![r(), w()]), [[0], [1]]);
        assert_eq!(stages(vec![w(), r(), r()]), [vec![0], vec![1, 2]]);
        assert_eq!(stages(vec![r(), w(), r()]), [[0], [1], [2]]);
    }

    /// B45, B47: writes of one thing run in turn, in the model's order.
    #[test]
    fn writes_run_in_turn() {
        let plan = World::standard().of((0..5).map(|_| write("edit").writes("f"))).1;
        assert_eq!(plan.stages, [[0], [1], [2], [3], [4]]);
    }

    /// Not AT-08: over an allowance only the excess waits; the reason is told all the same (AT-04).
    #[test]
    fn over_an_allowance_the_reason_is_told_and_nothing_serialised() {
        let mut world = World::standard();
        world.allowances.0.push(("crm", 4));
        let (decision, plan) = world.of((0..5).map(|_| read("r").on("crm")));
        assert_eq!(
            (decision.reason, decision.dependency.as_deref()),
            (Some(Condition::RateLimit), Some("crm"))
        );
        assert_eq!((plan.stages, plan.edges), (vec![vec![0, 1, 2, 3, 4]], vec![]));
    }

    /// B51: what ends a turn isn't batched with what it needs, if that is said.
    #[test]
    fn a_declared_dependency_is_an_edge_within_the_stage() {
        let plan = World::standard()
            .of([read("search").id("s"), read("finish").after("s")])
            .1;
        assert_eq!(plan.edges, [edge(&[0], &[1], EdgeReason::After, "s")]);
    }
}
