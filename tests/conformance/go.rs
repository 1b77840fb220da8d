//! A staged runner with barriers.

mod planned {
    use coeval::plan::Policy;
    use coeval::tool::Class;

    use crate::support::resolved::{World, call, read, unknown, write};

    /// GO-01: adjacent reads share a stage; every other call is a stage alone.
    #[test]
    fn adjacent_reads_share_a_stage() {
        let calls = [read("r"), read("r"), write("w"), read("r"), read("r")];
        assert_eq!(
            World::under(Policy::go()).of(calls).1.stages,
            [vec![0, 1], vec![2], vec![3, 4]]
        );
    }

    /// GO-02: an unknown tool, and one that isn't read-only, have stages of their own.
    #[test]
    fn whatever_is_not_a_read_has_its_own_stage() {
        let calls = [
            read("r"),
            unknown("x"),
            call("run_tests", Class::Exclusive),
            read("r"),
        ];
        assert_eq!(
            World::under(Policy::go()).of(calls).1.stages,
            [[0], [1], [2], [3]]
        );
    }

    /// GO-07.
    #[test]
    fn the_cap_is_eight() {
        assert_eq!(Policy::go().max_concurrency, 8);
    }
}
