//! Original timing, and captures that are played several times.

use super::*;

#[test]
fn an_empty_pool_delays_and_loses_nothing() {
    let mut port = input(timed(&[0, 1, 2]), InputSettings::default(), &Reports::default());
    let mut pool = pool(2, 64);
    let mut burst = Burst::new();
    port.receive(0, &mut pool, &mut burst);
    assert_eq!(burst.len(), 2);
    assert!(!port.finished() && port.waits());
    burst.drain(..).for_each(|p| pool.give(p));
    assert_eq!(receive(&mut port, 0, &mut pool)[0].bytes, [2]);
    assert!(port.finished());
    assert_eq!(port.counters().refused_packets, 0);
}

#[test]
fn original_timing_follows_the_capture() {
    let settings = InputSettings {
        timing: Timing::Original { speed: 2.0 },
        rounds: Rounds::Times(1),
    };
    let mut port = input(
        timed(&[1_000_000, 1_500_000, 1_500_000, 4_000_000]),
        settings,
        &Reports::default(),
    );
    assert!(!port.waits());
    let mut pool = pool(8, 64);
    let start = 77_000_000_000;
    let bytes = |frames: &[Frame]| frames.iter().map(|f| f.bytes[0]).collect::<Vec<_>>();
    assert_eq!(bytes(&receive(&mut port, start, &mut pool)), [0]);
    assert_eq!(port.next_at(), Some(start + 250_000_000));
    assert_eq!(
        bytes(&receive(&mut port, start + 249_999_999, &mut pool)),
        Vec::<u8>::new()
    );
    let frames = receive(&mut port, start + 250_000_000, &mut pool);
    assert_eq!(bytes(&frames), [1, 2]);
    assert_eq!(
        frames[0].timestamp, 1_500_000_000,
        "a timestamp is the time of capture"
    );
    assert_eq!(port.next_at(), Some(start + 1_500_000_000));
    assert!(!port.finished());
    assert_eq!(bytes(&receive(&mut port, start + 9_000_000_000, &mut pool)), [3]);
    assert!(port.finished());
    assert_eq!(port.next_at(), None);
}

#[test]
fn rounds_go_on_from_the_latest_time() {
    let settings = InputSettings {
        rounds: Rounds::Times(3),
        ..InputSettings::default()
    };
    // The third record was captured out of order.
    let mut port = input(
        timed(&[1_000, 1_010, 1_005, 1_030]),
        settings,
        &Reports::default(),
    );
    let mut pool = pool(32, 64);
    let frames = receive(&mut port, 0, &mut pool);
    assert_eq!(frames.len(), 12);
    let stamps: Vec<u64> = frames.iter().map(|f| f.timestamp / 1000).collect();
    assert_eq!(
        stamps,
        [
            1000, 1010, 1005, 1030, 1040, 1050, 1045, 1070, 1080, 1090, 1085, 1110
        ]
    );
    assert!(port.finished());
    assert_eq!(port.counters().received_packets, 12);
}

#[test]
fn packets_out_of_order_keep_their_times_to_the_output() {
    // Off by decades; the first record is not the earliest.
    let times = [1_600_000_000, 5, 1_700_000_000, 1_600_000_001, 0];
    let mut b = Bytes::new(false).pcap_header(0xa1b2_c3d4, 101);
    for (n, time) in times.into_iter().enumerate() {
        b = b.pcap_record(time, 7, &[n as u8], 1);
    }
    let mut port = input(b.out, InputSettings::default(), &Reports::default());
    let mut pool = pool(8, 64);
    let mut burst = Burst::new();
    port.receive(0, &mut pool, &mut burst);
    let mut file = Vec::new();
    let path = PathBuf::from("out.pcap");
    let mut output = PcapOutput::new(&mut file, path, Format::Pcap, Reports::default());
    output.transmit(u64::MAX, &mut pool, &mut burst);
    drop(output);
    let (frames, error) = read_all(&file, BUFFER);
    assert!(error.is_none());
    let seconds = |frame: &Frame| frame.timestamp / 1_000_000_000;
    assert_eq!(
        frames.iter().map(seconds).collect::<Vec<_>>(),
        times.map(u64::from)
    );
    assert!(
        frames
            .iter()
            .all(|frame| frame.timestamp % 1_000_000_000 == 7_000)
    );
}

#[test]
fn a_record_of_time_zero_has_a_time() {
    let mut port = input(timed(&[2, 0]), InputSettings::default(), &Reports::default());
    let frames = receive(&mut port, 0, &mut pool(8, 64));
    assert_eq!(frames.iter().map(|f| f.timestamp).collect::<Vec<_>>(), [2_000, 1]);
}

#[test]
fn a_record_out_of_order_is_due_with_the_one_before_it() {
    let settings = InputSettings {
        timing: Timing::Original { speed: 1.0 },
        rounds: Rounds::Times(1),
    };
    let mut port = input(timed(&[100, 300, 50, 400]), settings, &Reports::default());
    let mut pool = pool(8, 64);
    let mut at = |now| {
        let frames = receive(&mut port, now, &mut pool);
        frames.iter().map(|f| f.timestamp / 1000).collect::<Vec<_>>()
    };
    assert_eq!(at(0), [100]);
    assert_eq!(at(199_999), Vec::<u64>::new());
    assert_eq!(at(200_000), [300, 50]);
    assert_eq!(at(300_000), [400]);
}

#[test]
fn rounds_of_one_packet_and_of_none() {
    let forever = InputSettings {
        rounds: Rounds::Forever,
        ..InputSettings::default()
    };
    let mut pool = pool(40, 64);
    let mut port = input(timed(&[5]), forever, &Reports::default());
    let frames = receive(&mut port, 0, &mut pool);
    assert_eq!(frames.len(), 32);
    assert!(
        frames
            .windows(2)
            .all(|pair| pair[0].timestamp < pair[1].timestamp)
    );
    assert!(!port.finished());
    let mut port = input(timed(&[]), forever, &Reports::default());
    assert_eq!(receive(&mut port, 0, &mut pool), []);
    assert!(port.finished(), "an empty capture is not read for ever");
}

#[test]
fn original_timing_holds_over_rounds() {
    let settings = InputSettings {
        timing: Timing::Original { speed: 1.0 },
        rounds: Rounds::Times(2),
    };
    let mut port = input(timed(&[100, 200]), settings, &Reports::default());
    let mut pool = pool(8, 64);
    let mut seen = Vec::new();
    for now in (0..400_000).step_by(50_000) {
        seen.extend(
            receive(&mut port, now, &mut pool)
                .iter()
                .map(|f| (now, f.timestamp)),
        );
    }
    assert_eq!(
        seen,
        [
            (0, 100_000),
            (100_000, 200_000),
            (200_000, 300_000),
            (300_000, 400_000)
        ]
    );
}
