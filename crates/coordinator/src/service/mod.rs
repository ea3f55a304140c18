//! The service: connections that are let in, and calls that are answered.

mod calls;
mod connections;
mod house;
mod orders;
mod refusing;

pub use calls::Service;
pub use connections::Session;

use crate::proto::coordinator_server::CoordinatorServer;
use rustls::ServerConfig;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;

/// The longest message, in bytes: a heartbeat of a member with all workers of a cluster, each
/// withdrawing some.
const MESSAGE_MAX: usize = 256 << 10;
/// How often a connection is asked whether it lives, and how long it may take to answer.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// After which time a connection ends, so that certificates are judged again. Members have another
/// one by then (`agent`).
pub const AGE_MAX: Duration = Duration::from_secs(3600);
/// Calls on one connection at a time.
const CALLS_MAX: u32 = 16;

/// Until it is told to end.
pub async fn serve(
    listener: std::net::TcpListener,
    tls: Arc<ServerConfig>,
    (service, age): (Service, Duration),
    ended: oneshot::Receiver<()>,
) {
    let (kept, relay) = (service.kept.clone(), service.relay.clone());
    let keeping = service
        .keeper
        .map(|keeper| tokio::spawn(kept.follow(relay, keeper)));
    let (sender, sessions) = mpsc::channel::<std::io::Result<Session>>(16);
    let refused = (service.refused.clone(), service.events.clone());
    let accepting = tokio::spawn(connections::accept(listener, tls, sender, refused));
    let calls = CoordinatorServer::new(service)
        .max_decoding_message_size(MESSAGE_MAX)
        .max_encoding_message_size(MESSAGE_MAX);
    let serving = Server::builder()
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE))
        .max_connection_age(age)
        .max_connection_age_grace(KEEP_ALIVE)
        .max_concurrent_streams(CALLS_MAX)
        .http2_max_header_list_size(8 << 10)
        .initial_stream_window_size(MESSAGE_MAX as u32)
        .initial_connection_window_size(2 * MESSAGE_MAX as u32)
        .add_service(calls)
        .serve_with_incoming(ReceiverStream::new(sessions));
    // Streams never end by themselves, so nothing is waited for.
    tokio::select! {
        _ = serving => {}
        _ = ended => {}
    }
    accepting.abort();
    keeping.inspect(|keeping| keeping.abort());
}
