//! Reads captures whole: pcap in either byte order and resolution, pcapng with its interfaces.

use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader};
use std::fs::File;
use std::path::Path;

/// A frame of a capture.
#[derive(Clone, Debug)]
pub struct Frame {
    /// pcap's number of the link type.
    pub link: u32,
    /// Nanoseconds since 1970.
    pub time: u64,
    /// Length on the wire.
    pub wire_length: u32,
    /// The captured bytes.
    pub bytes: Vec<u8>,
}

/// All frames of a file. A file that breaks off yields what is there.
pub fn frames(path: &Path) -> Result<Vec<Frame>, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut reader = create_reader(1 << 20, file).map_err(|error| format!("{error:?}"))?;
    let mut found = Vec::new();
    let mut classic = (1, 1_000);
    let mut interfaces: Vec<(u32, u64, i64)> = Vec::new();
    loop {
        match reader.next() {
            Ok((offset, block)) => {
                match block {
                    PcapBlockOwned::LegacyHeader(header) => {
                        let unit = if header.is_nanosecond_precision() {
                            1
                        } else {
                            1_000
                        };
                        classic = (header.network.0 as u32, unit);
                    }
                    PcapBlockOwned::Legacy(packet) => found.push(Frame {
                        link: classic.0,
                        time: u64::from(packet.ts_sec) * 1_000_000_000
                            + u64::from(packet.ts_usec) * classic.1,
                        wire_length: packet.origlen,
                        bytes: packet.data[..packet.caplen as usize].to_vec(),
                    }),
                    PcapBlockOwned::NG(Block::SectionHeader(_)) => interfaces.clear(),
                    PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => interfaces.push((
                        interface.linktype.0 as u32,
                        interface.ts_resolution().unwrap_or(1_000_000),
                        interface.ts_offset(),
                    )),
                    PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                        let (link, resolution, offset) = interfaces[packet.if_id as usize];
                        let (seconds, fraction) = packet.decode_ts(offset as u64, resolution);
                        found.push(Frame {
                            link,
                            time: u64::from(seconds) * 1_000_000_000
                                + u64::from(fraction) * 1_000_000_000 / resolution,
                            wire_length: packet.origlen,
                            bytes: packet.packet_data().to_vec(),
                        });
                    }
                    PcapBlockOwned::NG(Block::SimplePacket(packet)) => found.push(Frame {
                        link: interfaces[0].0,
                        time: 0,
                        wire_length: packet.origlen,
                        bytes: packet.packet_data().to_vec(),
                    }),
                    PcapBlockOwned::NG(_) => {}
                }
                reader.consume(offset);
            }
            Err(PcapError::Eof | PcapError::UnexpectedEof) => return Ok(found),
            Err(PcapError::Incomplete(_)) => {
                if reader.refill().is_err() || reader.reader_exhausted() && reader.data().is_empty() {
                    return Ok(found);
                }
            }
            Err(error) => return Err(format!("{error:?}")),
        }
    }
}
