//! A node of Cassandra that answers as one does, until it is asked for anything: then it lies.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// The claim of an answer.
#[derive(Clone, Copy, Debug)]
pub enum Lie {
    /// To have 2^31 - 1 columns, for which the library reserves 223 GB.
    Columns,
    /// That its column is a list of lists, so many levels deep, each of which is a call within one.
    Nested(usize),
}

/// Starts the node; answers its port. The node ends with the process.
pub fn start(lie: Lie) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream, lie));
        }
    });
    port
}

fn serve(mut stream: TcpStream, lie: Lie) -> std::io::Result<()> {
    loop {
        // version, flags, stream (2), opcode, length (4)
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut body = vec![0; length as usize];
        stream.read_exact(&mut body)?;
        let (opcode, body) = match head[4] {
            // OPTIONS: SUPPORTED, nothing.
            5 => (6, vec![0, 0]),
            // STARTUP, REGISTER: READY.
            1 | 11 => (2, Vec::new()),
            // PREPARE, and statements that have rows: RESULT.
            9 => (8, [&[0, 0, 0, 4, 0, 1, b'i'][..], &columns(lie, true)].concat()),
            _ => (8, [&[0, 0, 0, 2][..], &columns(lie, false)].concat()),
        };
        let length = u32::try_from(body.len()).expect("a short answer").to_be_bytes();
        let head = [0x84, 0, head[2], head[3], opcode];
        stream.write_all(&[&head[..], &length, &body].concat())?;
    }
}

/// All columns are of table `t` in keyspace `k`; a statement has no partition key.
fn columns(lie: Lie, is_statement: bool) -> Vec<u8> {
    let count = match lie {
        Lie::Columns => i32::MAX,
        Lie::Nested(_) => 1,
    };
    let mut answer = [1_i32.to_be_bytes(), count.to_be_bytes()].concat();
    if is_statement {
        answer.extend([0; 4]);
    }
    answer.extend([0, 1, b'k', 0, 1, b't', 0, 1, b'c']);
    if let Lie::Nested(levels) = lie {
        answer.extend([0, 0x20].repeat(levels));
    }
    // An integer; and no rows.
    answer.extend([0, 9, 0, 0, 0, 0]);
    answer
}
