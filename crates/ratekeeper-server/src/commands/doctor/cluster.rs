//! What the nodes of a cluster say of it, and what there is to say of each.

use ratekeeper::OpenedStore;
use ratekeeper::store::ServerParts;
use ratekeeper::store::redis::ClusterReport;

use super::finding::{Finding, Severity};
use super::{access, connection, server};
use crate::commands::opened::Address;

const CHECK: &str = "cluster";
/// The slots of a cluster.
const SLOTS: usize = 16_384;

/// Looks at every node that has slots; nothing of a server by itself.
pub(super) async fn look(address: &Address, store: &OpenedStore) -> Option<Vec<Finding>> {
    let OpenedStore::Spread(store) = store else { return None };
    let (_, store) = store.servers().next()?;
    let report = store.cluster().await?;
    let named = address.url.server_parts()?;
    let mut findings = whole(&report);
    for node in &report.nodes {
        let mut parts = named.clone();
        (parts.host, parts.port) = (node.host.clone(), node.port);
        parts.nodes.clear();
        let place = format!("{}:{}", node.host, node.port);
        findings.extend(of_node(address, &parts).await.into_iter().map(|finding| at(&place, finding)));
    }
    Some(findings)
}

/// What is so of the cluster, and of the nodes that the URL names.
fn whole(report: &ClusterReport) -> Vec<Finding> {
    let mut findings = vec![match &report.trouble {
        Some(trouble) => Finding::error(CHECK, trouble)
            .fix("redis-cli --cluster check HOST:PORT, then --cluster fix; and correct the nodes in the URL"),
        None => {
            let found = format!("all {SLOTS} slots are on {} nodes", report.nodes.len());
            Finding::ok(CHECK, found)
        }
    }];
    for (node, answer) in &report.named {
        let Err(why) = answer else { continue };
        let finding = match why.is_no_node() {
            true => Finding::error(CHECK, format!("{node}: {why}")).fix("take it out of the URL"),
            false => Finding::warning(CHECK, format!("{node} {why}"))
                .fix("start it, or correct it in the URL: a store that starts asks the nodes that are named"),
        };
        findings.push(finding);
    }
    if report.named.len() == 1 {
        let found = "the URL names one node: while it is away, a store that starts finds no other";
        findings.push(Finding::new(CHECK, Severity::Note, found).fix("name a few, with commas in between"));
    }
    findings
}

/// The same as of a server by itself.
async fn of_node(address: &Address, parts: &ServerParts) -> Vec<Finding> {
    let mut findings: Vec<Finding> = connection::transport(address, parts).into_iter().collect();
    match connection::connect(address, parts).await {
        Ok((mut connection, finding)) => {
            findings.push(finding);
            let found = server::look(&mut connection).await;
            // That it is a node is what is wanted here.
            findings.extend(found.into_iter().filter(|finding| finding.check != CHECK));
            findings.extend(access::look_on_node(&mut connection, parts).await);
        }
        Err(finding) => findings.push(finding),
    }
    findings
}

fn at(place: &str, finding: Finding) -> Finding {
    Finding { found: format!("{place}: {}", finding.found), ..finding }
}
