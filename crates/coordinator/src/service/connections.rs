//! Connections that are let in: TLS within a time, a certificate of this cluster or none, bounds on
//! how many.
//!
//! ```text
//!   accept ─► handshake (HANDSHAKE at most) ─► certified? ─┬─► member, operator: KNOWN_MAX connections, so many of each
//!              at most HANDSHAKES_MAX at a time            └─► no certificate: ANONYMOUS_MAX, ANONYMOUS_AGE at most
//! ```
//!
//! A handshake, and a connection without a certificate, has a place of which another connection may
//! send it away ([`House`]): no caller is kept out by connections that say nothing.
//!
//! A connection on which nothing comes in for [`SILENCE`] ends: the service asks each one more
//! often whether it lives.

use super::house::{House, Place};
use crate::identity::{Caller, tls, why_refused};
use crate::refusal::{Refusal, Refusals};
use crate::server::{Event, Events};
use rustls::ServerConfig;
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

const HANDSHAKE: Duration = Duration::from_secs(5);
/// When more than half of the places are taken. A handshake needs some round trips and 5 ms of
/// work.
const HANDSHAKE_CROWDED: Duration = Duration::from_secs(1);
const HANDSHAKES_MAX: usize = 64;
const KNOWN_MAX: usize = 512;
/// Of one member. It has two, twice as many while it takes the next ones, one for each question
/// before it joins, and those of a process before it until their silence is noticed.
const MEMBERS_MAX: usize = 16;
/// Of one operator's certificate, which many commands may share. All three together leave room.
const OPERATORS_MAX: usize = 64;
const ANONYMOUS_MAX: usize = 16;
const ANONYMOUS_AGE: Duration = Duration::from_secs(30);
const SILENCE: Duration = Duration::from_secs(30);

/// A connection that was let in.
pub struct Session {
    stream: TlsStream<TcpStream>,
    caller: Caller,
    from: SocketAddr,
    /// It ends then, unless something comes in before; that of a caller without a certificate ends
    /// in any case.
    end: Pin<Box<Sleep>>,
    heard: Instant,
    /// Of one without a certificate: when another one needs its place.
    sent_away: Option<Place>,
    _place: Option<KnownPlace>,
}

/// The other end of a connection, for calls.
#[derive(Clone, Debug)]
pub struct Peer {
    pub caller: Caller,
    pub from: SocketAddr,
}

impl Connected for Session {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        Peer {
            caller: self.caller.clone(),
            from: self.from,
        }
    }
}

impl AsyncRead for Session {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(cx, buffer) {
            this.heard = Instant::now();
            return Poll::Ready(read);
        }
        let sent_away = this.sent_away.as_mut().map(|place| Pin::new(place).poll(cx));
        if sent_away.is_some_and(|polled| polled.is_ready()) {
            this.sent_away = None;
            this.end.as_mut().reset(Instant::now());
        }
        while this.end.as_mut().poll(cx).is_ready() {
            let later = this.heard + SILENCE;
            if this.caller == Caller::Anonymous || later <= Instant::now() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            this.end.as_mut().reset(later);
        }
        Poll::Pending
    }
}

impl AsyncWrite for Session {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// How many connections there are, by the caller that a certificate names.
#[derive(Default)]
struct Known(Mutex<BTreeMap<String, usize>>);

impl Known {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place, if there is one: no caller takes those of all others.
    fn enter(self: &Arc<Self>, caller: &Caller) -> Option<KnownPlace> {
        let most = match caller {
            Caller::Member(_) => MEMBERS_MAX,
            _ => OPERATORS_MAX,
        };
        let caller = caller.to_string();
        let mut all = self.all();
        let there = all.get(&caller).copied().unwrap_or(0);
        if there >= most || all.values().sum::<usize>() >= KNOWN_MAX {
            return None;
        }
        all.insert(caller.clone(), there + 1);
        let known = self.clone();
        Some(KnownPlace { known, caller })
    }
}

/// A place of a caller with a certificate. It is free when this is dropped.
struct KnownPlace {
    known: Arc<Known>,
    caller: String,
}

impl Drop for KnownPlace {
    fn drop(&mut self) {
        let mut all = self.known.all();
        let left = all.get(&self.caller).map_or(0, |there| there.saturating_sub(1));
        match left {
            0 => all.remove(&self.caller),
            left => all.insert(self.caller.clone(), left),
        };
    }
}

#[derive(Clone)]
struct Admission {
    acceptor: TlsAcceptor,
    sessions: mpsc::Sender<io::Result<Session>>,
    known: Arc<Known>,
    anonymous: Arc<Mutex<House>>,
    refused: Arc<Refusals>,
    events: Events,
}

/// Lets connections in, for ever.
pub async fn accept(
    listener: std::net::TcpListener,
    tls: Arc<ServerConfig>,
    sessions: mpsc::Sender<io::Result<Session>>,
    (refused, events): (Arc<Refusals>, Events),
) {
    let Ok(listener) = TcpListener::from_std(listener) else {
        return;
    };
    let admission = Admission {
        acceptor: TlsAcceptor::from(tls),
        sessions,
        known: Arc::default(),
        anonymous: Arc::new(Mutex::new(House::new(ANONYMOUS_MAX))),
        refused,
        events,
    };
    let mut handshakes = House::new(HANDSHAKES_MAX);
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            // No descriptors are left, as a rule: connections that end give some back.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (place, _) = handshakes.enter(from.ip());
        let longest = match handshakes.is_crowded() {
            true => HANDSHAKE_CROWDED,
            false => HANDSHAKE,
        };
        let admission = admission.clone();
        tokio::spawn(async move {
            let shaken = tokio::select! {
                shaken = admission.shake(stream, longest) => shaken,
                _ = place => Err(Refusal::Connections),
            };
            let let_in = match shaken {
                Ok(stream) => admission.let_in(stream, from).await,
                Err(refusal) => Err(refusal),
            };
            if let Err(refusal) = let_in {
                admission.refuse(refusal, from);
            }
        });
    }
}

impl Admission {
    async fn shake(&self, stream: TcpStream, longest: Duration) -> Result<TlsStream<TcpStream>, Refusal> {
        let _ = stream.set_nodelay(true);
        let handshake = timeout(longest, self.acceptor.accept(stream)).await;
        let handshake = handshake.map_err(|_| Refusal::SlowHandshake)?;
        handshake.map_err(|why| why_refused(&why))
    }

    async fn let_in(&self, stream: TlsStream<TcpStream>, from: SocketAddr) -> Result<(), Refusal> {
        let certificates = stream.get_ref().1.peer_certificates();
        let caller = match certificates.and_then(<[_]>::first) {
            None => Caller::Anonymous,
            Some(certificate) => tls::caller(certificate).ok_or(Refusal::CertificateRole)?,
        };
        let (mut place, mut sent_away, mut age) = (None, None, SILENCE);
        if caller == Caller::Anonymous {
            let mut house = self.anonymous.lock().unwrap_or_else(PoisonError::into_inner);
            let (entered, gone) = house.enter(from.ip());
            gone.inspect(|_| self.refused.count(Refusal::Connections));
            (sent_away, age) = (Some(entered), ANONYMOUS_AGE);
        } else {
            place = Some(self.known.enter(&caller).ok_or(Refusal::Connections)?);
        }
        let now = Instant::now();
        let session = Session {
            stream,
            caller,
            from,
            end: Box::pin(sleep_until(now + age)),
            heard: now,
            sent_away,
            _place: place,
        };
        let _ = self.sessions.send(Ok(session)).await;
        Ok(())
    }

    fn refuse(&self, refusal: Refusal, from: SocketAddr) {
        self.refused.count(refusal);
        let name = refusal.name();
        (self.events)(Event::Refused { name, from });
    }
}
