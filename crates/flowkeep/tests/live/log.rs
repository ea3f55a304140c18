//! Clients' tries and failures, by client; from as many threads as there are clients.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

#[derive(Default)]
pub struct Log(Mutex<BTreeMap<String, Tried>>);

#[derive(Default)]
struct Tried {
    attempts: u64,
    failures: Vec<String>,
}

impl Log {
    /// Notes an attempt, and prints how it went.
    pub fn expect(&self, client: &str, good: bool, said: impl std::fmt::Display) {
        println!("{} {client}", if good { "good" } else { "BAD " });
        self.note(client, good, || said.to_string());
    }

    /// Notes one of very many attempts.
    pub fn note(&self, client: &str, good: bool, said: impl FnOnce() -> String) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let tried = all.entry(client.to_owned()).or_default();
        tried.attempts += 1;
        if !good {
            tried.failures.push(said());
        }
    }

    /// At least so many different clients have tried, and none failed.
    pub fn end(&self, clients_min: usize) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut attempts, mut failures) = (0, Vec::new());
        for (client, tried) in all.iter() {
            if tried.attempts > 1 {
                println!(
                    "{client}: {} tried, {} failed",
                    tried.attempts,
                    tried.failures.len()
                );
            }
            attempts += tried.attempts;
            failures.extend(tried.failures.iter().map(|said| format!("{client}: {said}")));
        }
        assert!(
            all.len() >= clients_min.max(1),
            "only these have tried anything: {:?}",
            all.keys().collect::<Vec<_>>()
        );
        assert!(
            failures.is_empty(),
            "{} of {attempts} failed:\n{}",
            failures.len(),
            failures.join("\n")
        );
    }
}
