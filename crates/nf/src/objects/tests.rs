use super::*;
use alloc::vec;

#[derive(crate::Plain, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Count {
    calls: u64,
}

impl SharedObject for Count {
    type Call = u64;
    type Answer = u64;
    fn apply(&mut self, by: &u64) -> u64 {
        self.calls += by;
        self.calls
    }
    fn read(&self, _: &u64) -> u64 {
        self.calls
    }
    /// A hundred at most in one call.
    fn merge(earlier: &mut u64, later: &u64) -> bool {
        let sum = *earlier + later;
        let is_one = sum <= 100;
        if is_one {
            *earlier = sum;
        }
        is_one
    }
}

fn opened() -> (WorkerObjects, Shared<Count>) {
    let mut all = WorkerObjects::default();
    let shared = all.of("limit").open::<Count>("hosts").unwrap();
    (all, shared)
}

fn words(number: u64) -> Words {
    Words::of(&number)
}

#[test]
fn a_kind_is_opened_once_by_each_function() {
    let (mut all, _shared) = opened();
    let error = all.of("limit").open::<Count>("hosts").unwrap_err();
    assert_eq!(
        error.to_string(),
        "objects: `hosts` is opened twice; open it once, and keep the handle"
    );
    all.of("other").open::<Count>("hosts").unwrap();
    assert_eq!(all.kinds().len(), 2);
    assert_ne!(all.kinds()[0], all.kinds()[1]);
}

#[test]
fn methods_work_on_bytes_and_refuse_others() {
    let kind = Kind::of::<Count>("limit", "hosts");
    let mut content = (kind.methods.birth)();
    assert_eq!((kind.methods.apply)(&mut content, &words(3)), Some(words(3)));
    assert_eq!((kind.methods.apply)(&mut content, &words(4)), Some(words(7)));
    assert_eq!((kind.methods.read)(&content, &words(0)), Some(words(7)));
    assert_eq!((kind.methods.apply)(&mut content[..7], &words(4)), None);
    assert_eq!((kind.methods.read)(&content, &Words::default()), None);
    assert!(!(kind.methods.is_call)(&[0; 9]));
}

#[test]
fn answers_go_to_their_calls() {
    let (all, shared) = opened();
    let pending_calls = all.pending_calls();
    let ask = |number| {
        pending_calls
            .ask(shared.kind, b"key", What::Update(words(number)))
            .unwrap()
    };
    let (one, two) = (ask(1), ask(2));
    assert_eq!(
        [
            pending_calls.next().unwrap().token,
            pending_calls.next().unwrap().token
        ],
        [one, two]
    );
    assert_eq!(pending_calls.next(), None);
    pending_calls.answer(two, Ok(words(20)));
    assert!(pending_calls.is_answered(two) && !pending_calls.is_answered(one));
    assert_eq!(pending_calls.take(one), None);
    assert_eq!(pending_calls.take(two), Some(Ok(words(20))));
    assert_eq!(pending_calls.take(two), None);
    // An abandoned place is another call's afterwards, and a late answer is not given to that call.
    pending_calls.leave(one);
    pending_calls.answer(one, Ok(words(10)));
    let (three, four) = (ask(3), ask(4));
    pending_calls.answer(one, Ok(words(11)));
    pending_calls.answer(two, Ok(words(21)));
    assert_eq!(
        (pending_calls.take(three), pending_calls.take(four)),
        (None, None)
    );
}

#[test]
fn calls_beyond_the_bound_are_refused() {
    let (all, shared) = opened();
    let pending_calls = all.pending_calls();
    let ask = || pending_calls.ask(shared.kind, b"key", What::Update(words(1)));
    let mut tokens: Vec<u64> = core::iter::from_fn(|| ask().ok()).collect();
    assert_eq!(tokens.len(), 2048);
    assert_eq!(ask(), Err(Ended::Full));
    while pending_calls.next().is_some() {}
    let token = tokens.pop().unwrap();
    pending_calls.answer(token, Ok(words(1)));
    assert_eq!(ask(), Err(Ended::Full));
    pending_calls.leave(token);
    assert!(ask().is_ok());
    assert_eq!(shared.send(&[0; 41], &1), Err(Ended::KeyTooLong));
}

fn closed(pending_calls: &PendingCalls, now: u64, is_all: bool) -> Vec<(Vec<u8>, Words, u32)> {
    let mut all = vec![];
    pending_calls.close(now, is_all, now.saturating_add(1), |_, key, call, calls| {
        all.push((key.to_vec(), call.clone(), calls));
        true
    });
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}

#[test]
fn merged_calls_go_as_one_when_the_first_is_due() {
    let (all, shared) = opened();
    let pending_calls = all.pending_calls();
    pending_calls.turn(1000);
    let within = Count::MERGE_WITHIN.as_nanos() as u64;
    assert_eq!(shared.merge(b"one", &1), Ok(()));
    pending_calls.turn(2000);
    assert_eq!(shared.merge(b"one", &2), Ok(()));
    assert_eq!(shared.merge(b"two", &5), Ok(()));
    assert_eq!(pending_calls.next(), None);
    assert_eq!(pending_calls.next_due(), Some(1000 + within));
    assert_eq!(closed(&pending_calls, 999 + within, false), []);
    assert_eq!(
        closed(&pending_calls, 1000 + within, false),
        [(b"one".to_vec(), words(3), 2)]
    );
    assert_eq!(pending_calls.next_due(), Some(2000 + within));
    assert_eq!(closed(&pending_calls, 0, true), [(b"two".to_vec(), words(5), 1)]);
    assert_eq!(
        (pending_calls.next_due(), closed(&pending_calls, u64::MAX, true)),
        (None, vec![])
    );
}

/// A delta that is not taken stays, and takes more.
#[test]
fn a_delta_that_cannot_go_stays() {
    let (all, shared) = opened();
    let pending_calls = all.pending_calls();
    shared.merge(b"one", &1).unwrap();
    let due = pending_calls.next_due().unwrap();
    pending_calls.close(due, false, due + 7, |_, _, _, _| false);
    assert_eq!(pending_calls.next_due(), Some(due + 7));
    shared.merge(b"one", &1).unwrap();
    assert_eq!(
        closed(&pending_calls, due + 7, false),
        [(b"one".to_vec(), words(2), 2)]
    );
}

#[test]
fn what_does_not_merge_goes_by_itself() {
    let (all, shared) = opened();
    let pending_calls = all.pending_calls();
    shared.merge(b"one", &60).unwrap();
    shared.merge(b"one", &30).unwrap();
    shared.merge(b"one", &20).unwrap();
    let asked = pending_calls.next().unwrap();
    assert_eq!((asked.token, asked.what), (0, What::Merged(words(90), 2)));
    assert_eq!(closed(&pending_calls, 0, true), [(b"one".to_vec(), words(20), 1)]);
    // More keys than there are places: none is lost.
    for key in 0..1100_u32 {
        shared.merge(&key.to_be_bytes(), &1).unwrap();
    }
    let beyond = core::iter::from_fn(|| pending_calls.next()).count();
    assert_eq!((beyond, closed(&pending_calls, 0, true).len()), (76, 1024));
}

/// A read that is not to be stale comes behind the calls merged here.
#[test]
fn a_read_closes_the_delta_of_its_key() {
    let (all, shared) = opened();
    let pending_calls = all.pending_calls();
    shared.merge(b"key", &4).unwrap();
    pending_calls
        .ask(shared.kind, b"key", What::Read(words(0), 1))
        .unwrap();
    assert!(matches!(pending_calls.next().unwrap().what, What::Read(..)));
    pending_calls
        .ask(shared.kind, b"key", What::Read(words(0), 0))
        .unwrap();
    assert_eq!(pending_calls.next().unwrap().what, What::Merged(words(4), 1));
    assert!(matches!(pending_calls.next().unwrap().what, What::Read(..)));
    pending_calls.open(false);
    assert_eq!(shared.merge(b"key", &4), Err(Ended::Leaving));
    assert_eq!(shared.send(b"key", &4), Err(Ended::Leaving));
}

/// An object with one writer at a table of pending calls: its key, and calls of functions.
struct Owned {
    pending_calls: Arc<PendingCalls>,
    at: (u16, Key),
}

impl Owned {
    fn new() -> Self {
        let mut all = WorkerObjects::default();
        let single = all.of("limit").open_single::<Total>("totals").unwrap();
        Owned {
            pending_calls: all.pending_calls(),
            at: (single.kind, Key::try_from(&b"key"[..]).unwrap()),
        }
    }

    /// The loan and the value, or the token to wait by.
    fn get(&self) -> Result<(u64, u64), u64> {
        match self.pending_calls.get(&self.at, from_bytes::<u64>).unwrap() {
            lent::Got::Here(number, value) => Ok((number, value)),
            lent::Got::Waits(token) => Err(token),
        }
    }

    fn collect(&self, token: u64) -> Option<(u64, u64)> {
        assert_eq!(self.pending_calls.take(token)?, Ok(Words::default()));
        self.pending_calls.collect(&self.at, token, from_bytes::<u64>)
    }

    fn put(&self, loan: u64, value: u64) {
        let put = self
            .pending_calls
            .put(&self.at, loan, Some(&value.to_ne_bytes()), false);
        assert_eq!(put, Ok(None));
    }

    fn lend(&self, value: u64, token: u64) {
        let key = &self.at.1;
        self.pending_calls
            .lend(self.at.0, key, &value.to_ne_bytes(), token);
    }

    fn told(&self, value: Option<u64>, returned: Option<Vec<u64>>) -> Put {
        Put {
            kind: self.at.0,
            key: self.at.1.clone(),
            changed: value.map(|value| value.to_ne_bytes().to_vec()),
            writers: vec![],
            returned,
        }
    }
}

#[derive(crate::Plain, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Total {
    packets: u64,
}

impl SingleWriter for Total {
    type Call = u64;
    type Answer = u64;
    fn read(&self, _: &u64) -> u64 {
        self.packets
    }
}

#[test]
fn a_lent_object_is_one_calls_after_another() {
    let owned = Owned::new();
    let first = owned.get().unwrap_err();
    assert_eq!(owned.pending_calls.next().unwrap().what, What::Get);
    owned.lend(7, first);
    assert!(owned.pending_calls.has_told());
    // The object is the first call's before that has collected it.
    let second = owned.get().unwrap_err();
    let (loan, value) = owned.collect(first).unwrap();
    assert_eq!(
        (value, owned.collect(second), owned.pending_calls.next()),
        (7, None, None)
    );
    owned.put(loan, 8);
    assert_eq!(owned.pending_calls.next_put(), Some(owned.told(Some(8), None)));
    assert_eq!(
        (owned.collect(second), owned.pending_calls.next_put()),
        (Some((loan, 8)), None)
    );
    owned.put(loan, 9);
    // Free, and here: nothing waits. Two changes are told once.
    assert_eq!(owned.get(), Ok((loan, 9)));
    owned.put(loan, 10);
    assert_eq!(owned.pending_calls.next_put(), Some(owned.told(Some(10), None)));
    assert_eq!(owned.pending_calls.next_put(), None);
}

#[test]
fn an_object_that_is_recalled_comes_back_with_those_that_wait() {
    let owned = Owned::new();
    let first = owned.get().unwrap_err();
    owned.pending_calls.next().unwrap();
    owned.lend(1, first);
    let (loan, _) = owned.collect(first).unwrap();
    let second = owned.get().unwrap_err();
    owned.pending_calls.recall(owned.at.0, &owned.at.1);
    // A call that comes now asks the worker.
    let third = owned.get().unwrap_err();
    assert_eq!(owned.pending_calls.next().unwrap().token, third);
    assert!(!owned.pending_calls.wait(owned.at.0, &owned.at.1, third));
    assert_eq!(owned.pending_calls.next_put(), None);
    owned.put(loan, 2);
    assert_eq!(owned.pending_calls.next_put(), Some(owned.told(Some(2), None)));
    assert_eq!(
        owned.pending_calls.next_put(),
        Some(owned.told(None, Some(vec![second])))
    );
    // A number of the loan is not one of the next loan.
    owned.lend(5, second);
    let (next, value) = owned.collect(second).unwrap();
    assert_eq!(value, 5);
    assert_eq!(
        owned.pending_calls.put(&owned.at, loan, None, false),
        Err(Ended::Unknown)
    );
    owned.put(next, 6);
    assert_eq!(owned.get(), Ok((next, 6)));
}

#[test]
fn a_call_that_is_given_up_leaves_the_object_to_the_next() {
    let owned = Owned::new();
    let tokens: Vec<u64> = (0..3).map(|_| owned.get().unwrap_err()).collect();
    owned.lend(1, tokens[0]);
    for token in &tokens[1..] {
        assert!(owned.pending_calls.wait(owned.at.0, &owned.at.1, *token));
    }
    // The first was told, the second waits.
    owned.pending_calls.abandon(&owned.at, tokens[0]);
    owned.pending_calls.leave(tokens[0]);
    let (loan, _) = owned.collect(tokens[1]).unwrap();
    owned.pending_calls.leave(tokens[2]);
    owned.put(loan, 3);
    assert_eq!(owned.get(), Ok((loan, 3)));
}

#[test]
fn what_is_not_used_for_long_comes_back() {
    let owned = Owned::new();
    owned.pending_calls.turn(1);
    let first = owned.get().unwrap_err();
    owned.lend(1, first);
    owned.pending_calls.turn(5_000_000_000);
    let (loan, _) = owned.collect(first).unwrap();
    assert_eq!(owned.pending_calls.next_put(), None, "a call has it");
    owned.put(loan, 1);
    owned.pending_calls.next_put();
    assert_eq!(owned.get(), Ok((loan, 1)));
    owned.put(loan, 1);
    owned.pending_calls.next_put();
    let due = owned.pending_calls.next_due().unwrap();
    owned.pending_calls.turn(due);
    assert_eq!(owned.pending_calls.next_put(), None, "it was used");
    owned.pending_calls.turn(due + 1_000_000_000);
    assert_eq!(
        owned.pending_calls.next_put(),
        Some(owned.told(None, Some(vec![])))
    );
}
