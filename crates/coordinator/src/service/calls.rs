//! Calls: which caller may make which, and the questions to the decider.
//!
//! | call | may be made by |
//! |---|---|
//! | `Enrol` | a process without a certificate that has a token |
//! | `Enlist`, `Join`, `PollWorkload`, `Leave` | members, of their own workers |
//! | `NotifyView`, `Status` | members; operators with read and above |
//! | `Serve` | members |
//! | `Relay` | operators with the right that the request needs ([`crate::relay::Judge`]) |
//! | `Counted`, `Drain`, `Resume`, `SetMigrationTarget`, `SetReplicas`, `Recover` | operators with operate and above |
//! | `Configuration` | members; operators with admin |
//! | `Configure`, `Confirm`, `MakeToken` | operators with admin |

use super::connections::Peer;
use crate::decider::{DeciderAnswer, Enlisting, Handle, Published, Question, TRIAL_MS};
use crate::identity::{Authority, Caller, Right, Token, is_name};
use crate::kept::{Keeper, Kept};
use crate::proto::coordinator_server::Coordinator;
use crate::proto::{self, Notification};
use crate::refusal::{Refusal, Refusals};
use crate::relay::{Judge, REQUEST_MAX, Relay, Scribe, Unfit};
use crate::server::{Events, since_1970};
use crate::translate;
use protocols::membership::Incarnation;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_stream::wrappers::{ReceiverStream, WatchStream};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

/// Workers of one member at most.
const MEMBERS_WORKERS_MAX: usize = 256;
/// How long a token may be good.
const TOKEN_MAX: u64 = 7 * 86_400;

/// Digits of a configuration's digest at most.
const DIGEST_MAX: usize = 64;

/// The parts that calls need.
#[derive(Clone)]
pub struct Service {
    pub(crate) handle: Handle,
    pub(crate) newest: watch::Receiver<Arc<Published>>,
    pub(crate) authority: Arc<Authority>,
    pub(crate) certificates: Duration,
    /// Nanoseconds.
    pub(crate) lease: u64,
    pub(crate) refused: Arc<Refusals>,
    pub(crate) events: Events,
    pub(crate) relay: Arc<Relay>,
    pub(crate) judge: Judge,
    pub(crate) scribe: Scribe,
    pub(crate) kept: Arc<Kept>,
    pub(crate) keeper: Option<Keeper>,
}

type Answered<T> = Result<Response<T>, Status>;

impl Service {
    fn peer<T>(request: &Request<T>) -> Option<Peer> {
        request.extensions().get::<Peer>().cloned()
    }

    /// The member that calls.
    fn member<T>(&self, request: &Request<T>, call: &str) -> Result<(Peer, String), Status> {
        let peer = Self::peer(request);
        match peer {
            Some(Peer {
                caller: Caller::Member(ref name),
                from,
            }) => {
                let name = name.clone();
                let caller = Caller::Member(name.clone());
                Ok((Peer { caller, from }, name))
            }
            _ => Err(self.no_right(peer.as_ref(), call, "a member")),
        }
    }

    /// An operator with at least this right; members, where `members` is set.
    fn operator<T>(
        &self,
        request: &Request<T>,
        call: &str,
        least: Right,
        members: bool,
    ) -> Result<Peer, Status> {
        let peer = Self::peer(request);
        let may = match peer.as_ref().map(|peer| &peer.caller) {
            Some(Caller::Operator(_, right)) => *right >= least,
            Some(Caller::Member(_)) => members,
            _ => false,
        };
        match peer {
            Some(peer) if may => Ok(peer),
            peer => {
                let wanted = format!("an operator with the right `{}`", least.name());
                Err(self.no_right(peer.as_ref(), call, &wanted))
            }
        }
    }

    fn no_right(&self, peer: Option<&Peer>, call: &str, wanted: &str) -> Status {
        let caller = peer.map_or(Caller::Anonymous, |peer| peer.caller.clone());
        let refusal = match caller {
            Caller::Anonymous => Refusal::NoCertificate,
            _ => Refusal::Role,
        };
        self.refuse(
            peer,
            refusal,
            format_args!("{call} may be called by {wanted}, not by {caller}"),
        )
    }

    /// Whether a request may be relayed to a member for this operator.
    fn may_relay(&self, peer: &Peer, member: &str, request: &[u8]) -> Result<(), Status> {
        if !is_name(member) || request.len() > REQUEST_MAX {
            let why = format!(
                "a request of up to {REQUEST_MAX} bytes for a member, whose name is up to 63 small letters, digits and `-`"
            );
            return Err(self.refuse(Some(peer), Refusal::Malformed, why));
        }
        let least = match (self.judge)(request) {
            Ok(least) => least,
            Err(Unfit::Unknown(why)) => return Err(self.refuse(Some(peer), Refusal::Malformed, why)),
            Err(Unfit::OneProcess(why)) => return Err(self.refuse(Some(peer), Refusal::OneProcess, why)),
        };
        match peer.caller {
            Caller::Operator(_, right) if right >= least => Ok(()),
            _ => {
                let wanted = format!("an operator with the right `{}`", least.name());
                Err(self.no_right(Some(peer), "this request", &wanted))
            }
        }
    }
}

/// Whether an operator may mean this to be in force.
fn is_configuration(configuration: &proto::Configuration) -> bool {
    let is_digest = |digest: &str| {
        (1..=DIGEST_MAX).contains(&digest.len()) && digest.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let is_text = |text: &str| (1..=REQUEST_MAX).contains(&text.len());
    is_digest(&configuration.digest)
        && is_text(&configuration.text)
        && is_digest(&configuration.digest_before)
        && is_text(&configuration.text_before)
        && (configuration.trial == 0 || TRIAL_MS.contains(&configuration.trial))
}

/// Runtimes that there may be, and words of a plan, at most.
const RUNTIMES_MAX: u32 = 64;
const WORDS_MAX: usize = 32;
/// Bytes of a contact's texts at most: as many as a socket's path has.
const TEXT_MAX: usize = 107;

/// Whether a configuration can say this of a cluster.
fn is_plan(plan: &proto::Plan) -> bool {
    (1..=RUNTIMES_MAX).contains(&plan.most) && plan.listed <= plan.most && plan.words.len() <= WORDS_MAX
}

/// The statement of a member that no configuration lists, if it is well-formed.
fn enlisting(member: String, request: proto::EnlistRequest) -> Result<Enlisting, String> {
    let contact = request.contact.unwrap_or_default();
    let is_text = |text: &String| text.len() <= TEXT_MAX && !text.chars().any(char::is_control);
    let texts = [&contact.host, &contact.rack, &contact.interface, &contact.socket];
    if contact.host.is_empty() || !texts.into_iter().all(is_text) {
        return Err(format!(
            "host, rack, interface and socket are texts of up to {TEXT_MAX} bytes, and there is a host"
        ));
    }
    let is_address = |address: &str| {
        let address = address.parse::<std::net::IpAddr>();
        address.is_ok_and(|address| !address.is_unspecified() && !address.is_multicast())
    };
    if !contact.address.is_empty() && !is_address(&contact.address) {
        return Err(format!(
            "{:?} is no address that others can send to",
            contact.address
        ));
    }
    let is_good_link = match contact.link_address[..] {
        [] => contact.interface.is_empty(),
        [first, _, _, _, _, _] => first & 1 == 0 && !contact.interface.is_empty(),
        _ => false,
    };
    if !is_good_link {
        return Err("an interface has a link address of 6 bytes, of one interface".to_owned());
    }
    let runtimes = u16::try_from(request.runtimes).unwrap_or(0);
    let plan = request.plan.filter(is_plan);
    let Some(plan) = plan.filter(|_| (1..=RUNTIMES_MAX).contains(&runtimes.into())) else {
        return Err(format!(
            "a member has 1 to {RUNTIMES_MAX} runtimes, and says how many its configuration lists"
        ));
    };
    let contact = proto::Contact {
        member,
        workers: Vec::new(),
        ..contact
    };
    Ok(Enlisting {
        contact,
        runtimes,
        plan,
    })
}

fn notification(newest: &Published) -> Notification {
    Notification {
        view: Some(newest.view.clone()),
        suspects: Some(newest.suspects.clone()),
        configuration: Some(newest.configuration.clone()),
        contacts: newest.contacts.clone(),
        loads: newest.loads.clone(),
        sharing: newest.sharing.clone(),
    }
}

#[tonic::async_trait]
impl Coordinator for Service {
    async fn enrol(&self, request: Request<proto::EnrolRequest>) -> Answered<proto::EnrolAnswer> {
        let peer = Self::peer(&request).ok_or_else(|| Status::internal("a call without a connection"))?;
        let request = request.into_inner();
        let refuse = |refusal, why: String| Err(self.refuse(Some(&peer), refusal, why));
        let token = match Token::read(&request.token) {
            Ok(token) => token,
            Err(why) => return refuse(Refusal::TokenForged, why.to_string()),
        };
        if let Err(refusal) = token.judge(&self.authority, since_1970()) {
            return refuse(
                refusal,
                "the token is over or another cluster's; get another one".to_owned(),
            );
        }
        // Judged before the token is used up.
        let caller = Caller::Member(token.member.clone());
        let certificate = self
            .authority
            .certify(&caller, &request.public_key, self.certificates);
        let certificate = match certificate {
            Ok(certificate) => certificate,
            Err(why) => return refuse(Refusal::Malformed, why.to_string()),
        };
        let (id, expires) = (token.id, token.expires);
        self.ask(&peer, Question::Token { id, expires }).await?;
        Ok(Response::new(proto::EnrolAnswer { certificate }))
    }

    async fn join(&self, request: Request<proto::JoinRequest>) -> Answered<proto::JoinAnswer> {
        let (peer, member) = self.member(&request, "Join")?;
        let request = request.into_inner();
        let roles: Option<Vec<_>> = request
            .roles
            .iter()
            .map(|role| translate::to_role(*role))
            .collect();
        let roles = roles.filter(|roles| (1..=MEMBERS_WORKERS_MAX).contains(&roles.len()));
        let is_incarnation = (1..translate::INCARNATIONS_END).contains(&request.incarnation)
            && request.first <= request.incarnation;
        let Some(roles) = roles.filter(|_| is_incarnation) else {
            let why = format!(
                "a member has 1 to {MEMBERS_WORKERS_MAX} switches and runtimes, and an incarnation above 0 and below 2^63 - 1, not \
                 below the first of its file"
            );
            return Err(self.refuse(Some(&peer), Refusal::Malformed, why));
        };
        let numbers: Option<Vec<u16>> = request
            .numbers
            .iter()
            .map(|number| u16::try_from(*number).ok())
            .collect();
        let numbers = numbers.filter(|numbers| numbers.is_empty() || numbers.len() == roles.len());
        let Some(numbers) = numbers else {
            let why = "a number for each worker, or none, and none above 65535".to_owned();
            return Err(self.refuse(Some(&peer), Refusal::Malformed, why));
        };
        let question = Question::Join {
            member,
            incarnation: Incarnation(request.incarnation),
            first: request.first,
            roles,
            numbers,
            plan: request.plan.filter(is_plan),
        };
        let DeciderAnswer::Done(incarnations) = self.ask(&peer, question).await? else {
            return Err(Status::internal("another answer"));
        };
        let newest = self.newest.borrow().view.clone();
        Ok(Response::new(proto::JoinAnswer {
            workers: translate::workers(&incarnations),
            view: Some(newest),
            lease: self.lease,
        }))
    }

    async fn enlist(&self, request: Request<proto::EnlistRequest>) -> Answered<proto::EnlistAnswer> {
        let (peer, member) = self.member(&request, "Enlist")?;
        let enlisting = match enlisting(member, request.into_inner()) {
            Ok(enlisting) => enlisting,
            Err(why) => return Err(self.refuse(Some(&peer), Refusal::Malformed, why)),
        };
        match self.ask(&peer, Question::Enlist(Box::new(enlisting))).await? {
            DeciderAnswer::Enlisted(answer) => Ok(Response::new(*answer)),
            _ => Err(Status::internal("another answer")),
        }
    }

    async fn poll_workload(
        &self,
        request: Request<Streaming<proto::Workload>>,
    ) -> Answered<proto::PollWorkloadAnswer> {
        let (_, member) = self.member(&request, "PollWorkload")?;
        let mut workloads = request.into_inner();
        while let Some(workload) = workloads.message().await? {
            if !self.handle.workload(&member, workload) {
                self.refused.count(Refusal::Busy);
            }
        }
        Ok(Response::new(proto::PollWorkloadAnswer {}))
    }

    type NotifyViewStream = Pin<Box<dyn Stream<Item = Result<Notification, Status>> + Send>>;

    async fn notify_view(
        &self,
        request: Request<proto::NotifyViewRequest>,
    ) -> Answered<Self::NotifyViewStream> {
        self.operator(&request, "NotifyView", Right::Read, true)?;
        // Of notifications that come while the caller reads nothing, the newest stays.
        let newest = WatchStream::new(self.newest.clone());
        let newest = newest.map(|newest| Ok(notification(&newest)));
        Ok(Response::new(Box::pin(newest)))
    }

    async fn leave(&self, request: Request<proto::LeaveRequest>) -> Answered<proto::LeaveAnswer> {
        let (peer, member) = self.member(&request, "Leave")?;
        let incarnation = Incarnation(request.into_inner().incarnation);
        self.kept.look_last(&self.relay, &member, self.keeper).await;
        let question = Question::Leave { member, incarnation };
        self.ask(&peer, question).await?;
        Ok(Response::new(proto::LeaveAnswer {}))
    }

    async fn drain(&self, request: Request<proto::DrainRequest>) -> Answered<proto::DrainAnswer> {
        let peer = self.operator(&request, "Drain", Right::Operate, false)?;
        let member = request.into_inner().member;
        if !is_name(&member) {
            let why = "a member's name is up to 63 small letters, digits and `-`";
            return Err(self.refuse(Some(&peer), Refusal::Malformed, why));
        }
        self.ask(&peer, Question::Drain { member }).await?;
        Ok(Response::new(proto::DrainAnswer {}))
    }

    async fn resume(&self, request: Request<proto::ResumeRequest>) -> Answered<proto::ResumeAnswer> {
        let peer = self.operator(&request, "Resume", Right::Operate, false)?;
        let member = request.into_inner().member;
        if !is_name(&member) {
            let why = "a member's name is up to 63 small letters, digits and `-`";
            return Err(self.refuse(Some(&peer), Refusal::Malformed, why));
        }
        self.ask(&peer, Question::Resume { member }).await?;
        Ok(Response::new(proto::ResumeAnswer {}))
    }

    async fn status(&self, request: Request<proto::StatusRequest>) -> Answered<proto::StatusAnswer> {
        let peer = self.operator(&request, "Status", Right::Read, true)?;
        match self.ask(&peer, Question::Status).await? {
            DeciderAnswer::Status(mut status) => {
                status.serving = self.relay.serving();
                status.counted = self.kept.members();
                Ok(Response::new(*status))
            }
            _ => Err(Status::internal("another answer")),
        }
    }

    type ServeStream = Pin<Box<dyn Stream<Item = Result<proto::Asked, Status>> + Send>>;

    async fn serve(&self, request: Request<Streaming<proto::Served>>) -> Answered<Self::ServeStream> {
        let (_, member) = self.member(&request, "Serve")?;
        let asked = self.relay.serve(&member, request.into_inner());
        Ok(Response::new(Box::pin(ReceiverStream::new(asked).map(Ok))))
    }

    async fn relay(&self, request: Request<proto::RelayRequest>) -> Answered<proto::RelayAnswer> {
        // Without any right the request is not looked at.
        let peer = self.operator(&request, "Relay", Right::Read, false)?;
        let proto::RelayRequest { member, request } = request.into_inner();
        self.may_relay(&peer, &member, &request)?;
        match self.relay.ask(&member, request).await {
            Ok(answer) => Ok(Response::new(proto::RelayAnswer { answer })),
            Err((refusal, why)) => Err(self.refuse(Some(&peer), refusal, why)),
        }
    }

    async fn counted(&self, request: Request<proto::CountedRequest>) -> Answered<proto::CountedAnswer> {
        self.operator(&request, "Counted", Right::Operate, false)?;
        let counts = self.kept.of(&request.into_inner().member);
        Ok(Response::new(proto::CountedAnswer { counts }))
    }

    async fn configure(&self, request: Request<proto::ConfigureRequest>) -> Answered<proto::ConfigureAnswer> {
        let peer = self.operator(&request, "Configure", Right::Admin, false)?;
        let proto::ConfigureRequest { view, configuration } = request.into_inner();
        let Some(configuration) = configuration.filter(is_configuration) else {
            let why = format!(
                "a configuration has a digest of hexadecimal digits and a text of up to {REQUEST_MAX} bytes; a trial of 1 s to 24 h"
            );
            return Err(self.refuse(Some(&peer), Refusal::Malformed, why));
        };
        let configuration = Box::new(configuration);
        let question = Question::Configure { view, configuration };
        self.ask(&peer, question).await?;
        Ok(Response::new(proto::ConfigureAnswer {}))
    }

    async fn confirm(&self, request: Request<proto::ConfirmRequest>) -> Answered<proto::ConfirmAnswer> {
        let peer = self.operator(&request, "Confirm", Right::Admin, false)?;
        match self.ask(&peer, Question::Confirm).await? {
            DeciderAnswer::Configuration(configuration) => Ok(Response::new(proto::ConfirmAnswer {
                number: configuration.number,
            })),
            _ => Err(Status::internal("another answer")),
        }
    }

    async fn configuration(
        &self,
        request: Request<proto::ConfigurationRequest>,
    ) -> Answered<proto::Configuration> {
        let peer = self.operator(&request, "Configuration", Right::Admin, true)?;
        match self.ask(&peer, Question::Configuration).await? {
            DeciderAnswer::Configuration(configuration) => Ok(Response::new(*configuration)),
            _ => Err(Status::internal("another answer")),
        }
    }

    async fn make_token(
        &self,
        request: Request<proto::MakeTokenRequest>,
    ) -> Answered<proto::MakeTokenAnswer> {
        let peer = self.operator(&request, "MakeToken", Right::Admin, false)?;
        let request = request.into_inner();
        let valid = (1..=TOKEN_MAX).contains(&request.valid);
        let valid = valid.then_some(Duration::from_secs(request.valid));
        let token =
            valid.and_then(|valid| Token::make(&self.authority, &request.member, since_1970(), valid));
        match token {
            Some(token) => Ok(Response::new(proto::MakeTokenAnswer { token })),
            None => {
                let why = "a token is for a name of up to 63 small letters, digits and `-`, and for \
                           1 second to 7 days";
                Err(self.refuse(Some(&peer), Refusal::Malformed, why))
            }
        }
    }

    async fn set_migration_target(
        &self,
        request: Request<proto::SetMigrationTargetRequest>,
    ) -> Answered<proto::SetMigrationTargetAnswer> {
        let peer = self.operator(&request, "SetMigrationTarget", Right::Operate, false)?;
        let answer = self.migrate(&peer, request.into_inner()).await?;
        Ok(Response::new(proto::SetMigrationTargetAnswer {
            answer: Some(answer),
        }))
    }

    async fn set_replicas(
        &self,
        request: Request<proto::SetReplicasRequest>,
    ) -> Answered<proto::SetReplicasAnswer> {
        let peer = self.operator(&request, "SetReplicas", Right::Operate, false)?;
        let answers = self.replicate(&peer, request.into_inner()).await?;
        Ok(Response::new(proto::SetReplicasAnswer { answers }))
    }

    async fn recover(&self, request: Request<proto::RecoverRequest>) -> Answered<proto::RecoverAnswer> {
        let peer = self.operator(&request, "Recover", Right::Operate, false)?;
        let runtime = self.number(&peer, request.into_inner().runtime)?;
        self.ask(&peer, Question::Recover { runtime }).await?;
        let view = self.newest.borrow().view.number;
        Ok(Response::new(proto::RecoverAnswer { view }))
    }
}
