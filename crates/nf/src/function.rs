//! [`NetworkFunction`] and the small types in its signatures.

use crate::objects::{Objects, ObjectsHere};
use crate::{Check, Cx, Event, FlowState, Row, Table, TimerCx};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::future::Future;
use core::time::Duration;
use wire::packet::Side;
use wire::{Packet, Prefix};

/// Which flows must be together because they share state (the chain's affinity is its coarsest
/// function's).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Affinity {
    /// None: each flow is by itself.
    Flow,
    /// All flows of one inside address and port.
    InsideEndpoint,
    /// All flows of one inside address: a NAT's mappings, a subscriber's limits.
    InsideAddress,
    /// All flows of one outside address: a scan counter.
    OutsideAddress,
}

impl Affinity {
    /// The coarsest affinity that serves both, `None` if no worker could have both kinds of group.
    pub fn join(self, other: Affinity) -> Option<Affinity> {
        use Affinity::*;
        match (self, other) {
            (Flow, a) | (a, Flow) => Some(a),
            (a, b) if a == b => Some(a),
            (InsideEndpoint, InsideAddress) | (InsideAddress, InsideEndpoint) => Some(InsideAddress),
            _ => None,
        }
    }
}

/// Addresses that a function answers to: no host on the link has them, and packets for them are to
/// come here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The addresses.
    pub addresses: Prefix,
    /// On which side they are; `None`: on both.
    pub side: Option<Side>,
}

/// Why a packet is dropped: a name from the function's [`NetworkFunction::REASONS`]. Made by
/// [`Cx::drop`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reason(pub(crate) u8);

impl Reason {
    /// Position in [`NetworkFunction::REASONS`]; [`Reason::UNDECLARED`] if the name is not there.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// A reason whose name the function did not declare.
    pub const UNDECLARED: Reason = Reason(u8::MAX);

    /// The runtime's own: another process has claimed the variables that the packet's call has
    /// changed, and that are written through.
    pub const UNSTORED: Reason = Reason(u8::MAX - 1);
}

/// The fate of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a verdict is returned"]
pub enum Verdict {
    /// On to the next function, and out.
    Forward,
    /// Gone, counted under the function's name and the reason. Write `cx.drop("reason")`.
    Drop(Reason),
    /// The function made an answer in the packet's place: it goes back through the functions
    /// already passed, and out where the packet came in.
    Answer,
    /// Kept: the runtime holds the packet with its flow until the function calls [`Cx::release`] or
    /// [`Cx::discard`]. Packets held when the flow ends are counted drops.
    Consume,
}

/// Why a flow's state appears at a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// The first packet of a flow: the state is the default.
    New,
    /// Moved here from another worker.
    Migrated,
    /// Its worker failed; this is the replica.
    Recovered,
}

/// Why a flow's state leaves a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Departure {
    /// The flow is over: give back what it took.
    Expired,
    /// Moved to another worker, which keeps what the flow took.
    Migrated,
}

/// Which flow a function wants ended ([`NetworkFunction::recall`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recall {
    /// The flow with this number ([`Cx::flow_number`]).
    Flow(u32),
    /// None yet: the function wants to be asked again in the next step.
    Later,
    /// None.
    Nothing,
}

/// Number of the configuration in force.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Generation(pub u64);

/// The fate of a flow when the configuration has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "what becomes of a flow is returned"]
pub enum Keep {
    /// It goes on; its state is of the new configuration now.
    Keep,
    /// It ends, for a reason from [`NetworkFunction::REASONS`]: its next packet meets the new
    /// configuration as a new flow's. Made by [`Cx::cut`].
    End(Reason),
}

/// Facts about the worker that an instance runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkerInfo {
    /// Number of this runtime, from 0.
    pub runtime: u16,
    /// Among how many runtimes pools are divided at the start. A runtime with a higher number
    /// begins without a part, and borrows ([`NetworkFunction::pool`]).
    pub runtimes: u16,
    /// The most flows this worker holds.
    pub flows_max: u32,
    /// A seed, for functions that draw at random. Equal seeds give equal runs.
    pub seed: u64,
}

/// How a function's pool of blocks stands at one runtime ([`NetworkFunction::pool`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolState {
    /// Blocks that are free here, borrowed ones included.
    pub free: u32,
    /// Blocks that are this runtime's own, free and in use.
    pub share: u32,
    /// How many more it wants.
    pub wants: u16,
    /// Where it wants them above all: the address of a host that has no port left. Zero: anywhere.
    pub wants_at: wire::Addr,
    /// How many borrowed ones it can do without.
    pub excess: u16,
}

/// The problem of a function's configuration, its place, and the text to write instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// Path to the setting inside the function's table, like `rules[3].ports`. The tool finds its
    /// line.
    pub at: String,
    /// The problem.
    pub problem: String,
    /// The text to write instead.
    pub remedy: String,
    /// Where it stands, if that is in a file which the setting names.
    pub place: Option<Box<FilePlace>>,
}

/// A line of a file that a setting names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FilePlace {
    /// The file, as the setting names it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The line's text.
    pub text: String,
}

impl ConfigError {
    /// An error at a setting.
    pub fn new(at: impl Into<String>, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        ConfigError {
            at: at.into(),
            problem: problem.into(),
            remedy: remedy.into(),
            place: None,
        }
    }

    /// The same error, standing on a line of a file that the setting names.
    #[must_use]
    pub fn in_file(mut self, file: impl Into<String>, line: usize, text: impl Into<String>) -> Self {
        self.place = Some(Box::new(FilePlace {
            file: file.into(),
            line,
            text: text.into(),
        }));
        self
    }
}

/// Where an error stands that is of no setting, but of variables that cannot be opened.
pub const VARIABLES: &str = "variables";

/// A variable that cannot be opened.
impl From<variables::OpenError> for ConfigError {
    fn from(error: variables::OpenError) -> Self {
        let said = error.to_string();
        let (problem, remedy) = said.rsplit_once("; ").unwrap_or((&said, ""));
        ConfigError::new(VARIABLES, problem, remedy)
    }
}

impl core::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if let Some(FilePlace { file, line, .. }) = self.place.as_deref() {
            write!(f, "{file}:{line}: ")?;
        }
        if !self.at.is_empty() {
            write!(f, "{}: ", self.at)?;
        }
        f.write_str(&self.problem)?;
        match self.remedy.is_empty() {
            true => Ok(()),
            false => write!(f, "; {}", self.remedy),
        }
    }
}

impl core::error::Error for ConfigError {}

/// For functions without settings.
#[derive(Clone, Copy, Default, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoConfig {}

/// The answer of `process`: a verdict, in time.
#[diagnostic::on_unimplemented(
    message = "`process` answers with `{Self}` at once, and nothing says that it does not wait",
    label = "this is no future",
    note = "write `#[network_function]` above the `impl`: with it, `process` is an ordinary function"
)]
pub trait Deciding: Future<Output = Verdict> {}

#[diagnostic::do_not_recommend]
impl<T: Future<Output = Verdict>> Deciding for T {}

/// A function whose `impl` has `#[network_function]` above it, which writes this out.
#[diagnostic::on_unimplemented(
    message = "`#[network_function]` is missing above `impl NetworkFunction for {Self}`",
    label = "the attribute is missing here",
    note = "with it, `process` is an ordinary function; `Config`, `Flow`, `Group`, `new` and the lists of names follow from the rest"
)]
pub trait Attributed {}

/// Blocks that another runtime is to have ([`NetworkFunction::lend_blocks`]).
#[derive(Clone, Copy, Debug)]
pub struct Loan {
    /// So many at most.
    pub most: u16,
    /// Of this address above all, unless it is the unspecified one.
    pub at: wire::Addr,
    /// The other runtime.
    pub to: u16,
    /// This runtime leaves, and has no group: none is wanted here.
    pub leaves: bool,
}

/// How a block of ports stood at an instance, when that hears that a group at another runtime has
/// it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum BlockWas {
    /// It is of another's part, or none of this function's.
    Anothers,
    /// It had been handed out here, and has not come back.
    Out,
    /// It was thought free.
    Free,
}

/// A network function: its treatment of a packet, and its memory of a flow.
///
/// Write `#[network_function]` above the `impl`, and `process` as an ordinary function or, if it
/// must wait, as an `async fn`. NFVactor's Table II maps onto this: shared state is `Self`, made by
/// [`new`](Self::new); a flow's state is allocated as [`Default`]; `flow_expires` and
/// `flow_migrate_out` are [`departed`](Self::departed); `flow_migrate_in` and `flow_recover` are
/// [`arrived`](Self::arrived).
pub trait NetworkFunction: Attributed + Sized + 'static {
    /// The name in configurations, metrics and messages: lower case, underscores.
    const NAME: &'static str;
    /// Which flows must be on one worker together.
    const AFFINITY: Affinity = Affinity::Flow;
    /// Names for [`Cx::count`]. Each shows in the metrics from the start.
    const COUNTERS: &'static [&'static str] = &[];
    /// The meaning of each of [`COUNTERS`](Self::COUNTERS), in their order: `#[network_function]`
    /// takes the comments in that list.
    const COUNTERS_HELP: &'static [&'static str] = &[];
    /// Names for [`Cx::drop`].
    const REASONS: &'static [&'static str] = &[];
    /// The meaning of each of [`REASONS`](Self::REASONS), in their order: `#[network_function]`
    /// takes the comments in that list.
    const REASONS_HELP: &'static [&'static str] = &[];
    /// Events that [`Cx::event`] writes: when, and with which fields.
    const EVENTS: &'static [Event] = &[];
    /// Tables for operators (`flowkeep function NAME TABLE`): the columns of each, and how the
    /// figures of several runtimes are one. [`rows`](Self::rows) fills them.
    const TABLES: &'static [Table] = &[];
    /// Whether an ICMP error comes to this function with the flow whose packet it quotes
    /// (`packet.has(flag::ICMP_ERROR)`), as functions that translate, filter or balance need it.
    /// Where no function of any chain asks for that, an ICMP error is a packet between its own
    /// addresses like any other: functions that count packets want those.
    const ICMP_ERRORS: bool = true;
    /// Settings that name files: before the settings are read, the tool reads each file and puts a
    /// [`TextFile`](crate::TextFile) in the setting's place. Only settings at the top of the
    /// function's table.
    const FILES: &'static [&'static str] = &[];
    /// Whether this function is the last one that a packet passes, whichever way it runs: it
    /// decides how the packet leaves, so it must see the packet as all others have left it. Such a
    /// function stands at the end of its chain. Packets pass the others in their order, or backward
    /// for replies, and then this one; its answers go back through all of them.
    ///
    /// ```text
    ///   chain: firewall, nat, forward       opening   firewall ─► nat ─► forward ─►
    ///                                       reply     nat ─► firewall ─► forward ─►
    /// ```
    const LAST: bool = false;
    /// Whether this function changes a packet's addresses or ports: then the functions before and
    /// behind it see a flow by different ones.
    const TRANSLATES: bool = false;
    /// Whether a call that waits may be given up, and [`process`](Self::process) begun once more
    /// with the same packet, here or at another runtime: until then it has changed neither the
    /// flow's state nor the packet. Such a call does not hold up the move of its group: its packet
    /// goes along, and waits there.
    const BEGINS_AGAIN: bool = false;
    /// Settings. Compile costly parts (automata, rule sets) while deserializing, or lazily inside:
    /// all instances share one value.
    type Config: serde::de::DeserializeOwned + Send + Sync + 'static;
    /// The state of a flow.
    type Flow: FlowState;
    /// The state of an affinity group; `()` for none.
    type Group: FlowState;

    /// Makes the instance of one runtime. It need not be `Sync`: one worker calls it.
    fn new(config: &Arc<Self::Config>, worker: &WorkerInfo) -> Result<Self, ConfigError>;

    /// As [`new`](Self::new), for a function with variables: they are opened here, each under a
    /// name of its own, and have a store's content then. In an instance that replaces another
    /// ([`take_over`](Self::take_over)) they are there from then on; the variables are the same
    /// ones. [`with_objects`](Self::with_objects) calls this one, never [`new`](Self::new).
    ///
    /// ```
    /// # use nf::{network_function, variables, ConfigError, Cx, NetworkFunction, NoConfig, Packet, Verdict, WorkerInfo};
    /// # use std::sync::Arc;
    /// struct Seen(variables::Counter);
    ///
    /// #[network_function]
    /// impl NetworkFunction for Seen {
    ///     # const NAME: &'static str = "seen";
    ///     # type Config = NoConfig;
    ///     # type Flow = ();
    ///     # type Group = ();
    ///     fn new(config: &Arc<NoConfig>, worker: &WorkerInfo) -> Result<Self, ConfigError> {
    ///         Self::with_variables(config, worker, &mut variables::Variables::local())
    ///     }
    ///     fn with_variables(
    ///         _: &Arc<NoConfig>,
    ///         _: &WorkerInfo,
    ///         variables: &mut variables::Variables,
    ///     ) -> Result<Self, ConfigError> {
    ///         Ok(Seen(variables.counter("packets", variables::Options::default())?))
    ///     }
    ///     fn process(&self, _: &mut Packet, _: &mut (), _: &mut Cx<Self>) -> Verdict {
    ///         self.0.add(1);
    ///         Verdict::Forward
    ///     }
    /// }
    /// ```
    fn with_variables(
        config: &Arc<Self::Config>,
        worker: &WorkerInfo,
        variables: &mut variables::Variables,
    ) -> Result<Self, ConfigError> {
        let _ = variables;
        Self::new(config, worker)
    }

    /// As [`with_variables`](Self::with_variables), for a function with objects that flows at all
    /// runtimes share: their kinds are opened here, the same ones in each instance. A runtime calls
    /// this one.
    ///
    /// ```
    /// # use nf::{ConfigError, Cx, NetworkFunction, NoConfig, Packet, Plain, Verdict, WorkerInfo};
    /// # use nf::{network_function, objects::{Objects, Shared, SharedObject}, variables::Variables};
    /// # use std::sync::Arc;
    /// # #[derive(Plain, Default, Clone, Copy, Debug)]
    /// # #[repr(C)]
    /// # struct Count { packets: u64 }
    /// # impl SharedObject for Count {
    /// #     type Call = u64;
    /// #     type Answer = u64;
    /// #     fn apply(&mut self, by: &u64) -> u64 { self.packets += by; self.packets }
    /// #     fn read(&self, _: &u64) -> u64 { self.packets }
    /// # }
    /// struct FirstHundred(Shared<Count>);
    ///
    /// #[network_function]
    /// impl NetworkFunction for FirstHundred {
    ///     const NAME: &'static str = "first_hundred";
    ///     const REASONS: &'static [&'static str] = &["over"];
    ///     # type Config = NoConfig;
    ///     # type Flow = ();
    ///     # type Group = ();
    ///     fn with_objects(
    ///         _: &Arc<NoConfig>,
    ///         _: &WorkerInfo,
    ///         _: &mut Variables,
    ///         objects: &mut Objects<'_>,
    ///     ) -> Result<Self, ConfigError> {
    ///         Ok(FirstHundred(objects.open("packets")?))
    ///     }
    ///     async fn process(&self, _: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
    ///         match self.0.update(cx, b"all", &1).await {
    ///             Ok(..=100) => Verdict::Forward,
    ///             _ => cx.drop("over"),
    ///         }
    ///     }
    /// }
    /// ```
    fn with_objects(
        config: &Arc<Self::Config>,
        worker: &WorkerInfo,
        variables: &mut variables::Variables,
        objects: &mut Objects<'_>,
    ) -> Result<Self, ConfigError> {
        let _ = objects;
        Self::with_variables(config, worker, variables)
    }

    /// Decides the fate of a packet, when this takes waiting. The default drops: a packet reaches
    /// it only when `process_now` declines and there is no `async fn process`.
    fn process(&self, packet: &mut Packet, flow: &mut Self::Flow, cx: &mut Cx<Self>) -> impl Deciding {
        let _ = (packet, flow, cx);
        core::future::ready(Verdict::Drop(Reason::UNDECLARED))
    }

    /// Decides the fate of a packet, when no waiting is needed. It declines with `None`, before any
    /// side effect, and then [`process`](Self::process) is called.
    #[inline(always)]
    fn process_now(&self, packet: &mut Packet, flow: &mut Self::Flow, cx: &mut Cx<Self>) -> Option<Verdict> {
        if Self::PLAIN {
            return Some(self.process_plain(packet, flow, cx));
        }
        None
    }

    /// Whether [`process_plain`](Self::process_plain) is there: `#[network_function]` sees to both.
    #[doc(hidden)]
    const PLAIN: bool = false;

    /// An ordinary `fn process`, as `#[network_function]` renames it.
    #[doc(hidden)]
    fn process_plain(&self, packet: &mut Packet, flow: &mut Self::Flow, cx: &mut Cx<Self>) -> Verdict {
        let _ = (packet, flow, cx);
        Verdict::Drop(Reason::UNDECLARED)
    }

    /// A packet that will probably open a flow is about to come to [`process`](Self::process). A
    /// function with tables of its own may fetch the lines it will look at
    /// ([`wire::memory::prefetch`]): the packets of a burst are announced together, so their cache
    /// misses overlap. The packet is as it came in, untouched by the functions before this one.
    #[inline]
    fn prefetch(&self, packet: &Packet) {
        let _ = packet;
    }

    /// A flow is about to arrive from another worker ([`arrived`](Self::arrived)), or `leaves` for
    /// one ([`departed`](Self::departed)), among others that are announced together: a function
    /// with tables of its own may fetch the lines it will look at, so that the cache misses of all
    /// of them overlap. `key` is the flow's.
    #[inline]
    fn prefetch_moving(&self, flow: &Self::Flow, key: &wire::FlowKey, leaves: bool) {
        let _ = (flow, key, leaves);
    }

    /// A flow's state has appeared here.
    #[inline]
    fn arrived(&self, flow: &mut Self::Flow, why: Arrival, cx: &mut Cx<Self>) {
        let _ = (flow, why, cx);
    }

    /// A flow's state leaves. With [`Departure::Expired`], the function gives back here, once, all
    /// that the flow took from pools.
    #[inline]
    fn departed(&self, flow: &Self::Flow, why: Departure, cx: &mut Cx<Self>) {
        let _ = (flow, why, cx);
    }

    /// How long a group lives without a flow, by its state. It is asked when the group's last flow
    /// has ended, and the group lives as long as any function asks; zero asks for nothing. A flow
    /// that begins meanwhile meets the state as it is. Moves and copies include such a group.
    ///
    /// A scan counter or port knocking needs it: a flow whose first packet is dropped ends with
    /// that packet, and without a time so does its group. There are as many groups as flows at most
    /// ([`WorkerInfo::flows_max`]), and where all places are taken the group that has rested
    /// longest ends for a new one. So a function that must not forget keeps no more than it needs,
    /// for no longer.
    ///
    /// `#[network_function]` sees whether a function has this: those without are never asked. Flows
    /// that are by themselves ([`Affinity::Flow`]) have no group to outlive them.
    #[inline]
    fn group_timeout(&self, group: &Self::Group) -> Duration {
        let _ = group;
        Duration::ZERO
    }

    /// Whether [`group_timeout`](Self::group_timeout) is there: `#[network_function]` sees to that.
    #[doc(hidden)]
    const OUTLIVES: bool = false;

    /// A group is over: its last flow is gone, and its time behind that
    /// ([`group_timeout`](Self::group_timeout)). Give back what the group took. Where it had a
    /// time, `cx` knows of no flow. A call that has asked for as many changes of blocks as it may
    /// ([`Cx::blocks_room`](crate::Cx::blocks_room) is 0) is made again with the state that it
    /// left, so a group gives back any number of blocks: release a block while there is room for
    /// it.
    #[inline]
    fn group_ended(&self, group: &mut Self::Group, cx: &mut Cx<Self>) {
        let _ = (group, cx);
    }

    /// A block that one of this runtime's groups had claimed before it moved has ended elsewhere
    /// ([`Cx::return_block`](crate::Cx::return_block)); no switch knows it any more. Every function
    /// hears of it: a function that did not hand it out leaves it alone.
    #[inline]
    fn block_returned(&self, block: crate::Block) {
        let _ = block;
    }

    /// A group at another runtime has this block: an instance that has just begun must know, since
    /// its predecessor may have handed it out. Every function hears of all such blocks. A block of
    /// this instance's part is not handed out from now on, until it has come back
    /// ([`NetworkFunction::block_returned`]). Answers how it stood here until now.
    #[inline]
    fn block_in_use(&self, block: crate::Block) -> BlockWas {
        let _ = block;
        BlockWas::Anothers
    }

    /// How this runtime's part of a pool of blocks stands, if the function has one; asked about
    /// once a millisecond. Where it wants more, other runtimes are asked to lend some.
    fn pool(&self) -> Option<PoolState> {
        None
    }

    /// Lends another runtime free blocks, and hands each to `lend`. A lent block is not given out
    /// here before it has come back ([`NetworkFunction::block_returned`]).
    fn lend_blocks(&self, loan: &Loan, lend: &mut dyn FnMut(crate::Block)) {
        let _ = (loan, lend);
    }

    /// A block of another runtime's part is lent to this one: free to be given out here, until the
    /// group that has it gives it back to its home ([`Cx::return_block`](crate::Cx::return_block)).
    /// Where the home is not there, this runtime keeps a block that was given back, and the
    /// function is asked again. Every function is asked: whether the block is of this function's
    /// pool, and not in use here.
    fn borrow_block(&self, block: crate::Block, home: u16) -> bool {
        let _ = (block, home);
        false
    }

    /// A borrowed block that is free here goes home: it is not to be given out any more.
    fn forsake_block(&self, block: crate::Block) {
        let _ = block;
    }

    /// How many blocks of this function's pool are free at all other runtimes, and how many these
    /// have; `None` while that is not known.
    fn pools_heard(&self, others: Option<(u32, u32)>) {
        let _ = others;
    }

    /// How long the flow lives without a packet, by its state. A flow lives as long as any function
    /// of its chain asks; `None` asks for nothing.
    #[inline]
    fn timeout(&self, flow: &Self::Flow) -> Option<Duration> {
        let _ = flow;
        None
    }

    /// These settings shall follow others while the cluster runs: the place to refuse changes that
    /// cannot be, and to hand on the parts that all instances share. A function that refuses a
    /// change refuses the way back, too: a change that was made can be taken back unasked.
    fn succeed(config: &mut Self::Config, before: &Self::Config) -> Result<(), ConfigError> {
        let _ = (config, before);
        Ok(())
    }

    /// This instance, made of new settings, replaces `before` between two bursts: it is to take
    /// over the tables and counts that `before` holds for its flows. `before` is asked nothing any
    /// more, but by calls that wait in it; the rest of it is dropped with the last of them.
    fn take_over(&self, before: &Self) {
        let _ = before;
    }

    /// The settings have changed: may a flow that they did not let in go on? The function is asked
    /// once about each flow, behind [`take_over`](Self::take_over) and before the flow's next
    /// packet, or before [`departed`](Self::departed). Whatever the answer, the flow's state is
    /// this instance's from then on. `cx` is as for the flow's first packet, and [`Cx::opened_by`]
    /// as this function saw that.
    ///
    /// To say beforehand which flows would end, it is also asked about *copies* of flows and
    /// groups, before [`take_over`](Self::take_over): its counts in the instance are to be
    /// forgotten there, and its requests to `cx` are not done.
    fn configured(&self, flow: &mut Self::Flow, cx: &mut Cx<Self>) -> Keep {
        let _ = (flow, cx);
        Keep::Keep
    }

    /// A flow of a runtime that failed arrives ([`Arrival::Recovered`]), and other settings let it
    /// in than those in force: may it go on? This is asked in place of
    /// [`arrived`](Self::arrived) and [`configured`](Self::configured), and does what both do, one
    /// after the other. A function whose `configured` counts flows counts this one once: it does
    /// that here by itself.
    fn recovered_of_before(&self, flow: &mut Self::Flow, cx: &mut Cx<Self>) -> Keep {
        self.arrived(flow, Arrival::Recovered, cx);
        self.configured(flow, cx)
    }

    /// The rows of a table of [`TABLES`](Self::TABLES), as this instance has them: at most so
    /// many, the first ones or, where the table has a [`top`](Table::top), the greatest.
    fn rows(&self, table: &str, most: usize) -> Vec<Row> {
        let _ = (table, most);
        Vec::new()
    }

    /// The same of a table whose rows are shared objects: `here` has the objects at this runtime
    /// ([`ObjectsHere::iter`]).
    fn object_rows(&self, table: &str, most: usize, here: ObjectsHere<'_>) -> Vec<Row> {
        let _ = here;
        self.rows(table, most)
    }

    /// How many rows a table has in all. The worker asks it of a table that is in the metrics and
    /// has more rows than there is room for, so a table that may be long is to be counted without
    /// making rows.
    fn row_count(&self, table: &str, here: ObjectsHere<'_>) -> usize {
        self.object_rows(table, usize::MAX, here).len()
    }

    /// An operator's word to the running function (`flowkeep function NAME WORD…`): the answer, or
    /// the problem. The name of one of [`TABLES`](Self::TABLES), alone or with a count, does not
    /// come here.
    fn command(&self, words: &[&str]) -> Result<String, String> {
        let _ = words;
        Err(alloc::format!("{} takes no commands", Self::NAME))
    }

    /// The answer of [`command`](Self::command) in figures, for scripts (`--json`). It is asked for
    /// behind that, with the same words, where these were carried out.
    fn command_rows(&self, words: &[&str]) -> Option<crate::table::Answer> {
        let _ = words;
        None
    }

    /// Operators' words to this instance that a later instance is to hear, too, as words for
    /// [`command`](Self::command): a server that is down, say.
    fn said(&self) -> Vec<Vec<String>> {
        Vec::new()
    }

    /// The number of the state that calls wait for by [`Cx::changed`]: a worker goes on with them
    /// when it has changed. It is asked for in every step in which a call waits, so it is read from
    /// memory and no more.
    fn generation(&self) -> u32 {
        0
    }

    /// When [`timer_due`](Self::timer_due) is to be called next, in milliseconds since 1970 by the
    /// wall clock ([`Cx::wall_ms`]); `None`: not at all. It is asked for in every step of the
    /// worker, so it is read from memory and no more: [`variables::Timers::next_at`] is. It may
    /// name a time that is too early.
    #[inline]
    fn next_timer(&self) -> Option<u64> {
        None
    }

    /// The time that [`next_timer`](Self::next_timer) named has come, and no packet need come for
    /// it: between two bursts. One timer is to be taken ([`variables::Timers::fire`]); the next
    /// call follows while another is due, up to a bound in each step. There may be none.
    ///
    /// The worker that has the function's variables makes the call, each for its own part, in a
    /// process that took them over, too. The call's changes of variables go to the store with the
    /// timer's removal, if both fit into one batch.
    ///
    /// ```
    /// # use nf::{network_function, ConfigError, Cx, NetworkFunction, NoConfig, Packet, TimerCx, Verdict, WorkerInfo};
    /// # use nf::variables::{Options, Timers, Variables};
    /// # use std::sync::Arc;
    /// struct Reminder(Timers<u16, ()>);
    ///
    /// #[network_function]
    /// impl NetworkFunction for Reminder {
    ///     const NAME: &'static str = "reminder";
    ///     fn with_variables(_: &Arc<NoConfig>, _: &WorkerInfo, variables: &mut Variables) -> Result<Self, ConfigError> {
    ///         Ok(Reminder(variables.timers("hosts", Options::default())?))
    ///     }
    ///     fn process(&self, packet: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
    ///         let _ = self.0.arm(&packet.destination().port, cx.wall_ms() + 60_000, ());
    ///         Verdict::Forward
    ///     }
    ///     fn next_timer(&self) -> Option<u64> {
    ///         self.0.next_at()
    ///     }
    ///     fn timer_due(&self, cx: &mut TimerCx<Self>) {
    ///         if let Some((port, ())) = self.0.fire(cx.wall_ms()) {
    ///             cx.event("quiet", format_args!("\"port\":{port}"));
    ///         }
    ///     }
    /// }
    /// ```
    ///
    /// `#[network_function]` sees whether a function has this: those without are never asked.
    fn timer_due(&self, cx: &mut TimerCx<'_, Self>) {
        let _ = cx;
    }

    /// Whether [`timer_due`](Self::timer_due) is there: `#[network_function]` sees to that.
    #[doc(hidden)]
    const TIMED: bool = false;

    /// Which flow is to end although no packet of it says so: an operator clears it, or a pool
    /// needs its room. The runtime asks behind a call that said [`Cx::recall`] and behind
    /// [`command`](Self::command), between two bursts, until the answer is [`Recall::Nothing`]. A
    /// bounded number of answers counts in each step.
    ///
    /// The flow ends as if it had expired, [`departed`](Self::departed) included, before the next
    /// question. A flow of which a call waits, or that moves to another runtime, does not end: the
    /// function finds it where it was and decides what it asks next.
    fn recall(&self) -> Recall {
        Recall::Nothing
    }

    /// Data that a thread outside the data path keeps up to date for all instances (a routing
    /// table, say). The program that runs the cluster looks for the types it knows among these.
    fn feed(config: &Self::Config) -> Option<Arc<dyn Any + Send + Sync>> {
        let _ = config;
        None
    }

    /// Static inside addresses that own an outside endpoint although no flow of theirs took a
    /// block: a static mapping's. The switch asks, to find the group of a packet from outside.
    fn owner_of(config: &Self::Config, outside: wire::Endpoint, protocol: u8) -> Option<wire::Endpoint> {
        let _ = (config, outside, protocol);
        None
    }

    /// Addresses for which packets are to come here although they are not this host's: a pool's, a
    /// virtual one's. Live ports answer requests for their link address (ARP, neighbour discovery).
    fn claims(config: &Self::Config) -> Vec<Claim> {
        let _ = config;
        Vec::new()
    }

    /// Servers that are to be checked. Each instance is told the results by
    /// [`NetworkFunction::command`]: `check SERVICE BACKEND up`, or `down`; again where an instance
    /// may not have heard one.
    fn checks(config: &Self::Config) -> Vec<Check> {
        let _ = config;
        Vec::new()
    }
}
