//! Variants that carry data: here a bool, which would leave undefined bytes in the others.

use nf::Plain;

#[derive(Plain, Clone, Copy)]
#[repr(u8)]
enum Phase {
    Opening,
    Established(bool),
    Closing { by_client: bool },
}

fn main() {}
