//! Proxies between a client and a real server that do harm.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Hands bytes on between a client and the server, and cuts each connection after some of them:
/// either way, anywhere. The way to the server is cut after `sent` bytes at least, the way back
/// after `heard`; each after up to so many more.
pub fn cutting_proxy(
    to: u16,
    cuts: Arc<AtomicU64>,
    whole: Arc<AtomicBool>,
    [sent, heard]: [(u64, u64); 2],
) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", to))) else {
                return;
            };
            let mut next = |below: u64| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random % below
            };
            let left = [sent.0 + next(sent.1), heard.0 + next(heard.1)];
            for (from, into, mut left) in [(&client, &server, left[0]), (&server, &client, left[1])] {
                let (mut from, mut into) = (from.try_clone().unwrap(), into.try_clone().unwrap());
                let (cuts, whole) = (Arc::clone(&cuts), Arc::clone(&whole));
                std::thread::spawn(move || {
                    let mut buffer = [0; 1500];
                    while let Ok(length @ 1..) = from.read(&mut buffer) {
                        let mut pass = length;
                        if !whole.load(Ordering::Relaxed) {
                            pass = length.min(left as usize);
                            left -= pass as u64;
                        }
                        if into.write_all(&buffer[..pass]).is_err() || pass < length {
                            cuts.fetch_add(1, Ordering::Relaxed);
                            break;
                        }
                    }
                    let _ = (from.shutdown(Shutdown::Both), into.shutdown(Shutdown::Both));
                });
            }
        }
    });
    port
}

/// Hands bytes on between a client and the server; the server's answers are late, by a time of its
/// own each time.
pub fn slow_proxy(to: u16, late: std::ops::Range<u64>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", to))) else {
                return;
            };
            for (from, into, late) in [(&client, &server, 0..1), (&server, &client, late.clone())] {
                let (mut from, mut into) = (from.try_clone().unwrap(), into.try_clone().unwrap());
                std::thread::spawn(move || {
                    let (mut buffer, mut answers) = ([0; 65536], 0);
                    while let Ok(length @ 1..) = from.read(&mut buffer) {
                        answers += 37;
                        let time = late.start + answers % (late.end - late.start);
                        std::thread::sleep(Duration::from_millis(time));
                        if into.write_all(&buffer[..length]).is_err() {
                            break;
                        }
                    }
                    let _ = (from.shutdown(Shutdown::Both), into.shutdown(Shutdown::Both));
                });
            }
        }
    });
    port
}

/// Bytes on their way.
pub struct Passing<'p> {
    /// Which connection's.
    pub connection: usize,
    /// Whether the server says them.
    pub is_answer: bool,
    /// How many went before them, this way.
    pub before: usize,
    pub bytes: &'p mut [u8],
}

/// Hands bytes on between a client and the server, and has each part of them looked at or altered.
pub fn altering_proxy(to: u16, alter: impl Fn(Passing<'_>) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let alter = Arc::new(alter);
    std::thread::spawn(move || {
        for (connection, client) in listener.incoming().enumerate() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", to))) else {
                return;
            };
            for (from, into, is_answer) in [(&client, &server, false), (&server, &client, true)] {
                let (mut from, mut into) = (from.try_clone().unwrap(), into.try_clone().unwrap());
                let alter = Arc::clone(&alter);
                std::thread::spawn(move || {
                    let (mut buffer, mut before) = ([0; 65536], 0);
                    while let Ok(length @ 1..) = from.read(&mut buffer) {
                        let bytes = &mut buffer[..length];
                        alter(Passing {
                            connection,
                            is_answer,
                            before,
                            bytes: &mut *bytes,
                        });
                        before += length;
                        if into.write_all(bytes).is_err() {
                            break;
                        }
                    }
                    let _ = (from.shutdown(Shutdown::Both), into.shutdown(Shutdown::Both));
                });
            }
        }
    });
    port
}
