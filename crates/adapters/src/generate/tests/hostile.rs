//! Random operations against an oracle, and random text.

use super::*;

proptest! {
    /// Against a sorted map: random waits, from none to many laps.
    #[test]
    fn the_wheel_sorts(interval in 1.0f64..1000.0, longest in 1.0f64..1e6, waits in proptest::collection::vec((0u64..40, 1u64..1000), 1..400)) {
        let flows = 8;
        let mut wheel = Wheel::new(interval, longest);
        let mut oracle = BTreeSet::new();
        for flow in 0..flows {
            wheel.insert(flow, u64::from(flow) * 7 % 5);
            oracle.insert((u64::from(flow) * 7 % 5, flow));
        }
        for (bits, mantissa) in waits {
            let next = wheel.peek();
            prop_assert_eq!(next, oracle.pop_first());
            let (due, flow) = next.unwrap();
            wheel.take();
            let again = due + (mantissa << (bits / 2)) + 1;
            wheel.insert(flow, again);
            oracle.insert((again, flow));
        }
    }

    /// Hostile tables and profiles' texts: an error or a distribution, no panic.
    #[test]
    fn tables_do_no_harm(text in "[0-9 .,\\-einfa\n\t]{0,60}", seed in any::<u64>()) {
        if let Ok(sampler) = cdf_text("life", &text) {
            let drawn = sampler.draw_whole(&mut Random::new(seed));
            prop_assert!(drawn >= 1);
        }
    }
}
