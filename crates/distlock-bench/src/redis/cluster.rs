//! Redis Cluster beside its own scripts sent raw by the client library's own cluster connection.

use std::time::Duration;

use distlock_testkit::servers::{Redis, RedisCluster};
use redis::ProtocolVersion;
use redis::cluster::ClusterClientBuilder;
use redis::io::tcp::TcpSettings;

use super::alone::{self, Bench};
use super::{background, held};
use crate::children::runtime;
use crate::report::{Report, good};

pub(crate) fn measure(quick: bool) -> Report {
    let mut report = Report::new("redis-cluster");
    let background = background();
    let cluster = match background.block_on(RedisCluster::start()) {
        Ok(cluster) => cluster,
        Err(e) => {
            report.note("skipped", e);
            return report;
        }
    };
    let nodes = cluster.nodes().iter().map(Redis::url);
    let client = ClusterClientBuilder::new(nodes)
        .use_protocol(ProtocolVersion::RESP3)
        .tcp_settings(TcpSettings::default().set_nodelay(true));
    let client = good(client.build());
    let rt = runtime();
    let bench = rt.block_on(async {
        let raw = good(client.get_async_connection().await);
        Bench::new(&cluster.url(), raw, "SPUBLISH").await
    });
    alone::one_task(&mut report, &rt, &bench, if quick { 200 } else { 2000 });
    alone::many_tasks(&mut report, &rt, &bench, if quick { 7 } else { 31 });
    let watch = Duration::from_secs(if quick { 30 } else { 180 });
    held::measure(&mut report, &rt, &cluster.url(), cluster.nodes(), watch);
    report
}
