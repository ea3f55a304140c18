//! The attribute above something else than the `impl` of the trait.

use nf::network_function;

#[network_function]
struct Counter;

struct Other;

#[network_function]
impl Other {
    fn process(&self) {}
}

fn main() {}
