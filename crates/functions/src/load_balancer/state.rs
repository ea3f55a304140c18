//! The load balancer's state of a flow: 12 bytes, all committed.
//!
//! ```text
//!             no service                       reply          client's next
//!   New ────────────────────▶ Passed    Opening ─────▶ Answered ───────────▶ Established
//!    │ TCP service                        ▲  ▲                                  │
//!    ├────────────────────────────────────┘  │ SYN of the client                │ FIN both ways
//!    │ UDP service                           └──────────── Closing ◀────────────┘
//!    └──────────▶ Datagram                                    ▲
//!                                              RST in any phase
//! ```
//!
//! The phase is there for the timeout alone: a load balancer needs no opinion about windows, and a
//! forged RST here only shortens how long an idle flow is remembered.
//!
//! Invariant: in the phases from `Datagram` on, the flow is counted at exactly one runtime under
//! `backend` (`tests::oracle::counts_follow_the_flows`).
//!
//! Not here: checks of a TCP packet's sequence numbers (the firewall's).

use core::time::Duration;
use nf::{Direction, FlowState, Plain};
use wire::tcp::flags::{ACK, FIN, RST, SYN};

/// How far a flow is.
#[derive(Plain, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[repr(u8)]
pub enum Phase {
    /// No packet has been looked at.
    #[default]
    New = 0,
    /// The flow is no service's. 60 s; to forget such a flow changes nothing.
    Passed = 1,
    /// UDP: 5 min (RFC 4787 REQ-5).
    Datagram = 2,
    /// The client has sent: 4 min, as all that is not established (RFC 5382 REQ-5).
    Opening = 3,
    /// The server has answered, the client not yet confirmed: 4 min.
    Answered = 4,
    /// Both have sent: 2 h 4 min (RFC 5382 REQ-5).
    Established = 5,
    /// Both sides have sent FIN, or one RST: 4 min (RFC 7857 2.1).
    Closing = 6,
}

/// State of a flow.
#[derive(FlowState, Default, Clone, Copy, PartialEq, Eq, Debug)]
#[flow_state(version = 1)]
#[repr(C)]
pub struct Balanced {
    /// Which frontend and backend the indices mean, as a hash of both: an index from another worker
    /// or another configuration is looked up again when this does not fit it.
    pub identity: u32,
    /// Index into the backends.
    pub backend: u16,
    /// Index into the frontends (an address of a service).
    pub frontend: u16,
    /// The port that the client uses: of a range, the frontend does not say which.
    pub port: u16,
    /// How far the flow is.
    pub phase: Phase,
    /// Which ends have sent a FIN: 1 the client, 2 the server.
    pub fins: u8,
}

const _: () = assert!(size_of::<Balanced>() <= 16);

impl Balanced {
    /// Whether the flow has a server, and is counted there.
    #[inline]
    pub fn is_served(&self) -> bool {
        self.phase >= Phase::Datagram
    }

    /// Takes note of a TCP packet's flags.
    #[inline]
    pub fn on_tcp(&mut self, direction: Direction, flags: u8) {
        if self.phase == Phase::Established && flags & (SYN | FIN | RST) == 0 {
            return;
        }
        self.on_turn(direction, flags);
    }

    fn on_turn(&mut self, direction: Direction, flags: u8) {
        if flags & RST != 0 {
            self.phase = Phase::Closing;
            return;
        }
        if self.phase == Phase::Closing && direction == Direction::Opening && flags & (SYN | ACK) == SYN {
            self.phase = Phase::Opening;
            self.fins = 0;
            return;
        }
        if flags & FIN != 0 {
            self.fins |= if direction == Direction::Opening { 1 } else { 2 };
        }
        self.phase = match (self.phase, direction) {
            _ if self.fins == 3 => Phase::Closing,
            (Phase::Opening, Direction::Reply) => Phase::Answered,
            (Phase::Answered, Direction::Opening) if flags & SYN == 0 => Phase::Established,
            (phase, _) => phase,
        };
    }
}

impl Phase {
    /// How long a flow in this phase lives without a packet, unless a setting says otherwise.
    #[inline]
    pub fn timeout(self) -> Option<Duration> {
        let seconds = match self {
            Phase::New => return None,
            Phase::Passed => 60,
            Phase::Datagram => 5 * 60,
            Phase::Opening | Phase::Answered | Phase::Closing => 4 * 60,
            Phase::Established => 2 * 3600 + 4 * 60,
        };
        Some(Duration::from_secs(seconds))
    }
}
