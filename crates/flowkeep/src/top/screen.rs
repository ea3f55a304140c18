//! Rates as a screen of text.
//!
//! A wide screen has two columns, a narrow one has everything below another. Whatever does not fit
//! in height is cut off, the lists that grow (drops, counters, flows) last.

use super::{Rate, Rates};
use crate::report::{grouped, human_size, human_time};
use std::time::Duration;

/// Columns from which on there are two of them.
const WIDE: usize = 110;

/// Draws a screen of at most so many columns and rows.
pub fn render(rates: &Rates, columns: usize, rows: usize, note: &str) -> Vec<String> {
    let mut lines = head(rates, note);
    let tables = [runtimes(rates), threads(rates), ports(rates)];
    let lists = [dropped(rates), busiest(rates), counters(rates)];
    if columns >= WIDE {
        let left = stacked(&tables);
        let right = stacked(&lists);
        let width = columns / 2;
        for at in 0..left.len().max(right.len()) {
            let line = |side: &[String]| side.get(at).cloned().unwrap_or_default();
            lines.push(format!("{} {}", fitted(&line(&left), width - 1), line(&right)));
        }
    } else {
        lines.extend(stacked(&tables));
        lines.push(String::new());
        lines.extend(stacked(&lists));
    }
    lines.truncate(rows);
    lines.iter().map(|line| cut(line, columns)).collect()
}

fn head(rates: &Rates, note: &str) -> Vec<String> {
    let uptime = Duration::from_secs(rates.uptime_seconds.max(0.0) as u64);
    let dropped: f64 = rates.dropped.values().sum();
    vec![
        format!("flowkeep top   up {}   {note}", human_time(uptime)),
        format!(
            "in  {}   out  {}   dropped {}/s",
            rate(rates.r#in),
            rate(rates.out),
            number(dropped)
        ),
        format!(
            "flows {} of {}   new {}/s   ended {}/s   packets held {}",
            grouped(rates.flows),
            grouped(rates.flows_max),
            number(rates.flows_opened),
            number(rates.flows_ended),
            grouped(rates.held)
        ),
        String::new(),
    ]
}

/// Blocks of lines with a line between.
fn stacked(blocks: &[Vec<String>]) -> Vec<String> {
    let blocks: Vec<&Vec<String>> = blocks.iter().filter(|block| !block.is_empty()).collect();
    let mut lines = Vec::new();
    for (at, block) in blocks.iter().enumerate() {
        if at > 0 {
            lines.push(String::new());
        }
        lines.extend(block.iter().cloned());
    }
    lines
}

fn runtimes(rates: &Rates) -> Vec<String> {
    let head = format!(
        "{:<8}{:>12}{:>11}{:>9}{:>10}{:>4}",
        "RUNTIME", "packets/s", "dropped/s", "new/s", "flows", "w"
    );
    let rows = rates.runtimes.iter().map(|runtime| {
        format!(
            "{:<8}{:>12}{:>11}{:>9}{:>10}{:>4}",
            runtime.runtime,
            number(runtime.packets),
            number(runtime.dropped),
            number(runtime.opened),
            grouped(runtime.flows),
            runtime.waiting
        )
    });
    std::iter::once(head).chain(rows).collect()
}

/// Characters of the bar that is a whole processor.
const BAR: usize = 20;

fn threads(rates: &Rates) -> Vec<String> {
    if rates.threads.is_empty() {
        return Vec::new();
    }
    let rows = rates.threads.iter().map(|thread| {
        let full = (thread.processor * BAR as f64).round().clamp(0.0, BAR as f64) as usize;
        let bar: String = "█".repeat(full) + &"░".repeat(BAR - full);
        let share = thread.processor * 100.0;
        format!("{share:>6.1} % {bar}  {}", thread.workers.join(", "))
    });
    std::iter::once("PROCESSOR".to_owned()).chain(rows).collect()
}

fn ports(rates: &Rates) -> Vec<String> {
    let head = format!(
        "{:<8}{:>9}{:>10}{:>10}{:>10}{:>7}",
        "PORT", "in pkt/s", "B/s", "out pkt/s", "B/s", "failed"
    );
    let rows = rates.ports.iter().map(|port| {
        format!(
            "{:<8}{:>9}{:>10}{:>10}{:>10}{:>7}",
            cut(&port.name, 7),
            number(port.r#in.packets),
            size(port.r#in.bytes),
            number(port.out.packets),
            size(port.out.bytes),
            number(port.failed)
        )
    });
    std::iter::once(head).chain(rows).collect()
}

fn dropped(rates: &Rates) -> Vec<String> {
    list("DROPPED", "/s", rates.dropped.iter())
}

fn counters(rates: &Rates) -> Vec<String> {
    list("COUNTED BY FUNCTIONS", "/s", rates.counters.iter())
}

/// Names and rates, the highest first.
fn list<'a>(title: &str, unit: &str, of: impl Iterator<Item = (&'a String, &'a f64)>) -> Vec<String> {
    let mut rows: Vec<(&String, &f64)> = of.collect();
    rows.sort_by(|(name, rate), (other, than)| than.total_cmp(rate).then(name.cmp(other)));
    if rows.is_empty() {
        return Vec::new();
    }
    let head = format!("{title:<38}{unit:>12}");
    let rows = rows
        .iter()
        .map(|(name, rate)| format!("{:<38}{:>12}", cut(name, 37), number(**rate)));
    std::iter::once(head).chain(rows).collect()
}

fn busiest(rates: &Rates) -> Vec<String> {
    if rates.busiest.is_empty() {
        return Vec::new();
    }
    let head = format!("BUSIEST FLOWS (of {} packets sampled)", grouped(rates.busiest_of));
    let rows = rates.busiest.iter().map(|flow| {
        format!(
            "{:>7}/s {:>8}/s  {} {} {}",
            number(flow.r#in.packets),
            size(flow.r#in.bytes),
            flow.protocol,
            flow.source,
            flow.destination
        )
    });
    std::iter::once(head).chain(rows).collect()
}

fn rate(rate: Rate) -> String {
    format!("{} pkt/s {}/s", number(rate.packets), size(rate.bytes))
}

/// With a digit behind the point where it is small.
fn number(rate: f64) -> String {
    if rate > 0.0 && rate < 10.0 {
        format!("{rate:.1}")
    } else {
        grouped(rate.round() as u64)
    }
}

fn size(bytes: f64) -> String {
    human_size(bytes.round() as u64)
}

/// The first characters of a text.
fn cut(text: &str, columns: usize) -> String {
    text.chars().take(columns).collect()
}

fn fitted(text: &str, columns: usize) -> String {
    let text = cut(text, columns);
    let missing = columns - text.chars().count();
    text + &" ".repeat(missing)
}
