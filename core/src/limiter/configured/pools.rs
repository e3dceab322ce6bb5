//! The pools of elastic policies: they may admit what a policy denies, and are charged for what policies spend.

use std::sync::Arc;

use crate::limiter::Limiter;
use crate::limiter::configured::in_force::InForce;
use crate::limiter::configured::key_decision::PendingAnswer;
use crate::limiter::configured::key_steps::{ConfiguredCall, Opening};
use crate::limiter::configured::pool_charges::{COLLECTED_FOR, Pool};
use polylimit_rules::error::Error;
use polylimit_rules::transition::Operation;
use polylimit_store::charge::{Action, Wait};

impl Limiter {
    /// The pool's answer; boxed, because the pool is decided by the same recursive path as a policy.
    pub(crate) fn ask_pool<'a>(
        &'a self,
        in_force: &'a InForce,
        call: ConfiguredCall<'a>,
        wait: Wait,
    ) -> PendingAnswer<'a> {
        Box::pin(self.decide_on_key(in_force, call, wait))
    }

    /// Charges a pool for what it is owed before this process calls it.
    pub(crate) async fn charge_own_pool(
        &self,
        in_force: &InForce,
        call: ConfiguredCall<'_>,
        wait: Wait,
    ) -> Result<(), Error> {
        let charges = &self.shared().configured.pool_charges;
        if charges.is_empty() {
            return Ok(());
        }
        let pool = pool_of(in_force, call.policy, call.key);
        let units = charges.take(&pool);
        self.charge_pool(in_force, &pool, units, wait).await
    }

    /// Adds the units that a policy has spent to the charges of its pool.
    pub(crate) async fn owe_to_pool(
        &self,
        in_force: &InForce,
        call: ConfiguredCall<'_>,
        units: u64,
        wait: Wait,
    ) -> Result<(), Error> {
        let elastic = in_force.document(call.policy).elastic.as_ref();
        let Some(elastic) = elastic.filter(|_| units > 0) else { return Ok(()) };
        let pool = pool_of(in_force, elastic.pool, &elastic.key);
        let shared = self.shared();
        // A manual clock may jump before a timer of the system ends.
        if shared.store.is_here() || shared.store.clock().manual().is_some() {
            return self.charge_pool(in_force, &pool, units, wait).await;
        }
        if shared.configured.pool_charges.add(&pool, units) {
            let limiter = self.clone();
            self.in_background(async move {
                tokio::time::sleep(COLLECTED_FOR).await;
                limiter.charge_pools().await;
            });
        }
        Ok(())
    }

    /// Charges all pools for what they are owed.
    async fn charge_pools(&self) {
        let Some(in_force) = self.shared().configured.in_force() else { return };
        for (pool, units) in self.shared().configured.pool_charges.take_all() {
            // Units that do not reach the store stay uncharged, as do those of a process that ends.
            let _ = self.charge_pool(&in_force, &pool, units, Wait::Await).await;
        }
    }

    async fn charge_pool(
        &self,
        in_force: &InForce,
        (name, key): &Pool,
        units: u64,
        wait: Wait,
    ) -> Result<(), Error> {
        let Some(policy) = in_force.configuration.policy_index(name).filter(|_| units > 0) else {
            return Ok(());
        };
        let now_us = self.shared().store.clock().now_us();
        let charge = ConfiguredCall {
            policy,
            key,
            action: Action::Apply(Operation::Charge),
            cost: units,
            headroom: 0,
            hold: None,
            quotas: in_force.configuration.effective(policy, key, None, None, now_us)?,
            now_us,
        };
        if let Opening::Asked(asked) = self.open(in_force, charge)? {
            self.ask_each(in_force, &[asked], wait).await?;
        }
        Ok(())
    }
}

fn pool_of(in_force: &InForce, policy: usize, key: &[u8]) -> Pool {
    (Arc::from(in_force.quotas(policy, 0).name()), key.into())
}
