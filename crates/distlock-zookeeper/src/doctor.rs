//! Settings and states of an ensemble that endanger locks.

use std::io;
use std::time::Duration;

use distlock_core::driver::{DriverError, Finding, Severity};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::call::fault;
use crate::driver::Shared;

/// How long one server may take to say how it is.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a server says of itself.
#[derive(Debug, Default, PartialEq, Eq)]
struct Status {
    version: Option<(u32, u32, u32)>,
    mode: Option<String>,
}

impl Status {
    /// From the answer to the four-letter word `srvr`.
    fn read(answer: &str) -> Self {
        let field = |name: &str| {
            answer
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .map(str::trim)
        };
        let version = field("Zookeeper version:").and_then(|text| {
            let mut parts = text.split(|c: char| !c.is_ascii_digit()).map(str::parse);
            Some((parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?))
        });
        Self {
            version,
            mode: field("Mode:").map(str::to_owned),
        }
    }
}

pub(crate) async fn examine(shared: &Shared) -> Result<Vec<Finding>, DriverError> {
    let session = shared.session()?;
    let mut findings = Vec::new();
    let mut silent = 0;
    for host in &shared.config.hosts {
        let (clock, at) = (shared.engine.clock().clone(), host.clone());
        // On the engine thread, which is sure to have sockets.
        let asked = shared.engine.spawn(async move {
            let conf = clock.timeout(PATIENCE, ask(&at, "conf")).await;
            (clock.timeout(PATIENCE, ask(&at, "srvr")).await, conf)
        });
        match asked.await {
            Ok((Some(Ok(answer)), _)) if is_refused(&answer) => findings.push(Finding::new(
                Severity::Info,
                "zookeeper-word-refused",
                format!("{host} does not say how it is: srvr is not in its 4lw.commands.whitelist"),
                "allow srvr and conf, of which the one is allowed by default",
            )),
            Ok((Some(Ok(answer)), conf)) => {
                server(host, &Status::read(&answer), &mut findings);
                if let Some(Ok(conf)) = conf {
                    ticks(host, &conf, session.timeout(), &mut findings);
                }
            }
            _ => {
                silent += 1;
                findings.push(Finding::new(
                    Severity::Warning,
                    "zookeeper-server-silent",
                    format!("{host} does not answer"),
                    "start it, or remove it from the URL",
                ));
            }
        }
    }
    ensemble(shared, &session, &mut findings).await?;
    let (asked, given) = (shared.config.session_timeout, session.timeout());
    if given != asked {
        findings.push(Finding::new(
            if given < asked { Severity::Warning } else { Severity::Info },
            "zookeeper-session-timeout",
            format!("asked for a session timeout of {asked:?}, the servers gave {given:?}; it is the largest TTL"),
            "change session_timeout=, or the servers' minSessionTimeout and maxSessionTimeout (2 and 20 ticks)",
        ));
    }
    if shared.config.hosts.len() == silent + 1 && silent > 0 {
        findings.push(Finding::new(
            Severity::Error,
            "zookeeper-one-left",
            "only one of the named servers answers",
            "bring the others back: the next failure ends all locks",
        ));
    }
    Ok(findings)
}

fn server(host: &str, status: &Status, findings: &mut Vec<Finding>) {
    if let Some((major, minor, patch)) = status.version {
        if (major, minor, patch) < (3, 5, 3) {
            findings.push(Finding::new(
                Severity::Error,
                "zookeeper-too-old",
                format!("{host} is ZooKeeper {major}.{minor}.{patch}, which has no container nodes"),
                "use 3.8 or newer",
            ));
        } else if (major, minor) < (3, 8) {
            findings.push(Finding::new(
                Severity::Warning,
                "zookeeper-end-of-life",
                format!("{host} is ZooKeeper {major}.{minor}.{patch}, which gets no fixes any more"),
                "use 3.8 or newer",
            ));
        }
    }
    if status.mode.is_none() {
        findings.push(Finding::new(
            Severity::Error,
            "zookeeper-not-serving",
            format!("{host} runs, but is not serving requests (no quorum?)"),
            "look into its log",
        ));
    }
}

/// How many servers there are, as they say themselves.
async fn ensemble(
    shared: &Shared,
    session: &std::sync::Arc<crate::session::Session>,
    findings: &mut Vec<Finding>,
) -> Result<(), DriverError> {
    let call = session.call()?;
    let members = match call.answer(call.client.get_config()).await {
        Ok((config, _)) => voters(&String::from_utf8_lossy(&config)),
        // Readable by everybody unless somebody changed that.
        Err(zookeeper_client::Error::NoAuth | zookeeper_client::Error::NoNode) => return Ok(()),
        Err(e) => return Err(fault(e)),
    };
    if members <= 1 {
        findings.push(Finding::new(
            Severity::Warning,
            "zookeeper-single-server",
            "the ensemble has one server: no lock while it is down",
            "run three or five",
        ));
    } else if members % 2 == 0 {
        findings.push(Finding::new(
            Severity::Info,
            "zookeeper-even-ensemble",
            format!(
                "the ensemble has {members} voters, and survives no more failures than {} would",
                members - 1
            ),
            "run an odd number",
        ));
    }
    if members > 1 && shared.config.hosts.len() == 1 {
        findings.push(Finding::new(
            Severity::Warning,
            "zookeeper-one-host-named",
            format!("the URL names one of {members} servers: when it is down, the locks are lost"),
            "name all servers",
        ));
    }
    Ok(())
}

fn voters(config: &str) -> usize {
    config
        .lines()
        .filter(|line| line.starts_with("server.") && !line.contains(":observer"))
        .count()
}

/// A session shorter than two ticks ends sooner than its deadline allows for: a follower tells its leader of the
/// sessions that it hears from every half tick only.
fn ticks(host: &str, conf: &str, session: Duration, findings: &mut Vec<Finding>) {
    let tick = conf.lines().find_map(|line| line.strip_prefix("tickTime="));
    let Some(tick) = tick
        .and_then(|ms| ms.trim().parse().ok())
        .map(Duration::from_millis)
    else {
        return;
    };
    if session < tick * 2 {
        findings.push(Finding::new(
            Severity::Error,
            "zookeeper-session-below-two-ticks",
            format!("{host} has ticks of {tick:?}, and gave a session timeout of {session:?}, less than two of them"),
            "raise session_timeout=, or remove minSessionTimeout, which is two ticks unless set",
        ));
    }
}

/// What a server answers to a word that it does not allow.
fn is_refused(answer: &str) -> bool {
    answer.contains("is not in the whitelist")
}

async fn ask(host: &str, word: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(host).await?;
    stream.write_all(word.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_status_is_read() {
        let answer = "Zookeeper version: 3.8.0-5a02a05eddb59aee6ac762f7ea82e92a68eb9c0f, built on 2022-02-25\n\
                      Latency min/avg/max: 0/0.0/0\nMode: standalone\nNode count: 5\n";
        let status = Status::read(answer);
        assert_eq!(
            status,
            Status {
                version: Some((3, 8, 0)),
                mode: Some("standalone".into())
            }
        );
        assert_eq!(
            Status::read("This ZooKeeper instance is not currently serving requests\n"),
            Status::default()
        );
    }

    #[test]
    fn a_word_that_is_not_allowed_is_no_sign_of_illness() {
        assert!(is_refused(
            "srvr is not executed because it is not in the whitelist.\n"
        ));
        assert!(!is_refused(
            "This ZooKeeper instance is not currently serving requests\n"
        ));
    }

    #[test]
    fn voters_are_counted_without_observers() {
        let config =
            "server.1=a:1:2:participant\nserver.2=b:1:2:participant\nserver.3=c:1:2:observer\nversion=0";
        assert_eq!(voters(config), 2);
    }
}
