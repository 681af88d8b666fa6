//! What endangers the locks of a cluster: its health, the slots that nobody serves, replicas, time-outs, rights.

use std::collections::HashMap;

use distlock_core::driver::{Finding, Inspect, Severity};
use futures_util::future::join_all;
use redis::{Cmd, FromRedisValue};

use super::Cluster;
use super::node::Node;
use crate::doctor::{SLOW_FAILOVER_MS, info, settings};
use crate::rights;
use crate::slot::SLOTS;
use crate::slot::slot;

const TIMEOUT: &str = "cluster-node-timeout";
const COVERAGE: &str = "cluster-require-full-coverage";
/// How many names are tried to find one that a node serves: with fewer slots than that it has hardly any locks.
const TRIES: u32 = 1000;

pub(super) async fn examine(cluster: &Cluster) -> Vec<Finding> {
    let map = cluster.topology.map();
    let mut findings = Vec::new();
    if map.uncovered() > 0 {
        findings.push(Finding::new(
            Severity::Error,
            "redis-cluster-coverage",
            format!(
                "{} of {SLOTS} slots have no master: their locks cannot be taken",
                map.uncovered()
            ),
            "look at CLUSTER NODES; redis-cli --cluster fix",
        ));
    }
    let masters = map.masters();
    let examined = join_all(masters.iter().map(|node| of_node(cluster, node))).await;
    for (node, found) in masters.iter().zip(examined) {
        findings.extend(found.into_iter().map(|finding| Finding {
            what: format!("{}: {}", node.name(), finding.what),
            ..finding
        }));
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}

async fn of_node(cluster: &Cluster, node: &Node) -> Vec<Finding> {
    let mut findings = match node.driver.doctor().await {
        Ok(findings) => findings,
        Err(e) => {
            let fix = "bring the node back, or let its replica take over";
            return vec![Finding::new(
                Severity::Error,
                "redis-cluster-node",
                e.to_string(),
                fix,
            )];
        }
    };
    findings.extend(health(node).await.unwrap_or_default());
    findings.extend(denied(cluster, node).await);
    findings
}

async fn health(node: &Node) -> Option<Vec<Finding>> {
    let links = &node.driver.0.links;
    let (link, patience) = (links.get().await.ok()?, links.patience());
    let mut findings = Vec::new();
    let mut cmd = Cmd::new();
    cmd.arg("CLUSTER").arg("INFO");
    if let Ok(said) = link.ask(&cmd, patience).await {
        let said = String::from_redis_value(said).unwrap_or_default();
        let facts: HashMap<&str, &str> = said
            .lines()
            .filter_map(|line| line.trim().split_once(':'))
            .collect();
        if let Some(state) = facts.get("cluster_state").filter(|state| **state != "ok") {
            findings.push(Finding::new(
                Severity::Error,
                "redis-cluster-state",
                format!("it says that the cluster is in state {state}"),
                "look at CLUSTER INFO and CLUSTER NODES",
            ));
        }
    }
    let facts = info(&link, patience).await.ok()?;
    if facts.get("connected_slaves").is_some_and(|count| count == "0") {
        findings.push(Finding::new(
            Severity::Warning,
            "redis-cluster-replicas",
            "no replica is connected: when it dies, the locks of its slots cannot be had until it is back"
                .to_owned(),
            "give each master a replica on another host",
        ));
    }
    let set = settings(&link, &[TIMEOUT, COVERAGE], patience)
        .await
        .unwrap_or_default();
    let timeout: u64 = set.get(TIMEOUT).and_then(|ms| ms.parse().ok()).unwrap_or(0);
    if timeout >= SLOW_FAILOVER_MS {
        findings.push(Finding::new(
            Severity::Warning,
            "redis-cluster-timing",
            format!(
                "{TIMEOUT} is {timeout}: with the default ttl of 30 s a hold may run out before a new master can \
                 renew it"
            ),
            "cluster-node-timeout of 1000 to 5000, or a longer ttl",
        ));
    }
    if set.get(COVERAGE).is_some_and(|set| set == "yes") {
        findings.push(Finding::new(
            Severity::Info,
            "redis-cluster-full-coverage",
            format!("{COVERAGE} is yes: one slot without a master stops the locks of all others"),
            "cluster-require-full-coverage no",
        ));
    }
    Some(findings)
}

/// Whether the user may do on this node what locks need; each node has rules of its own.
async fn denied(cluster: &Cluster, node: &Node) -> Option<Finding> {
    let probes = (0..TRIES).filter_map(|n| rights::probe(&cluster.engine, n).ok());
    let serves = |stored: &str| {
        cluster
            .topology
            .serving(slot(stored))
            .is_ok_and(|at| at.id == node.id)
    };
    let probe = probes.into_iter().find(|key| serves(&cluster.stored(key)))?;
    let e = rights::check_at(&node.driver.0, &probe).await.err()?;
    let fix = "give the user the rights of the engine's page on every node";
    Some(Finding::new(Severity::Error, "redis-acl", e.to_string(), fix))
}
