//! A written capture has the packets that were sent, for us and for other programs.

use super::*;

#[test]
fn pcap_holds_one_link_type_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.pcap");
    let reports = Reports::default();
    let mut port = PcapOutput::create(&path, reports.clone()).unwrap();
    let mut pool = pool(4, 128);
    let frames = [
        frame(&[1; 20], LinkType::Raw, 20, 5),
        frame(&[2; 20], LinkType::Ethernet, 20, 6),
        frame(&[3; 20], LinkType::Ethernet, 20, 7),
    ];
    transmit(&mut port, &mut pool, &frames);
    port.flush();
    assert_eq!(
        (port.counters().sent_packets, port.counters().unsent_packets),
        (1, 2)
    );
    let told = reports.take();
    assert_eq!(told.len(), 1);
    assert!(told[0].remedy.contains("*.pcapng"), "{}", told[0]);
    assert_eq!(read_all(&std::fs::read(&path).unwrap(), BUFFER).0, frames[..1]);
    assert_eq!(pool.free(), 4);
}

#[test]
fn a_packet_without_a_time_gets_the_clocks_and_an_empty_buffer_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.pcapng");
    let mut port = PcapOutput::create(&path, Reports::default()).unwrap();
    let mut pool = pool(4, 128);
    let mut burst = Burst::new();
    let mut packet = pool.take().unwrap();
    packet.set_kind(Kind::Empty);
    burst.push(packet);
    port.transmit(0, &mut pool, &mut burst);
    transmit(&mut port, &mut pool, &[frame(&[1; 5], LinkType::Raw, 5, 0)]);
    drop(port);
    assert_eq!(
        read_all(&std::fs::read(&path).unwrap(), BUFFER).0,
        [frame(&[1; 5], LinkType::Raw, 5, 1)]
    );
}

#[test]
fn a_capture_without_packets_is_still_a_capture() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["out.pcap", "out.pcapng"] {
        let path = folder.path().join(name);
        drop(PcapOutput::create(&path, Reports::default()).unwrap());
        let (frames, error) = read_all(&std::fs::read(&path).unwrap(), BUFFER);
        assert!(frames.is_empty() && error.is_none(), "{name}: {error:?}");
    }
}

/// A file on a disk with room for so many bytes.
struct SmallDisk(usize);

impl std::io::Write for SmallDisk {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let count = bytes.len().min(self.0);
        self.0 -= count;
        if count == 0 {
            Err(std::io::ErrorKind::StorageFull.into())
        } else {
            Ok(count)
        }
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_told_once_and_every_packet_is_counted() {
    let reports = Reports::default();
    let disk = SmallDisk(300_000);
    let mut port = PcapOutput::new(disk, "full.pcap".into(), Format::Pcap, reports.clone());
    let mut pool = pool(32, 2048);
    let frames = vec![frame(&[1; 1000], LinkType::Raw, 1000, 5); 1000];
    transmit(&mut port, &mut pool, &frames);
    port.flush();
    let counters = port.counters();
    assert_eq!(counters.sent_packets + counters.unsent_packets, 1000);
    // The first write's packets are there: 258 packets of 1016 bytes and a header fill the buffer.
    assert_eq!((counters.sent_packets, counters.sent_bytes), (258, 258_000));
    let told = reports.take();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].port, "full.pcap");
    assert!(told[0].remedy.contains("free some space"));
    drop(port);
    assert!(reports.take().is_empty());
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let error = PcapOutput::create(Path::new("/nowhere/out.pcap"), Reports::default())
        .err()
        .unwrap();
    assert!(
        error
            .to_string()
            .starts_with("/nowhere/out.pcap: cannot be created"),
        "{error}"
    );
}

/// A program's output, `None` where it is not installed.
fn run(program: &str, arguments: &[&str], path: &Path) -> Option<String> {
    let output = std::process::Command::new(program)
        .args(arguments)
        .arg(path)
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{program}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(text)
}

#[test]
fn other_programs_read_what_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let (one, several) = (
        folder.path().join("one.pcap"),
        folder.path().join("several.pcapng"),
    );
    let udp = [
        &[
            0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2, 0, 53, 0, 53, 0, 8,
        ][..],
        &[0; 2],
    ]
    .concat();
    let ethernet = [&[0; 12][..], &[8, 0], &udp].concat();
    let frames = [
        frame(&udp, LinkType::Raw, 28, 1_000_000_007),
        frame(&ethernet, LinkType::Ethernet, 99, 2_000_000_000),
    ];
    let mut pool = pool(4, 128);
    transmit(
        &mut PcapOutput::create(&one, Reports::default()).unwrap(),
        &mut pool,
        &frames[..1],
    );
    transmit(
        &mut PcapOutput::create(&several, Reports::default()).unwrap(),
        &mut pool,
        &frames,
    );
    let fields = [
        "-T",
        "fields",
        "-e",
        "frame.time_epoch",
        "-e",
        "ip.dst",
        "-e",
        "udp.port",
        "-e",
        "frame.len",
        "-r",
    ];
    match run("tshark", &fields, &several) {
        Some(text) => assert_eq!(
            text,
            "1.000000007\t192.0.2.2\t53,53\t28\n2.000000000\t192.0.2.2\t53,53\t99\n"
        ),
        None => println!("not run: needs tshark"),
    }
    match run("tcpdump", &["-ttn", "--nano", "-r"], &one) {
        Some(text) => assert!(
            text.starts_with("1.000000007 IP 192.0.2.1.53 > 192.0.2.2.53"),
            "{text}"
        ),
        None => println!("not run: needs tcpdump"),
    }
}

fn any_link() -> impl Strategy<Value = LinkType> {
    prop_oneof![
        Just(LinkType::Ethernet),
        Just(LinkType::Raw),
        Just(LinkType::Loopback),
        Just(LinkType::LinuxSll),
        Just(LinkType::LinuxSll2)
    ]
}

fn any_frame() -> impl Strategy<Value = Frame> {
    (
        proptest::collection::vec(any::<u8>(), 0..200),
        any_link(),
        0u32..3000,
        1u64..u64::from(u32::MAX) * 1_000_000_000,
    )
        .prop_map(|(bytes, link, more, time)| frame(&bytes, link, bytes.len() as u32 + more, time))
}

proptest! {
    #[test]
    fn what_is_written_is_read(frames in proptest::collection::vec(any_frame(), 0..40), one_link: bool) {
        let mut frames = frames;
        if one_link {
            frames.iter_mut().for_each(|f| f.link = LinkType::Raw);
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(if one_link { "a.pcap" } else { "a.pcapng" });
        let mut pool = pool(32, 256);
        let mut output = PcapOutput::create(&path, Reports::default()).unwrap();
        transmit(&mut output, &mut pool, &frames);
        output.flush();
        prop_assert_eq!(output.counters().sent_packets, frames.len() as u64);
        let bytes = std::fs::read(&path).unwrap();
        let (read, error) = read_all(&bytes, 64);
        prop_assert!(error.is_none());
        prop_assert_eq!(&read, &frames);
    }
}
