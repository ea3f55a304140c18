//! All captures of the shared data are read, as another reader counts them.

use super::*;

/// Packets by `pcap-parser`'s own reader, which shares no code with ours but the parsing of a
/// block.
fn count_independently(path: &Path) -> u64 {
    let file = std::fs::File::open(path).unwrap();
    let mut reader = pcap_parser::create_reader(1 << 20, file).unwrap();
    let mut count = 0;
    loop {
        match reader.next() {
            Ok((length, block)) => {
                count += match block {
                    PcapBlockOwned::Legacy(_) => 1,
                    PcapBlockOwned::NG(block) => u64::from(block.is_data_block()),
                    PcapBlockOwned::LegacyHeader(_) => 0,
                };
                reader.consume(length);
            }
            Err(PcapError::Eof) => return count,
            Err(PcapError::Incomplete(_)) => reader.refill().unwrap(),
            Err(error) => panic!("{}: {error:?}", path.display()),
        }
    }
}

#[test]
fn all_shared_captures_are_read() {
    let files = shared("flow");
    if files.is_empty() {
        println!("not run: needs the shared captures (FLOWKEEP_DATA)");
        return;
    }
    let mut pool = pool(64, FRAME_MAX);
    let (mut packets, mut refused) = (0, 0);
    for path in &files {
        let reports = Reports::default();
        let mut port = PcapInput::open(path, InputSettings::default(), reports.clone()).unwrap();
        while !port.finished() {
            receive(&mut port, 0, &mut pool);
        }
        let counters = port.counters();
        for report in reports.take() {
            println!("{report}");
        }
        assert_eq!(
            counters.received_packets + counters.refused_packets,
            count_independently(path),
            "{}",
            path.display()
        );
        packets += counters.received_packets;
        refused += counters.refused_packets;
    }
    println!("{} captures: {packets} packets, {refused} refused", files.len());
}
