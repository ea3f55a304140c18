//! Every format, byte order, link type and block kind is read, and other files are told apart.

use super::*;

#[test]
fn pcap_in_every_byte_order_and_resolution() {
    for (magic, nanoseconds) in [(0xa1b2_c3d4u32, 5_000u64), (0xa1b2_3c4d, 5)] {
        for big in [false, true] {
            let bytes = Bytes::new(big)
                .pcap_header(magic, 1)
                .pcap_record(7, 5, &[1, 2, 3], 3)
                .pcap_record(8, 5, &[4; 60], 1500)
                .out;
            let (frames, error) = read_all(&bytes, 24);
            assert!(error.is_none(), "{error:?}");
            assert_eq!(
                frames,
                [
                    frame(&[1, 2, 3], LinkType::Ethernet, 3, 7_000_000_000 + nanoseconds),
                    frame(&[4; 60], LinkType::Ethernet, 1500, 8_000_000_000 + nanoseconds),
                ]
            );
        }
    }
}

#[test]
fn modified_pcap_has_longer_record_headers() {
    let bytes = Bytes::new(false)
        .pcap_header(0xa1b2_cd34, 1)
        .u32(1)
        .u32(2)
        .u32(3)
        .u32(3)
        .u64(0xdead_beef)
        .raw(&[9, 8, 7])
        .out;
    let (frames, error) = read_all(&bytes, BUFFER);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(frames, [frame(&[9, 8, 7], LinkType::Ethernet, 3, 1_000_002_000)]);
}

#[test]
fn every_link_type_is_read_and_others_are_named() {
    let known = [
        (1, LinkType::Ethernet),
        (0, LinkType::Loopback),
        (108, LinkType::Loopback),
        (12, LinkType::Raw),
        (101, LinkType::Raw),
        (228, LinkType::Raw),
        (113, LinkType::LinuxSll),
        (276, LinkType::LinuxSll2),
        // With the bits that tell of a frame check sequence.
        (0x1400_0000 | 1, LinkType::Ethernet),
    ];
    for (number, link) in known {
        let bytes = Bytes::new(false)
            .pcap_header(0xa1b2_c3d4, number)
            .pcap_record(0, 0, &[0; 4], 4)
            .out;
        assert_eq!(read_all(&bytes, BUFFER).0[0].link, link);
    }
    let bytes = Bytes::new(false)
        .pcap_header(0xa1b2_c3d4, 127)
        .pcap_record(0, 0, &[0; 4], 4)
        .pcap_record(0, 0, &[0; 4], 4)
        .out;
    let reports = Reports::default();
    let mut port = input(bytes, InputSettings::default(), &reports);
    let mut pool = pool(4, 128);
    assert_eq!(receive(&mut port, 0, &mut pool), []);
    assert!(port.finished());
    assert_eq!(
        (port.counters().refused_packets, port.counters().received_packets),
        (2, 0)
    );
    let told = reports.take();
    assert_eq!(told.len(), 1);
    assert!(
        told[0].problem.contains("packet 1 has link type 127"),
        "{}",
        told[0]
    );
}

#[test]
fn pcapng_sections_interfaces_and_block_kinds() {
    for (first, second) in [(false, true), (true, false)] {
        let a = Bytes::new(first)
            .section()
            .interface(1, None, None)
            .interface(101, Some(9), Some(10))
            .block(5, |b| b.raw(&[0xff; 13]))
            .enhanced(0, 3_000_001, &[1; 61], 61)
            .enhanced(1, 3_000_000_001, &[2; 5], 50)
            .block(3, |b| b.u32(7).padded(&[3; 7]))
            .out;
        let b = Bytes::new(second)
            .section()
            .interface(276, Some(0x80 | 10), None)
            .interface(113, Some(12), None)
            .enhanced(0, 3 << 10 | 512, &[4; 4], 4)
            .enhanced(1, 5_000_000_000_123, &[5; 4], 4)
            .block(2, |b| {
                let b = b.u16(0).u16(3).u32(0).u32(4 << 10).u32(3).u32(9);
                b.padded(&[6; 3])
            })
            .out;
        for buffer in [16, 100, BUFFER] {
            let (frames, error) = read_all(&[a.clone(), b.clone()].concat(), buffer);
            assert!(error.is_none(), "{error:?}");
            assert_eq!(
                frames,
                [
                    frame(&[1; 61], LinkType::Ethernet, 61, 3_000_001_000),
                    frame(&[2; 5], LinkType::Raw, 50, 13_000_000_001),
                    frame(&[3; 7], LinkType::Ethernet, 7, 13_000_000_001),
                    frame(&[4; 4], LinkType::LinuxSll2, 4, 3_500_000_000),
                    frame(&[5; 4], LinkType::LinuxSll, 4, 5_000_000_000),
                    frame(&[6; 3], LinkType::LinuxSll2, 9, 4_000_000_000),
                ]
            );
        }
    }
}

#[test]
fn a_simple_packet_is_cut_to_the_snap_length() {
    let bytes = Bytes::new(false)
        .section()
        .block(1, |b| b.u16(1).u16(0).u32(5))
        .block(3, |b| b.u32(90).padded(&[7; 5]))
        .out;
    let (frames, error) = read_all(&bytes, BUFFER);
    assert!(error.is_none());
    assert_eq!(frames, [frame(&[7; 5], LinkType::Ethernet, 90, 0)]);
}

#[test]
fn what_is_no_capture_is_told_apart() {
    for (bytes, word) in [
        (&b""[..], "empty"),
        (&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0][..], "gzip"),
        (&b"GET / HTTP/1.1\r\n\r\n plus more text"[..], "47 45 54 20"),
    ] {
        let error = read_all(bytes, BUFFER).1.unwrap();
        assert!(matches!(error, CaptureError::NotACapture { .. }));
        assert!(error.to_string().contains(word), "{error}");
    }
    let header = Bytes::new(false).pcap_header(0xa1b2_c3d4, 1).out;
    let error = read_all(&header[..20], BUFFER).1.unwrap().to_string();
    assert!(error.contains("ends inside the file header"), "{error}");
    let error = Reader::open(Path::new("/nowhere/at/all.pcap"))
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.starts_with("/nowhere/at/all.pcap: cannot be opened"),
        "{error}"
    );
    assert!(Reader::open(&std::env::temp_dir()).is_err());
}
