//! tcpdump's expressions to programs: tcpdump compiles them itself.
//!
//! `tcpdump -ddd` prints the program that it would hand to the kernel. Only tcpdump knows the whole
//! language, so only tcpdump is asked. It needs no rights for that, and touches no interface. An
//! expression is compiled once for each link type a port may have.

use super::Instruction;
use std::io::ErrorKind;
use std::process::{Command, Stdio};

/// Link types by pcap's number and by the name tcpdump knows them by. Ethernet first: an
/// expression's problem is told by that.
const LINKS: [(u32, &str); 5] = [
    (1, "EN10MB"),
    (101, "RAW"),
    (0, "NULL"),
    (113, "LINUX_SLL"),
    (276, "LINUX_SLL2"),
];

/// Compiles an expression for all link types. A link type for which an expression makes no sense
/// (`ether host` on raw IP) wants nothing.
pub fn compile(expression: &str) -> Result<Vec<(u32, Vec<Instruction>)>, String> {
    let mut programs = Vec::new();
    let mut problem = None;
    for (number, name) in LINKS {
        match compile_for(expression, name) {
            Ok(program) => programs.push((number, program)),
            Err(Refusal::NoTcpdump(error)) => return Err(error),
            Err(Refusal::Expression(error)) => {
                problem.get_or_insert(error);
            }
        }
    }
    match problem {
        Some(problem) if programs.is_empty() => Err(format!(
            "--filter '{expression}': {problem}; write it as for tcpdump, like 'host 10.0.0.1 and tcp port 443'"
        )),
        _ => Ok(programs),
    }
}

enum Refusal {
    NoTcpdump(String),
    Expression(String),
}

fn compile_for(expression: &str, link: &str) -> Result<Vec<Instruction>, Refusal> {
    let mut command = Command::new("tcpdump");
    command.args(["-ddd", "-y", link, "-s", "262144", "--", expression]);
    let output = command.stdin(Stdio::null()).output().map_err(|error| {
        Refusal::NoTcpdump(match error.kind() {
            ErrorKind::NotFound => {
                "a filter is compiled by tcpdump, which is not installed here: install it (apt install \
                                    tcpdump), or capture everything and filter the file elsewhere"
                    .into()
            }
            _ => format!("a filter is compiled by tcpdump, which cannot be started: {error}"),
        })
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said
            .lines()
            .rfind(|line| !line.trim().is_empty())
            .unwrap_or("tcpdump refuses it");
        return Err(Refusal::Expression(
            last.trim_start_matches("tcpdump: ").to_owned(),
        ));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    parse(&text).ok_or_else(|| Refusal::Expression("what tcpdump made of it cannot be read".into()))
}

/// A count, then so many lines of four numbers.
fn parse(text: &str) -> Option<Vec<Instruction>> {
    let mut lines = text.lines();
    let count: usize = lines.next()?.trim().parse().ok()?;
    let instruction = |line: &str| {
        let mut words = line.split_whitespace();
        let mut next = || words.next()?.parse::<u32>().ok();
        let (code, if_true, if_false, k) = (next()?, next()?, next()?, next()?);
        Some(Instruction(
            code.try_into().ok()?,
            if_true.try_into().ok()?,
            if_false.try_into().ok()?,
            k,
        ))
    };
    let program: Vec<Instruction> = lines.map(instruction).collect::<Option<_>>()?;
    (program.len() == count).then_some(program)
}
