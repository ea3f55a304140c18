//! The relay against members that answer as they are told.

use super::*;
use tokio_stream::wrappers::ReceiverStream;

/// A member's end: its requests, and where its answers go.
struct Member {
    asked: mpsc::Receiver<Asked>,
    answers: mpsc::Sender<Result<Served, Status>>,
}

impl Member {
    fn of(relay: &Arc<Relay>, name: &str) -> Self {
        let (answers, stream) = mpsc::channel(16);
        let asked = relay.serve(name, ReceiverStream::new(stream));
        Member { asked, answers }
    }

    async fn say(&self, number: u64, what: What) {
        let what = Some(what);
        self.answers.send(Ok(Served { number, what })).await.unwrap();
    }
}

fn ask(
    relay: &Arc<Relay>,
    member: &str,
    request: &[u8],
) -> tokio::task::JoinHandle<Result<Vec<u8>, Refused>> {
    let (relay, member, request) = (relay.clone(), member.to_owned(), request.to_vec());
    tokio::spawn(async move { relay.ask(&member, request).await })
}

/// Time stands still until all wait, and goes on by itself then.
fn in_time(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.unwrap().block_on(test);
}

fn refusal(answer: Result<Vec<u8>, Refused>) -> Refusal {
    answer.unwrap_err().0
}

#[test]
fn an_answer_goes_to_the_request_of_its_number() {
    in_time(async {
        let relay = Arc::new(Relay::default());
        let mut a = Member::of(&relay, "a");
        assert_eq!(relay.serving(), ["a"]);
        let (one, other) = (ask(&relay, "a", b"one"), ask(&relay, "a", b"other"));
        let first = a.asked.recv().await.unwrap();
        let second = a.asked.recv().await.unwrap();
        // Unasked, and in the other order.
        a.say(77, What::Answer(b"noise".to_vec())).await;
        a.say(second.number, What::Answer(second.request)).await;
        a.say(second.number, What::Answer(b"again".to_vec())).await;
        a.say(first.number, What::Answer(first.request)).await;
        assert_eq!(one.await.unwrap().unwrap(), b"one");
        assert_eq!(other.await.unwrap().unwrap(), b"other");
        assert!(relay.request_table().servers["a"].waiting.is_empty());
    });
}

#[test]
fn a_member_that_is_silent_away_or_ends_is_refused_by_name() {
    in_time(async {
        let relay = Arc::new(Relay::default());
        assert_eq!(refusal(relay.ask("a", Vec::new()).await), Refusal::MemberAway);
        let mut a = Member::of(&relay, "a");
        let silent = ask(&relay, "a", b"");
        let began = tokio::time::Instant::now();
        let late = a.asked.recv().await.unwrap();
        assert_eq!(refusal(silent.await.unwrap()), Refusal::MemberSilent);
        assert!(began.elapsed() >= PATIENCE && began.elapsed() < 2 * PATIENCE);
        assert!(relay.request_table().servers["a"].waiting.is_empty());
        // No request gets an answer that comes late; the next one has its own.
        a.say(late.number, What::Answer(b"late".to_vec())).await;
        let next = ask(&relay, "a", b"next");
        let asked = a.asked.recv().await.unwrap();
        a.say(asked.number, What::Answer(asked.request)).await;
        assert_eq!(next.await.unwrap().unwrap(), b"next");
        // Its stream ends while a request is under way.
        let under_way = ask(&relay, "a", b"");
        a.asked.recv().await.unwrap();
        drop(a);
        assert_eq!(refusal(under_way.await.unwrap()), Refusal::MemberAway);
        assert!(relay.serving().is_empty());
    });
}

#[test]
fn the_newest_stream_of_a_member_counts() {
    in_time(async {
        let relay = Arc::new(Relay::default());
        let mut before = Member::of(&relay, "a");
        let lost = ask(&relay, "a", b"");
        let asked = before.asked.recv().await.unwrap();
        let mut after = Member::of(&relay, "a");
        assert_eq!(refusal(lost.await.unwrap()), Refusal::MemberAway);
        assert!(before.asked.recv().await.is_none(), "its stream has ended");
        let _ = before
            .answers
            .send(Ok(Served {
                number: asked.number + 2,
                what: Some(What::Answer(b"of the one before".to_vec())),
            }))
            .await;
        let now = ask(&relay, "a", b"now");
        let asked = after.asked.recv().await.unwrap();
        after.say(asked.number, What::Answer(asked.request)).await;
        assert_eq!(now.await.unwrap().unwrap(), b"now");
        assert_eq!(relay.serving(), ["a"]);
    });
}

#[test]
fn requests_under_way_are_bounded_at_a_member_and_in_all() {
    in_time(async {
        let relay = Arc::new(Relay::default());
        let mut members: Vec<Member> = Vec::new();
        let mut asked = Vec::new();
        for number in 0..RELAYS_MAX / MEMBER_MAX {
            let name = format!("m{number}");
            members.push(Member::of(&relay, &name));
            asked.extend((0..MEMBER_MAX).map(|_| ask(&relay, &name, b"")));
            tokio::task::yield_now().await;
            // A request that it was handed counts until it has answered.
            let member = members.last_mut().unwrap();
            for _ in 0..MEMBER_MAX {
                member.asked.recv().await.unwrap();
            }
            if number == 0 {
                let more = relay.ask(&name, Vec::new()).await;
                assert_eq!(refusal(more), Refusal::MemberBusy);
            }
        }
        members.push(Member::of(&relay, "other"));
        assert_eq!(refusal(relay.ask("other", Vec::new()).await), Refusal::Busy);
        // An operator that goes away makes room, and so does an answer.
        asked.pop().unwrap().abort();
        tokio::task::yield_now().await;
        let other = ask(&relay, "other", b"");
        let last = members.last_mut().unwrap();
        let request = last.asked.recv().await.unwrap();
        last.say(request.number, What::Answer(Vec::new())).await;
        assert!(other.await.unwrap().is_ok());
        let waiting = |name: &str| relay.request_table().servers[name].waiting.len();
        assert_eq!(
            waiting("m7"),
            MEMBER_MAX - 1,
            "the one that went away has no entry"
        );
        for asked in asked {
            assert_eq!(refusal(asked.await.unwrap()), Refusal::MemberSilent);
        }
        assert_eq!(relay.room.available_permits(), RELAYS_MAX);
    });
}

#[test]
fn what_is_no_answer_is_refused_by_name() {
    in_time(async {
        let relay = Arc::new(Relay::default());
        let mut a = Member::of(&relay, "a");
        let unserved = |why: Unserved| What::Unserved(why.into());
        let cases = [
            (Some(What::Answer(vec![0; ANSWER_MAX + 1])), Refusal::TooLong),
            (Some(unserved(Unserved::TooLong)), Refusal::TooLong),
            (Some(unserved(Unserved::Busy)), Refusal::MemberBusy),
            (Some(unserved(Unserved::Failed)), Refusal::MemberFailed),
            (Some(What::Unserved(99)), Refusal::MemberFailed),
            (None, Refusal::MemberFailed),
        ];
        for (what, expected) in cases {
            let asking = ask(&relay, "a", b"");
            let number = a.asked.recv().await.unwrap().number;
            a.answers.send(Ok(Served { number, what })).await.unwrap();
            assert_eq!(refusal(asking.await.unwrap()), expected);
        }
        let asking = ask(&relay, "a", b"");
        let number = a.asked.recv().await.unwrap().number;
        a.say(number, What::Answer(vec![7; ANSWER_MAX])).await;
        assert_eq!(asking.await.unwrap().unwrap().len(), ANSWER_MAX);
    });
}
