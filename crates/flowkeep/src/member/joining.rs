//! How a member joins a cluster with a coordinator: certificates by token, then a member slot for
//! each of its workers.
//!
//! ```text
//!   --join A,B --token WORD      no certificate yet ─► Enrol, once ─► ca.pem, NAME.pem, NAME.key in the identity's directory
//!   --join A,B                   the certificate of the directory
//!                                ─► Join, when the workers are made ─► member slots ─► first step
//! ```
//!
//! The identity's directory is the one named, or `MEMBER.identity` where the member remembers its
//! incarnation. Where it has a certificate, a token is not looked at: a process that begins again
//! has used it.
//!
//! Numbers of workers are those of the configuration ([`crate::config::layout`]): the coordinator
//! is asked for them, and refuses another member's numbers.
//!
//! Not here: the agent (`coordinator::agent`).

use super::incarnation::Incarnation;
use crate::config::layout::{Layout, WorkerId};
use crate::log::{Later, Level};
use coordinator::agent::{
    Agent, AgentError, AgentEvent, AgentSettings, Answerer, CallError, Contacts, Decided, Loads, MemberSlot,
    Serving, configuration_at, enlist_at, enrol_at,
};
use coordinator::identity::{Authority, AuthorityError, Identity, Token, write_private};
use coordinator::proto::{Configuration, EnlistAnswer, EnlistRequest, Plan};
use protocols::membership::{self, Role};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long to try: a coordinator may be starting, and the incarnation before of this member must
/// be fenced.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two heartbeats.
const HEARTBEAT: Duration = Duration::from_millis(10);
/// A coordinator ends a connection after an hour; a sixth of this at most is each member's share.
const RENEWAL: Duration = Duration::from_secs(50 * 60);

/// The options of a command line for joining.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// Where coordinators may be.
    pub coordinators: Vec<String>,
    /// For the first time.
    pub token: Option<String>,
    /// Where the certificate is, or goes.
    pub identity: Option<PathBuf>,
}

/// Why a member does not join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The certificate's files.
    #[error("{0}")]
    Identity(#[from] AuthorityError),
    /// There is no certificate and no token.
    #[error("{} has no certificate of member `{member}`; get a token with: flowkeep cluster token DIRECTORY --member {member}, and give it with --token", directory.display())]
    NoToken {
        /// Where it would be.
        directory: PathBuf,
        /// The member.
        member: String,
    },
    /// The token is no good, or no coordinator answers.
    #[error("not enrolled: {0}")]
    NotEnrolled(CallError),
    /// The token is another member's.
    #[error("the token is of member `{of}`, and this is `{member}`")]
    OtherMember {
        /// The token's.
        of: String,
        /// This one.
        member: String,
    },
    /// The folder for the certificate is an authority's own, and the token is of another.
    #[error(
        "the token is of another cluster than the authority whose key is in {}; name another \
         folder with --identity",
        .0.display()
    )]
    OtherCluster(PathBuf),
    /// No member slot.
    #[error("{0}")]
    NotJoined(#[from] AgentError),
    /// The configuration in force is not known.
    #[error("the coordinator does not say which configuration is in force: {0}")]
    NoConfiguration(CallError),
    /// The configuration in force cannot be taken on.
    #[error("configuration {number} of the cluster is in force, and this member cannot take it on: {why}")]
    Configuration {
        /// Which.
        number: u64,
        /// Why not, and the remedy.
        why: String,
    },
    /// The coordinator gives it no numbers.
    #[error("the coordinator gives this member no numbers: {0}")]
    NotEnlisted(CallError),
    /// Its settings or its version differ from those of the others.
    #[error("this member differs from those that run in: {0}; give it their file and their version")]
    Differs(String),
    /// Something of this host.
    #[error("{0}")]
    Other(String),
    /// Other numbers than the configuration's.
    #[error("the coordinator gives {given}, and the configuration says {planned}")]
    Numbers {
        /// The numbers that it gives.
        given: String,
        /// The numbers that were asked for.
        planned: String,
    },
}

/// A member that has a certificate.
#[derive(Clone)]
pub struct Joining {
    coordinators: Vec<String>,
    identity: Identity,
    decided: Arc<Decided>,
    contacts: Arc<Contacts>,
    /// Of a member that the configuration lists: the plan of the cluster by it.
    pub plan: Option<Plan>,
    loads: Arc<Loads>,
}

impl std::fmt::Debug for Joining {
    // The key is never printed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Joining")
            .field("coordinators", &self.coordinators)
            .finish_non_exhaustive()
    }
}

impl Joining {
    /// Reads the certificate of the identity's directory, or gets one by the token.
    pub fn prepare(words: &Words, state: &Path, member: &str) -> Result<Self, JoinError> {
        let own = || state.join(format!("{member}.identity"));
        let directory = words.identity.clone().unwrap_or_else(own);
        let has_one = parts_of(&directory, member).iter().all(|part| part.exists());
        let identity = match (&words.token, has_one) {
            (_, true) => Identity::read(&directory, member)?,
            (Some(token), false) => enrol(words, token, &directory, member)?,
            (None, false) => {
                let member = member.to_owned();
                return Err(JoinError::NoToken { directory, member });
            }
        };
        Ok(Joining {
            coordinators: words.coordinators.clone(),
            identity,
            decided: Arc::default(),
            contacts: Arc::default(),
            plan: None,
            loads: Arc::default(),
        })
    }

    /// How the members are reached that no configuration lists.
    pub fn contacts(&self) -> Arc<Contacts> {
        self.contacts.clone()
    }

    /// Has a member that no configuration lists get numbers, of a coordinator that may be starting.
    pub fn enlist(&self, request: &EnlistRequest) -> Result<EnlistAnswer, JoinError> {
        let answer = enlist_at(&self.coordinators, &self.identity, request, PATIENCE);
        answer.map_err(JoinError::NotEnlisted)
    }

    /// Which configuration was decided, and which one this member has in force.
    pub fn decided(&self) -> Arc<Decided> {
        self.decided.clone()
    }

    /// The loads of the cluster's runtimes.
    pub fn loads(&self) -> Arc<Loads> {
        self.loads.clone()
    }

    /// The configuration that was decided last, of a coordinator that may be starting.
    pub fn configuration_at_start(&self) -> Result<Configuration, JoinError> {
        let asked = configuration_at(&self.coordinators, &self.identity, PATIENCE);
        asked.map_err(JoinError::NoConfiguration)
    }

    /// The same while the member runs: it asks again by itself.
    pub fn configuration(&self) -> Result<Configuration, CallError> {
        configuration_at(&self.coordinators, &self.identity, Duration::ZERO)
    }

    /// Answers operators' requests to this member by the coordinator, as long as the returned value
    /// lives.
    pub fn serve(self, answerer: Answerer) -> std::io::Result<Serving> {
        Serving::start(self.coordinators, self.identity, answerer)
    }

    /// Joins: the agent, and a member slot for each worker of this process.
    pub fn join(
        self,
        layout: &Layout,
        incarnation: &Incarnation,
    ) -> Result<(Agent, Vec<(WorkerId, MemberSlot)>), JoinError> {
        let switches = layout.switches_here.clone().map(|number| (Role::Switch, number));
        let runtimes = layout.runtimes_here.clone().map(|number| (Role::Runtime, number));
        let planned: Vec<membership::WorkerId> = switches
            .chain(runtimes)
            .map(|(role, number)| membership::WorkerId {
                role,
                number: number as u16,
            })
            .collect();
        // The agent's thread never waits for a reader of standard error.
        let lines = Later::begin();
        let settings = AgentSettings {
            coordinators: self.coordinators,
            identity: self.identity,
            incarnation: incarnation.number(),
            first: incarnation.first(),
            roles: planned.iter().map(|id| id.role).collect(),
            numbers: planned.iter().map(|id| id.number).collect(),
            plan: self.plan,
            contacts: self.contacts,
            heartbeat: HEARTBEAT,
            renewal: RENEWAL,
            patience: PATIENCE,
            decided: self.decided,
            loads: self.loads,
            keep: incarnation.keeper(),
            events: Arc::new(move |event| say(&lines, event)),
        };
        let (agent, member_slots) = Agent::join(settings)?;
        let given: Vec<membership::WorkerId> = member_slots.iter().map(MemberSlot::id).collect();
        if given != planned {
            return Err(JoinError::Numbers {
                given: format!("{given:?}"),
                planned: format!("{planned:?}"),
            });
        }
        let of = |member_slot: MemberSlot| {
            let number = member_slot.id().number.into();
            let id = match member_slot.id().role {
                Role::Switch => WorkerId::Switch(number),
                Role::Runtime => WorkerId::Runtime(number),
            };
            (id, member_slot)
        };
        Ok((agent, member_slots.into_iter().map(of).collect()))
    }
}

/// A member's certificate, and its key.
fn parts_of(directory: &Path, member: &str) -> [PathBuf; 2] {
    ["pem", "key"].map(|part| directory.join(format!("{member}.{part}")))
}

fn enrol(words: &Words, token: &str, directory: &Path, member: &str) -> Result<Identity, JoinError> {
    // A token is good once: all checks that can be made before it is used are.
    let read = Token::read(token).map_err(|why| JoinError::NotEnrolled(why.into()))?;
    if read.member != member {
        let (of, member) = (read.member, member.to_owned());
        return Err(JoinError::OtherMember { of, member });
    }
    // An authority whose key is here needs its own certificate.
    if directory.join("ca.key").exists()
        && !Authority::read(directory).is_ok_and(|own| own.fingerprint() == read.fingerprint)
    {
        return Err(JoinError::OtherCluster(directory.to_owned()));
    }
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory);
    made.map_err(|source| AuthorityError::File {
        path: directory.to_owned(),
        source,
    })?;
    let probe = directory.join(format!("{member}.probe"));
    let _ = std::fs::remove_file(&probe);
    // As much as a certificate and its key need.
    write_private(&probe, &" ".repeat(4096))?;
    let _ = std::fs::remove_file(&probe);
    let (_, identity) = enrol_at(&words.coordinators, token, PATIENCE).map_err(JoinError::NotEnrolled)?;
    keep_authority(&identity.authority, directory, member)?;
    // A certificate without its key, or a key without its certificate, is of a start that was
    // killed between the two.
    for part in parts_of(directory, member) {
        let _ = std::fs::remove_file(part);
    }
    identity.write(directory, member)?;
    Ok(identity)
}

/// Writes the authority's certificate, if it is not there. The token has vouched for it by its
/// fingerprint: one of an earlier cluster gives way, since the next start goes by this file alone.
fn keep_authority(certificate: &str, directory: &Path, member: &str) -> Result<(), JoinError> {
    let path = directory.join("ca.pem");
    let is_same = std::fs::read_to_string(&path).is_ok_and(|there| there == certificate);
    // Beside its key it is the same in other words.
    if is_same || directory.join("ca.key").exists() {
        return Ok(());
    }
    // Not in place: a start that is killed leaves one of the two whole.
    let new = directory.join(format!("{member}.authority"));
    let _ = std::fs::remove_file(&new);
    write_private(&new, certificate)?;
    let renamed = std::fs::rename(&new, &path);
    renamed.map_err(|source| AuthorityError::File { path, source }.into())
}

/// Lines for people, on standard error.
fn say(lines: &Later, event: AgentEvent) {
    match event {
        AgentEvent::Attends(address) => {
            lines.say(Level::Info, format_args!("the coordinator at {address} is heard"))
        }
        AgentEvent::Alone(why) => lines.say(
            Level::Warn,
            format_args!("no coordinator is heard, and the cluster goes on: {why}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coordinator::identity::Caller;
    use coordinator::log::Embedded;
    use coordinator::server::{CoordinatorSettings, Server};
    use std::os::unix::fs::MetadataExt;

    /// A token is good once, so it is not shown for a member that it is not of, nor where the
    /// certificate has no place.
    #[test]
    fn a_token_that_cannot_be_used_here_is_not_used_up() {
        let minute = Duration::from_secs(60);
        let authority = Authority::create(minute).unwrap();
        let now = coordinator::server::since_1970();
        let token = Token::make(&authority, "left", now, minute);
        let state = std::env::temp_dir().join(format!("flowkeep-token-{}", std::process::id()));
        let words = |identity: &Path| Words {
            // No process listens there.
            coordinators: vec!["127.0.0.1:1".to_owned()],
            token: token.clone(),
            identity: Some(identity.to_owned()),
        };
        let other = Joining::prepare(&words(&state), &state, "front").unwrap_err();
        assert!(matches!(other, JoinError::OtherMember { .. }), "{other}");
        let nowhere = Joining::prepare(&words(Path::new("/proc/nowhere")), &state, "left").unwrap_err();
        assert!(matches!(nowhere, JoinError::Identity(_)), "{nowhere}");
    }

    /// A coordinator of an authority in this process, with its log in a folder.
    fn coordinator(authority: &Authority, folder: &Path) -> Server {
        let year = Duration::from_secs(365 * 86_400);
        let own = authority.issue(&Caller::Coordinator, year).unwrap();
        authority.write(folder).unwrap();
        own.write(folder, "coordinator").unwrap();
        let at = "127.0.0.1:0".parse().unwrap();
        let mut settings = CoordinatorSettings::read(folder, at, Arc::new(|_| ())).unwrap();
        settings.timing.settling = 1_000_000;
        let log = Embedded::open(&folder.join("log")).unwrap();
        Server::start(settings, Box::new(log)).unwrap()
    }

    /// The token vouches for the authority that its coordinator shows; a file of an earlier cluster
    /// is not what the next start goes by.
    #[test]
    fn a_certificate_of_another_authority_gives_way_at_the_enrolment() {
        let minute = Duration::from_secs(60);
        let place = std::env::temp_dir().join(format!("flowkeep-authority-{}", std::process::id()));
        let [cluster, left] = ["cluster", "left"].map(|name| place.join(name));
        std::fs::create_dir_all(&cluster).unwrap();
        std::fs::create_dir_all(&left).unwrap();
        let [before, now] = [(); 2].map(|()| Authority::create(minute).unwrap());
        let server = coordinator(&now, &cluster);
        let old = before.issue(&Caller::Member("left".into()), minute).unwrap();
        write_private(&left.join("ca.pem"), &old.authority).unwrap();
        let mut words = Words {
            coordinators: vec![server.address().to_string()],
            token: Token::make(&now, "left", coordinator::server::since_1970(), minute),
            identity: Some(left.clone()),
        };
        let first = Joining::prepare(&words, &place, "left").unwrap();
        first.configuration().unwrap();
        words.token = None;
        let again = Joining::prepare(&words, &place, "left").unwrap();
        again.configuration().unwrap();
        let mode = std::fs::metadata(left.join("ca.pem")).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        let mut files: Vec<_> = std::fs::read_dir(&left).unwrap().flatten().collect();
        files.sort_by_key(std::fs::DirEntry::file_name);
        let files: Vec<_> = files.iter().map(std::fs::DirEntry::file_name).collect();
        assert_eq!(files, ["ca.pem", "left.key", "left.pem"]);
        drop(server);
        std::fs::remove_dir_all(&place).unwrap();
    }

    /// Where an authority's key is, its certificate stays, and the token of another is not used up.
    #[test]
    fn an_authoritys_own_folder_is_not_given_anothers_certificate() {
        let minute = Duration::from_secs(60);
        let place = std::env::temp_dir().join(format!("flowkeep-own-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        let [own, other] = [(); 2].map(|()| Authority::create(minute).unwrap());
        own.write(&place).unwrap();
        let before = std::fs::read_to_string(place.join("ca.pem")).unwrap();
        let words = Words {
            // No process listens there.
            coordinators: vec!["127.0.0.1:1".to_owned()],
            token: Token::make(&other, "left", coordinator::server::since_1970(), minute),
            identity: Some(place.clone()),
        };
        let refused = Joining::prepare(&words, &place, "left").unwrap_err();
        assert!(matches!(refused, JoinError::OtherCluster(_)), "{refused}");
        assert_eq!(std::fs::read_to_string(place.join("ca.pem")).unwrap(), before);
        std::fs::remove_dir_all(&place).unwrap();
    }
}
