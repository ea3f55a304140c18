use super::*;
use alloc::vec::Vec;

#[derive(Clone)]
struct Kept {
    created: i64,
    puts: i64,
    value: u8,
    lease: i64,
}

/// The store, without time: a test ends leases by hand.
#[derive(Default)]
struct Store {
    revision: i64,
    keys: BTreeMap<Key, Kept>,
    last_lease: i64,
}

impl Store {
    fn grant(&mut self) -> i64 {
        self.last_lease += 1;
        self.last_lease
    }

    fn end_lease(&mut self, lease: i64) {
        self.keys.retain(|_, kept| kept.lease != lease);
    }

    fn put(&mut self, key: Key, value: u8, lease: i64) {
        let new = Kept {
            created: self.revision,
            puts: 0,
            value,
            lease,
        };
        let kept = self.keys.entry(key).or_insert(new);
        (kept.puts, kept.value, kept.lease) = (kept.puts + 1, value, lease);
    }

    fn carry_out(&mut self, transaction: &Transaction<u8>) -> TransactionAnswer<u8> {
        let succeeded = transaction.compare.iter().all(|compare| match compare {
            Compare::Created(key, at) => self.keys.get(key).map_or(0, |kept| kept.created) == *at,
            Compare::Puts(key, puts) => self.keys.get(key).map_or(0, |kept| kept.puts) == *puts,
        });
        self.revision += 1;
        let operations = if succeeded {
            &transaction.success
        } else {
            &transaction.failure
        };
        let found = operations.iter().map(|operation| match operation {
            Operation::Lead(lease) => {
                self.put(Key::Leader, 0, *lease);
                None
            }
            Operation::Put(number, value) => {
                self.put(Key::Record(*number), *value, 0);
                None
            }
            Operation::Get(key) => self.keys.get(key).map(|kept| Found {
                created: kept.created,
                puts: kept.puts,
                value: kept.value,
            }),
            Operation::Delete(key) => {
                self.keys.remove(key);
                None
            }
        });
        TransactionAnswer {
            succeeded,
            found: found.collect(),
            revision: self.revision,
        }
    }

    fn elect(&mut self) -> Option<(Elected, i64)> {
        if !is_vacant(&self.carry_out(&look())) {
            return None;
        }
        let lease = self.grant();
        let answer = self.carry_out(&stand(lease));
        Elected::by(lease, &answer).map(|elected| (elected, lease))
    }

    fn append(&mut self, by: &mut Elected, number: u64, record: u8) -> Result<(), NotTaken> {
        let answer = self.carry_out(&by.append(number, &record));
        by.appended(&record, &answer)
    }

    fn records(&mut self, page: usize) -> Vec<(u64, u8)> {
        let mut reading = Reading::default();
        while let Some(from) = reading.next() {
            let mut behind = self.keys.range(Key::Record(from)..);
            let part: Vec<_> = behind.by_ref().take(page).collect();
            let part = part.into_iter().filter_map(|(key, kept)| match key {
                Key::Record(number) => Some((*number, kept.value)),
                Key::Leader => None,
            });
            let part: Vec<_> = part.collect();
            reading.take(part, behind.next().is_some());
        }
        reading.records().collect()
    }
}

#[test]
fn one_is_elected_until_its_lease_is_over_and_then_writes_nothing() {
    let mut store = Store::default();
    let (mut first, lease) = store.elect().unwrap();
    assert!(store.elect().is_none());
    assert_eq!(store.append(&mut first, 0, 7), Ok(()));
    store.end_lease(lease);
    // While none is elected it writes nothing either.
    assert_eq!(store.append(&mut first, 1, 8), Err(NotTaken::Deposed));
    let (mut second, _) = store.elect().unwrap();
    assert!(second.revision() > first.revision());
    assert_eq!(store.append(&mut first, 1, 8), Err(NotTaken::Deposed));
    assert!(!store.carry_out(&first.forget(&[0])).succeeded);
    assert!(!store.carry_out(&first.resign()).succeeded);
    assert_eq!(store.append(&mut second, 1, 9), Ok(()));
    assert_eq!(store.records(1), [(0, 7), (1, 9)]);
}

#[test]
fn a_record_whose_answer_was_lost_is_written_once() {
    let mut store = Store::default();
    let (mut leader, _) = store.elect().unwrap();
    let lost = leader.append(0, &1);
    store.carry_out(&lost);
    assert_eq!(store.append(&mut leader, 0, 1), Ok(()));
    assert_eq!(store.append(&mut leader, 1, 2), Ok(()));
    assert_eq!(store.append(&mut leader, 1, 3), Err(NotTaken::Other));
    assert_eq!(store.records(100), [(0, 1), (1, 2)]);
}

#[test]
fn a_request_that_comes_late_brings_no_forgotten_record_back() {
    let mut store = Store::default();
    let (mut leader, _) = store.elect().unwrap();
    let late = leader.append(0, &1);
    assert_eq!(store.append(&mut leader, 0, 1), Ok(()));
    assert_eq!(store.append(&mut leader, 1, 2), Ok(()));
    assert!(store.carry_out(&leader.forget(&[0])).succeeded);
    assert!(!store.carry_out(&late).succeeded);
    assert_eq!(store.records(100), [(1, 2)]);
    assert_eq!(store.append(&mut leader, 2, 3), Ok(()));
}

#[test]
fn a_log_is_read_whole_by_pages_of_any_length() {
    let mut store = Store::default();
    let (mut leader, _) = store.elect().unwrap();
    for number in 0..20 {
        store.append(&mut leader, number, number as u8).unwrap();
    }
    assert!(store.carry_out(&leader.forget(&[0, 3, 4, 19])).succeeded);
    let whole = store.records(100);
    assert_eq!(whole.len(), 16);
    for page in 1..20 {
        assert_eq!(store.records(page), whole, "{page}");
    }
}

#[test]
fn a_lease_is_counted_from_before_it_was_asked_for() {
    let mut hold = Hold::new(100, 50);
    assert!(!hold.is_over(149) && hold.is_over(150));
    hold.answered(120, true);
    // An answer to an older question makes nothing shorter.
    hold.answered(110, true);
    assert!(!hold.is_over(169) && hold.is_over(170));
    hold.answered(121, false);
    assert!(hold.is_over(122));
}
