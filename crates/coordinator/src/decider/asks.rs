//! The messages and questions to the decider, and its answers.

use super::ASKS_MAX;
use crate::log::Report;
use crate::proto;
use crate::refusal::Refusal;
use crate::translate;
use protocols::membership::{Coordinator, Incarnation, Role, WorkerId};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Instant;
use tokio::sync::oneshot;

/// A question: it needs an answer.
#[derive(Debug)]
pub enum Question {
    /// The members, as the coordinator knows them.
    Status,
    /// A token is to be used, once.
    Token {
        /// The token's.
        id: [u8; 16],
        /// Seconds since 1970.
        expires: u64,
    },
    /// A member brings workers.
    Join {
        /// Its name.
        member: String,
        /// Which incarnation of it.
        incarnation: Incarnation,
        /// The first incarnation that its file has handed out; 0: not known.
        first: u64,
        /// A worker for each.
        roles: Vec<Role>,
        /// The number that each shall have; none at all: any.
        numbers: Vec<u16>,
        /// The plan of its configuration, if that lists the member.
        plan: Option<proto::Plan>,
    },
    /// A member that no configuration lists wants numbers for its runtimes.
    Enlist(Box<Enlisting>),
    /// A member's workers act no more.
    Leave {
        /// Its name.
        member: String,
        /// Which incarnation of it.
        incarnation: Incarnation,
    },
    /// The configuration that was decided last.
    Configuration,
    /// Another configuration is to be in force.
    Configure {
        /// The view whose members have prepared it.
        view: u32,
        /// It, and the one before.
        configuration: Box<proto::Configuration>,
    },
    /// The configuration on trial stays.
    Confirm,
    /// A runtime is to be removed, though it lives.
    Recover {
        /// Its number.
        runtime: u16,
    },
    /// A member's workers are to get no new groups.
    Drain {
        /// Its name.
        member: String,
    },
    /// A member's workers that leave are to get new groups again.
    Resume {
        /// Its name.
        member: String,
    },
}

/// The statement of a member that no configuration lists, on itself. Each word of it was checked.
#[derive(Debug)]
pub struct Enlisting {
    /// How it is reached, with its name by the certificate.
    pub contact: proto::Contact,
    /// 1 to 64.
    pub runtimes: u16,
    /// The plan of its configuration.
    pub plan: proto::Plan,
}

/// A question, and where the answer goes.
#[derive(Debug)]
pub struct Ask {
    /// The question.
    pub question: Question,
    /// For the answer.
    pub answer: oneshot::Sender<DeciderAnswer>,
}

/// An answer of the decider.
#[derive(Debug)]
pub enum DeciderAnswer {
    /// It is so, by the log; for these incarnations.
    Done(Vec<(WorkerId, Incarnation)>),
    /// The members, as the coordinator knows them.
    Status(Box<proto::StatusAnswer>),
    /// The configuration that was decided last.
    Configuration(Box<proto::Configuration>),
    /// A member has numbers.
    Enlisted(Box<proto::EnlistAnswer>),
    /// A member's incarnation is over: the newest one, and why.
    Over(u64, String),
    /// It is not, and why.
    Refused(Refusal, String),
}

/// A message to the decider.
#[derive(Debug)]
pub enum Told {
    /// A question.
    Ask(Ask),
    /// Heartbeats of a member that has a certificate, and when they came in.
    Workload(Instant, String, proto::Workload),
    /// The log has something to say.
    Log(Report),
    /// It is over.
    End,
}

/// The state that members are told: the newest only.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// The newest view.
    pub view: proto::View,
    /// The newest suspects.
    pub suspects: proto::Suspects,
    /// The configuration that was decided last.
    pub configuration: proto::Decided,
    /// How the members of the view are reached that no configuration lists.
    pub contacts: Vec<proto::Contact>,
    /// The loads of runtimes.
    pub loads: Vec<proto::RuntimeLoad>,
    /// Which of them share objects.
    pub sharing: Option<proto::Sharing>,
}

impl Published {
    pub(super) fn of(
        machine: &Coordinator,
        configuration: proto::Decided,
        contacts: Vec<proto::Contact>,
    ) -> Self {
        let (list, suspects) = machine.suspects();
        Published {
            view: translate::view(machine.view()),
            suspects: proto::Suspects {
                list,
                workers: translate::workers(&suspects),
            },
            configuration,
            contacts,
            loads: Vec::new(),
            sharing: None,
        }
    }
}

/// The way to the decider.
#[derive(Clone)]
pub struct Handle(SyncSender<Told>);

impl Handle {
    /// A way, and its end.
    pub fn new() -> (Self, Receiver<Told>) {
        let (sender, told) = sync_channel(ASKS_MAX);
        (Handle(sender), told)
    }

    /// Asks, and waits for the answer.
    pub async fn ask(&self, question: Question) -> DeciderAnswer {
        let (answer, answered) = oneshot::channel();
        let gone = || DeciderAnswer::Refused(Refusal::Late, "the coordinator ends".to_owned());
        match self.0.try_send(Told::Ask(Ask { question, answer })) {
            Ok(()) => answered.await.unwrap_or_else(|_| gone()),
            Err(TrySendError::Full(_)) => {
                DeciderAnswer::Refused(Refusal::Busy, "too many ask at once; ask again".to_owned())
            }
            Err(TrySendError::Disconnected(_)) => gone(),
        }
    }

    /// Says that heartbeats came in, unless too much waits already.
    pub fn workload(&self, member: &str, workload: proto::Workload) -> bool {
        let told = Told::Workload(Instant::now(), member.to_owned(), workload);
        self.0.try_send(told).is_ok()
    }

    /// For the log's thread, which may wait. Says whether the decider is there.
    pub(crate) fn report(&self, report: Report) -> bool {
        self.0.send(Told::Log(report)).is_ok()
    }

    /// Ends the decider.
    pub(crate) fn end(&self) {
        let _ = self.0.send(Told::End);
    }
}
