//! Why something is refused: a closed list, by names that operators see and that are counted.

use std::sync::atomic::{AtomicU64, Ordering};
use tonic::{Code, Status};

/// A reason to refuse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Refusal {
    /// The bytes that came in are no TLS.
    NotTls,
    /// The handshake took too long.
    SlowHandshake,
    /// As many connections as may are there.
    Connections,
    /// The certificate's time is over.
    CertificateExpired,
    /// The certificate is not of this cluster.
    CertificateUnknown,
    /// The certificate names no role.
    CertificateRole,
    /// The call needs a certificate.
    NoCertificate,
    /// The certificate's role has no right to the call.
    Role,
    /// The token was used before.
    TokenReplayed,
    /// The token's time is over.
    TokenExpired,
    /// The token is not of this cluster, or was changed.
    TokenForged,
    /// The worker is another member's.
    Foreign,
    /// The incarnation is not above that of an earlier incarnation.
    Incarnation,
    /// A number, a name or a list is not as it must be.
    Malformed,
    /// The number that a worker wishes for is another's.
    NumberTaken,
    /// There are as many workers as may be.
    Full,
    /// Too many ask at once.
    Busy,
    /// The coordinator has just begun.
    Settling,
    /// The log takes no records.
    LogUnwritable,
    /// Members know more than the log.
    LogBehind,
    /// There is no member of this name.
    NoMember,
    /// The request was not decided in time.
    Late,
    /// The member has no connection by which it answers requests.
    MemberAway,
    /// The member has not answered a request in time.
    MemberSilent,
    /// The member has as many requests under way as it may.
    MemberBusy,
    /// Answering a request has failed at the member.
    MemberFailed,
    /// The member's answer is longer than may be.
    TooLong,
    /// A request that is of one process.
    OneProcess,
    /// Another configuration, or another view, was decided meanwhile.
    Overtaken,
    /// The member's name is another process's.
    NameTaken,
    /// The address is another member's, of another host.
    AddressTaken,
    /// The configuration has no room for more runtimes.
    NoRoom,
    /// The member's configuration or program is not that of the others.
    PlanDiffers,
    /// A configuration is on trial.
    OnTrial,
    /// No configuration is on trial.
    NoTrial,
    /// No configuration lists these workers, and they got no numbers as others do.
    NotListed,
}

/// All of them.
pub const ALL: [Refusal; 36] = [
    Refusal::NotTls,
    Refusal::SlowHandshake,
    Refusal::Connections,
    Refusal::CertificateExpired,
    Refusal::CertificateUnknown,
    Refusal::CertificateRole,
    Refusal::NoCertificate,
    Refusal::Role,
    Refusal::TokenReplayed,
    Refusal::TokenExpired,
    Refusal::TokenForged,
    Refusal::Foreign,
    Refusal::Incarnation,
    Refusal::Malformed,
    Refusal::NumberTaken,
    Refusal::Full,
    Refusal::Busy,
    Refusal::Settling,
    Refusal::LogUnwritable,
    Refusal::LogBehind,
    Refusal::NoMember,
    Refusal::Late,
    Refusal::MemberAway,
    Refusal::MemberSilent,
    Refusal::MemberBusy,
    Refusal::MemberFailed,
    Refusal::TooLong,
    Refusal::OneProcess,
    Refusal::Overtaken,
    Refusal::NameTaken,
    Refusal::AddressTaken,
    Refusal::NoRoom,
    Refusal::PlanDiffers,
    Refusal::OnTrial,
    Refusal::NoTrial,
    Refusal::NotListed,
];

impl Refusal {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Refusal::NotTls => "not-tls",
            Refusal::SlowHandshake => "slow-handshake",
            Refusal::Connections => "too-many-connections",
            Refusal::CertificateExpired => "certificate-expired",
            Refusal::CertificateUnknown => "certificate-unknown",
            Refusal::CertificateRole => "certificate-without-role",
            Refusal::NoCertificate => "no-certificate",
            Refusal::Role => "role-without-right",
            Refusal::TokenReplayed => "token-replayed",
            Refusal::TokenExpired => "token-expired",
            Refusal::TokenForged => "token-forged",
            Refusal::Foreign => "worker-of-another-member",
            Refusal::Incarnation => "incarnation-over",
            Refusal::Malformed => "malformed",
            Refusal::NumberTaken => "number-taken",
            Refusal::Full => "too-many-workers",
            Refusal::Busy => "busy",
            Refusal::Settling => "settling",
            Refusal::LogUnwritable => "log-unwritable",
            Refusal::LogBehind => "log-behind",
            Refusal::NoMember => "no-such-member",
            Refusal::Late => "not-decided-in-time",
            Refusal::MemberAway => "member-away",
            Refusal::MemberSilent => "member-silent",
            Refusal::MemberBusy => "member-busy",
            Refusal::MemberFailed => "member-failed",
            Refusal::TooLong => "answer-too-long",
            Refusal::OneProcess => "of-one-process",
            Refusal::Overtaken => "overtaken",
            Refusal::NameTaken => "name-taken",
            Refusal::AddressTaken => "address-taken",
            Refusal::NoRoom => "no-free-number",
            Refusal::PlanDiffers => "settings-differ",
            Refusal::OnTrial => "on-trial",
            Refusal::NoTrial => "not-on-trial",
            Refusal::NotListed => "not-listed",
        }
    }

    const fn code(self) -> Code {
        match self {
            Refusal::NoCertificate
            | Refusal::TokenReplayed
            | Refusal::TokenExpired
            | Refusal::TokenForged
            | Refusal::CertificateRole => Code::Unauthenticated,
            Refusal::Role | Refusal::Foreign | Refusal::NotListed => Code::PermissionDenied,
            Refusal::Incarnation
            | Refusal::NumberTaken
            | Refusal::OneProcess
            | Refusal::Overtaken
            | Refusal::NameTaken
            | Refusal::AddressTaken
            | Refusal::OnTrial
            | Refusal::NoTrial
            | Refusal::PlanDiffers => Code::FailedPrecondition,
            Refusal::NoRoom => Code::ResourceExhausted,
            Refusal::Malformed => Code::InvalidArgument,
            Refusal::Full | Refusal::Busy | Refusal::Connections | Refusal::MemberBusy | Refusal::TooLong => {
                Code::ResourceExhausted
            }
            Refusal::NoMember => Code::NotFound,
            Refusal::Late | Refusal::MemberSilent => Code::DeadlineExceeded,
            Refusal::MemberFailed => Code::Internal,
            _ => Code::Unavailable,
        }
    }

    /// The answer to a call: the name, and what a person can do about it.
    pub fn status(self, text: impl std::fmt::Display) -> Status {
        Status::new(self.code(), format!("{}: {text}", self.name()))
    }
}

/// Whether an answer refuses by this name.
pub fn is(status: &Status, refusal: Refusal) -> bool {
    let name = status.message().split(':').next();
    name == Some(refusal.name())
}

/// Where an answer by [`Refusal::Incarnation`] has the newest incarnation.
const NEWEST: &str = "flowkeep-newest-incarnation";

/// An answer with the newest incarnation of the member: the next one is to be above it.
pub fn behind(newest: u64, mut status: Status) -> Status {
    status.metadata_mut().insert(NEWEST, newest.into());
    status
}

/// The newest incarnation of the member that was refused, if the answer has it.
pub fn newest(status: &Status) -> Option<u64> {
    let newest = status.metadata().get(NEWEST)?;
    newest.to_str().ok()?.parse().ok()
}

/// How often each was given.
#[derive(Debug)]
pub struct Refusals([AtomicU64; ALL.len()]);

impl Default for Refusals {
    fn default() -> Self {
        Refusals(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Refusals {
    /// Counts one.
    pub fn count(&self, refusal: Refusal) {
        self.0[refusal as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The refusals that were given, by name.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = ALL.iter().zip(&self.0);
        let counts = counts.map(|(refusal, count)| (refusal.name(), count.load(Ordering::Relaxed)));
        counts.filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_own_name_and_place() {
        let names: std::collections::BTreeSet<_> = ALL.iter().map(|refusal| refusal.name()).collect();
        assert_eq!(names.len(), ALL.len());
        for (place, refusal) in ALL.iter().enumerate() {
            assert_eq!(*refusal as usize, place);
        }
    }

    #[test]
    fn an_answer_is_known_by_its_name() {
        let status = Refusal::Busy.status("try again");
        assert!(is(&status, Refusal::Busy) && !is(&status, Refusal::Full));
    }
}
