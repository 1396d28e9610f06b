//! A process that uses the library.

use std::fs;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use ratekeeper::policy::{Ask, Format, Policies, PolicyLimiter, PolicySpec, RequestFacts, ServiceLimiter};
use ratekeeper::store::open;
use ratekeeper::{Decision, OpenOptions, StoreUrl};

use super::{CALLERS, Caller, Log, Question, end};
use crate::call::{Call, Origin, now_micros};
use crate::control::{Control, SETTLED, needs_control};
use crate::limits::SERVICES;
use crate::{DEADLINE, LoadOptions, TOTAL};

struct Asking {
    services: Vec<ServiceLimiter>,
    log: Log,
    control: Control,
    ended: Arc<AtomicBool>,
}

pub(crate) fn run(options: &LoadOptions) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(ask(options))
}

async fn ask(options: &LoadOptions) -> anyhow::Result<()> {
    let url: StoreUrl = options.target.parse()?;
    let settings =
        OpenOptions::new().redis(|redis| redis.deadline(DEADLINE).total(TOTAL).replicas(options.replicas));
    let store = open(&url, &settings)?.store();
    let policies = Policies::builder().mode(None).build()?;
    for service in &SERVICES {
        let path = options.policies.join(format!("{}.toml", service.name));
        let text = fs::read(&path)?;
        policies.install(service.name, PolicySpec::read(service.name, Format::Toml, &text), None)?;
    }
    let limiter = PolicyLimiter::on(store, policies);
    let services = SERVICES.iter().map(|service| limiter.service(service.name)).collect::<Result<_, _>>()?;
    let control = Control::start();
    let log = Log::create(&options.log)?;
    let asking = Rc::new(Asking { services, log: log.clone(), control: control.clone(), ended: end() });
    let local = tokio::task::LocalSet::new();
    local.spawn_local(control.of_runtime());
    let callers: Vec<_> = (0..CALLERS)
        .map(|number| local.spawn_local(calls(Rc::clone(&asking), Caller::new(options.seed, number))))
        .collect();
    local
        .run_until(async {
            for caller in callers {
                caller.await??;
            }
            anyhow::Ok(())
        })
        .await?;
    Ok(log.finish()?)
}

async fn calls(asking: Rc<Asking>, mut caller: Caller) -> anyhow::Result<()> {
    while !asking.ended.load(Ordering::Relaxed) {
        let (question, rest) = caller.next();
        let facts = RequestFacts::new("GET", "/")
            .claim("tenant", format!("t{}", question.tenant))
            .claim("address", format!("a{}", question.address));
        let (sent, start) = (now_micros(), Instant::now());
        let decision = asking.services[question.service].check(&Ask::request(&facts)).await?;
        let (end, answered) = (Instant::now(), now_micros());
        let mut late = 0;
        if needs_control(start, end) {
            tokio::time::sleep(SETTLED).await;
            late = u64::try_from(asking.control.beyond(start, end).as_micros())?;
        }
        asking.log.write(&logged(&question, &decision, [sent, answered, late]));
        tokio::time::sleep(rest).await;
    }
    Ok(())
}

fn logged(question: &Question, decision: &Decision, [sent, answered, late]: [u64; 3]) -> Call {
    let origin =
        Origin::named(if decision.origin() == ratekeeper::Origin::Store { "store" } else { "outage" });
    let first = decision.verdicts().first().filter(|_| origin == Origin::Store);
    let window_end = first.map_or(0, |verdict| decision.at().after(verdict.reset_after()).as_micros());
    Call {
        sent,
        answered,
        service: question.service,
        tenant: question.tenant,
        address: question.address,
        allowed: decision.is_allowed(),
        origin,
        at: decision.at().as_micros(),
        window_end,
        late,
    }
}
