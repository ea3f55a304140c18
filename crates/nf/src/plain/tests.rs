//! Runs the code that the derives write out; under miri too: `cargo +nightly miri test -p
//! flowkeep-nf plain`.

use super::*;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use proptest::prelude::*;

#[derive(crate::Plain, Default, Clone, Copy, Debug, PartialEq)]
#[repr(u8)]
enum Phase {
    #[default]
    Opening,
    Established = 7,
    Closing,
}

#[derive(crate::Plain, Default, Clone, Copy, Debug, PartialEq)]
#[repr(u16)]
enum Wide {
    #[default]
    Low = 1,
    High = 0x0201,
}

#[derive(crate::Plain, Default, Clone, Copy, Debug, PartialEq)]
#[repr(C)]
struct Port {
    number: u16,
    known: bool,
    phase: Phase,
}

#[derive(crate::FlowState, Default, Clone, Copy, Debug, PartialEq)]
#[flow_state(version = 3)]
#[repr(C)]
struct Connection {
    client: Endpoint,
    server: Addr,
    ports: [Port; 2],
    wide: Wide,
    #[flow_state(lazy)]
    seen_reply: bool,
    #[flow_state(lazy)]
    reserved: [u8; 3],
    #[flow_state(lazy)]
    packets: [u64; 2],
}

#[derive(crate::FlowState, Default, Clone, Copy, Debug, PartialEq)]
#[repr(C)]
struct Lazy(#[flow_state(lazy)] u32);

#[derive(crate::FlowState, Default, Clone, Copy, Debug, PartialEq)]
#[repr(C)]
struct Nothing {}

/// Where the fields of a `Connection` are, counted by hand: 18 + 16 + 2 × 4 + 2 committed, 1 + 3 +
/// 16 lazy.
const PORTS: usize = 34;
const WIDE: usize = 42;
const SEEN_REPLY: usize = 44;
const PACKETS: usize = 48;

#[test]
fn committed_fields_are_counted_up_to_the_first_lazy_one() {
    assert_eq!((Connection::VERSION, Connection::COMMITTED), (3, SEEN_REPLY));
    assert_eq!(size_of::<Connection>(), PACKETS + 16);
    assert_eq!((Lazy::VERSION, Lazy::COMMITTED), (1, 0));
    assert_eq!(Nothing::COMMITTED, 0);
    // Without a lazy field, all of it is committed.
    #[derive(crate::FlowState, Default, Clone, Copy, Debug)]
    #[repr(C)]
    struct All {
        a: u64,
        b: [u32; 2],
    }
    assert_eq!(All::COMMITTED, size_of::<All>());
    let all = All { a: 1, b: [2, 3] };
    assert_eq!(shown(&all), "a=1 b=[2, 3] ");
}

fn shown(state: &impl FlowState) -> String {
    let mut text = String::new();
    state.each_field(&mut |name, value| text.push_str(&format!("{name}={value:?} ")));
    text
}

#[test]
fn fields_are_shown_by_name_and_in_order() {
    assert_eq!(shown(&Lazy(5)), "0=5 ");
    assert_eq!(shown(&Nothing {}), "");
    assert_eq!(shown(&()), "");
    let connection = Connection {
        client: "10.0.0.1:1000".parse().unwrap(),
        server: "2001:db8::1".parse().unwrap(),
        packets: [1, 2],
        ..Connection::default()
    };
    assert_eq!(
        shown(&connection),
        "client=10.0.0.1:1000 server=2001:db8::1 \
         ports=[Port { number: 0, known: false, phase: Opening }, Port { number: 0, known: false, phase: Opening }] \
         wide=Low seen_reply=false reserved=[0, 0, 0] packets=[1, 2] "
    );
}

#[test]
fn bytes_that_are_no_value_are_refused() {
    let good: Vec<u8> = bytes_of(&Connection::default()).to_vec();
    assert_eq!(from_bytes(&good), Some(Connection::default()));
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        from_bytes::<Connection>(&bytes)
    };
    // Any address and any number is one.
    assert!(with(0, 0xff).is_some() && with(PACKETS + 15, 0xff).is_some());
    // A bool is 0 or 1, in an array of structs too.
    assert!(with(SEEN_REPLY, 1).is_some_and(|c| c.seen_reply));
    assert!(with(SEEN_REPLY, 2).is_none());
    assert!(with(PORTS + 4 + 2, 1).is_some_and(|c| c.ports[1].known));
    assert!(with(PORTS + 4 + 2, 0x80).is_none());
    // An enum is one of its variants.
    for value in 0..=255 {
        let phase = with(PORTS + 3, value).map(|c| c.ports[0].phase);
        assert_eq!(
            phase,
            match value {
                0 => Some(Phase::Opening),
                7 => Some(Phase::Established),
                8 => Some(Phase::Closing),
                _ => None,
            }
        );
    }
    // A wide one in all its bytes: 1 and 0x0201, not 2 or 0x0101.
    let high = with(WIDE, 1).map(|c| c.wide);
    assert_eq!(high, Some(Wide::Low));
    assert!(with(WIDE, 2).is_none() && with(WIDE + 1, 1).is_none());
    assert_eq!(with(WIDE + 1, 2).map(|c| c.wide), Some(Wide::High));
}

#[test]
fn only_the_right_length_is_a_value() {
    let bytes = [0; 72];
    for length in 0..bytes.len() {
        // A `Wide` of 0 is none, so not even the right length passes.
        assert_eq!(from_bytes::<Connection>(&bytes[..length]), None);
        assert_eq!(from_bytes::<u64>(&bytes[..length]).is_some(), length == 8);
        assert_eq!(from_bytes::<[Port; 2]>(&bytes[..length]).is_some(), length == 8);
        assert_eq!(from_bytes::<()>(&bytes[..length]).is_some(), length == 0);
        assert_eq!(from_bytes::<[(); 3]>(&bytes[..length]).is_some(), length == 0);
        assert_eq!(from_bytes::<Nothing>(&bytes[..length]).is_some(), length == 0);
    }
}

#[test]
fn the_message_of_a_gap_is_put_together() {
    let panicked = std::panic::catch_unwind(|| assert_no_gap("in front of `packets`", 12)).unwrap_err();
    let message = panicked.downcast_ref::<String>().unwrap();
    assert!(
        message.contains("in front of `packets`: write a field `reserved: [u8; 12]`"),
        "{message}"
    );
    assert_no_gap("anywhere", 0);
    // A name longer than there is room for is cut, and not inside a letter.
    for shift in 0..2 {
        let name: String = core::iter::repeat_n('x', shift)
            .chain(core::iter::repeat_n('ä', 300))
            .collect();
        let panicked = std::panic::catch_unwind(|| assert_no_gap(&name, 1)).unwrap_err();
        assert!(
            panicked
                .downcast_ref::<String>()
                .unwrap()
                .starts_with("there are undefined bytes")
        );
    }
}

#[derive(crate::Plain, Default, Clone, Copy, Debug, PartialEq)]
#[repr(C)]
struct Bucket {
    credit: u64,
    since: Time,
}

/// Times in fields, arrays and structs in arrays, beside numbers that are none.
#[derive(crate::FlowState, Default, Clone, Copy, Debug, PartialEq)]
#[repr(C)]
struct Timed {
    since: Time,
    packets: u64,
    buckets: [Bucket; 2],
    seen: [Tick; 2],
    none: [[u32; 2]; 2],
}

#[test]
fn all_times_in_a_state_are_rebased_and_nothing_else() {
    const HOUR: u64 = 3_600_000_000_000;
    let at = Time::from_nanoseconds;
    let mut state = Timed {
        since: at(11 * HOUR),
        packets: 11 * HOUR,
        buckets: [
            Bucket {
                credit: 12 * HOUR,
                since: at(12 * HOUR),
            },
            Bucket::default(),
        ],
        seen: [at(13 * HOUR).tick(), at(14 * HOUR).tick()],
        none: [[1, 2], [3, 4]],
    };
    let expected = Timed {
        since: at(HOUR),
        buckets: [
            Bucket {
                credit: 12 * HOUR,
                since: at(2 * HOUR),
            },
            Bucket::default(),
        ],
        seen: [at(3 * HOUR).tick(), at(4 * HOUR).tick()],
        ..state
    };
    state.rebase(-10 * HOUR.cast_signed());
    assert_eq!(state, expected);
    assert!(state.buckets[1].since.is_never());
    const { assert!(Timed::HAS_TIMES && <[Bucket; 2]>::HAS_TIMES && !Connection::HAS_TIMES) };
}

fn port() -> impl Strategy<Value = Port> {
    let phase = prop_oneof![
        Just(Phase::Opening),
        Just(Phase::Established),
        Just(Phase::Closing)
    ];
    (any::<u16>(), any::<bool>(), phase).prop_map(|(number, known, phase)| Port { number, known, phase })
}

prop_compose! {
    fn connection()(
        client: [u8; 16], client_port: u16, server: [u8; 16], ports in [port(), port()], high: bool,
        seen_reply: bool, reserved: [u8; 3], packets: [u64; 2],
    ) -> Connection {
        Connection {
            client: Endpoint::new(Addr::v6(client), client_port),
            server: Addr::v6(server),
            ports,
            wide: if high { Wide::High } else { Wide::Low },
            seen_reply,
            reserved,
            packets,
        }
    }
}

proptest! {
    // Miri has no files to keep failures in, and takes its time.
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases * 2,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_value_comes_back_from_its_bytes(value in connection()) {
        prop_assert_eq!(from_bytes(bytes_of(&value)), Some(value));
    }

    #[test]
    fn bytes_need_no_alignment(value in connection(), shift in 0usize..8) {
        let mut bytes = alloc::vec![0xee; shift];
        bytes.extend_from_slice(bytes_of(&value));
        prop_assert_eq!(from_bytes(&bytes[shift..]), Some(value));
    }

    #[test]
    fn any_bytes_are_refused_or_a_value(
        mut bytes in proptest::collection::vec(any::<u8>(), size_of::<Connection>()),
        small in any::<[u8; 4]>(),
    ) {
        if let Some(port) = from_bytes::<Port>(&small) {
            prop_assert_eq!(bytes_of(&port), &small[..]);
        }
        // Mostly small numbers where enums and bools are, so that some pass.
        for byte in &mut bytes[PORTS..=SEEN_REPLY] {
            *byte &= 1;
        }
        if let Some(value) = from_bytes::<Connection>(&bytes) {
            // Looks at every field, so that miri sees whether it is a value.
            prop_assert!(shown(&value).contains("wide=Low"));
            prop_assert_eq!(bytes_of(&value), &bytes[..]);
        }
    }
}

/// Two builds of one function, as they may meet.
mod builds {
    macro_rules! build {
        ($name:ident { $($(#[$lazy:meta])? $field:ident: $t:ty),* }) => {
            #[derive(crate::FlowState, Default, Clone, Copy, Debug)]
            #[repr(C)]
            pub struct $name { $($(#[$lazy])? pub $field: $t),* }
        };
    }
    build!(Base {
        packets: u32,
        bytes: u32,
        port: super::Port
    });
    build!(Same {
        packets: u32,
        bytes: u32,
        port: super::Port
    });
    build!(Swapped {
        bytes: u32,
        packets: u32,
        port: super::Port
    });
    build!(Signed {
        packets: u32,
        bytes: i32,
        port: super::Port
    });
    build!(Renamed {
        packets: u32,
        octets: u32,
        port: super::Port
    });
    build!(Longer {
        packets: u32,
        bytes: u32,
        port: super::Port,
        more: u32
    });
    build!(Other {
        packets: u32,
        bytes: u32,
        port: [u16; 2]
    });
}

#[test]
fn a_layout_of_another_build_has_another_digest() {
    use builds::*;
    assert_eq!(Base::LAYOUT, Same::LAYOUT);
    let others = [
        Swapped::LAYOUT,
        Signed::LAYOUT,
        Renamed::LAYOUT,
        Longer::LAYOUT,
        Other::LAYOUT,
    ];
    for (at, other) in others.iter().enumerate() {
        assert!(*other != Base::LAYOUT && !others[..at].contains(other), "{at}");
    }
    // Enums by their variants and values, arrays by length.
    assert_ne!(Phase::LAYOUT, <u8 as Plain>::LAYOUT);
    assert_ne!(<[u8; 2]>::LAYOUT, <u16 as Plain>::LAYOUT);
    assert_ne!(<[u16; 2]>::LAYOUT, <[u8; 4]>::LAYOUT);
}
