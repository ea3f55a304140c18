//! Programs for the kernel's virtual machine, written down instruction by instruction.
//!
//! The kernel's filters are small and depend on a few numbers that are known only at start-up
//! (descriptors of maps). A compiler for them would be one more tool at build time; an assembler is
//! a page:
//!
//! ```
//! use flowkeep_adapters::interface::assembler::{Assembler, Condition::Equal, Register::*};
//! let mut program = Assembler::new();
//! let other = program.label();
//! program.set(R0, 0);
//! program.jump(Equal, R1, 7, other);
//! program.set(R0, 1);
//! program.place(other);
//! program.exit();
//! assert_eq!(program.finish().len(), 4);
//! ```
//!
//! Source: RFC 9669. Not here: a program's meaning ([`super::filter`]), and how it gets into the
//! kernel ([`super::bpf`]).

/// A register. R1 to R5 are arguments and are lost in a call, R6 to R9 stay, R10 is the end of the
/// stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "they are numbers")]
pub enum Register {
    R0 = 0,
    R1 = 1,
    R2 = 2,
    R3 = 3,
    R4 = 4,
    R5 = 5,
    R6 = 6,
    R7 = 7,
    R8 = 8,
    R9 = 9,
    R10 = 10,
}

/// How many bytes are loaded or stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Width {
    /// Four.
    Word = 0x00,
    /// Two.
    Half = 0x08,
    /// One.
    Byte = 0x10,
    /// Eight.
    Double = 0x18,
}

/// When a jump is taken. Numbers are compared without sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Condition {
    /// `register == number`
    Equal = 0x10,
    /// `register > number`
    Above = 0x20,
    /// `register != number`
    NotEqual = 0x50,
    /// `register < number`
    Below = 0xa0,
}

/// One instruction, as the kernel reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    operation: u8,
    /// Destination in the lower half, source in the upper.
    registers: u8,
    offset: i16,
    number: i32,
}

/// A place to jump to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// A program in the making.
#[derive(Debug, Default)]
pub struct Assembler {
    instructions: Vec<Instruction>,
    places: Vec<Option<usize>>,
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    /// An empty program.
    pub fn new() -> Self {
        Self::default()
    }

    /// A place to jump to, to be said later.
    pub fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// The label is here.
    pub fn place(&mut self, label: Label) {
        debug_assert!(self.places[label.0].is_none(), "a label has one place");
        self.places[label.0] = Some(self.instructions.len());
    }

    fn push(&mut self, operation: u8, to: Register, from: Register, offset: i16, number: i32) {
        self.instructions.push(Instruction {
            operation,
            registers: to as u8 | (from as u8) << 4,
            offset,
            number,
        });
    }

    /// `to = number`
    pub fn set(&mut self, to: Register, number: i32) {
        self.push(0xb7, to, Register::R0, 0, number);
    }

    /// `to = from`
    pub fn copy(&mut self, to: Register, from: Register) {
        self.push(0xbf, to, from, 0, 0);
    }

    /// `to += number`
    pub fn add(&mut self, to: Register, number: i32) {
        self.push(0x07, to, Register::R0, 0, number);
    }

    /// `to &= number`
    pub fn and(&mut self, to: Register, number: i32) {
        self.push(0x57, to, Register::R0, 0, number);
    }

    /// `to = *(from + offset)`
    pub fn load(&mut self, width: Width, to: Register, from: Register, offset: i16) {
        self.push(0x61 | width as u8, to, from, offset, 0);
    }

    /// `*(to + offset) = from`
    pub fn store(&mut self, width: Width, to: Register, offset: i16, from: Register) {
        self.push(0x63 | width as u8, to, from, offset, 0);
    }

    /// `*(to + offset) = number`
    pub fn store_number(&mut self, width: Width, to: Register, offset: i16, number: i32) {
        self.push(0x62 | width as u8, to, Register::R0, offset, number);
    }

    /// Goes on at `label`.
    pub fn go(&mut self, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.push(0x05, Register::R0, Register::R0, 0, 0);
    }

    /// Goes on at `label` if the condition holds.
    pub fn jump(&mut self, condition: Condition, register: Register, number: i32, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.push(0x05 | condition as u8, register, Register::R0, 0, number);
    }

    /// `to` = the map with this descriptor.
    pub fn load_map(&mut self, to: Register, descriptor: i32) {
        // Two instructions wide; source register 1 says that the number is a map's descriptor.
        self.push(0x18, to, Register::R1, 0, descriptor);
        self.push(0x00, Register::R0, Register::R0, 0, 0);
    }

    /// Calls a function of the kernel by its number; the answer is in R0.
    pub fn call(&mut self, function: i32) {
        self.push(0x85, Register::R0, Register::R0, 0, function);
    }

    /// Ends the program with the answer in R0.
    pub fn exit(&mut self) {
        self.push(0x95, Register::R0, Register::R0, 0, 0);
    }

    /// The whole program.
    ///
    /// # Panics
    /// If a label that is jumped to has no place.
    pub fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in self.jumps {
            let place = self.places[label.0].expect("a label that is jumped to has a place");
            let distance = place as i64 - at as i64 - 1;
            self.instructions[at].offset = i16::try_from(distance).expect("programs are short");
        }
        self.instructions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Register::*;

    #[test]
    fn instructions_are_as_the_specification_has_them() {
        let mut program = Assembler::new();
        let end = program.label();
        program.copy(R6, R1);
        program.load(Width::Half, R7, R10, -8);
        program.jump(Condition::NotEqual, R7, 0x1234, end);
        program.load_map(R1, 5);
        program.call(1);
        program.place(end);
        program.exit();
        let bytes: Vec<(u8, u8, i16, i32)> = program
            .finish()
            .iter()
            .map(|i| (i.operation, i.registers, i.offset, i.number))
            .collect();
        // As `llvm-mc -triple bpfel` encodes r6 = r1; r7 = *(u16 *)(r10 - 8); if r7 != 0x1234 goto
        // +3; …
        let expected = [
            (0xbf, 0x16, 0, 0),
            (0x69, 0xa7, -8, 0),
            (0x55, 0x07, 3, 0x1234),
            (0x18, 0x11, 0, 5),
            (0x00, 0x00, 0, 0),
            (0x85, 0x00, 0, 1),
            (0x95, 0x00, 0, 0),
        ];
        assert_eq!(bytes, expected);
    }

    #[test]
    #[should_panic(expected = "has a place")]
    fn a_label_without_a_place_is_a_mistake() {
        let mut program = Assembler::new();
        let nowhere = program.label();
        program.go(nowhere);
        program.finish();
    }
}
