//! Rings over plain memory, so that miri can look at them: order, threads, and an other end that is
//! mad.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use wire::memory::Region;

const LENGTH: usize = FRONT + 4096;

/// Steps of a case. To draw them takes miri longer than to do them.
const STEPS: usize = if cfg!(miri) { 20 } else { 400 };

/// Memory aligned to 128 inside a region of the heap.
fn memory(length: usize) -> (Region, NonNull<u8>) {
    let region = Region::heap(length + 128);
    let skipped = region.start().align_offset(128);
    // SAFETY: less than 128, and so many more bytes are there.
    let start = unsafe { region.start().add(skipped) };
    (region, start)
}

fn ends(start: NonNull<u8>, length: usize) -> (Writer, Reader) {
    // SAFETY: the callers keep the region for as long as the ends, and make one of each.
    unsafe { (Writer::new(start, length), Reader::new(start, length)) }
}

fn head(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

fn frame(number: u64) -> Vec<u8> {
    vec![number as u8; (number * 7919 % 300) as usize]
}

fn said(reader: &Reader, record: &Record) -> Vec<u8> {
    let mut bytes = vec![0; record.length];
    reader.copy(record, 0, &mut bytes);
    bytes
}

#[track_caller]
fn check(reader: &mut Reader, record: Record, number: u64) {
    assert_eq!(record.sort, number as u32);
    assert_eq!(
        said(reader, &record),
        [&head(number)[..], &frame(number)].concat()
    );
    reader.take(record);
}

proptest! {
    /// Any order of putting in, publishing, taking out and giving back: the records that come out
    /// are those put in and published.
    #[test]
    fn records_come_in_order(steps in prop::collection::vec((0..4_u8, 0..300_usize), 1..STEPS)) {
        let (_region, start) = memory(LENGTH);
        let (mut writer, mut reader) = ends(start, LENGTH);
        let (mut put, mut published, mut taken, mut owed) = (VecDeque::new(), 0, 0, false);
        for (step, length) in steps {
            match step {
                0 | 1 => {
                    let bytes = vec![length as u8; length];
                    if writer.push(1, &[], &bytes).unwrap() {
                        put.push_back(bytes);
                    } else {
                        prop_assert!(owed || !put.is_empty(), "an empty ring has room");
                    }
                }
                2 => {
                    writer.publish();
                    published = put.len();
                }
                _ => {
                    match reader.next().unwrap() {
                        Some(record) => {
                            prop_assert_eq!(Some(said(&reader, &record)), put.pop_front());
                            reader.take(record);
                            published -= 1;
                            taken += 1;
                            owed = true;
                        }
                        None => prop_assert_eq!(published, 0),
                    }
                    if length % 3 == 0 {
                        reader.publish();
                        owed = false;
                        prop_assert!(writer.waiting(0) <= put.len() + taken);
                    }
                }
            }
        }
    }

    /// The other end writes anything anywhere: records handed out lie inside (the copy would fail
    /// under miri, and the bounds are asserted here), nothing goes on for ever, nothing panics.
    #[test]
    fn a_mad_writer_harms_no_reader(
        begin in 0..40_u64,
        scribbles in prop::collection::vec((prop_oneof![Just(0_usize), 0..LENGTH / 8], scribble()), 1..STEPS / 10),
    ) {
        let (_region, start) = memory(LENGTH);
        let (mut writer, mut reader) = ends(start, LENGTH);
        for number in 0..begin {
            let _ = writer.push(number as u32, &head(number), &frame(number)).unwrap();
        }
        writer.publish();
        for (word, value) in scribbles {
            // SAFETY: a word inside the memory.
            unsafe { start.cast::<u64>().add(word).write(value) };
            for _ in 0..LENGTH {
                let Ok(Some(record)) = reader.next() else { break };
                prop_assert!(record.length <= LENGTH - FRONT);
                said(&reader, &record);
                reader.take(record);
                prop_assert!(reader.at < LENGTH - FRONT && reader.taken <= reader.written);
            }
            reader.publish();
        }
    }

    /// The same of a reader.
    #[test]
    fn a_mad_reader_harms_no_writer(
        scribbles in prop::collection::vec((prop_oneof![Just(16_usize), Just(17), 0..LENGTH / 8], scribble(), 0..300_usize), 1..STEPS / 2),
    ) {
        let (_region, start) = memory(LENGTH);
        let (mut writer, _) = ends(start, LENGTH);
        for (word, value, length) in scribbles {
            // SAFETY: a word inside the memory.
            unsafe { start.cast::<u64>().add(word).write(value) };
            for _ in 0..3 {
                let _ = writer.push(0, &head(0), &vec![0; length]);
                prop_assert!(writer.at < LENGTH - FRONT && writer.taken <= writer.written);
                prop_assert!(writer.written - writer.taken <= (LENGTH - FRONT) as u64);
            }
            writer.publish();
            writer.waiting(0);
            writer.must_wake();
        }
    }
}

/// Numbers that are near the truth, and others.
fn scribble() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..LENGTH as u64 * 2,
        (0..LENGTH as u64 / 16).prop_map(|n| n * 16),
        Just(u64::from(SKIP)),
        Just(u64::MAX),
        any::<u64>()
    ]
}

/// Numbered records from thread to thread: all of them, in order, with their bytes, whenever the
/// threads run.
#[test]
fn threads_pass_numbered_records() {
    const RECORDS: u64 = if cfg!(miri) { 24 } else { 300_000 };
    let length = memory_min(308) + 512;
    let (region, start) = memory(length);
    let (mut writer, mut reader) = ends(start, length);
    let checker = std::thread::spawn(move || {
        let mut number = 0;
        while number < RECORDS {
            match reader.next().unwrap() {
                Some(record) => {
                    check(&mut reader, record, number);
                    number += 1;
                    if number % 3 == 0 {
                        reader.publish();
                    }
                }
                None => {
                    reader.publish();
                    std::thread::yield_now();
                }
            }
        }
    });
    let mut number = 0;
    while number < RECORDS {
        let put = writer.push(number as u32, &head(number), &frame(number)).unwrap();
        number += u64::from(put);
        if !put || number % 5 == 0 {
            writer.publish();
        }
        if !put {
            std::thread::yield_now();
        }
    }
    writer.publish();
    checker.join().unwrap();
    drop(region);
}

/// A reader that lies is woken for each record that it might have missed.
#[test]
fn threads_nothing_put_in_is_slept_through() {
    const RECORDS: u64 = if cfg!(miri) { 12 } else { 20_000 };
    let (region, start) = memory(LENGTH);
    let (mut writer, mut reader) = ends(start, LENGTH);
    let (bell, heard) = std::sync::mpsc::channel();
    let sleeper = std::thread::spawn(move || {
        let mut number = 0;
        while number < RECORDS {
            while let Some(record) = reader.next().unwrap() {
                check(&mut reader, record, number);
                number += 1;
            }
            reader.publish();
            reader.lie_down();
            if number < RECORDS && reader.next().unwrap().is_none() {
                heard
                    .recv_timeout(std::time::Duration::from_secs(60))
                    .expect("woken");
            }
            reader.get_up();
        }
    });
    for number in 0..RECORDS {
        while !writer.push(number as u32, &head(number), &frame(number)).unwrap() {
            std::thread::yield_now();
        }
        writer.publish();
        if writer.must_wake() {
            let _ = bell.send(());
        }
        if number % 7 == 0 {
            std::thread::yield_now();
        }
    }
    sleeper.join().unwrap();
    drop(region);
}

#[test]
fn what_waits_is_known_as_well_as_the_reader_says() {
    let (_region, start) = memory(LENGTH);
    let (mut writer, mut reader) = ends(start, LENGTH);
    for number in 0..5 {
        assert!(writer.push(number as u32, &head(number), &frame(number)).unwrap());
    }
    writer.publish();
    assert_eq!(writer.waiting(0), 5);
    for number in 0..3 {
        let record = reader.next().unwrap().unwrap();
        check(&mut reader, record, number);
    }
    reader.publish();
    assert_eq!((writer.waiting(5), writer.waiting(4)), (5, 2));
}
