//! Captures: any bytes are read to an end or an error, and every frame lies within them.

#![no_main]

use adapters::pcap::Reader;
use libfuzzer_sys::fuzz_target;
use std::io::Cursor;
use std::path::PathBuf;

fuzz_target!(|input: &[u8]| {
    let Ok(mut reader) = Reader::new(Cursor::new(input), PathBuf::from("fuzz.pcap")) else {
        return;
    };
    let mut total = 0;
    while let Ok(Some(record)) = reader.next() {
        total += reader.frame(&record).len();
        assert!(total <= input.len());
    }
});
