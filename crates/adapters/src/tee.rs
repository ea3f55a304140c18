//! Ports made of ports: [`Tee`] records the packets that pass a port, [`Duplex`] receives from one
//! and transmits to another.
//!
//! ```text
//!   Tee      transmit ─┬─► port ─┬─► receive          Duplex    receive  ◄── input
//!                      ▼         ▼                              transmit ──► output
//!                 sent.pcapng  received.pcapng
//! ```
//!
//! Invariant: a packet is recorded as it is handed in or out; recording changes nothing and loses
//! nothing. The capture reports a packet that cannot be written; the port does not count it.

use crate::pcap::PcapOutput;
use runtime::env::{AttachError, Burst, Port, PortCounters};
use std::fs::File;
use std::io::Write;
use wire::packet::Kind;
use wire::{Pool, Prefix};

/// A port whose traffic is recorded.
pub struct Tee<A, W: Write = File> {
    port: A,
    sent: Option<PcapOutput<W>>,
    received: Option<PcapOutput<W>>,
}

impl<A: Port, W: Write> Tee<A, W> {
    /// Records packets transmitted to `port` in `sent` and packets that it receives in `received`,
    /// where they are given.
    pub fn new(port: A, sent: Option<PcapOutput<W>>, received: Option<PcapOutput<W>>) -> Self {
        Tee { port, sent, received }
    }
}

impl<A: Port, W: Write> Port for Tee<A, W> {
    fn frame_max(&self) -> usize {
        self.port.frame_max()
    }

    fn attach(&mut self, pool: &mut Pool) -> Result<(), AttachError> {
        self.port.attach(pool)
    }

    fn claim(&mut self, addresses: &[Prefix]) -> Result<(), AttachError> {
        self.port.claim(addresses)
    }

    fn reap_transmitted(&mut self, pool: &mut Pool) {
        self.port.reap_transmitted(pool);
    }

    fn reserved(&self) -> usize {
        self.port.reserved()
    }

    fn receive(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        let before = burst.len();
        self.port.receive(now, pool, burst);
        if let Some(capture) = &mut self.received {
            let new = burst.iter().skip(before).filter(|p| p.kind() == Kind::Data);
            new.for_each(|packet| capture.record(now, packet));
        }
    }

    fn transmit(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        if let Some(capture) = &mut self.sent {
            let packets = burst.iter().filter(|p| p.kind() == Kind::Data);
            packets.for_each(|packet| capture.record(now, packet));
        }
        self.port.transmit(now, pool, burst);
    }

    fn finished(&self) -> bool {
        self.port.finished()
    }

    fn answers(&self) -> bool {
        self.port.answers()
    }

    fn waits(&self) -> bool {
        self.port.waits()
    }

    fn room(&self) -> usize {
        self.port.room()
    }

    fn next_at(&self) -> Option<u64> {
        self.port.next_at()
    }

    fn wakes_by(&self) -> Option<Vec<i32>> {
        self.port.wakes_by()
    }

    fn flush(&mut self) {
        self.port.flush();
        for capture in [&mut self.sent, &mut self.received].into_iter().flatten() {
            capture.flush();
        }
    }

    fn counters(&self) -> PortCounters {
        self.port.counters()
    }
}

/// Receives from one port and transmits to another.
pub struct Duplex<I, O> {
    input: I,
    output: O,
}

impl<I: Port, O: Port> Duplex<I, O> {
    /// A port that receives from `input` and transmits to `output`.
    pub fn new(input: I, output: O) -> Self {
        Duplex { input, output }
    }
}

impl<I: Port, O: Port> Port for Duplex<I, O> {
    fn frame_max(&self) -> usize {
        self.input.frame_max()
    }

    fn attach(&mut self, pool: &mut Pool) -> Result<(), AttachError> {
        self.input.attach(pool)?;
        self.output.attach(pool)
    }

    fn reap_transmitted(&mut self, pool: &mut Pool) {
        self.input.reap_transmitted(pool);
        self.output.reap_transmitted(pool);
    }

    fn reserved(&self) -> usize {
        self.input.reserved() + self.output.reserved()
    }

    fn receive(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        self.input.receive(now, pool, burst);
    }

    fn transmit(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        self.output.transmit(now, pool, burst);
    }

    fn finished(&self) -> bool {
        self.input.finished()
    }

    fn waits(&self) -> bool {
        self.input.waits()
    }

    fn room(&self) -> usize {
        self.output.room()
    }

    fn next_at(&self) -> Option<u64> {
        self.input.next_at()
    }

    fn wakes_by(&self) -> Option<Vec<i32>> {
        self.input.wakes_by()
    }

    fn flush(&mut self) {
        self.input.flush();
        self.output.flush();
    }

    fn counters(&self) -> PortCounters {
        let (input, output) = (self.input.counters(), self.output.counters());
        PortCounters {
            received_packets: input.received_packets,
            received_bytes: input.received_bytes,
            refused_packets: input.refused_packets,
            lost_packets: input.lost_packets,
            answered_packets: input.answered_packets,
            sent_packets: output.sent_packets,
            sent_bytes: output.sent_bytes,
            unsent_packets: output.unsent_packets,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Frame, MemoryPort};
    use crate::pcap::{Format, Reader};
    use crate::reflect::{ReflectPort, ReflectSettings};
    use crate::report::Reports;
    use std::io::Cursor;
    use std::sync::{Arc, Mutex};
    use wire::LinkType;
    use wire::memory::Region;

    /// A file that can be looked at.
    #[derive(Clone, Default)]
    struct Bytes(Arc<Mutex<Vec<u8>>>);

    impl Write for Bytes {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Bytes {
        fn capture(&self) -> Option<PcapOutput<Bytes>> {
            Some(PcapOutput::new(
                self.clone(),
                "test".into(),
                Format::PcapNg,
                Reports::default(),
            ))
        }
        fn frames(&self) -> Vec<Vec<u8>> {
            let mut reader = Reader::new(Cursor::new(self.0.lock().unwrap().clone()), "test".into()).unwrap();
            let mut frames = Vec::new();
            while let Some(record) = reader.next().unwrap() {
                frames.push(reader.frame(&record).to_vec());
            }
            frames
        }
    }

    fn pool() -> Pool {
        Pool::new(Region::heap(Pool::region_length(8, 256)), 8, 256, 0)
    }

    fn udp(from: u8, to: u8) -> Vec<u8> {
        let mut packet = vec![
            0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, from, 192, 0, 2, to,
        ];
        packet.extend([0, from, 0, to, 0, 8, 0, 0]);
        packet
    }

    #[test]
    fn a_run_both_reflects_and_records() {
        let (sent, received) = (Bytes::default(), Bytes::default());
        let reflector = ReflectPort::new(ReflectSettings::default());
        let mut port = Tee::new(reflector, sent.capture(), received.capture());
        let mut pool = pool();
        let mut burst = Burst::new();
        let mut packet = pool.take().unwrap();
        assert!(packet.set_frame(&udp(1, 2), LinkType::Raw));
        burst.push(packet);
        let mut empty = pool.take().unwrap();
        empty.set_kind(Kind::Empty);
        burst.push(empty);
        port.transmit(5, &mut pool, &mut burst);
        assert!(burst.is_empty() && !port.finished());
        port.receive(6, &mut pool, &mut burst);
        assert_eq!(burst[0].frame(), udp(2, 1));
        // A packet that was in the burst before was not received now.
        port.receive(6, &mut pool, &mut burst);
        port.flush();
        assert_eq!(
            (sent.frames(), received.frames()),
            (vec![udp(1, 2)], vec![udp(2, 1)])
        );
        assert_eq!(
            (port.counters().sent_packets, port.counters().received_packets),
            (1, 1)
        );
        pool.give(burst.pop().unwrap());
        assert_eq!(pool.free(), 8);
    }

    #[test]
    fn duplex_joins_two_ports() {
        let (input, source) = MemoryPort::new("in");
        let (output, sink) = MemoryPort::new("out");
        let mut port = Duplex::new(input, output);
        source.push(&[1; 20], LinkType::Raw);
        source.push(&[2; 400], LinkType::Raw);
        source.close();
        let mut pool = pool();
        let mut burst = Burst::new();
        port.receive(3, &mut pool, &mut burst);
        port.transmit(3, &mut pool, &mut burst);
        let frame = Frame {
            timestamp: 3,
            ..Frame::new(&[1; 20], LinkType::Raw)
        };
        assert_eq!(sink.take_all(), [frame]);
        assert!(port.finished() && source.take().is_none());
        let counters = port.counters();
        assert_eq!(
            (
                counters.received_packets,
                counters.refused_packets,
                counters.sent_packets
            ),
            (1, 1, 1)
        );
    }
}
