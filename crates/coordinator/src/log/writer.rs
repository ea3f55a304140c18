//! The thread that waits for the disk, so that no other does.

use super::{Log, LogError};
use protocols::election::Spare;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// After which time a record that was not taken is tried again.
pub const RETRY: Duration = Duration::from_secs(1);

/// What the writer says.
#[derive(Debug)]
pub enum Report {
    /// The record of this number is in the log.
    Written(u64),
    /// It is not, and is tried again.
    Trouble(LogError),
    /// It is not, and no other will be.
    Over(LogError),
}

enum Job {
    Append(u64, Vec<u8>),
    Forget(Vec<u64>),
}

/// The thread. It ends when this is dropped, behind what it was handed.
pub struct Writer {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts it. It says what comes of each record to `report`, which says whether the decider
    /// still listens.
    pub fn start<L: Log + ?Sized>(
        mut log: Box<L>,
        mut report: impl FnMut(Report) -> bool + Send + 'static,
    ) -> std::io::Result<Self> {
        let (jobs, queue) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("coordinator log".to_owned())
            .spawn(move || run(&mut *log, &queue, &mut report))?;
        Ok(Writer {
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    /// Hands a record over. How many are under way is bounded by the decider.
    pub fn append(&self, number: u64, record: Vec<u8>) {
        self.hand(Job::Append(number, record));
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
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn run<L: Log + ?Sized>(log: &mut L, queue: &Receiver<Job>, report: &mut dyn FnMut(Report) -> bool) {
    let mut spare = Spare::default();
    while let Ok(job) = queue.recv() {
        match job {
            Job::Append(number, record) => {
                while let Err(why) = log.append(number, &record) {
                    let may_pass = why.may_pass();
                    let said = match may_pass {
                        true => Report::Trouble(why),
                        false => Report::Over(why),
                    };
                    if !report(said) || !may_pass {
                        return;
                    }
                    thread::sleep(RETRY);
                }
                if !report(Report::Written(number)) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

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
}
