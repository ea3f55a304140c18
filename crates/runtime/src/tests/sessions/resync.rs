//! How much a runtime tells a switch that begins again in each step, and that packets go on
//! meanwhile.

use super::*;

/// As `worker::sessions` has it.
const LOOKS: u64 = 512;

#[test]
fn a_runtime_tells_a_switch_of_some_flows_in_a_step() {
    const FLOWS: u16 = 2000;
    let mut members = Members::all(2, 1, Policy::RoundRobin, plan(vec![factory::<Meter>()]));
    members.feed(1, (0..FLOWS).map(|n| out(1000 + n, 1)));
    let at_home = |members: &mut Members| members.switch(0).stats().routes;
    let before = at_home(&mut members);
    assert!(before > LOOKS + 200, "{before}");
    members.start(0);
    members.switch(0).wait_for_resync(WAIT);
    let mut growths = Vec::new();
    for round in 0..1000 {
        let (known, sent) = (at_home(&mut members), members.sent().len());
        if known == before {
            break;
        }
        // By the other switch, of flows whose home that is and whose home it is not.
        members
            .switch(1)
            .port_mut(0)
            .input
            .extend((0..32).map(|n| out(1000 + n, 2)));
        members.now += 1000;
        for worker in [1, 2, 0, 1] {
            members.step(worker);
        }
        let told = at_home(&mut members) - known;
        // The first time of two steps, since the switch first sees the session; half of the places
        // are flows of the other switch.
        assert!(told < LOOKS * 5 / 4, "round {round}: {told} at once");
        if told > 0 {
            let left = members.sent().len() - sent;
            assert!(left > 0, "round {round}: no packet leaves");
            growths.push(told);
        }
    }
    assert!(growths.len() as u64 >= u64::from(FLOWS) / LOOKS, "{growths:?}");
    members.run_until_quiet();
    assert_eq!(at_home(&mut members), before);
    members.check();
    members.assert_nothing_stays();
}
