//! The thread that waits for the disk, so that no other does.
//!
//! A record that was not taken is tried again, until the writer is to end: no caller was told that
//! the log has it. A record that an operator waits for may be
//! *withdrawn* instead: where the store says that it is not there, another record gets its number,
//! so a decision that an operator was told has failed does not come later.

use super::{Log, LogError};
use protocols::election::Spare;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// After which time a record that was not taken is tried again.
pub const RETRY: Duration = Duration::from_secs(1);

/// A report of the writer.
#[derive(Debug)]
pub enum Report {
    /// The record of this number is in the log.
    Written(u64),
    /// It is not, and is tried again.
    Trouble(LogError),
    /// It is not, and no other will be.
    Over(LogError),
    /// The record of this number is not in the log, and never will be. Another one, which says
    /// nothing new, is tried in its place.
    Withdrawn(u64),
}

enum Job {
    /// The record, and the one that may have its number instead.
    Append(u64, Vec<u8>, Option<Vec<u8>>),
    Forget(Vec<u64>),
}

/// The thread. It ends when this is dropped, behind the records that it was handed, or at the first
/// of them that the log does not take.
pub struct Writer {
    jobs: Option<Sender<Job>>,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts it. It reports each record's outcome to `report`, which says whether the decider
    /// still listens.
    pub fn start<L: Log + ?Sized>(
        mut log: Box<L>,
        mut report: impl FnMut(Report) -> bool + Send + 'static,
    ) -> std::io::Result<Self> {
        let (jobs, queue) = mpsc::channel();
        let end = Arc::new(AtomicBool::new(false));
        let is_over = end.clone();
        let thread = thread::Builder::new()
            .name("coordinator log".to_owned())
            .spawn(move || run(&mut *log, &queue, &is_over, &mut report))?;
        Ok(Writer {
            jobs: Some(jobs),
            end,
            thread: Some(thread),
        })
    }

    /// Hands a record over. How many are under way is bounded by the decider.
    pub fn append(&self, number: u64, record: Vec<u8>) {
        self.hand(Job::Append(number, record, None));
    }

    /// The same of a record that is withdrawn if the log does not take it at once; `instead` has
    /// its number then.
    pub fn append_or(&self, number: u64, record: Vec<u8>, instead: Vec<u8>) {
        self.hand(Job::Append(number, record, Some(instead)));
    }

    /// Hands over which records may go.
    pub fn forget(&self, numbers: Vec<u64>) {
        self.hand(Job::Forget(numbers));
    }

    fn hand(&self, job: Job) {
        // A thread that is gone has said why.
        let _ = self.jobs.as_ref().map(|jobs| jobs.send(job));
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        self.end.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Waits before another attempt. Answers whether there is to be one.
fn pause(is_over: &AtomicBool) -> bool {
    if !is_over.load(Ordering::Acquire) {
        thread::park_timeout(RETRY);
    }
    !is_over.load(Ordering::Acquire)
}

fn run<L: Log + ?Sized>(
    log: &mut L,
    queue: &Receiver<Job>,
    is_over: &AtomicBool,
    report: &mut dyn FnMut(Report) -> bool,
) {
    let mut spare = Spare::default();
    while let Ok(job) = queue.recv() {
        match job {
            Job::Append(number, record, instead) => {
                if !append(log, number, (record, instead), is_over, report) {
                    return;
                }
            }
            Job::Forget(numbers) => {
                spare.add(numbers);
                let have_gone = log.forget(spare.all()).is_ok();
                spare.done(have_gone);
            }
        }
    }
}

/// Tries a record until the log has it, or the other one in its place. Answers whether the decider
/// still listens, and more may be written.
fn append<L: Log + ?Sized>(
    log: &mut L,
    number: u64,
    (mut record, mut instead): (Vec<u8>, Option<Vec<u8>>),
    is_over: &AtomicBool,
    report: &mut dyn FnMut(Report) -> bool,
) -> bool {
    while let Err(why) = log.append(number, &record) {
        let may_pass = why.may_pass();
        if !matches!(why, LogError::Store(_)) {
            // A store that lies may show the record later.
            instead = None;
        }
        let said = match may_pass {
            true => Report::Trouble(why),
            false => Report::Over(why),
        };
        if !report(said) || !may_pass {
            return false;
        }
        // Until it is known whether the record is there, it is not tried again.
        while let Some(other) = instead.take() {
            match log.has(number) {
                Ok(Some(false)) => {
                    record = other;
                    if !report(Report::Withdrawn(number)) {
                        return false;
                    }
                }
                Err(why) if why.may_pass() => {
                    instead = Some(other);
                    if !report(Report::Trouble(why)) || !pause(is_over) {
                        return false;
                    }
                }
                Ok(_) | Err(_) => {}
            }
        }
        if !pause(is_over) {
            return false;
        }
    }
    report(Report::Written(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};
    use std::time::Instant;

    /// A log that forgets nothing so often, since it does not answer.
    struct Silent {
        records: Arc<Mutex<BTreeMap<u64, Vec<u8>>>>,
        times: u32,
    }

    impl Log for Silent {
        fn read(&mut self) -> Result<Vec<(u64, Vec<u8>)>, LogError> {
            Ok(Vec::new())
        }

        fn append(&mut self, number: u64, record: &[u8]) -> Result<(), LogError> {
            self.records.lock().unwrap().insert(number, record.to_vec());
            Ok(())
        }

        fn forget(&mut self, numbers: &[u64]) -> Result<(), LogError> {
            if self.times > 0 {
                self.times -= 1;
                return Err(LogError::Store("silent".to_owned()));
            }
            let mut records = self.records.lock().unwrap();
            records.retain(|number, _| !numbers.contains(number));
            Ok(())
        }
    }

    #[test]
    fn no_record_stays_behind_one_before_it_that_goes() {
        let records = Arc::default();
        let log = Silent {
            records: Arc::clone(&records),
            times: 1,
        };
        let writer = Writer::start(Box::new(log), |_| true).unwrap();
        for number in 0..6 {
            writer.append(number, vec![0]);
        }
        writer.forget(vec![0, 1]);
        writer.forget(vec![2, 3]);
        drop(writer);
        let left: Vec<u64> = records.lock().unwrap().keys().copied().collect();
        assert_eq!(left, [4, 5]);
    }

    /// A log that takes nothing, as on a full disk.
    struct Refusing;

    impl Log for Refusing {
        fn read(&mut self) -> Result<Vec<(u64, Vec<u8>)>, LogError> {
            Ok(Vec::new())
        }

        fn append(&mut self, _: u64, _: &[u8]) -> Result<(), LogError> {
            Err(LogError::Store("no space left".to_owned()))
        }

        fn has(&mut self, _: u64) -> Result<Option<bool>, LogError> {
            Err(LogError::Store("no space left".to_owned()))
        }

        fn forget(&mut self, _: &[u64]) -> Result<(), LogError> {
            Ok(())
        }
    }

    #[test]
    fn a_record_that_is_not_taken_holds_up_no_end() {
        for instead in [None, Some(b"instead".to_vec())] {
            let (said, troubles) = mpsc::channel();
            let report = move |report| said.send(report).is_ok();
            let writer = Writer::start(Box::new(Refusing), report).unwrap();
            match instead {
                None => writer.append(7, b"record".to_vec()),
                Some(instead) => writer.append_or(7, b"record".to_vec(), instead),
            }
            let first = troubles.recv().unwrap();
            assert!(matches!(first, Report::Trouble(_)), "{first:?}");
            let begun = Instant::now();
            let (dropped, ended) = mpsc::channel();
            thread::spawn(move || {
                drop(writer);
                let _ = dropped.send(());
            });
            // Reports are heard to the end.
            ended.recv_timeout(2 * RETRY).expect("it ends");
            assert!(begun.elapsed() < 2 * RETRY);
            assert!(!troubles.iter().any(|report| matches!(report, Report::Written(_))));
        }
    }

    /// A failed attempt's remains in a store, as far as the store can say.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Left {
        Nothing,
        /// The record, though the store said that it failed.
        Record,
        /// A store that cannot tell.
        Unknown,
    }

    /// A log whose first attempt to write fails, and which cannot be read for a while then.
    struct Failing {
        records: Arc<Mutex<BTreeMap<u64, Vec<u8>>>>,
        left: Left,
        attempts: u32,
        unread: usize,
    }

    impl Log for Failing {
        fn read(&mut self) -> Result<Vec<(u64, Vec<u8>)>, LogError> {
            Ok(Vec::new())
        }

        fn append(&mut self, number: u64, record: &[u8]) -> Result<(), LogError> {
            self.attempts += 1;
            if self.attempts > 1 || self.left == Left::Record {
                let mut records = self.records.lock().unwrap();
                let there = records.entry(number).or_insert_with(|| record.to_vec());
                assert_eq!(*there, record, "one record of a number");
            }
            match self.attempts {
                1 => Err(LogError::Store("no space left".to_owned())),
                _ => Ok(()),
            }
        }

        fn has(&mut self, number: u64) -> Result<Option<bool>, LogError> {
            if self.unread > 0 {
                self.unread -= 1;
                return Err(LogError::Store("no space left".to_owned()));
            }
            let is_there = self.records.lock().unwrap().contains_key(&number);
            Ok((self.left != Left::Unknown).then_some(is_there))
        }

        fn forget(&mut self, _: &[u64]) -> Result<(), LogError> {
            Ok(())
        }
    }

    #[test]
    fn a_record_that_was_withdrawn_is_never_written() {
        for (left, unread, is_withdrawn) in [
            (Left::Nothing, 0, true),
            // It is not tried again before it is known whether it is there.
            (Left::Nothing, 1, true),
            (Left::Record, 1, false),
            (Left::Unknown, 0, false),
        ] {
            let (records, said) = (Arc::default(), Arc::new(Mutex::new(Vec::new())));
            let log = Failing {
                records: Arc::clone(&records),
                left,
                attempts: 0,
                unread,
            };
            let told = Arc::clone(&said);
            let report = move |report| {
                let word = match report {
                    Report::Trouble(_) => "trouble",
                    Report::Withdrawn(7) => "withdrawn",
                    Report::Written(7) => "written",
                    Report::Written(_) | Report::Withdrawn(_) | Report::Over(_) => "other",
                };
                told.lock().unwrap().push(word);
                true
            };
            let writer = Writer::start(Box::new(log), report).unwrap();
            writer.append_or(7, b"decision".to_vec(), b"instead".to_vec());
            while said.lock().unwrap().last() != Some(&"written") {
                thread::sleep(RETRY / 50);
            }
            drop(writer);
            let mut expected = vec!["trouble"; 1 + unread];
            expected.extend(is_withdrawn.then_some("withdrawn"));
            expected.push("written");
            assert_eq!(*said.lock().unwrap(), expected, "{left:?} {unread}");
            let there: Vec<(u64, Vec<u8>)> = records.lock().unwrap().clone().into_iter().collect();
            let record: &[u8] = match is_withdrawn {
                true => b"instead",
                false => b"decision",
            };
            assert_eq!(there, [(7, record.to_vec())], "{left:?} {unread}");
        }
    }
}
