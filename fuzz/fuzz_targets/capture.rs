//! Captures: any bytes are read to an end or an error, and every frame lies within them.

#![no_main]

use adapters::pcap::Reader;
use libfuzzer_sys::fuzz_target;
use std::io::Cursor;
use std::path::PathBuf;

/// Bytes.
const WINDOW: usize = 256;

fuzz_target!(|input: &[u8]| {
    // A small window, so that records lie across its end; the usual one would cost most of a run's
    // time.
    let Ok(mut reader) = Reader::with_buffer(Cursor::new(input), PathBuf::from("fuzz.pcap"), WINDOW) else {
        return;
    };
    let mut total = 0;
    while let Ok(Some(record)) = reader.next() {
        total += reader.frame(&record).len();
        assert!(total <= input.len());
    }
});
