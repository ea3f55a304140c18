//! Classic BPF: the compiled form of a tcpdump expression, checked once and then run on frames.
//!
//! # Theory of operation
//!
//! A program has an accumulator, an index register and sixteen words of memory. Jumps only go
//! forward, so a program of `n` instructions takes at most `n` steps. It answers how many bytes of
//! the frame it wants; 0 is "not this one".
//!
//! ```text
//!   tcp port 443 ─tcpdump -ddd─► (40 0 0 12) (21 0 8 34525) … ─new─► Program ─run(frame)─► bytes wanted
//! ```
//!
//! A program comes over the control socket, so nothing of it is believed: [`Program::new`] refuses
//! unknown instructions, jumps that leave the program, memory that is not there, division by a
//! constant zero, and programs that do not end. A frame can cause faults (a load beyond its end,
//! division by a value in it): they end the program with "not this one", as libpcap's do.
//!
//! Not here: compiling expressions, and the kernel's own extensions (negative offsets), which read
//! as beyond the frame.
//!
//! Source: McCanne and Jacobson, The BSD Packet Filter (USENIX 1993), 3.3; bpf(4).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

/// The most instructions of a program (the kernel's own bound).
pub const INSTRUCTIONS_MAX: usize = 4096;
/// Words of memory.
const MEMORY: usize = 16;

/// One instruction, as `tcpdump -ddd` prints it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instruction {
    /// The operation.
    pub code: u16,
    /// Instructions to leave out if a comparison holds.
    pub if_true: u8,
    /// If it does not.
    pub if_false: u8,
    /// The constant.
    pub k: u32,
}

/// The fault of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProgramError {
    /// No instructions, or more than [`INSTRUCTIONS_MAX`].
    Length(usize),
    /// An instruction that is not known, by its place.
    Unknown(usize),
    /// A jump out of the program.
    Jump(usize),
    /// Memory that is not there.
    Memory(usize),
    /// Division by zero.
    Division(usize),
    /// The last instruction is no answer.
    NoEnd,
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProgramError::Length(0) => f.write_str("a filter program without instructions"),
            ProgramError::Length(length) => {
                write!(
                    f,
                    "a filter program of {length} instructions; {INSTRUCTIONS_MAX} is the bound: say it with fewer conditions"
                )
            }
            ProgramError::Unknown(at) => write!(f, "instruction {at} of the filter program is not known"),
            ProgramError::Jump(at) => write!(f, "instruction {at} of the filter program jumps out of it"),
            ProgramError::Memory(at) => {
                write!(
                    f,
                    "instruction {at} of the filter program uses memory that is not there"
                )
            }
            ProgramError::Division(at) => write!(f, "instruction {at} of the filter program divides by zero"),
            ProgramError::NoEnd => f.write_str("the filter program does not end with an answer"),
        }
    }
}

impl core::error::Error for ProgramError {}

// Classes.
const LD: u16 = 0;
const LDX: u16 = 1;
const ST: u16 = 2;
const STX: u16 = 3;
const ALU: u16 = 4;
const JMP: u16 = 5;
const RET: u16 = 6;
const MISC: u16 = 7;
// Sizes of loads, in their place.
const WORD: u16 = 0;
const HALF: u16 = 0x08;
const BYTE: u16 = 0x10;
// Modes of loads.
const IMM: u16 = 0;
const ABS: u16 = 0x20;
const IND: u16 = 0x40;
const MEM: u16 = 0x60;
const LEN: u16 = 0x80;
const MSH: u16 = 0xa0;
/// Of calculations and jumps: the operand is the index register.
const X: u16 = 0x08;
// Calculations.
const ADD: u16 = 0;
const SUB: u16 = 0x10;
const MUL: u16 = 0x20;
const DIV: u16 = 0x30;
const OR: u16 = 0x40;
const AND: u16 = 0x50;
const LSH: u16 = 0x60;
const RSH: u16 = 0x70;
const NEG: u16 = 0x80;
const MOD: u16 = 0x90;
const XOR: u16 = 0xa0;
// Jumps.
const JA: u16 = 0;
const JEQ: u16 = 0x10;
const JGT: u16 = 0x20;
const JGE: u16 = 0x30;
const JSET: u16 = 0x40;
/// The answer is the accumulator.
const RET_A: u16 = 0x10;
const RET_X: u16 = 0x08;
/// Between the registers: from the index register to the accumulator.
const TXA: u16 = 0x80;

/// A program that has been checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program(Box<[Instruction]>);

impl Program {
    /// Checks a program.
    pub fn new(instructions: Vec<Instruction>) -> Result<Self, ProgramError> {
        let length = instructions.len();
        if length == 0 || length > INSTRUCTIONS_MAX {
            return Err(ProgramError::Length(length));
        }
        for (at, instruction) in instructions.iter().enumerate() {
            check(*instruction, at, length)?;
        }
        match instructions.last() {
            Some(last) if last.code & 7 == RET => Ok(Program(instructions.into())),
            _ => Err(ProgramError::NoEnd),
        }
    }

    /// How many bytes of a frame, which was `wire_length` long, the program wants; 0 if it does not
    /// want it.
    pub fn run(&self, frame: &[u8], wire_length: u32) -> u32 {
        self.steps(frame, wire_length).unwrap_or(0)
    }

    /// [`Program::run`]; `None` where something ends it.
    fn steps(&self, frame: &[u8], wire_length: u32) -> Option<u32> {
        let (mut a, mut x, mut memory) = (0_u32, 0_u32, [0_u32; MEMORY]);
        let mut rest = self.0.iter();
        while let Some(&Instruction {
            code,
            if_true,
            if_false,
            k,
        }) = rest.next()
        {
            match code & 7 {
                LD => a = load(frame, wire_length, code, k, x, &memory)?,
                LDX if code & 0xe0 == MSH => x = u32::from(*frame.get(k as usize)? & 15) << 2,
                LDX => x = load(frame, wire_length, code, k, x, &memory)?,
                ST => memory[k as usize % MEMORY] = a,
                STX => memory[k as usize % MEMORY] = x,
                ALU => a = calculate(code & 0xf0, a, if code & X != 0 { x } else { k })?,
                JMP => {
                    let with = if code & X != 0 { x } else { k };
                    let skip = match code & 0xf0 {
                        JA => k as usize,
                        JEQ => usize::from(if a == with { if_true } else { if_false }),
                        JGT => usize::from(if a > with { if_true } else { if_false }),
                        JGE => usize::from(if a >= with { if_true } else { if_false }),
                        _ => usize::from(if a & with != 0 { if_true } else { if_false }),
                    };
                    if skip > 0 {
                        rest.nth(skip - 1);
                    }
                }
                RET => {
                    return Some(match code & 0x18 {
                        RET_A => a,
                        RET_X => x,
                        _ => k,
                    });
                }
                _ if code & TXA != 0 => a = x,
                _ => x = a,
            }
        }
        None
    }
}

/// Whether an instruction is known and what it says can be.
fn check(instruction: Instruction, at: usize, length: usize) -> Result<(), ProgramError> {
    let Instruction {
        code,
        if_true,
        if_false,
        k,
    } = instruction;
    let known = |is: bool| {
        if is {
            Ok(())
        } else {
            Err(ProgramError::Unknown(at))
        }
    };
    let operand = code & X;
    match code & 7 {
        class @ (LD | LDX) => {
            let (size, mode) = (code & 0x18, code & 0xe0);
            if mode == MEM && k as usize >= MEMORY {
                return Err(ProgramError::Memory(at));
            }
            known(
                match mode {
                    IMM | MEM | LEN => size == WORD,
                    ABS | IND => class == LD && size <= BYTE,
                    MSH => class == LDX && size == BYTE,
                    _ => false,
                } && code <= 0xff,
            )
        }
        ST | STX if k as usize >= MEMORY => Err(ProgramError::Memory(at)),
        ST | STX => known(code <= STX),
        ALU => {
            let op = code & 0xf0;
            if matches!(op, DIV | MOD) && operand == 0 && k == 0 {
                return Err(ProgramError::Division(at));
            }
            known(op <= XOR && code <= 0xff)
        }
        JMP => {
            let farthest = match code & 0xf0 {
                JA => k as usize,
                _ => usize::from(if_true.max(if_false)),
            };
            if farthest >= length - at - 1 {
                return Err(ProgramError::Jump(at));
            }
            known(code & 0xf0 <= JSET && code <= 0xff)
        }
        RET => known(matches!(code & !7, 0 | RET_A | RET_X)),
        class => known(class == MISC && matches!(code & !7, 0 | TXA)),
    }
}

fn load(frame: &[u8], wire_length: u32, code: u16, k: u32, x: u32, memory: &[u32; MEMORY]) -> Option<u32> {
    let at = match code & 0xe0 {
        IMM => return Some(k),
        MEM => return memory.get(k as usize).copied(),
        LEN => return Some(wire_length),
        IND => x.checked_add(k)? as usize,
        _ => k as usize,
    };
    let rest = frame.get(at..)?;
    Some(match code & 0x18 {
        WORD => u32::from_be_bytes(*rest.first_chunk()?),
        HALF => u32::from(u16::from_be_bytes(*rest.first_chunk()?)),
        _ => u32::from(*rest.first()?),
    })
}

fn calculate(op: u16, a: u32, with: u32) -> Option<u32> {
    Some(match op {
        ADD => a.wrapping_add(with),
        SUB => a.wrapping_sub(with),
        MUL => a.wrapping_mul(with),
        DIV => a.checked_div(with)?,
        MOD => a.checked_rem(with)?,
        OR => a | with,
        AND => a & with,
        XOR => a ^ with,
        LSH => a.checked_shl(with).unwrap_or(0),
        RSH => a.checked_shr(with).unwrap_or(0),
        NEG => a.wrapping_neg(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn op(code: u16, if_true: u8, if_false: u8, k: u32) -> Instruction {
        Instruction {
            code,
            if_true,
            if_false,
            k,
        }
    }

    /// `tcpdump -ddd -y EN10MB 'ip and tcp dst port 443'`
    fn https() -> Vec<Instruction> {
        vec![
            op(40, 0, 0, 12),
            op(21, 0, 8, 2048),
            op(48, 0, 0, 23),
            op(21, 0, 6, 6),
            op(40, 0, 0, 20),
            op(69, 4, 0, 8191),
            op(177, 0, 0, 14),
            op(72, 0, 0, 16),
            op(21, 0, 1, 443),
            op(6, 0, 0, 262_144),
            op(6, 0, 0, 0),
        ]
    }

    fn frame(protocol: u8, port: u16) -> Vec<u8> {
        let mut frame = vec![0; 54];
        frame[12] = 8;
        frame[14] = 0x45;
        frame[23] = protocol;
        frame[36..38].copy_from_slice(&port.to_be_bytes());
        frame
    }

    #[test]
    fn an_expression_is_judged() {
        let program = Program::new(https()).unwrap();
        assert_eq!(program.run(&frame(6, 443), 54), 262_144);
        assert_eq!(program.run(&frame(6, 80), 54), 0);
        assert_eq!(program.run(&frame(17, 443), 54), 0);
        for length in 0..54 {
            let cut = &frame(6, 443)[..length];
            assert_eq!(program.run(cut, 54) > 0, length >= 38, "{length}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let end = op(6, 0, 0, 1);
        let refused = |program: Vec<Instruction>| Program::new(program).unwrap_err();
        assert_eq!(refused(vec![]), ProgramError::Length(0));
        assert_eq!(refused(vec![end; 4097]), ProgramError::Length(4097));
        assert_eq!(refused(vec![op(40, 0, 0, 12)]), ProgramError::NoEnd);
        assert_eq!(refused(vec![op(21, 0, 1, 7), end]), ProgramError::Jump(0));
        assert_eq!(refused(vec![op(21, 1, 0, 7), end]), ProgramError::Jump(0));
        assert_eq!(refused(vec![op(5, 0, 0, u32::MAX), end]), ProgramError::Jump(0));
        assert_eq!(refused(vec![op(96, 0, 0, 16), end]), ProgramError::Memory(0));
        assert_eq!(refused(vec![op(2, 0, 0, 16), end]), ProgramError::Memory(0));
        assert_eq!(refused(vec![op(52, 0, 0, 0), end]), ProgramError::Division(0));
        assert_eq!(refused(vec![op(0xffff, 0, 0, 0), end]), ProgramError::Unknown(0));
    }

    #[test]
    fn what_a_frame_brings_about_ends_it() {
        let by_x = |code| Program::new(vec![op(code, 0, 0, 0), op(6, 0, 0, 1)]).unwrap();
        assert_eq!(by_x(60).run(&[], 0), 0, "division by an empty register");
        assert_eq!(by_x(156).run(&[], 0), 0, "its remainder");
        let far = Program::new(vec![op(1, 0, 0, u32::MAX), op(64, 0, 0, 9), op(6, 0, 0, 1)]).unwrap();
        assert_eq!(far.run(&[0; 64], 64), 0);
        let shift = Program::new(vec![op(0, 0, 0, 1), op(100, 0, 0, 40), op(22, 0, 0, 0)]).unwrap();
        assert_eq!(shift.run(&[], 0), 0);
    }

    /// Whatever instructions there are: refused, or done after as many steps as it has
    /// instructions.
    #[test]
    fn any_program_is_refused_or_ends() {
        let mut random = 1_u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as u32
        };
        let frame: Vec<u8> = (0..=255).collect();
        let mut good = 0;
        for _ in 0..200_000 {
            let length = 1 + next() as usize % 12;
            let mut program: Vec<_> = (0..length)
                .map(|_| {
                    let k = match next() % 4 {
                        0 => next(),
                        1 => u32::MAX - next() % 4,
                        _ => next() % 20,
                    };
                    op(next() as u16 & 0xff, next() as u8 % 8, next() as u8 % 8, k)
                })
                .collect();
            program.push(op(6, 0, 0, 1));
            if let Ok(program) = Program::new(program) {
                good += 1;
                program.run(&frame[..next() as usize % 256], next());
            }
        }
        assert!(good > 1000, "{good}");
    }
}
