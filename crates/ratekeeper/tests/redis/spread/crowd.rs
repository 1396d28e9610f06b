//! Many callers at once on checks over two servers.

use std::sync::Arc;

use futures_util::future::join_all;
use ratekeeper::Store;

use super::rig::Rig;
use crate::setup::{charge, quota, together};

const CALLERS: usize = 64;
const TRIES: usize = 20;

/// Others may be denied wrongly while a denial is undone, but never is more admitted than either part has; when all is
/// quiet again, exactly what was admitted is charged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_more_is_admitted_than_either_part_has_and_nothing_is_lost() {
    let rig = Arc::new(Rig::new().await);
    let texts =
        ["fixed_window", "sliding_window", "sliding_log", "", "leaky_bucket queue 999", "concurrency"];
    for (number, text) in texts.into_iter().enumerate() {
        let quotas = ["300/366d", "200/366d"].map(|rate| match text {
            "concurrency" => quota(&format!("{} concurrency", rate.replace("366d", "h"))),
            "leaky_bucket queue 999" => {
                quota(&format!("{rate} leaky_bucket queue {}", if rate.starts_with('3') { 299 } else { 199 }))
            }
            _ => quota(format!("{rate} {text}").trim_end()),
        });
        let name = format!("crowd{number}");
        let callers = (0..CALLERS).map(|_| {
            let (rig, name) = (Arc::clone(&rig), name.clone());
            tokio::spawn(async move {
                let charges = together(&[
                    charge(&name, rig.on(0, 0), quotas[0]),
                    charge(&name, rig.on(1, 0), quotas[1]),
                ]);
                let mut admitted = 0;
                for _ in 0..TRIES {
                    let decision = rig.store.check(&charges.check().unwrap()).await.unwrap();
                    admitted += usize::from(decision.is_allowed());
                }
                admitted
            })
        });
        let admitted: usize = join_all(callers).await.into_iter().map(Result::unwrap).sum();
        assert!(admitted <= 200, "{text}: {admitted}");
        let charges = [charge(&name, rig.on(0, 0), quotas[0]), charge(&name, rig.on(1, 0), quotas[1])];
        let mut all = admitted;
        while rig.ask(&charges).await.unwrap().is_allowed() {
            all += 1;
        }
        assert_eq!(all, 200, "{text}: of them {admitted} in the crowd");
        assert_eq!((rig.left(&charges[0]).await, rig.left(&charges[1]).await), (100, 0), "{text}");
    }
    let [spanning, refunds, failed] = rig.counts();
    assert!(spanning >= (texts.len() * CALLERS * TRIES) as u64 && refunds > 0, "{:?}", rig.counts());
    assert_eq!(failed, 0);
}
