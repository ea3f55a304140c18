//! Captures that are cut off, damaged or made to harm.

use super::*;

/// A small capture of each format, and where its packets end.
fn small_captures() -> Vec<(Vec<u8>, Vec<usize>)> {
    let mut captures = Vec::new();
    for big in [false, true] {
        let mut pcap = Bytes::new(big).pcap_header(0xa1b2_c3d4, 1);
        let mut ng = Bytes::new(big).section().interface(1, Some(9), None);
        let (mut pcap_ends, mut ng_ends) = (Vec::new(), Vec::new());
        for n in 1..4u32 {
            let content = vec![n as u8; n as usize * 5];
            pcap = pcap.pcap_record(n, 0, &content, 99);
            pcap_ends.push(pcap.out.len());
            ng = ng.enhanced(0, u64::from(n), &content, 99);
            ng_ends.push(ng.out.len());
        }
        captures.push((pcap.out, pcap_ends));
        captures.push((ng.out, ng_ends));
    }
    captures
}

#[test]
fn a_capture_cut_off_anywhere_gives_all_packets_before_and_says_where() {
    for (bytes, ends) in small_captures() {
        for cut in 4..bytes.len() {
            for buffer in [24, BUFFER] {
                let (frames, error) = read_all(&bytes[..cut], buffer);
                let whole = ends.iter().filter(|&&end| end <= cut).count();
                assert_eq!(frames.len(), whole);
                let Some(error) = error else {
                    // Nothing is missing where a packet ends or, before the first, a header or
                    // block does.
                    let at_end = ends.contains(&cut) || whole == 0;
                    assert!(at_end, "cut at {cut} went unnoticed");
                    continue;
                };
                if whole == 0 {
                    continue;
                }
                let CaptureError::Truncated { packet, offset, .. } = error else {
                    panic!("{error}");
                };
                assert_eq!((packet, offset), (whole as u64 + 1, ends[whole - 1] as u64));
            }
        }
    }
}

#[test]
fn a_cut_off_capture_delivers_reports_and_counts() {
    let (bytes, ends) = small_captures().swap_remove(0);
    let reports = Reports::default();
    let mut port = input(
        bytes[..ends[2] - 1].to_vec(),
        InputSettings {
            rounds: Rounds::Times(3),
            ..InputSettings::default()
        },
        &reports,
    );
    let mut pool = pool(4, 128);
    assert_eq!(receive(&mut port, 0, &mut pool).len(), 2);
    assert!(port.finished());
    assert_eq!(port.counters().refused_packets, 1);
    assert_eq!(port.counters().received_bytes, 198);
    let told = reports.take();
    assert_eq!(told.len(), 1);
    let text = told[0].to_string();
    assert!(
        text.contains("test.pcap") && text.contains("inside packet 3"),
        "{text}"
    );
    assert!(text.contains(&format!("byte {}", ends[1])), "{text}");
}

#[test]
fn lengths_that_cannot_be_are_damage() {
    let pcap = Bytes::new(false)
        .pcap_header(0xa1b2_c3d4, 1)
        .pcap_record(0, 0, &[1], 1);
    let bytes = pcap.clone().u32(0).u32(0).u32(u32::MAX).u32(0).out;
    let (frames, error) = read_all(&bytes, BUFFER);
    let error = error.unwrap().to_string();
    assert_eq!(frames.len(), 1);
    assert!(error.contains("byte 41, before or in packet 2"), "{error}");

    let ng = Bytes::new(false).section().interface(1, None, None);
    let damaged = [
        ng.clone().u32(6).u32(8).u32(0).out,
        ng.clone().u32(6).u32(u32::MAX).u32(0).out,
        ng.clone().enhanced(1, 0, &[0; 4], 4).out,
        ng.clone()
            .block(6, |b| b.u32(0).u64(0).u32(400).u32(400).raw(&[0; 8]))
            .out,
        ng.clone()
            .block(6, |b| b.u32(0).u64(0).u32(u32::MAX).u32(1).raw(&[0; 8]))
            .out,
        ng.clone()
            .block(2, |b| b.u32(0).u64(0).u32(400).u32(400).raw(&[0; 8]))
            .out,
        ng.clone().block(2, |b| b.u32(0)).out,
        ng.clone().block(0x0a0d_0d0a, |b| b.u32(1).u64(0).u64(0)).out,
        Bytes::new(false).section().block(3, |b| b.u32(4).u32(0)).out,
    ];
    for (n, bytes) in damaged.iter().enumerate() {
        let (frames, error) = read_all(bytes, BUFFER);
        assert!(frames.is_empty(), "case {n}");
        assert!(
            matches!(error, Some(CaptureError::Damaged { packet: 1, .. })),
            "case {n}: {error:?}"
        );
    }
}

#[test]
fn frames_longer_than_the_buffers_are_refused() {
    let bytes = Bytes::new(false)
        .pcap_header(0xa1b2_c3d4, 1)
        .pcap_record(0, 0, &[0; 2000], 2000)
        .pcap_record(0, 0, &vec![0; FRAME_MAX + 1], 70_000)
        .pcap_record(0, 0, &[1; 60], 60)
        .out;
    let mut port = input(bytes, InputSettings::default(), &Reports::default());
    let mut pool = pool(4, 256);
    assert_eq!(receive(&mut port, 0, &mut pool).len(), 1);
    assert_eq!(
        (port.counters().received_packets, port.counters().refused_packets),
        (1, 2)
    );
    assert_eq!(pool.free(), 4);
}

proptest! {
    #[test]
    fn random_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..600), format in 0usize..5) {
        let begin = match format {
            0 => Vec::new(),
            1 => Bytes::new(false).pcap_header(0xa1b2_c3d4, 1).out,
            2 => Bytes::new(true).pcap_header(0xa1b2_3c4d, 1).out,
            3 => Bytes::new(false).section().interface(1, None, None).out,
            _ => Bytes::new(true).section().interface(1, None, None).out,
        };
        read_all(&[begin, bytes].concat(), 32);
    }

    #[test]
    fn changed_bytes_do_no_harm(
        which in 0usize..4,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        rounds in 1u64..4,
    ) {
        let (mut bytes, ends) = small_captures().swap_remove(which);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        read_all(&bytes, 32);
        let settings = InputSettings { rounds: Rounds::Times(rounds), ..InputSettings::default() };
        let Ok(reader) = Reader::new(Cursor::new(bytes), "test".into()) else { return Ok(()) };
        let mut port = PcapInput::new(reader, settings, Reports::default());
        let mut pool = pool(8, 32);
        for _ in 0..ends.len() * 40 {
            for frame in receive(&mut port, 0, &mut pool) {
                prop_assert!(frame.timestamp > 0);
            }
        }
        prop_assert!(port.finished());
        prop_assert_eq!(pool.free(), 8);
    }
}
