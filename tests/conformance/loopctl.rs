//! A wave planner: first-fit waves by safety and keys; a later safe call may overtake an unsafe one.

mod planned {
    use coeval::plan::Policy;
    use coeval::reading::ErrorCode;

    use crate::support::resolved::{Made, World, read, refused, unknown, write};

    fn waves(calls: impl IntoIterator<Item = Made>) -> Vec<Vec<usize>> {
        World::under(Policy::loopctl()).of(calls).1.stages
    }

    fn keyed(key: &str) -> Made {
        read("read").reads(key)
    }

    fn edit(key: &str) -> Made {
        write("edit").writes(key)
    }

    /// LC-01: safe calls without keys share one wave, in their order.
    #[test]
    fn safe_calls_without_keys_share_a_wave() {
        assert_eq!(waves([read("a"), read("b")]), [[0, 1]]);
        assert_eq!(
            waves([read("a"), read("b"), read("c"), read("d")]),
            [[0, 1, 2, 3]]
        );
    }

    /// LC-02: an unsafe call has a wave to itself.
    #[test]
    fn an_unsafe_call_is_alone() {
        assert_eq!(waves([write("a"), read("b")]), [[0], [1]]);
    }

    /// LC-03, LC-04: one holder of a key in a wave, readers included.
    #[test]
    fn a_key_is_in_a_wave_once() {
        assert_eq!(
            waves([keyed("/a"), keyed("/a"), keyed("/b")]),
            [vec![0, 2], vec![1]]
        );
        assert_eq!(waves([keyed("x"), keyed("x"), keyed("y")]), [vec![0, 2], vec![1]]);
        // Keys are compared as they are: no key is a part of another here.
        assert_eq!(waves([keyed("/a"), keyed("/a/b")]), [[0, 1]]);
    }

    /// LC-05: an unknown tool is alone in its wave, and answered.
    #[test]
    fn an_unknown_tool_is_alone() {
        let (_, plan) = World::under(Policy::loopctl()).of([read("a"), unknown("b")]);
        assert_eq!(plan.stages, [[0], [1]]);
        assert_eq!(refused(&plan), [(1, ErrorCode::UnknownTool)]);
    }

    /// LC-06.
    #[test]
    fn no_calls_make_no_waves() {
        assert_eq!(waves([]), Vec::<Vec<usize>>::new());
    }

    /// LC-07.
    #[test]
    fn first_fit_overtakes() {
        let calls = [
            keyed("a"),
            keyed("b"),
            edit("c"),
            read("grep"),
            keyed("a"),
            read("stat"),
        ];
        assert_eq!(waves(calls), [vec![0, 1, 3, 5], vec![2], vec![4]]);
    }

    /// LC-08: only calls that are safe are asked for their key.
    #[test]
    fn the_key_of_an_unsafe_call_is_not_asked() {
        assert_eq!(waves([edit("a"), edit("a"), keyed("a")]), [[0], [1], [2]]);
        assert_eq!(waves([keyed("a"), edit("a"), keyed("b")]), [vec![0, 2], vec![1]]);
    }

    /// LC-09: the read of b runs before the edit of b that the model placed first. Reproduced here, and nowhere else.
    #[test]
    fn a_read_overtakes_the_edit_before_it() {
        let calls = || [keyed("a"), edit("b"), keyed("b")];
        assert_eq!(waves(calls()), [vec![0, 2], vec![1]]);
        assert_eq!(waves([edit("a"), keyed("a")]), [[0], [1]]);
        for policy in [
            Policy::standard(),
            Policy::harness(),
            Policy::go(),
            Policy::atlas(),
        ] {
            assert_eq!(World::under(policy).of(calls()).1.stages, [[0], [1], [2]]);
        }
    }

    /// Waves know no dependencies, so a call that has one goes last instead of first.
    #[test]
    fn a_dependent_call_overtakes_nothing() {
        assert_eq!(
            waves([read("a"), write("w"), read("b").after(1), read("c")]),
            [vec![0, 3], vec![1], vec![2]]
        );
        let (_, plan) = World::under(Policy::loopctl()).of([write("w"), read("b").after(0)]);
        assert_eq!((plan.stages, plan.refused.len()), (vec![vec![0], vec![1]], 0));
    }
}
