//! Code that the macros refuse, and the errors that the author then reads: each file in
//! `compile_fail` beside the compiler's words.
//!
//! The words are those of the toolchain in `rust-toolchain.toml`. After a change that means to
//! alter them, run `TRYBUILD=overwrite cargo test -p flowkeep-nf --test compile` and read the
//! difference.
#![cfg(not(miri))]

#[test]
fn macros_refuse_with_advice() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/compile_pass/*.rs");
    cases.compile_fail("tests/compile_fail/*.rs");
}
