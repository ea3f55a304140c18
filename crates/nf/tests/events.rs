//! A function writes what it declares: an event of its list, with the fields of that event.

use nf::{Event, Field};

const EVENT: Event = Event::new(
    "flow",
    "Now and then.",
    &[
        Field::text("from", "An end."),
        Field::number("packets", "packets", "Packets."),
    ],
);

/// Writes the event that its flow names, with the field that it names.
#[derive(Default)]
struct Writer;

#[derive(nf::FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Which {
    field: u8,
}

#[nf::network_function]
impl nf::NetworkFunction for Writer {
    const NAME: &'static str = "writer";
    const EVENTS: &'static [Event] = &[EVENT];
    type Flow = Which;

    fn process(&self, _: &mut nf::Packet, _: &mut Which, _: &mut nf::Cx<Self>) -> nf::Verdict {
        nf::Verdict::Forward
    }

    fn departed(&self, flow: &Which, _: nf::Departure, cx: &mut nf::Cx<Self>) {
        let field = ["from", "form"][usize::from(flow.field)];
        cx.event("flow", format_args!("\"{field}\":\"a\""));
    }
}

fn write(field: u8) {
    let mut writer = nf::by_hand::ByHand::new(Writer);
    writer.departed(&Which { field }, nf::Departure::Expired);
}

#[test]
fn what_is_declared_is_written() {
    write(0);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "has no field `form`: declare it")]
fn a_field_that_is_not_declared_is_noticed() {
    write(1);
}
