//! Which workers a member may bring: those of its configuration, or those that it got numbers for.
//!
//! # Theory of operation
//!
//! A view's weight is that of its members, so a member that brings many switches would take the
//! majority from those that are there, for good. The coordinator has no configuration. It has the
//! plans that listed members said when they joined ([`proto::Plan`]), and its log.
//!
//! | the member | may bring |
//! |---|---|
//! | has numbers by `Enlist` | so many runtimes, by these numbers |
//! | is listed, and another listed member is in view | with that one's settings: runtimes below the listed ones' number, switches; the same of each role as in its last incarnation with these settings |
//! | is listed, and no other listed member is in view | what it says: the first one's file is the members' file |
//!
//! *The word on settings* ([`SETTINGS`]) stands for the members, ports and sizes of a file. It is
//! derived from a key that members alone have, so a process that has only a certificate cannot say
//! it. `Enlist` tells it to no caller that has not said it ([`told_to`]).
//!
//! Members that have all got another file join when no listed member of the file before is in view.
//! So a process that asks is taken as the end of its own incarnations before it is refused.
//!
//! Not here: a process with the key file that says it is a listed member which has not joined yet:
//! how many switches that one has is known to members alone.

use super::Decider;
use super::number_table::NumberTable;
use crate::proto;
use crate::refusal::Refusal;
use protocols::membership::{Role, WorkerId};

/// The place in a plan of the word on settings outside of chains and functions.
const SETTINGS: usize = 2;

/// Whether two plans are of one list of members.
fn is_of_one_file(a: &proto::Plan, b: &proto::Plan) -> bool {
    (a.listed, a.most, a.words.get(SETTINGS)) == (b.listed, b.most, b.words.get(SETTINGS))
}

/// A plan for a caller that has said another one: without the word on settings, unless the caller
/// has it.
pub(super) fn told_to(said: &proto::Plan, plan: &proto::Plan) -> proto::Plan {
    let mut told = plan.clone();
    let is_known = said.words.get(SETTINGS) == plan.words.get(SETTINGS);
    told.words
        .get_mut(SETTINGS)
        .filter(|_| !is_known)
        .into_iter()
        .for_each(|word| *word = 0);
    told
}

fn count(workers: impl Iterator<Item = Role>) -> [usize; 2] {
    workers.fold([0, 0], |[switches, runtimes], role| match role {
        Role::Switch => [switches + 1, runtimes],
        Role::Runtime => [switches, runtimes + 1],
    })
}

fn counted([switches, runtimes]: [usize; 2]) -> String {
    let of = |count: usize, one: &str, many: &str| match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {many}"),
    };
    let (switches, runtimes) = (
        of(switches, "switch", "switches"),
        of(runtimes, "runtime", "runtimes"),
    );
    format!("{switches} and {runtimes}")
}

const REMEDY: &str = "start a listed member with the members' file, and another one as a node of its own: flowkeep node FILE --member NAME --runtimes N";

impl Decider {
    /// Whether a member may bring these workers; or why not.
    pub(super) fn may_bring(
        &self,
        member: &str,
        ids: &[WorkerId],
        plan: Option<&proto::Plan>,
    ) -> Result<(), (Refusal, String)> {
        let asks = count(ids.iter().map(|id| id.role));
        if self.number_table.is_enlisted(member) {
            let has = count(self.number_table.slots_of(member).map(|(_, id)| id.role));
            if asks == has {
                return Ok(());
            }
            let why = format!(
                "`{member}` got numbers for {}, and asks for {}: {REMEDY}",
                counted(has),
                counted(asks)
            );
            return Err((Refusal::NotListed, why));
        }
        let Some(there) = self.plan_of_others(member) else {
            return Ok(());
        };
        let Some(plan) = plan else {
            let why = format!("`{member}` has no numbers, and no file that lists it: {REMEDY}");
            return Err((Refusal::NotListed, why));
        };
        if !is_of_one_file(plan, there) {
            let why = format!(
                "the members, ports or sizes in the file of `{member}` are not those of the members in view: give it their file; or, for another file, stop all members first"
            );
            return Err((Refusal::PlanDiffers, why));
        }
        let before = self.number_table.plan(member);
        let has = count(self.number_table.slots_of(member).map(|(_, id)| id.role));
        if before.is_some_and(|before| is_of_one_file(before, plan)) && asks != has {
            let why = format!(
                "by the same file `{member}` has joined with {}, and asks for {}: {REMEDY}",
                counted(has),
                counted(asks)
            );
            return Err((Refusal::NotListed, why));
        }
        let behind = |id: &&WorkerId| id.role == Role::Runtime && u32::from(id.number) >= plan.listed;
        if let Some(id) = ids.iter().find(behind) {
            let why = format!(
                "the members' file lists {} runtimes, and `{member}` asks for runtime {}: {REMEDY}",
                plan.listed, id.number
            );
            return Err((Refusal::NotListed, why));
        }
        Ok(())
    }

    /// The plan of a listed member that is in view, or on its way there, other than this one.
    fn plan_of_others(&self, member: &str) -> Option<&proto::Plan> {
        let table: &NumberTable = &self.number_table;
        let there = self.machine.view().members().iter().map(|known| known.id);
        let ids = there.chain(self.joining.iter().map(|(id, _)| *id));
        let names = ids.filter_map(|id| table.name(id));
        let mut others = names.filter(|name| *name != member && !table.is_enlisted(name));
        others.find_map(|name| table.plan(name))
    }
}
