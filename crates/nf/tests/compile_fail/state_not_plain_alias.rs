//! A type that is not plain under another name: the compiler says what `Plain` has it say.

use nf::FlowState;

type Sizes = Option<u16>;

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Seen {
    sizes: Sizes,
}

fn main() {}
