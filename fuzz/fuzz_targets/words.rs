//! Words from workers of other processes, at a switch and at a runtime: no worker panics, tables
//! keep to their bounds, packets are accounted for, and when the others are gone nothing of theirs
//! is left.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| flowkeep_fuzz::words::run(input));
