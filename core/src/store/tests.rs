//! Operations on keys with blocks, headroom and reservations, in the rules alone and in the stores of this process: the cases of
//! policies, and agreement on random operations.

mod agreement;
mod cases;
mod full;

use std::collections::HashMap;

use crate::store::Store;
#[cfg(all(feature = "local", target_os = "linux"))]
use crate::store::local::{SharedFileOptions, SharedFileStore};
use polylimit_rules::algorithm::State;
use polylimit_rules::codec::States;
use polylimit_rules::decision::Degradation;
use polylimit_rules::policy::Policy;
use polylimit_rules::reservation::list::Hold;
use polylimit_rules::transition::{Operation, PolicyRules};
use polylimit_runtime::clock::{Clock, ManualClock};
use polylimit_store::charge::{Action, Charge, PolicyId, PolicyOptions, StoreAnswer};
use polylimit_store_memory::MemoryStore;

/// An operation on a key of the policy with this number.
#[derive(Clone, Debug)]
struct Asked {
    policy: u64,
    key: String,
    action: Action,
    cost: u64,
    headroom: u8,
    hold: Option<Hold>,
}

impl Asked {
    fn plain(key: &str, operation: Operation, cost: u64) -> Self {
        Self { policy: 0, key: key.into(), action: Action::Apply(operation), cost, headroom: 0, hold: None }
    }

    fn block(key: &str, for_us: u64) -> Self {
        Self { hold: Some(Hold::of_block(for_us)), ..Self::plain(key, Operation::Block, 1) }
    }

    fn request(&self) -> Charge<'_> {
        let Self { policy, key, action, cost, headroom, .. } = self;
        Charge {
            headroom: *headroom,
            hold: self.hold.as_ref(),
            ..Charge::new(PolicyId(*policy), key.as_bytes(), *action, *cost)
        }
    }
}

/// Where an operation is applied.
enum Subject {
    /// The rules alone, on states that the test keeps instead of a store.
    Rules {
        rules: Vec<(Policy, PolicyRules)>,
        states: HashMap<(u64, String), States>,
        clock: Clock,
    },
    Stored {
        store: Store,
        path: Option<String>,
    },
}

impl Drop for Subject {
    fn drop(&mut self) {
        if let Self::Stored { path: Some(path), .. } = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Subject {
    fn rules(policies: &[Policy], clock: &ManualClock) -> Self {
        let rules = policies.iter().map(|policy| (policy.clone(), PolicyRules::new(policy))).collect();
        Self::Rules { rules, states: HashMap::new(), clock: Clock::from(clock.clone()) }
    }

    fn memory(policies: &[Policy], clock: &ManualClock, max_keys: usize) -> Self {
        let store = Store::Memory(MemoryStore::new(max_keys, Clock::from(clock.clone())));
        Self::Stored { store, path: None }.with(policies)
    }

    #[cfg(all(feature = "local", target_os = "linux"))]
    fn shared_file(policies: &[Policy], clock: &ManualClock) -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};

        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = format!("/dev/shm/polylimit-unit-test-{}-{number}", std::process::id());
        let options = SharedFileOptions::parse(&format!("file://{path}?size=1MiB")).unwrap();
        let store = SharedFileStore::new(options, Clock::from(clock.clone()), 1_000);
        Self::Stored { store: Store::Local(Box::new(store)), path: Some(path) }.with(policies)
    }

    fn all(policies: &[Policy], clock: &ManualClock) -> Vec<Self> {
        vec![
            Self::rules(policies, clock),
            Self::memory(policies, clock, 1_000),
            #[cfg(all(feature = "local", target_os = "linux"))]
            Self::shared_file(policies, clock),
        ]
    }

    fn with(self, policies: &[Policy]) -> Self {
        for (id, policy) in (0..).zip(policies) {
            self.set_policy(id, policy);
        }
        self
    }

    fn set_policy(&self, id: u64, policy: &Policy) {
        if let Self::Stored { store, .. } = self {
            store.set_policy(PolicyId(id), policy, PolicyOptions::default());
        }
    }

    fn ask(&mut self, asked: &Asked) -> StoreAnswer {
        match self {
            Self::Stored { store, .. } => store.try_start(asked.request()).unwrap().unwrap(),
            Self::Rules { rules, states, clock } => {
                let (policy, rules) = &rules[PolicyId(asked.policy).slot()];
                let fresh = || policy.quotas().iter().map(State::fresh).collect();
                let states = states.entry((asked.policy, asked.key.clone())).or_insert_with(fresh);
                let now_us = clock.now_us();
                let Action::Apply(operation) = asked.action else {
                    *states = fresh();
                    return (rules.view(states, now_us), 0);
                };
                let none: Option<Degradation> = None;
                let (decision, applied) =
                    rules.decide(states, asked.request().operation(operation, now_us), none);
                (decision, applied.spent)
            }
        }
    }
}
