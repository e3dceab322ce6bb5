//! Each operation as a value, by every way to make a call.

use std::time::Duration;

use polylimit::admin::{KeyFilter, ListBudget, PublishOptions};
use polylimit::document::RequestAttributes;
use polylimit::raw::{Answer, Call};
use polylimit::reservation::{ReservationId, ReserveOptions};
use polylimit::{Decision, Error, Limiter, Request};

use super::{TIMEOUT, clock};

const DOCUMENT: &str = r#"
polylimit = 1
[policies.api]
quotas = "5/hour fixed_window"
[policies.slots]
quotas = "2 concurrent; 9/hour fixed_window"
[[rules]]
apply = [{ policy = "api", key = "{user}" }]
"#;

type Way = fn(&Limiter, &Call<'_>) -> Result<Answer, Error>;

/// Every way to make a call.
const WAYS: [Way; 6] = [
    |limiter, call| limiter.raw().try_call(call).unwrap_or_else(|| limiter.blocking().raw().call_store(call)),
    |limiter, call| limiter.blocking().raw().call(call),
    |limiter, call| limiter.blocking().raw().call_store(call),
    |limiter, call| limiter.blocking().raw().call_until(call, TIMEOUT, || panic!("it waits")).unwrap(),
    |limiter, call| runtime().block_on(limiter.raw().call(call)),
    |limiter, call| runtime().block_on(limiter.raw().call_store(call)),
];

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

/// The configuration is applied at a time of the process's own clock.
fn without_time(mut answer: Answer) -> Answer {
    if let Answer::Configuration(status) = &mut answer {
        status.applied_at_us = 0;
    }
    answer
}

#[test]
fn each_call_answers_as_its_method_does() {
    for way in WAYS {
        let clock = clock();
        let [called, used] =
            [(); 2].map(|()| Limiter::builder().document(DOCUMENT).clock(clock.clone()).build().unwrap());
        let (used, by) = (used.blocking(), |call: Call<'_>| way(&called, &call).map(without_time));
        let (key, slot) = (Request::new("user").policy("api"), Request::new("user").policy("slots"));
        assert_eq!(by(Call::Check(key)), used.check(key).map(Answer::Decision));
        assert_eq!(by(Call::Peek(key)), used.peek(key).map(Answer::Decision));
        assert_eq!(by(Call::Acquire(key, TIMEOUT)), used.acquire(key, TIMEOUT).map(Answer::Decision));
        assert_eq!(by(Call::CheckMany(&[key, slot])), Ok(Answer::Decisions(used.check_many([key, slot]))));
        assert_eq!(by(Call::Charge(key.cost(2))), used.charge(key.cost(2)).map(Answer::Usage));
        assert_eq!(by(Call::Refund(key.cost(4))), used.refund(key.cost(4)).map(Answer::Usage));
        assert_eq!(by(Call::Take(key.cost(9))), used.take(key.cost(9)).map(Answer::Usage));
        let requests = [key.cost(0), key.cost(2)];
        let each = |decisions: Vec<Decision>| Answer::Decisions(decisions.into_iter().map(Ok).collect());
        assert_eq!(by(Call::CheckTogether(&requests)), used.check_together(&requests).map(each));
        assert_eq!(by(Call::PeekTogether(&requests)), used.peek_together(&requests).map(each));

        for timeout in [Duration::ZERO, TIMEOUT] {
            let options = ReserveOptions::default().timeout(timeout).max_age(Duration::ZERO);
            let options = options.id(ReservationId::new(format!("{timeout:?}")).unwrap());
            let (terms, id) = (options.terms().unwrap(), options.terms().unwrap().id);
            let reserved = used.reserve(slot.cost(2), options).unwrap();
            let decided = Answer::Decision(reserved.decision().clone());
            assert_eq!(by(Call::Reserve(slot.cost(2), terms)), Ok(decided));
            let _ = reserved.detach();
            assert_eq!(by(Call::Renew(slot, id, TIMEOUT)), used.renew(slot, id, TIMEOUT).map(Answer::Usage));
            let spent = (!timeout.is_zero()).then_some(1);
            assert_eq!(by(Call::Commit(slot, id, spent)), used.commit(slot, id, spent).map(Answer::Usage));
            assert_eq!(by(Call::Cancel(slot, id)), used.cancel(slot, id).map(Answer::Usage));
        }
        let terms = ReserveOptions::default().terms().unwrap();
        let others = [Request::new("other").policy("api"), slot];
        assert_eq!(
            by(Call::ReserveTogether(&others, terms)),
            used.reserve_together(&others, &terms).map(each)
        );
        let reserved = by(Call::Cancel(slot, terms.id));
        assert_eq!(reserved, used.cancel(slot, terms.id).map(Answer::Usage));
        assert!(matches!(reserved, Ok(Answer::Usage(usage)) if usage.found()));

        let admin = used.admin();
        assert_eq!(by(Call::Block(key, TIMEOUT)), admin.block(key, TIMEOUT).map(Answer::Usage));
        let (filter, budget) = (KeyFilter::default().policy("api").key_prefix("user"), ListBudget::default());
        assert_eq!(
            by(Call::List(filter, budget, None)),
            admin.list(&filter, &budget, None).map(Answer::Keys)
        );
        assert_eq!(
            by(Call::ScanTop(filter, 1, budget)),
            admin.scan_top(&filter, 1, &budget).map(Answer::Keys)
        );
        let explained = admin.explain(key).map(|it| Answer::Explanation(Box::new(it)));
        assert_eq!(by(Call::Explain(key)), explained);
        let attributes = RequestAttributes::new().attribute("user", "user");
        let explained = admin.explain_request(&attributes).map(|it| Answer::RequestExplanation(Box::new(it)));
        assert_eq!(by(Call::ExplainRequest(&attributes)), explained);
        let reset = admin.reset_listed(&filter, &budget, None).map(Answer::KeysReset);
        assert_eq!(by(Call::ResetListed(filter, budget, None)), reset);
        assert_eq!(by(Call::Reset(key)), used.reset(key).map(Answer::Usage));
        assert_eq!(
            by(Call::Decide(&attributes, terms)),
            used.decide(&attributes, &terms).map(Answer::Request)
        );

        let configuration = |status| without_time(Answer::Configuration(status));
        let set = admin.set_entry("deny user user", "{}").map(configuration);
        assert_eq!(by(Call::SetEntry("deny user user", "{}")), set);
        let deleted = admin.delete_entry("deny user user").map(configuration);
        assert_eq!(by(Call::DeleteEntry("deny user user")), deleted);
        let waited = admin.wait_for_version(1, Duration::ZERO).map(configuration);
        assert_eq!(by(Call::WaitForVersion(1, Duration::ZERO)), waited);
        let options = PublishOptions::default();
        assert_eq!(by(Call::Publish("{}", options)), admin.publish("{}", options).map(Answer::Configuration));
        assert_eq!(by(Call::Ready(TIMEOUT)), used.ready(TIMEOUT).map(|()| Answer::Ready));
        assert_eq!(by(Call::Doctor), admin.doctor().map(Answer::Findings));
    }
}
