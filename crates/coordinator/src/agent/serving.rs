//! A member's answers to operators' requests by the coordinator: a thread and a connection of their
//! own.
//!
//! ```text
//!   coordinator ── Serve: Asked ─► thread "answers" ─► a thread for each, ANSWERS_MAX at most ─► the answerer
//!               ◄─ Serve: Served ──────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Heartbeats have another connection, so an answer of any length delays none. In place of an
//! answer of more than [`ANSWER_MAX`] bytes, a word that it is too long is sent.
//!
//! Not here: the content of answers (`flowkeep::control`).

use super::connecting::CallError;
use super::running::{LASTING, Ways, within};
use crate::identity::Identity;
use crate::proto::served::What;
use crate::proto::{Asked, Served, Unserved};
use crate::relay::{ANSWER_MAX, MEMBER_MAX};
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;

/// Requests that are answered at once at most.
const ANSWERS_MAX: usize = MEMBER_MAX;

/// Answers a request, both as bytes. It may take its time; several threads call it.
pub type Answerer = Arc<dyn Fn(&[u8]) -> Vec<u8> + Send + Sync>;

/// Answers as long as this lives.
pub struct Serving {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// Begins to answer, by whichever of these coordinators listens.
    pub fn start(coordinators: Vec<String>, identity: Identity, answerer: Answerer) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(ANSWERS_MAX)
            .build()?;
        let (end, ended) = oneshot::channel();
        let thread = thread::Builder::new().name("answers".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve(coordinators, identity, answerer) => {}
                    _ = ended => {}
                }
            });
            // No operator gets an answer that is still being made.
            runtime.shutdown_background();
        })?;
        Ok(Serving {
            end: Some(end),
            thread: Some(thread),
        })
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.end.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

async fn serve(coordinators: Vec<String>, identity: Identity, answerer: Answerer) {
    let mut ways = Ways::new(coordinators);
    loop {
        let mut begun = None;
        // The agent says that no coordinator is there.
        let _ = attend(&mut ways, &identity, &answerer, &mut begun).await;
        // A connection that ends at once is tried again later and later: another process may have
        // this member's certificate.
        if begun.is_some_and(|begun: Instant| begun.elapsed() >= LASTING) {
            ways.keep();
        } else {
            ways.pause().await;
        }
    }
}

/// Answers on one connection until it ends.
async fn attend(
    ways: &mut Ways,
    identity: &Identity,
    answerer: &Answerer,
    begun: &mut Option<Instant>,
) -> Result<(), CallError> {
    let (_, mut client) = ways.connect(identity).await?;
    let (answers, stream) = mpsc::channel(ANSWERS_MAX);
    let mut asked = within(client.serve(ReceiverStream::new(stream))).await?;
    *begun = Some(Instant::now());
    let room = Arc::new(Semaphore::new(ANSWERS_MAX));
    while let Some(Asked { number, request }) = asked.message().await? {
        let Ok(place) = room.clone().try_acquire_owned() else {
            let what = Some(What::Unserved(Unserved::Busy.into()));
            // A full queue has answers that are older: the coordinator's time is over before this
            // one's.
            let _ = answers.try_send(Served { number, what });
            continue;
        };
        let (answerer, answers) = (answerer.clone(), answers.clone());
        tokio::spawn(async move {
            let answered = tokio::task::spawn_blocking(move || answerer(&request)).await;
            let what = match answered {
                Ok(answer) if answer.len() <= ANSWER_MAX => What::Answer(answer),
                Ok(_) => What::Unserved(Unserved::TooLong.into()),
                Err(_) => What::Unserved(Unserved::Failed.into()),
            };
            let what = Some(what);
            let _ = answers.send(Served { number, what }).await;
            drop(place);
        });
    }
    Ok(())
}
