//! An enum whose size is not declared.

use nf::Plain;

#[derive(Plain, Clone, Copy)]
enum Phase {
    Opening,
    Established,
}

// `repr(C)` alone leaves the size to the machine's C compiler.
#[derive(Plain, Clone, Copy)]
#[repr(C)]
enum Mode {
    On,
}

fn main() {}
