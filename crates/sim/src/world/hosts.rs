//! The hosts: clients that ask and servers that answer, small but right enough for a stateful
//! firewall.
//!
//! A talk's requests are numbered through. A round is a few of them sent at once; when all are
//! answered, and some time has passed, the next round begins. A request that is not answered in
//! time is sent again, a bounded number of times.
//!
//! ```text
//!   TCP:  asking ──SYN, SYN+ACK──► talking ──all rounds──► closing ──FIN, FIN+ACK──► over
//!         all segments of a talk are of one size, so request n and answer n are at their first number + n × size: a segment in order
//!         is taken, an old request is answered again, an early one is left to be sent again (go back N)
//!   UDP, ping:  talking ──all rounds──► over
//! ```
//!
//! A host hears of nothing but frames and timers, and reads frames with its own eyes
//! ([`crate::frame`]); only which talk a frame belongs to is told it by the world, since a SYN does
//! not say.

use crate::Time;
use crate::frame::{End, Head, Label, Transport, flags};
use crate::script::{Manner, Talk};
use std::collections::BTreeMap;

/// How long an answer is waited for at first; doubled twice. The longest is below the shortest time
/// for which any function remembers a flow.
const PATIENCE: u64 = 25_000_000;
/// How often something is sent in vain.
const TRIES: u8 = 12;

/// Where a talk stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    NotBegun,
    Asking,
    Talking,
    Closing,
    /// All answered.
    Done,
    /// Given up, or reset.
    Failed,
}

/// The client's half of a talk.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub stage: Stage,
    /// Requests answered, a bit each.
    answered: u64,
    round: u16,
    tries: u8,
    /// The server's first sequence number.
    theirs: u32,
    /// Timers of before are over.
    pub timer: u32,
}

/// A host's wish.
pub(crate) enum Wish {
    /// Send a packet of this talk, with this payload if it is about a request.
    Send(Head, Option<Label>),
    /// Wake this talk's client after so long.
    Wake(u64),
    /// The talk is over, done or not.
    Over(bool),
}

impl Client {
    pub fn new() -> Self {
        Client {
            stage: Stage::NotBegun,
            answered: 0,
            round: 0,
            tries: 0,
            theirs: 0,
            timer: 0,
        }
    }

    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Done | Stage::Failed)
    }

    /// The talk begins, or a timer has run out.
    pub fn wake(&mut self, index: u16, talk: &Talk, wishes: &mut Vec<Wish>) {
        match self.stage {
            Stage::NotBegun => {
                self.stage = if talk.manner == Manner::Tcp {
                    Stage::Asking
                } else {
                    Stage::Talking
                };
            }
            Stage::Done | Stage::Failed => return,
            _ => {}
        }
        if self.tries >= TRIES {
            if talk.manner == Manner::Tcp {
                wishes.push(Wish::Send(
                    self.segment(talk, flags::RST | flags::ACK, self.next(talk)),
                    None,
                ));
            }
            return self.end(false, wishes);
        }
        match self.stage {
            Stage::Asking => wishes.push(Wish::Send(self.segment(talk, flags::SYN, first(talk)), None)),
            Stage::Talking => self.ask(index, talk, wishes),
            _ => {
                let seq = self.next(talk);
                wishes.push(Wish::Send(self.segment(talk, flags::FIN | flags::ACK, seq), None));
            }
        }
        wishes.push(Wish::Wake(PATIENCE << self.tries.min(2)));
        self.tries += 1;
    }

    /// Sends what of this round is not answered yet.
    fn ask(&self, index: u16, talk: &Talk, wishes: &mut Vec<Wish>) {
        for number in self.round * talk.burst..(self.round + 1) * talk.burst {
            if self.answered >> number & 1 == 1 {
                continue;
            }
            let label = Label {
                talk: index,
                number,
                is_answer: false,
            };
            let head = match talk.manner {
                Manner::Tcp => {
                    let seq = first(talk).wrapping_add(1 + u32::from(number) * u32::from(talk.size));
                    self.segment(talk, flags::ACK | flags::PUSH, seq)
                }
                Manner::Udp => head(talk.is_v6, talk.client, talk.to, Transport::Udp),
                Manner::Ping => {
                    let echo = Transport::Echo {
                        is_reply: false,
                        number,
                    };
                    head(talk.is_v6, talk.client, talk.to, echo)
                }
            };
            wishes.push(Wish::Send(head, Some(label)));
        }
    }

    /// The next sequence number to send: behind all rounds that are answered.
    fn next(&self, talk: &Talk) -> u32 {
        let sent = u32::from(self.round) * u32::from(talk.burst) * u32::from(talk.size);
        first(talk).wrapping_add(u32::from(self.stage != Stage::Asking) + sent)
    }

    fn segment(&self, talk: &Talk, flags: u8, seq: u32) -> Head {
        let answered = self.answered.count_ones() * u32::from(talk.size);
        let ack = if flags & flags::ACK != 0 {
            self.theirs.wrapping_add(1 + answered)
        } else {
            0
        };
        head(
            talk.is_v6,
            talk.client,
            talk.to,
            Transport::Tcp { flags, seq, ack },
        )
    }

    /// A frame from the server, and what it says.
    pub fn hear(
        &mut self,
        index: u16,
        talk: &Talk,
        heard: &Head,
        label: Option<Label>,
        wishes: &mut Vec<Wish>,
    ) {
        if self.is_over() || self.stage == Stage::NotBegun {
            return;
        }
        if let Transport::Tcp { flags, seq, ack } = heard.transport {
            if flags & flags::RST != 0 {
                return self.end(false, wishes);
            }
            if flags & flags::SYN != 0 {
                if self.stage == Stage::Asking && ack == first(talk).wrapping_add(1) {
                    (self.stage, self.theirs) = (Stage::Talking, seq);
                    self.begin_round(index, talk, wishes);
                }
                return;
            }
            let expected = self
                .theirs
                .wrapping_add(1 + self.answered.count_ones() * u32::from(talk.size));
            if self.stage == Stage::Asking || seq != expected {
                return;
            }
            if flags & flags::FIN != 0 && self.stage == Stage::Closing {
                let mut last = self.segment(talk, flags::ACK, self.next(talk).wrapping_add(1));
                if let Transport::Tcp { ack, .. } = &mut last.transport {
                    *ack = ack.wrapping_add(1);
                }
                wishes.push(Wish::Send(last, None));
                return self.end(true, wishes);
            }
        }
        let Some(label) = label.filter(|label| label.is_answer && label.talk == index) else {
            return;
        };
        if label.number >= talk.rounds * talk.burst || self.answered >> label.number & 1 == 1 {
            return;
        }
        self.answered |= 1 << label.number;
        // The talk goes on, so it is worth going on.
        self.tries = self.tries.min(1);
        let done = (self.round + 1) * talk.burst;
        if self.answered.trailing_ones() >= u32::from(done) {
            self.round += 1;
            if self.round < talk.rounds {
                self.tries = 0;
                return wishes.push(Wish::Wake(talk.gap));
            }
            if talk.manner == Manner::Tcp {
                self.stage = Stage::Closing;
                return self.begin_round(index, talk, wishes);
            }
            self.end(true, wishes);
        }
    }

    fn begin_round(&mut self, index: u16, talk: &Talk, wishes: &mut Vec<Wish>) {
        self.tries = 0;
        self.wake(index, talk, wishes);
    }

    fn end(&mut self, done: bool, wishes: &mut Vec<Wish>) {
        self.stage = if done { Stage::Done } else { Stage::Failed };
        wishes.push(Wish::Over(done));
    }
}

/// The client's first sequence number.
fn first(talk: &Talk) -> u32 {
    0x1000_0000 + u32::from(talk.client.port) * 65_537
}

fn head(is_v6: bool, source: End, destination: End, transport: Transport) -> Head {
    Head {
        id: 0,
        is_v6,
        source,
        destination,
        transport,
    }
}

/// A TCP connection as a server sees it.
#[derive(Clone, Copy, Debug)]
struct Connection {
    /// The client's first sequence number and the next that is expected.
    theirs: u32,
    expected: u32,
    ours: u32,
}

/// A host as a server.
#[derive(Default)]
pub(crate) struct Server {
    /// By version, the server's own end and the other.
    connections: BTreeMap<(bool, End, End), Connection>,
}

impl Server {
    /// A frame from a client, what it says, and the length of its payload.
    pub fn hear(
        &mut self,
        now: Time,
        heard: &Head,
        (label, length): (Option<Label>, usize),
        wishes: &mut Vec<Wish>,
    ) {
        let asked = label.filter(|label| !label.is_answer);
        let answer = asked.map(|label| Label {
            is_answer: true,
            ..label
        });
        let back = |transport| head(heard.is_v6, heard.destination, heard.source, transport);
        match heard.transport {
            Transport::Udp if answer.is_some() => wishes.push(Wish::Send(back(Transport::Udp), answer)),
            Transport::Echo {
                is_reply: false,
                number,
            } if answer.is_some() => {
                let transport = Transport::Echo {
                    is_reply: true,
                    number,
                };
                wishes.push(Wish::Send(back(transport), answer));
            }
            Transport::Tcp { flags, seq, .. } => {
                self.handle_segment(now, heard, (flags, seq), (answer, length), wishes)
            }
            _ => {}
        }
    }

    fn handle_segment(
        &mut self,
        now: Time,
        heard: &Head,
        (flags, seq): (u8, u32),
        (answer, length): (Option<Label>, usize),
        wishes: &mut Vec<Wish>,
    ) {
        let name = (heard.is_v6, heard.destination, heard.source);
        if flags & flags::RST != 0 {
            self.connections.remove(&name);
            return;
        }
        if flags & flags::SYN != 0 {
            let known = self.connections.get(&name).filter(|known| known.theirs == seq);
            let connection = known.copied().unwrap_or(Connection {
                theirs: seq,
                expected: seq.wrapping_add(1),
                ours: (now as u32).wrapping_mul(0x9e37_79b1),
            });
            self.connections.insert(name, connection);
            let transport = Transport::Tcp {
                flags: flags::SYN | flags::ACK,
                seq: connection.ours,
                ack: connection.theirs.wrapping_add(1),
            };
            return wishes.push(Wish::Send(head(name.0, name.1, name.2, transport), None));
        }
        let Some(connection) = self.connections.get_mut(&name) else {
            return;
        };
        let is_fin = flags & flags::FIN != 0;
        let ahead = seq.wrapping_sub(connection.expected) as i32;
        if ahead > 0 || (length == 0 && !is_fin) {
            return;
        }
        let end = seq.wrapping_add(length as u32 + u32::from(is_fin));
        if ahead == 0 {
            connection.expected = end;
        }
        // As many bytes have been answered as were asked before this segment.
        let seq = connection.ours.wrapping_add(seq.wrapping_sub(connection.theirs));
        let transport = Transport::Tcp {
            flags: flags::ACK | if is_fin { flags::FIN } else { flags::PUSH },
            seq,
            ack: connection.expected,
        };
        if is_fin || answer.is_some() {
            wishes.push(Wish::Send(
                head(name.0, name.1, name.2, transport),
                answer.filter(|_| !is_fin),
            ));
        }
    }
}
