//! Timers of members that are gone, on their way to runtimes of other members.
//!
//! # Theory of operation
//!
//! A member `left` is killed and does not begin again. Its partition `f@left@0` has timers. The
//! runtime 1 of the member `right` takes them over, some at a time:
//!
//! ```text
//!                    f@left@0              record taking/f@right@1        f@right@1
//!   claim            1 2 3   epoch 8       –                              9
//!   take some        1 2 3                 from left 0, 8.1: 1 2          9
//!   (armed, held)    1 2 3                 from left 0, 8.1: 1 2          9 (1) (2)     in the store, not due
//!   commit           3  {right 1: 8.1}     from left 0, 8.1: 1 2          9 (1) (2)
//!   (let go)         3  {right 1: 8.1}     from left 0, 8.1: 1 2          9 1 2         they fire
//!   finish           3  {right 1: 8.1}     –                              9 1 2
//! ```
//!
//! *The commit* is one batch at the old partition: it removes timers there, and writes which taking
//! that was (epoch and number, for this heir). The store takes it whole or not at all, and not at
//! all when another has claimed the partition since. So of two members that take the same timers,
//! or of one and the owner that begins again, one has each timer. The other's commit is fenced, and
//! it drops the timers that it holds.
//!
//! *Held.* Until the commit the heir's timers are armed at its worker and at the store, and are not
//! due ([`variables::open::WorkerVariables::hold_timers`]): none fires that another may have.
//!
//! *A crash of the heir.* Timers that it held are in its partition as any timer. The record says
//! which those are and of which taking. Before any worker has that partition again, and before
//! another takes timers from it, [`finish_taking`] reads it:
//!
//! | the heir dies | the old partition says | so |
//! |---|---|---|
//! | before `take_some` | – | no record: the timers are where they were |
//! | behind `take_some`, before the commit | another taking, or none | what the record has is removed at the heir; the old partition has it |
//! | behind the commit | this taking | they are the heir's |
//! | behind `finish` | this taking | no record: they are the heir's |
//!
//! `finish_taking` first claims the old partition if its epoch is still the taking's: a commit that
//! is still on its way is refused from then on, and the partition's entries do not change.
//!
//! *Whose turn.* A lock in the store for each member ([`Estate`], named by cluster and member)
//! keeps a member that begins and those that take from it apart. The member has the lock from
//! before its first claim until a view has the member, and writes the view's number beside. Another
//! member takes timers while it has that lock, by one view that is not before that view, and that
//! has no runtime of the member. A turn ends when there is another view, and after some seconds: a
//! member that waits to begin has its own then. The heir notes the partition's version first, looks
//! at lock and view, and claims the partition if its version is still that. Behind the claim it
//! looks whether the member takes timers over itself: that is settled first, in another turn. So a
//! member with an old view, or that stood still, does not fence a member that is there. A lock that
//! is lost, by a pause beyond its lease, costs no timer: commits are fenced all the same.
//!
//! A member without such a lock has never begun in this cluster: its timers are left alone.
//!
//! # Invariants
//!
//! | | checker |
//! |---|---|
//! | a timer is due at one place at most, wherever a process dies | `a_crash_at_any_point_leaves_each_timer_at_one_place` |
//! | of two that take the same timers one has them | `of_two_that_take_one_has_each_timer` |
//! | a member that begins has the timers that are not committed, and no other | `the_owner_that_begins_again_has_what_is_not_committed` |
//! | a member that is there is not fenced | `a_member_that_begins_or_is_in_a_later_view_is_left_alone` |
//!
//! Not here: which members are gone, and the worker (`flowkeep`, `run/inheriting.rs`); timers of
//! runtimes of the own member ([`crate::left`]).

use crate::agent::{OpenError, Store, elements, least_epoch};
use crate::batch::KeptBatch;
use crate::driver::{Driver, Failure, Outcome, Swapped, Version};
use crate::left;
use crate::lock::Lock;
use crate::locks::Views;
use crate::name::{Kind, Part, PartitionName};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use variables::buffer::Buffer;
use variables::decoded;
use variables::open::Element;

/// The map in a partition that says which taking was the last to commit there, by heir. No variable
/// of a function has this name.
const TAKEN: &str = "flowkeep: timers taken over";
/// Bytes of the timers that are taken at once.
const BYTES: usize = 64 * 1024;
/// How many are taken at once.
const COUNT: usize = 512;
/// How long a member that takes has its turn, from its last sign of life.
const TURN: Duration = Duration::from_secs(10);
/// How long a member that begins may take until a view has it: longer than it tries to join.
const BEGINNING: Duration = Duration::from_secs(300);
/// How long a member takes at once from another, which may wait to begin.
const AT_ONCE: Duration = Duration::from_secs(5);
/// How long a member that begins waits for its turn: longer than the turn of a member that died in
/// it.
const WAIT: Duration = Duration::from_secs(60);
/// Between two looks at a lock that another has.
const LOOK: Duration = Duration::from_millis(50);

/// A record's entry of a taking under way: the member and the runtime that had the timers, the
/// variable, epoch and number of the taking, the timers.
type Intent = (String, u32, String, u64, u64, Vec<Element>);

/// The record of a partition's taking under way.
pub(crate) fn record_of(heir: &PartitionName) -> String {
    format!("taking/{heir}")
}

fn encoded<T: serde::Serialize>(value: &T) -> Vec<u8> {
    // Numbers, texts and bytes always encode.
    postcard::to_stdvec(value).unwrap_or_default()
}

/// The last taking of an heir that a partition has committed.
fn committed(
    driver: &mut dyn Driver,
    from: &PartitionName,
    heir: &PartitionName,
) -> Result<Option<(u64, u64)>, Failure> {
    let Ok(taken) = from.variable(Kind::Map, TAKEN) else {
        return Ok(None);
    };
    let field = encoded(&heir.to_string());
    let all = elements(driver, &taken)?.into_iter();
    let mut own = all.filter(|(heir, _)| *heir == field);
    Ok(own.next().and_then(|(_, value)| decoded(&value)))
}

/// Timers of one partition on their way to another.
pub struct Taking {
    store: Store,
    from: PartitionName,
    heir: PartitionName,
    epoch: u64,
    sequence: u64,
    rest: VecDeque<(String, VecDeque<Element>)>,
    under_way: Option<Chunk>,
    intent: Option<Vec<u8>>,
}

/// Timers that are taken at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The variable.
    pub name: String,
    /// The timers, as the store has them.
    pub timers: Vec<Element>,
}

impl Taking {
    /// Claims a partition, if it has still the version `seen`, to take the timers in these
    /// variables. `None`: it has another version, or is not settled.
    pub fn begin(
        store: &Store,
        from: &PartitionName,
        heir: &PartitionName,
        names: &[String],
        seen: Option<Version>,
    ) -> Result<Option<Taking>, OpenError> {
        let (partition, names) = (from.clone(), names.to_vec());
        let claimed = store.with(move |driver| {
            if driver.version(&partition)? != seen {
                return Ok(None);
            }
            let epoch = driver.claim(&partition, least_epoch())?;
            // The member may have begun to take some over itself since that was settled.
            if driver.record(&record_of(&partition))?.is_some() {
                return Ok(None);
            }
            let mut all = VecDeque::new();
            for name in &names {
                if let Ok(variable) = partition.variable(Kind::Timers, name.clone()) {
                    all.push_back((name.clone(), elements(driver, &variable)?.into()));
                }
            }
            Ok(Some((epoch, all)))
        })?;
        Ok(claimed.map(|(epoch, rest)| Taking {
            store: store.clone(),
            from: from.clone(),
            heir: heir.clone(),
            epoch,
            sequence: 0,
            rest,
            under_way: None,
            intent: None,
        }))
    }

    /// The next timers to be armed and held at the heir; the store has noted which. `None`: there
    /// are no more.
    pub fn take_some(&mut self) -> Result<Option<Chunk>, OpenError> {
        let Some(chunk) = self.cut() else { return Ok(None) };
        self.sequence += 1;
        let intent: Intent = (
            self.from.member().to_owned(),
            self.from.runtime(),
            chunk.name.clone(),
            self.epoch,
            self.sequence,
            chunk.timers.clone(),
        );
        let intent = encoded(&intent);
        let record = record_of(&self.heir);
        if self.store.swap(&record, None, Some(intent.clone()))? != Swapped::Done {
            return Err(not_alone(&record));
        }
        self.intent = Some(intent);
        self.under_way = Some(chunk.clone());
        Ok(Some(chunk))
    }

    fn cut(&mut self) -> Option<Chunk> {
        while self.rest.front().is_some_and(|(_, timers)| timers.is_empty()) {
            self.rest.pop_front();
        }
        let (name, timers) = self.rest.front_mut()?;
        let mut taken = Vec::new();
        let mut bytes = 0;
        while let Some((field, value)) = timers.front()
            && (taken.is_empty() || (bytes + field.len() + value.len() <= BYTES && taken.len() < COUNT))
        {
            bytes += field.len() + value.len();
            taken.extend(timers.pop_front());
        }
        Some(Chunk {
            name: name.clone(),
            timers: taken,
        })
    }

    /// The heir holds the timers of the last chunk, without `left`, and the store has them there:
    /// they go here. Answers whether they are the heir's; else another has claimed the partition,
    /// and has them. After an error that is not known, and the call is to be made again.
    pub fn commit(&self, left: &[Element]) -> Result<bool, OpenError> {
        let Some(chunk) = &self.under_way else {
            return Ok(false);
        };
        let left: BTreeSet<&[u8]> = left.iter().map(|(field, _)| &field[..]).collect();
        let variables = [
            self.from.variable(Kind::Timers, chunk.name.clone())?,
            self.from.variable(Kind::Map, TAKEN)?,
        ];
        let mut buffer = Buffer::new();
        let taking = encoded(&(self.epoch, self.sequence));
        // All of a chunk fits.
        let mut has_room = buffer
            .put_encoded(1, &encoded(&self.heir.to_string()), &taking)
            .is_ok();
        for (field, _) in chunk
            .timers
            .iter()
            .filter(|(field, _)| !left.contains(&field[..]))
        {
            has_room &= buffer.remove_encoded(0, field).is_ok();
        }
        debug_assert!(has_room, "a chunk fits into a batch");
        let version = Version {
            epoch: self.epoch,
            sequence: self.sequence,
        };
        let batch = KeptBatch::new(&self.from, version, &variables, buffer.bytes().to_vec());
        let (from, heir) = (self.from.clone(), self.heir.clone());
        let own = (self.epoch, self.sequence);
        self.store.with(move |driver| {
            let mut outcomes = Vec::new();
            driver.write(&[batch.batch()], &mut outcomes)?;
            match outcomes.first() {
                Some(Outcome::Stored) => Ok(true),
                // An answer may have been lost before the other's claim.
                Some(Outcome::Fenced) => Ok(committed(driver, &from, &heir)? == Some(own)),
                Some(Outcome::Forgotten) | None => Ok(false),
            }
        })
    }

    /// The heir has let the timers of the last chunk go, as `commit` said, and the store knows
    /// that.
    pub fn finish(&mut self) -> Result<(), OpenError> {
        let Some(intent) = self.intent.clone() else {
            return Ok(());
        };
        // Where another has settled it meanwhile, it is not there.
        self.store.swap(&record_of(&self.heir), Some(intent), None)?;
        (self.intent, self.under_way) = (None, None);
        Ok(())
    }
}

fn not_alone(record: &str) -> OpenError {
    let remedy = "see that one process has this member's name";
    OpenError::Store(Failure::new(
        record,
        "another process takes timers over for the same runtime",
        remedy,
    ))
}

/// Ends a taking that a process has left, which had this partition and does not run: its timers are
/// in one of the two partitions from then on. Claims the partition if there is such a taking.
pub fn finish_taking(store: &Store, heir: &PartitionName) -> Result<(), OpenError> {
    finish_taking_if(store, heir, None).map(drop)
}

/// The same, if the partition has still the version `seen`, where that is given; answers whether.
fn finish_taking_if(
    store: &Store,
    heir: &PartitionName,
    seen: Option<Option<Version>>,
) -> Result<bool, OpenError> {
    let record = record_of(heir);
    let Some(bytes) = store.record(&record)? else {
        return Ok(true);
    };
    let Some((member, runtime, name, epoch, sequence, timers)) = decoded::<Intent>(&bytes) else {
        let remedy = "remove the record";
        return Err(OpenError::Store(Failure::new(
            &record,
            "it is no taking of timers",
            remedy,
        )));
    };
    let from = PartitionName::new(heir.function(), member, runtime)?;
    let variable = heir.variable(Kind::Timers, name)?;
    let heir = heir.clone();
    let is_done = store.with(move |driver| {
        if let Some(seen) = seen
            && driver.version(&heir)? != seen
        {
            return Ok(false);
        }
        let own = driver.claim(&heir, least_epoch())?;
        if driver.version(&from)?.is_some_and(|has| has.epoch == epoch) {
            driver.claim(&from, least_epoch())?;
        }
        if committed(driver, &from, &heir)? != Some((epoch, sequence)) {
            let has: BTreeMap<Vec<u8>, Vec<u8>> = elements(driver, &variable)?.into_iter().collect();
            let came = timers
                .iter()
                .filter(|(field, value)| has.get(field) == Some(value));
            left::write_removals(driver, &variable, own, &came.cloned().collect::<Vec<_>>())?;
        }
        Ok(true)
    })?;
    if is_done {
        store.swap(&record, Some(bytes), None)?;
    }
    Ok(is_done)
}

/// Of timers that are in several of these partitions, as they are while a member that begins with
/// fewer runtimes arms what its others left ([`crate::left`]), one stays. Answers whether all
/// partitions had the versions that were seen.
fn leave_one(
    store: &Store,
    partitions: &[(PartitionName, Option<Version>)],
    names: &[String],
) -> Result<bool, OpenError> {
    let (partitions, names) = (partitions.to_vec(), names.to_vec());
    store.with(move |driver| {
        for name in &names {
            let mut known = BTreeSet::<Element>::new();
            for (partition, seen) in &partitions {
                let Ok(variable) = partition.variable(Kind::Timers, name.clone()) else {
                    continue;
                };
                let (twice, once): (Vec<Element>, Vec<Element>) = elements(driver, &variable)?
                    .into_iter()
                    .partition(|timer| known.contains(timer));
                known.extend(once);
                if twice.is_empty() {
                    continue;
                }
                if driver.version(partition)? != *seen {
                    return Ok(false);
                }
                let epoch = driver.claim(partition, least_epoch())?;
                left::write_removals(driver, &variable, epoch, &twice)?;
                // Its version is another one now: the next round goes on.
                return Ok(false);
            }
        }
        Ok(true)
    })
}

/// The member's runtime that takes over what another member has left: the same at all members that
/// have the same view.
pub fn heir_of(member: &str, runtimes: &[u32]) -> Option<u32> {
    let weight = |runtime: &u32| {
        let bytes = member.bytes().chain(runtime.to_be_bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        // Its low bits reach the high ones, by which it is compared.
        let hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (hash ^ (hash >> 32), *runtime)
    };
    runtimes.iter().copied().max_by_key(weight)
}

/// A store that the members of a cluster have in common, as one of them takes timers over there.
pub struct Estate {
    store: Store,
    cluster: String,
    member: String,
    views: Arc<Views>,
    beginning: Mutex<Beginning>,
}

/// How far a member has come.
enum Beginning {
    /// The member has claimed nothing.
    Before,
    /// The member has claimed partitions, and no view has it.
    Begun(Box<Lock>),
    /// A view has the member.
    Arrived,
}

/// Leave to take over what a member has left.
pub struct Turn<'e> {
    store: Store,
    views: Arc<Views>,
    lock: &'e mut Lock,
    token: u64,
    view: u32,
    began: Instant,
}

impl Estate {
    /// Of a store and a member of a cluster. Asks the store nothing.
    pub fn of(store: &Store, (cluster, member): (&str, &str), views: &Arc<Views>) -> Self {
        Estate {
            store: store.clone(),
            cluster: cluster.to_owned(),
            member: member.to_owned(),
            views: Arc::clone(views),
            beginning: Mutex::new(Beginning::Before),
        }
    }

    fn beginning(&self) -> MutexGuard<'_, Beginning> {
        self.beginning.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This member is about to claim a partition: from here on no other member takes timers from
    /// its partitions. Waits while one does.
    pub fn begin(&self) -> Result<(), OpenError> {
        let mut beginning = self.beginning();
        if !matches!(*beginning, Beginning::Before) {
            return Ok(());
        }
        let mut lock = self.own_lock();
        let until = Instant::now() + WAIT;
        while lock.acquire()?.is_none() {
            if Instant::now() >= until {
                let problem = format!(
                    "other members take timers of `{}` over, and are not done yet",
                    self.member
                );
                let name = self.lock_name(&self.member);
                return Err(OpenError::Store(Failure::new(&name, problem, "start it again")));
            }
            std::thread::sleep(LOOK);
        }
        *beginning = Beginning::Begun(Box::new(lock));
        Ok(())
    }

    /// A view has this member: others go by views from here on. `false`: that could not be written
    /// yet. Where the store has lost that, it is written again.
    pub fn arrive(&self, view: u32) -> Result<bool, OpenError> {
        let mut beginning = self.beginning();
        if matches!(*beginning, Beginning::Arrived) && !self.knows(&self.member)? {
            *beginning = Beginning::Begun(Box::new(self.own_lock()));
        }
        let Beginning::Begun(lock) = &mut *beginning else {
            return Ok(true);
        };
        let Some(token) = lock.acquire()? else {
            return Ok(false);
        };
        // A later one's has a later view.
        let _ = lock.put(token, &encoded(&view))?;
        lock.release()?;
        *beginning = Beginning::Arrived;
        Ok(true)
    }

    /// The lock of this member as it begins.
    fn own_lock(&self) -> Lock {
        // An earlier incarnation of this member does not run.
        let own = format!("begins@{}@", Part(&self.member));
        let holder = format!("{own}{}", unlike_any());
        let lock = self.lock(&self.member, holder, BEGINNING);
        lock.void_where(move |holder| holder.starts_with(&own))
    }

    fn lock(&self, member: &str, holder: String, lease: Duration) -> Lock {
        self.store.lock(&self.lock_name(member), holder, lease)
    }

    fn lock_name(&self, member: &str) -> String {
        format!("timers@{}@{}", Part(&self.cluster), Part(member))
    }

    /// Whether a member has ever begun in this cluster.
    pub fn knows(&self, member: &str) -> Result<bool, OpenError> {
        let record = format!("lock/{}", self.lock_name(member));
        Ok(self.store.record(&record)?.is_some())
    }

    /// The views by which it goes.
    pub fn views(&self) -> &Views {
        &self.views
    }

    /// A partition of this member.
    pub fn own(&self, function: &str, runtime: u32) -> Result<PartitionName, OpenError> {
        Ok(PartitionName::new(function, self.member.clone(), runtime)?)
    }

    /// Ends what an earlier incarnation of this member was about to take over for a function.
    pub(crate) fn finish_own_takings(&self, function: &str) -> Result<(), OpenError> {
        let own = self.partitions(function)?.into_iter();
        own.filter(|partition| partition.member() == self.member)
            .try_for_each(|partition| finish_taking(&self.store, &partition))
    }

    fn partitions(&self, function: &str) -> Result<Vec<PartitionName>, OpenError> {
        let function = function.to_owned();
        self.store.with(move |driver| driver.partitions(&function))
    }

    /// Partitions of a function with timers in these variables, or with a taking under way, of
    /// members that `are_gone`, by member.
    pub fn left(
        &self,
        function: &str,
        names: &[String],
        are_gone: impl Fn(&str) -> bool,
    ) -> Result<BTreeMap<String, Vec<PartitionName>>, OpenError> {
        let all = self.partitions(function)?.into_iter();
        let mut gone: Vec<PartitionName> = all
            .filter(|partition| partition.member() != self.member && are_gone(partition.member()))
            .collect();
        gone.sort();
        let names = names.to_vec();
        self.store.with(move |driver| {
            let mut left = BTreeMap::<String, Vec<PartitionName>>::new();
            for partition in &gone {
                let mut has_some = driver.record(&record_of(partition))?.is_some();
                for name in &names {
                    if let Ok(variable) = partition.variable(Kind::Timers, name.clone()) {
                        has_some = has_some || !elements(driver, &variable)?.is_empty();
                    }
                }
                if has_some {
                    let of = left.entry(partition.member().to_owned()).or_default();
                    of.push(partition.clone());
                }
            }
            Ok(left)
        })
    }

    /// A runtime of this process holds no timers: an entry that a taking for it has left in the
    /// store, where the store did not answer, is over.
    pub fn forget(&self, heir: &PartitionName) -> Result<(), OpenError> {
        let record = record_of(heir);
        match self.store.record(&record)? {
            Some(bytes) => self.store.swap(&record, Some(bytes), None).map(drop),
            None => Ok(()),
        }
    }
}

/// The locks by which a member takes its turns: a lock that another member has is watched from call
/// to call.
pub struct Turns {
    estate: Arc<Estate>,
    locks: BTreeMap<String, Lock>,
}

impl Turns {
    /// Of a store.
    pub fn of(estate: &Arc<Estate>) -> Self {
        Turns {
            estate: Arc::clone(estate),
            locks: BTreeMap::new(),
        }
    }

    /// The store.
    pub fn estate(&self) -> &Arc<Estate> {
        &self.estate
    }

    /// Leave to take over what a member has left that is not in this view, for a runtime of this
    /// one. `Ok(None)`: not now, since the member begins, another takes, or there is another view.
    pub fn turn(&mut self, member: &str, heir: u32, view: u32) -> Result<Option<Turn<'_>>, OpenError> {
        let Turns { estate, locks } = self;
        let named = estate.views.named(heir);
        let Some(named) = named else { return Ok(None) };
        let lock = locks.entry(member.to_owned()).or_insert_with(|| {
            let views = Arc::clone(&estate.views);
            let lock = estate.lock(member, String::new(), TURN);
            lock.void_where(move |holder| views.is_void(holder))
        });
        lock.hold_as(format!("{named}@{}@{}", Part(&estate.member), unlike_any()));
        let Some(token) = lock.acquire()? else {
            return Ok(None);
        };
        let Ok(begun) = lock.seal(token)? else {
            return Ok(None);
        };
        let mut turn = Turn {
            store: estate.store.clone(),
            views: Arc::clone(&estate.views),
            lock,
            token,
            view,
            began: Instant::now(),
        };
        if decoded::<u32>(&begun).unwrap_or(0) > view || turn.views.number() != view {
            turn.end()?;
            return Ok(None);
        }
        Ok(Some(turn))
    }
}

impl Turn<'_> {
    /// Ends what these partitions' runtimes were about to take over themselves: all partitions of
    /// the member with timers. `false`: not now.
    pub fn finish_takings(
        &mut self,
        partitions: &[PartitionName],
        names: &[String],
    ) -> Result<bool, OpenError> {
        for partition in partitions {
            let seen = self.seen(partition)?;
            if !self.is_still_ours()? || !finish_taking_if(&self.store, partition, Some(seen))? {
                return Ok(false);
            }
        }
        let seen = partitions
            .iter()
            .map(|partition| Ok((partition.clone(), self.seen(partition)?)));
        let seen = seen.collect::<Result<Vec<_>, OpenError>>()?;
        Ok(self.is_still_ours()? && leave_one(&self.store, &seen, names)?)
    }

    /// Begins to take timers out of a partition that is settled. `None`: not now.
    pub fn take(
        &mut self,
        from: &PartitionName,
        heir: &PartitionName,
        names: &[String],
    ) -> Result<Option<Taking>, OpenError> {
        let seen = self.seen(from)?;
        match self.is_still_ours()? {
            true => Taking::begin(&self.store, from, heir, names, seen),
            false => Ok(None),
        }
    }

    fn seen(&self, partition: &PartitionName) -> Result<Option<Version>, OpenError> {
        let partition = partition.clone();
        self.store.with(move |driver| driver.version(&partition))
    }

    /// Whether it is still this one's turn; it is from then on for a while. A member that waits to
    /// begin has its own every few seconds.
    pub fn is_still_ours(&mut self) -> Result<bool, OpenError> {
        if self.began.elapsed() > AT_ONCE {
            return Ok(false);
        }
        let is_held = self.lock.acquire()? == Some(self.token);
        let is_in_time = self.lock.token() == Some(self.token);
        Ok(is_held && is_in_time && self.views.number() == self.view)
    }

    /// Another may have its turn.
    pub fn end(&mut self) -> Result<(), OpenError> {
        self.lock.release()
    }
}

/// A word that no other process and no earlier one has.
fn unlike_any() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    format!(
        "{}.{}.{}",
        std::process::id(),
        started.unwrap_or_default().as_nanos(),
        NUMBER.fetch_add(1, Ordering::Relaxed)
    )
}
