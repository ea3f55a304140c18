//! Members that no configuration lists: which numbers they have, and how others reach them.
//!
//! # Theory of operation
//!
//! ```text
//!   newcomer ── Enlist(contact, runtimes, plan) ─► is the name free, the address, are there numbers?
//!                                                  ─► log: Contact, Numbered … ─► numbers, newest incarnation, a listed member's plan
//!   newcomer: makes its workers ── Join(numbers) ─► as every member
//!   view with it ── Notification(view, contacts) ─► members lay links to it; without it, they take them down
//! ```
//!
//! *Numbers.* Listed runtimes have `0..listed`, the others `listed..most`; a listed member of the
//! view says both bounds when it joins ([`proto::Plan`]). The numbers of a member stay its own
//! while there are others. When there are none, the numbers of such members outside the view go
//! first; a number's next worker has a later incarnation. A member that loses one of its numbers
//! loses all of them, so its name gets others when it comes back.
//!
//! The newcomer compares *the plan*, since it can say in words what differs; the coordinator
//! compares the two numbers that it uses.
//!
//! Invariants: a contact is in the log before any member hears of it; two members of a view have no
//! number in common; a number's incarnations grow, whichever member has it.
//!
//! Not here: members' use of contacts (`flowkeep::run`), which callers may ask (`service`).

use super::number_table::{NumberTable, Slot};
use super::{Decider, DeciderAnswer, Enlisting, Pending};
use crate::proto;
use crate::refusal::Refusal;
use crate::translate;
use protocols::membership::{Coordinator, Incarnation, Role, WorkerId};
use tokio::sync::oneshot;

/// How the members of the view are reached that no configuration lists.
pub(super) fn contacts(machine: &Coordinator, number_table: &NumberTable) -> Vec<proto::Contact> {
    let members = machine.view().members();
    let of = |contact: &proto::Contact| {
        let its = members
            .iter()
            .filter(|known| number_table.is_of(known.id, &contact.member));
        let workers: Vec<_> = its.map(|known| (known.id, known.incarnation)).collect();
        (!workers.is_empty()).then(|| proto::Contact {
            workers: translate::workers(&workers),
            ..contact.clone()
        })
    };
    number_table.contacts().filter_map(of).collect()
}

impl Decider {
    pub(super) fn on_enlist(&mut self, enlisting: Enlisting, answer: oneshot::Sender<DeciderAnswer>) {
        let (plan, places) = match self.places_for(&enlisting) {
            Ok(found) => found,
            Err((refusal, why)) => {
                let _ = answer.send(DeciderAnswer::Refused(refusal, why));
                return;
            }
        };
        let plan = super::listed::told_to(&enlisting.plan, &plan);
        let contact = enlisting.contact;
        let member = contact.member.clone();
        let incarnation = places
            .iter()
            .map(|(_, incarnation)| incarnation.0)
            .max()
            .unwrap_or(0);
        let enlisted = Box::new(proto::EnlistAnswer {
            numbers: places.iter().map(|(id, _)| id.number.into()).collect(),
            incarnation,
            plan: Some(plan),
        });
        for vacant in self.number_table.vacated_for(&member, &places) {
            let before = self.number_table.number(self.next_record, &vacant);
            self.spare.extend(before.unwrap_or_default());
            self.record(proto::record::What::Numbered(vacant), Pending::Number);
        }
        let mut last = None;
        if !self.number_table.contacts().any(|known| *known == contact) {
            self.spare
                .extend(self.number_table.enlist(self.next_record, contact.clone()));
            let what = proto::record::What::Enlisted(contact);
            last = Some(self.record(what, Pending::Number));
        }
        for (place, (id, _)) in (0..).zip(places) {
            let slot = Slot::new(&member, Role::Runtime, place);
            if self.number_table.incarnation(&slot).is_some() {
                continue;
            }
            let numbered = slot.record(id, Incarnation(incarnation));
            let before = self.number_table.number(self.next_record, &numbered);
            self.spare.extend(before.unwrap_or_default());
            last = Some(self.record(proto::record::What::Numbered(numbered), Pending::Number));
        }
        match (last, self.pending.back_mut()) {
            (Some(_), Some((_, pending))) => *pending = Pending::Enlisted(enlisted, answer),
            _ => drop(answer.send(DeciderAnswer::Enlisted(enlisted))),
        }
    }

    /// The numbers that a member may have, with their newest incarnations, and the plan of a listed
    /// member of the view.
    fn places_for(&self, enlisting: &Enlisting) -> Result<Places, (Refusal, String)> {
        let Enlisting {
            contact,
            runtimes,
            plan,
        } = enlisting;
        let member = contact.member.as_str();
        let there = self.plan_in_view()?;
        if (plan.listed, plan.most) != (there.listed, there.most) {
            let why = format!(
                "the configuration of `{member}` lists {} runtimes of {} that there may be, and that of the members {} of {}: give it the members' file",
                plan.listed, plan.most, there.listed, there.most
            );
            return Err((Refusal::PlanDiffers, why));
        }
        if self.number_table.is_known(member) && !self.number_table.is_enlisted(member) {
            let why = format!(
                "`{member}` is a member by a configuration: get a token for another name (flowkeep cluster token DIRECTORY --member NAME)"
            );
            return Err((Refusal::NameTaken, why));
        }
        self.look_at_addresses(contact)?;
        let bounds = [there.listed, there.most].map(|number| u16::try_from(number).unwrap_or(0));
        let is_held = |owner: &str| self.is_held(owner);
        let places = self
            .number_table
            .room_for(member, *runtimes, (bounds[0], bounds[1]), is_held);
        let places = places.map_err(|why| (Refusal::NoRoom, why))?;
        Ok((there.clone(), places))
    }

    /// The plan of a listed member of the view.
    fn plan_in_view(&self) -> Result<&proto::Plan, (Refusal, String)> {
        let members = self.machine.view().members().iter();
        let mut names = members.filter_map(|known| self.number_table.name(known.id));
        let plan = names.find_map(|name| {
            self.number_table
                .plan(name)
                .filter(|_| !self.number_table.is_enlisted(name))
        });
        plan.ok_or_else(|| {
            let why = "no member that the configuration lists is in view: start one of them first";
            (Refusal::MemberAway, why.to_owned())
        })
    }

    fn look_at_addresses(&self, contact: &proto::Contact) -> Result<(), (Refusal, String)> {
        for other in self
            .number_table
            .contacts()
            .filter(|other| self.is_held(&other.member))
        {
            if other.member == contact.member {
                let is_same = (&other.host, &other.address, &other.link_address)
                    == (&contact.host, &contact.address, &contact.link_address);
                if !is_same {
                    let why = format!(
                        "`{}` is in view, at host `{}` with the address {:?}, and this one is at `{}` with {:?}: take another name, or stop that one first",
                        other.member, other.host, other.address, contact.host, contact.address
                    );
                    return Err((Refusal::NameTaken, why));
                }
            } else if other.host != contact.host {
                let is_taken = |a: &[u8], b: &[u8]| !a.is_empty() && a == b;
                if is_taken(other.address.as_bytes(), contact.address.as_bytes())
                    || is_taken(&other.link_address, &contact.link_address)
                {
                    let why = format!(
                        "an address of `{}` (host `{}`, {}) is that of member `{}` at host `{}`: give each host its own, or the same word for --host",
                        contact.member, contact.host, contact.address, other.member, other.host
                    );
                    return Err((Refusal::AddressTaken, why));
                }
            }
        }
        Ok(())
    }

    /// Whether a member is in view, or on its way there.
    fn is_held(&self, member: &str) -> bool {
        let joining = self
            .joining
            .iter()
            .any(|(id, _)| self.number_table.is_of(*id, member));
        joining || !self.incarnations_of(member).is_empty()
    }
}

type Places = (proto::Plan, Vec<(WorkerId, Incarnation)>);
