//! Messages about shared objects from other runtimes, at a runtime that has objects of its own:
//! bytes that are a message are written again as they came, no state fails, tables keep to their
//! bounds, and no message makes a circle within the runtime.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| flowkeep_fuzz::objects::run(input));
