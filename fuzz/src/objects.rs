//! A runtime's shared objects among runtimes that say whatever an input has them say.
//!
//! ```text
//!   event: what, which, length (two bytes) │ so many bytes
//! ```
//!
//! | what | which | the bytes |
//! |---|---|---|
//! | 0 to 3 message | the runtime it is from | as `protocols::objects::wire` has it |
//! | 4 operation | which | the key's number (1), a call |
//! | 5 stage | which phase | the view (1), the members (1) |
//! | 6 failure | which runtime has failed | the view (1), the members (1) |
//! | 7 time goes on | – | – |

use protocols::objects::wire::{self, Bytes};
use protocols::objects::{
    Body, Caller, How, Input, Key, Members, Message, ObjectSettings, Objects, Output, Stage,
};
use protocols::ownership::RuntimeId;

const ME: RuntimeId = RuntimeId(1);
const KEYS_MAX: usize = 12;
const REQUESTS_MAX: usize = 24;
const CACHE_MAX: usize = 4;
/// The most outputs for one input of the machine: a message for each other runtime and key, and one
/// for each waiting request.
const OUTPUTS_MAX: usize = 4096;

/// Any bytes: a content, a call, an answer.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Blob(Vec<u8>);

impl Body for Blob {
    type Call = Blob;
    type Answer = Blob;

    fn apply(&mut self, call: &Blob) -> Blob {
        self.0.clone_from(&call.0);
        Blob(Vec::new())
    }

    fn read(&self, _: &Blob) -> Blob {
        self.clone()
    }

    fn fold(into: &mut Blob, later: &Blob) -> bool {
        into.0.clone_from(&later.0);
        later.0.len().is_multiple_of(2)
    }
}

impl Bytes for Blob {
    type Kinds = ();

    fn write(&self, to: &mut Vec<u8>) {
        to.extend(&self.0);
    }

    fn read((): &(), _: u16, bytes: &[u8]) -> Option<Self> {
        Some(Blob(bytes.to_vec()))
    }
}

/// One input.
pub fn run(input: &[u8]) {
    let caller = Caller {
        runtime: ME,
        incarnation: 1,
    };
    let settings = ObjectSettings {
        keys_max: KEYS_MAX,
        requests_max: REQUESTS_MAX,
        queue_max: 8,
        cache_max: CACHE_MAX,
        ..ObjectSettings::default_with(7, 1)
    };
    let mut objects = Objects::<Blob>::new(caller, 1, Members(0b111), settings);
    let (mut rest, mut now) = (input, 0);
    while let Some((&[what, which, high, low], behind)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes([high, low])).min(behind.len());
        let (bytes, behind) = behind.split_at(length);
        rest = behind;
        now += 10_000;
        match event(what, which, bytes) {
            Some(input) => objects.handle(now, input),
            None => continue,
        }
        let outputs = core::iter::from_fn(|| objects.poll());
        assert!(outputs.map(check).count() <= OUTPUTS_MAX);
        let (keys, requests, results) = objects.counts();
        assert!(keys <= KEYS_MAX && requests <= REQUESTS_MAX && results <= CACHE_MAX);
    }
}

fn event(what: u8, which: u8, bytes: &[u8]) -> Option<Input<Blob>> {
    let at = |place: usize| bytes.get(place).copied();
    let call = || Blob(bytes.get(1..).unwrap_or_default().to_vec());
    let key = || Key::new(u16::from(at(0)? % 16), &[]);
    Some(match what % 8 {
        0..=3 => {
            let message = wire::read(bytes, &())?;
            let mut again = Vec::new();
            wire::write(&message, &mut again);
            assert_eq!(again, bytes, "{message:?}");
            Input::Receive(RuntimeId(u16::from(which % 4)), message)
        }
        4 => match which % 7 {
            0 => Input::Acquire(key()?, 1, Some(call())),
            1 => Input::Acquire(key()?, 2, None),
            2 => Input::Release(key()?, Some(3)),
            3 => Input::Call(key()?, call(), 4, How::Waits),
            4 => Input::Call(key()?, call(), 5, How::Merged),
            5 => Input::Read(key()?, call(), 6, 50_000),
            _ => Input::Remove(key()?, 7),
        },
        5 => {
            let (view, members) = (u32::from(at(0)?), Members(u64::from(at(1)?)));
            let stages = [Stage::normal(view), Stage::prepared(view), Stage::scaling(view)];
            Input::Stage(stages[usize::from(which % 3)], members)
        }
        6 => {
            let (view, members) = (u32::from(at(0)?), Members(u64::from(at(1)?)));
            let failed = Members::one(RuntimeId(u16::from(which % 4)));
            Input::Failed(view, members.minus(failed), failed)
        }
        _ => Input::Tick,
    })
}

/// The other end reads each message that goes out.
fn check(output: Output<Blob>) {
    if let Output::Send(to, message) = output {
        assert_ne!(to, ME);
        let mut bytes = Vec::new();
        wire::write(&message, &mut bytes);
        assert_eq!(wire::read(&bytes, &()), Some(message));
    }
}

/// A runtime's messages while objects are made, called, moved and copied, views change and a
/// runtime fails: the corpus to begin with.
pub fn real() -> Vec<Vec<u8>> {
    let mut inputs = Vec::new();
    for number in 0..16 {
        let mut input = Vec::new();
        let key = Key::new(number, &[]).expect("a short key");
        for (what, which, bytes) in [
            (4, 0, vec![number as u8, 1]),
            (4, 2, vec![number as u8]),
            (4, 3, vec![number as u8, 2]),
            (5, 1, vec![1, 0b011]),
            (5, 2, vec![1, 0b011]),
            (7, 0, vec![]),
            (0, 0, written(&Message::Swept(2))),
            (0, 0, written(&Message::Absent(key, 1))),
            (6, 2, vec![9, 0b011]),
            (0, 0, written(&Message::Flush(9))),
            (0, 0, written(&Message::ClaimsDone(9))),
        ] {
            input.extend([what, which]);
            input.extend((bytes.len() as u16).to_be_bytes());
            input.extend(bytes);
        }
        inputs.push(input);
    }
    inputs
}

fn written(message: &Message<Blob>) -> Vec<u8> {
    let mut bytes = Vec::new();
    wire::write(message, &mut bytes);
    bytes
}
