//! Both steps of a check share the total of its call.

use std::time::{Duration, Instant};

use ratekeeper::{Limiter, OnOutage, Origin, Rule};

use super::rig::Rig;
use crate::setup::{keys, until};

/// Silence and total alike, so that nothing is left for a second step.
const TOTAL: Duration = Duration::from_secs(4);

/// One server is silent from the beginning, and its rule denies; the other has answered, and is silent when it is to
/// give back.
#[tokio::test]
async fn what_is_given_back_in_vain_takes_no_longer_than_the_call_may() {
    let rig = Rig::with(|builder| builder.deadline(TOTAL).total(TOTAL)).await;
    let one = Rule::new("here", |request: &(&'static str, &'static str)| Some(request.0.into()));
    let two = Rule::new("there", |request: &(&'static str, &'static str)| Some(request.1.into()));
    let limiter = Limiter::builder(rig.store.clone())
        .rule(one.quotas("5/h").on_outage(OnOutage::Allow))
        .rule(two.quotas("5/h").on_outage(OnOutage::Deny))
        .build()
        .unwrap();
    let request = (rig.on(0, 0), rig.on(1, 0));
    rig.servers[1].pause();
    let begun = Instant::now();
    let silenced = async {
        let is_charged = async || keys(&rig.servers[0]).iter().any(|key| key.contains("rk:c:here:"));
        until("the other server charged", is_charged).await;
        rig.servers[0].pause();
    };
    let (decision, ()) = tokio::join!(limiter.check(&request), silenced);
    let took = begun.elapsed();
    let decision = decision.unwrap();
    assert_eq!((decision.is_allowed(), decision.origin()), (false, Origin::Outage));
    assert!(took < TOTAL * 3 / 2, "{took:?}");
    assert_eq!(rig.counts(), [1, 0, 1], "a refund that failed is counted");
}
