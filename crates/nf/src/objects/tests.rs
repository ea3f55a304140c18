use super::*;

#[derive(crate::Plain, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Count {
    calls: u64,
}

impl SharedObject for Count {
    type Call = u64;
    type Answer = u64;
    fn apply(&mut self, by: &u64) -> u64 {
        self.calls += by;
        self.calls
    }
    fn read(&self, _: &u64) -> u64 {
        self.calls
    }
}

fn opened() -> (WorkerObjects, Shared<Count>) {
    let mut all = WorkerObjects::default();
    let shared = all.of("limit").open::<Count>("hosts").unwrap();
    (all, shared)
}

fn words(number: u64) -> Words {
    Words::of(&number)
}

#[test]
fn a_kind_is_opened_once_by_each_function() {
    let (mut all, _shared) = opened();
    let error = all.of("limit").open::<Count>("hosts").unwrap_err();
    assert_eq!(
        error.to_string(),
        "objects: `hosts` is opened twice; open it once, and keep the handle"
    );
    all.of("other").open::<Count>("hosts").unwrap();
    assert_eq!(all.kinds().len(), 2);
    assert_ne!(all.kinds()[0], all.kinds()[1]);
}

#[test]
fn methods_work_on_bytes_and_refuse_others() {
    let kind = Kind::of::<Count>("limit", "hosts");
    let mut content = (kind.methods.birth)();
    assert_eq!((kind.methods.apply)(&mut content, &words(3)), Some(words(3)));
    assert_eq!((kind.methods.apply)(&mut content, &words(4)), Some(words(7)));
    assert_eq!((kind.methods.read)(&content, &words(0)), Some(words(7)));
    assert_eq!((kind.methods.apply)(&mut content[..7], &words(4)), None);
    assert_eq!((kind.methods.read)(&content, &Words::default()), None);
    assert!(!(kind.methods.is_call)(&[0; 9]));
}

#[test]
fn answers_go_to_their_calls() {
    let (all, shared) = opened();
    let desk = all.desk();
    let ask = |number| {
        desk.ask(shared.kind, b"key", What::Update(words(number)))
            .unwrap()
    };
    let (one, two) = (ask(1), ask(2));
    assert_eq!(
        [desk.next().unwrap().token, desk.next().unwrap().token],
        [one, two]
    );
    assert_eq!(desk.next(), None);
    desk.answer(two, Ok(words(20)));
    assert!(desk.is_answered(two) && !desk.is_answered(one));
    assert_eq!(desk.take(one), None);
    assert_eq!(desk.take(two), Some(Ok(words(20))));
    assert_eq!(desk.take(two), None);
    // What is left is another's afterwards, and a late answer is nothing to that one.
    desk.leave(one);
    desk.answer(one, Ok(words(10)));
    let (three, four) = (ask(3), ask(4));
    desk.answer(one, Ok(words(11)));
    desk.answer(two, Ok(words(21)));
    assert_eq!((desk.take(three), desk.take(four)), (None, None));
}

#[test]
fn a_full_desk_refuses() {
    let (all, shared) = opened();
    let desk = all.desk();
    let ask = || desk.ask(shared.kind, b"key", What::Update(words(1)));
    let mut tokens: Vec<u64> = core::iter::from_fn(|| ask().ok()).collect();
    assert_eq!(tokens.len(), 2048);
    assert_eq!(ask(), Err(Ended::Full));
    while desk.next().is_some() {}
    let token = tokens.pop().unwrap();
    desk.answer(token, Ok(words(1)));
    assert_eq!(ask(), Err(Ended::Full));
    desk.leave(token);
    assert!(ask().is_ok());
    assert_eq!(shared.send(&[0; 41], &1), Err(Ended::KeyTooLong));
}
