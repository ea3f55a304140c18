//! The events of a run: a digest always, a list that a person can read if asked for.
//!
//! Every event is folded into the digest with its time, and so are the bytes of every frame that
//! leaves and every line of the event log: two runs of one script that differ in anything differ in
//! their digests.

use crate::Time;
use crate::frame::{Transport, flags};
use crate::script::{Fault, Move, Script, Who, Whom, Why};
use crate::world::Packet;
use std::fmt;
use std::hash::{Hash, Hasher};

/// Something that happened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Event {
    /// A host sent a packet.
    Sent(u16),
    /// The network lost one, cut or not.
    Lost(u16, bool),
    /// The network damaged one, which is another from now on.
    Damaged(u16, u16),
    /// A port's queue was full.
    Overflowed(u16),
    /// A switch took one in.
    Entered(u8, u16),
    /// A switch sent one.
    Left(u8, u16),
    /// A host received one, and could read it or not.
    Arrived(u8, u16, bool),
    /// A worker did something.
    Stepped(u8),
    /// A fault began.
    Began(u16),
    /// A fault was over.
    Ended(u16),
    /// An operator ordered groups to move.
    Ordered(u16),
    /// A configuration is prepared at all runtimes; is decided; and a worker has it in force.
    Prepared(u16),
    Decided(u16),
    Committed(u8),
    /// A worker has met another one, of another process, or knows that it is gone.
    Session(u8, u8, u64),
    /// All faults are over.
    Healed,
    /// Time was let pass, in nanoseconds, so that all flows end.
    Leapt(u64),
    /// A worker begins as a member.
    Joined(u8),
    /// A worker leaves by plan.
    Leaves(u8),
    /// A worker finds that a view has removed it.
    Fenced(u8),
    /// A view, with a list of suspects of this number, which has so many, is in the coordinator's
    /// log.
    InForce(u32, u64, u16),
    /// A coordinator is elected, at this revision; or its process ends, since another may be.
    Leads(u8, i64),
    Deposed(u8),
    /// A talk is done, or has been given up.
    Over(u16, bool),
}

/// Events of a run.
#[derive(Debug)]
pub(crate) struct Timeline {
    digest: Fold,
    pub count: u64,
    record: Option<Vec<(Time, Event)>>,
}

impl Timeline {
    pub fn new(records: bool) -> Self {
        Timeline {
            digest: Fold(0xcbf2_9ce4_8422_2325),
            count: 0,
            record: records.then(Vec::new),
        }
    }

    pub fn note(&mut self, now: Time, event: Event) {
        self.count += 1;
        (now, event).hash(&mut self.digest);
        if let Some(record) = &mut self.record {
            record.push((now, event));
        }
    }

    /// Folds bytes in.
    pub fn fold(&mut self, bytes: &[u8]) {
        self.digest.write(bytes);
    }

    pub fn digest(&self) -> u64 {
        self.digest.finish()
    }

    /// The last `most` events in words; workers' turns are left out.
    pub fn lines(&self, script: &Script, packets: &[Packet], most: usize) -> Vec<String> {
        let record = self.record.as_deref().unwrap_or_default();
        let told = record
            .iter()
            .filter(|(_, event)| !matches!(event, Event::Stepped(_)));
        let told: Vec<_> = told.collect();
        let left_out = told.len().saturating_sub(most);
        let mut lines = Vec::new();
        if left_out > 0 {
            lines.push(format!("(the first {left_out} events are left out)"));
        }
        for (at, event) in &told[left_out..] {
            lines.push(format!(
                "{:>12}  {}",
                Millis(*at).to_string(),
                in_words(event, script, packets)
            ));
        }
        lines
    }
}

fn in_words(event: &Event, script: &Script, packets: &[Packet]) -> String {
    let packet = |id: u16| match packets.get(usize::from(id)) {
        Some(packet) if id != 0 => packet.to_string(),
        _ => "a packet of the cluster's own".to_owned(),
    };
    match *event {
        Event::Sent(id) => format!("sent        {}", packet(id)),
        Event::Lost(id, false) => format!("lost        {}", packet(id)),
        Event::Lost(id, true) => format!("cut off     {}", packet(id)),
        Event::Damaged(id, new) => format!("damaged     {} is {}", packet(id), packet(new)),
        Event::Overflowed(id) => format!("no room     {}", packet(id)),
        Event::Entered(port, id) => format!("into port {port} {}", packet(id)),
        Event::Left(port, id) => format!("out port {port}  {}", packet(id)),
        Event::Arrived(_, id, true) => format!("arrived     {}", packet(id)),
        Event::Arrived(_, id, false) => format!("unreadable  {}", packet(id)),
        Event::Stepped(worker) => format!("{} took a turn", script.worker(worker)),
        Event::Began(index) => format!("FAULT       {}", fault(script, usize::from(index))),
        Event::Ended(index) => format!("FAULT OVER  {}", fault(script, usize::from(index))),
        Event::Ordered(index) => match script.moves.get(usize::from(index)) {
            Some(order) => format!("ORDER       {}", in_words_of_move(order)),
            None => String::new(),
        },
        Event::Prepared(index) => format!("PREPARED    change {index}"),
        Event::Decided(index) => format!("DECIDED     change {index}"),
        Event::Committed(worker) => format!("committed   {}", script.worker(worker)),
        Event::Session(from, to, 0) => {
            format!("gone        {} to {}", script.worker(to), script.worker(from))
        }
        Event::Session(from, to, number) => format!(
            "met         {} by {} as {number:x}",
            script.worker(to),
            script.worker(from)
        ),
        Event::Joined(worker) => format!("joined      {}", script.worker(worker)),
        Event::Leaves(worker) => format!("LEAVES      {}", script.worker(worker)),
        Event::Fenced(worker) => format!("fenced      {} knows that it is removed", script.worker(worker)),
        Event::Leads(office, revision) => format!("elected     coordinator {office}, at {revision}"),
        Event::Deposed(office) => format!("deposed     coordinator {office} ends"),
        Event::InForce(view, list, suspects) => {
            format!("in force    view {view}, list {list} of {suspects} suspects")
        }
        Event::Healed => "HEALED      no faults from here on".to_owned(),
        Event::Leapt(time) => format!("LEAP        {} pass on all clocks", Millis(time)),
        Event::Over(talk, done) => {
            let how = if done { "is done" } else { "is given up" };
            format!("talk {talk} {how}")
        }
    }
}

fn fault(script: &Script, index: usize) -> String {
    match script.faults.get(index) {
        Some(timed) => in_words_of(&timed.fault, script),
        None => String::new(),
    }
}

/// An order in words.
pub(crate) fn in_words_of_move(order: &Move) -> String {
    let whom = match order.whom {
        Whom::All => "all groups".to_owned(),
        Whom::Host(host) => format!("the groups of {}", crate::world::address_of(usize::from(host))),
        Whom::HostOverV6(host) => format!(
            "the groups of {} over IPv6",
            crate::world::address_of(usize::from(host))
        ),
    };
    let to = match order.to {
        Some(to) => format!("runtime {to}"),
        None => "the others".to_owned(),
    };
    format!("{whom} at runtime {} move to {to}", order.from)
}

/// A fault in words.
pub(crate) fn in_words_of(fault: &Fault, script: &Script) -> String {
    let host_of = |host: &u8| crate::world::address_of(usize::from(*host));
    match fault {
        Fault::Forgotten { host } => format!("the host {} is forgotten", host_of(host)),
        Fault::Mute { host, time } => {
            format!(
                "the host {} is forgotten, and does not answer for {}",
                host_of(host),
                Millis(*time)
            )
        }
        Fault::Replaced { host } => format!("the host {} has another link address", host_of(host)),
        Fault::Stall { worker, time } => {
            format!("{} does nothing for {}", script.worker(*worker), Millis(*time))
        }
        Fault::Stop { worker, time } => {
            format!(
                "the process of {} is stopped for {}",
                script.worker(*worker),
                Millis(*time)
            )
        }
        Fault::Jump { worker, by } => match worker {
            Some(worker) => format!("the clock of {} jumps by {}", script.worker(*worker), Millis(*by)),
            None => format!("all clocks jump by {}", Millis(*by)),
        },
        Fault::Storm { noise, time } => format!(
            "for {} all paths lose, double, reorder, corrupt ({noise:?})",
            Millis(*time)
        ),
        Fault::Cut { host, to, from, time } => {
            let way = match (to, from) {
                (true, true) => "to and from",
                (true, false) => "to",
                _ => "from",
            };
            let host = crate::world::address_of(usize::from(*host));
            format!("nothing passes {way} the host {host} for {}", Millis(*time))
        }
        Fault::Partition { from, to, back, time } => {
            let way = if *back {
                "between"
            } else {
                "from the first to the second of"
            };
            let (from, to) = (script.worker(*from), script.worker(*to));
            format!("nothing passes {way} {from} and {to} for {}", Millis(*time))
        }
        Fault::Silence { worker, why, time } => {
            let what = match why {
                Why::Stands(_) => "stands still",
                Why::IsCut(_) => "is cut off",
            };
            let when = if why.is_copied() {
                " once all is copied"
            } else {
                ""
            };
            format!("{} {what}{when} for {}", script.worker(*worker), Millis(*time))
        }
        Fault::Isolated {
            worker,
            whom,
            to,
            from,
            time,
        } => {
            let way = match (to, from) {
                (true, true) => "to and from",
                (true, false) => "from",
                _ => "to",
            };
            let worker = script.worker(*worker);
            format!(
                "nothing passes {way} {worker}, of {whom:?}, for {}",
                Millis(*time)
            )
        }
        Fault::OfficeCrash { office, time } => {
            format!(
                "coordinator {office} crashes, and begins again after {}",
                Millis(*time)
            )
        }
        Fault::OfficeStall { office, time } => {
            format!("coordinator {office} does nothing for {}", Millis(*time))
        }
        Fault::OfficeCut {
            office,
            whom,
            to,
            from,
            time,
        } => {
            let way = match (to, from) {
                (true, true) => "to and from",
                (true, false) => "to",
                _ => "from",
            };
            format!(
                "nothing passes {way} coordinator {office}, of {whom:?}, for {}",
                Millis(*time)
            )
        }
        Fault::StoreStall { time } => {
            format!("the coordinators' store does nothing for {}", Millis(*time))
        }
        Fault::Crash { who: Who::All } => "all crash and begin again".to_owned(),
        Fault::Crash {
            who: Who::Worker(worker, time),
        } => {
            format!(
                "{} crashes, and begins again after {}",
                script.worker(*worker),
                Millis(*time)
            )
        }
        Fault::Crash {
            who: Who::Copied(worker, time),
        } => {
            format!(
                "{} crashes once all is copied, and begins again after {}",
                script.worker(*worker),
                Millis(*time)
            )
        }
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = &self.head;
        let what = match head.transport {
            Transport::Tcp { flags, .. } => {
                let name = |bit: u8, name: &'static str| if flags & bit != 0 { name } else { "" };
                format!(
                    "tcp {}{}{}{}",
                    name(flags::SYN, "S"),
                    name(flags::FIN, "F"),
                    name(flags::RST, "R"),
                    name(flags::ACK, ".")
                )
            }
            Transport::Udp => "udp".to_owned(),
            Transport::Echo { .. } => "ping".to_owned(),
            Transport::Error { kind, code, quote } => format!("error {kind}/{code} about #{}", quote.id),
            Transport::Other(protocol) => format!("protocol {protocol}"),
        };
        let version = if head.is_v6 { " over IPv6" } else { "" };
        write!(
            f,
            "#{} {what}{version} {} > {}",
            head.id, head.source, head.destination
        )?;
        if self.split > 0 {
            write!(f, " in parts of {}", self.split)?;
        }
        if self.is_wild {
            return f.write_str(" (damaged)");
        }
        match self.label {
            Some(label) if label.is_answer => write!(f, " talk {} answer {}", self.talk, label.number),
            Some(label) => write!(f, " talk {} request {}", self.talk, label.number),
            None => write!(f, " talk {}", self.talk),
        }
    }
}

/// Nanoseconds, printed as milliseconds.
pub(crate) struct Millis(pub u64);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03} ms", self.0 / 1_000_000, self.0 / 1000 % 1000)
    }
}

/// A hash that is the same in every process.
#[derive(Clone, Copy, Debug)]
struct Fold(u64);

impl Fold {
    fn word(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

impl Hasher for Fold {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last) ^ (bytes.len() as u64) << 56);
    }
    fn write_u8(&mut self, value: u8) {
        self.word(u64::from(value));
    }
    fn write_u16(&mut self, value: u16) {
        self.word(u64::from(value));
    }
    fn write_u64(&mut self, value: u64) {
        self.word(value);
    }
    fn write_isize(&mut self, value: isize) {
        self.word(value as u64);
    }
}
