//! An agent loop that asks each call whether it is safe beside others.

mod planned {
    use coeval::plan::Policy;
    use coeval::reading::ErrorCode;
    use coeval::tool::Class;

    use crate::support::resolved::{World, call, read, write};

    /// DS-05: adjacent safe calls form a group, an exclusive one is a group alone.
    #[test]
    fn reads_beside_a_write_form_three_groups() {
        let world = World::under(Policy::harness());
        assert_eq!(
            world.of([read("r"), write("w"), read("r")]).1.stages,
            [[0], [1], [2]]
        );
        let plan = world.of([read("a"), read("b"), write("a"), read("c")]).1;
        assert_eq!(plan.stages, [vec![0, 1], vec![2], vec![3]]);
    }

    /// DS-01: invalid arguments make a call exclusive.
    #[test]
    fn a_call_that_cannot_be_asked_is_exclusive() {
        let world = World::under(Policy::harness());
        let invalid = read("r").fault(ErrorCode::InvalidArguments);
        assert_eq!(
            world.of([read("r"), invalid, read("r")]).1.stages,
            [[0], [1], [2]]
        );
        let silent = call("r", Class::Exclusive);
        assert_eq!(world.of([read("r"), silent, read("r")]).1.stages, [[0], [1], [2]]);
    }

    /// DS-11: ten at once unless it is said.
    #[test]
    fn the_cap_is_ten() {
        assert_eq!(Policy::harness().max_concurrency, 10);
    }
}
