//! `distlock serve` as a process: what it serves, tells and counts, how it bears thousands, and how it ends.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use distlock_testkit::servers::{Port, skip};
use serde_json::Value;

use crate::stage::{Running, Stage, TERM, until};

/// A service on the engine of a stage, with its log in `serve.log`.
struct Service {
    process: Running,
    port: Port,
}

impl Service {
    fn start(stage: &Stage, more: &[&str]) -> Self {
        let port = Port::free().unwrap();
        let at = port.address();
        let mut command = stage.distlock(&[&["serve", "--listen", &at], more].concat());
        let log = std::fs::File::create(stage.path("serve.log")).unwrap();
        command.stderr(log).stdout(Stdio::null());
        let this = Self {
            process: Running::start(command),
            port,
        };
        until("it to become ready", || {
            let stream = TcpStream::connect(&at).ok()?;
            let (head, _) = Connection::new(stream).ask("GET", "/readyz", "").ok()?;
            head.starts_with("HTTP/1.1 200").then_some(())
        });
        this
    }

    fn url(&self) -> String {
        format!("http://{}", self.port.address())
    }

    fn connect(&self) -> Connection {
        Connection::new(TcpStream::connect(self.port.address()).unwrap())
    }

    fn get(&self, path: &str) -> String {
        self.connect().ask("GET", path, "").unwrap().1
    }

    /// The status and the body of an answer.
    fn post(&self, path: &str, body: &str) -> (u16, Value) {
        self.connect().post(path, body)
    }

    fn open_files(&self) -> usize {
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.process.pid()));
        files.unwrap().count()
    }
}

/// One keep-alive connection.
struct Connection(BufReader<TcpStream>);

impl Connection {
    fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        Self(BufReader::new(stream))
    }

    fn send(&mut self, method: &str, path: &str, headers: &str, body: &str) -> std::io::Result<()> {
        let length = body.len();
        let text = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {length}\r\n\r\n{body}"
        );
        self.0.get_mut().write_all(text.as_bytes())
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        match self.0.read_line(&mut line)? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line),
        }
    }

    /// The head and the body of the next answer.
    fn answer(&mut self) -> std::io::Result<(String, String)> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            head.push_str(&self.line()?);
        }
        let length = head.lines().find_map(|l| l.strip_prefix("content-length: "));
        let mut body = vec![0; length.and_then(|n| n.parse().ok()).unwrap_or(0)];
        self.0.read_exact(&mut body)?;
        Ok((head, String::from_utf8_lossy(&body).into_owned()))
    }

    fn ask(&mut self, method: &str, path: &str, body: &str) -> std::io::Result<(String, String)> {
        self.send(method, path, "", body)?;
        self.answer()
    }

    fn post(&mut self, path: &str, body: &str) -> (u16, Value) {
        let (head, body) = self.ask("POST", path, body).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(&body).unwrap())
    }
}

#[test]
fn it_serves_what_the_command_takes_and_ends_when_told() {
    let stage = Stage::new();
    let socket = stage.path("gateway.sock");
    let listen = format!("unix:{}", socket.display());
    let mut service = Service::start(&stage, &["--quiet", "--listen", &listen]);
    // The same locks, seen from both sides; and the engine that speaks to it.
    let held = stage.hold("shown");
    assert!(service.get("/v1/locks/shown").contains("\"token\":"));
    let through = service.url();
    let busy = stage.run(&["try", "--url", &through, "shown", "--", "true"]);
    assert_eq!(busy.code, Some(75), "{busy:?}");
    drop(held);
    let run = stage.run(&["run", "--url", &through, "shown", "--", "true"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(std::os::unix::net::UnixStream::connect(&socket).is_ok());
    service.process.signal(TERM);
    assert_eq!(service.process.code(), Some(0));
    assert!(!socket.exists());
}

/// From the README to a lock taken with `curl`: three commands, of which the first one makes this program.
#[test]
fn the_commands_of_the_readme_take_a_lock() {
    let readme = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let mut blocks = readme.split("```sh\n").skip(1);
    let block = blocks.find(|block| block.contains("distlock serve &")).unwrap();
    let commands: Vec<&str> = block.split("```").next().unwrap().lines().collect();
    assert!(commands[0].starts_with("cargo install") && commands[1].starts_with("distlock serve &"));
    assert!(commands[2].starts_with("curl "));
    if std::process::Command::new("curl")
        .arg("--version")
        .output()
        .is_err()
    {
        skip("the README's commands: no curl");
        return;
    }
    let stage = Stage::new();
    let service = Service::start(&stage, &["--quiet"]);
    let run = |command: &str| {
        let here = command.replace("localhost:7466", &service.port.address());
        let mut shell = std::process::Command::new("sh");
        let output = shell
            .args(["-euc", &here])
            .stderr(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "{command}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(run(commands[2]).contains("\"handle\":\"dl1/"));
    assert!(run(commands[3]).contains("\"order:42\""));
}

/// The metrics are the library's, with the service's own; nothing of it grows with what is locked, waited for or refused.
#[test]
fn f95_the_series_do_not_grow_with_the_keys() {
    let stage = Stage::new();
    let service = Service::start(&stage, &["--quiet"]);
    let mut one = service.connect();
    let mut use_of = |keys: std::ops::Range<u32>| {
        for i in keys {
            let path = format!("/v1/locks/order:{i}");
            let (status, lease) = one.post(&format!("{path}/acquire"), r#"{"ttl":"60s"}"#);
            assert_eq!(status, 200, "{lease}");
            let busy = one.post(
                &format!("{path}/acquire"),
                &format!(r#"{{"label":"caller-{i}"}}"#),
            );
            assert_eq!(busy.0, 409, "{busy:?}");
            let waited = one.post(&format!("{path}/acquire"), r#"{"wait":"1ms"}"#);
            assert_eq!(waited.0, 409, "{waited:?}");
            let bad = one.post(&format!("{path}/acquire"), r#"{"ttl":"1000y"}"#);
            assert_eq!(bad.0, 422, "{bad:?}");
            let handle = format!(r#"{{"handle":{}}}"#, lease["handle"]);
            assert_eq!(one.post(&format!("{path}/release"), &handle).0, 200);
        }
    };
    use_of(0..5);
    let few = service.get("/metrics");
    use_of(5..500);
    let many = service.get("/metrics");
    let names = |text: &str| -> BTreeSet<String> {
        let series = text.lines().filter(|line| !line.starts_with('#'));
        series
            .map(|line| line.rsplit_once(' ').map_or(line, |(name, _)| name).to_owned())
            .collect()
    };
    assert_eq!(names(&few), names(&many));
    assert!(!many.contains("order:") && !many.contains("caller-"), "{many}");
    // As the facade writes them: with buckets, and with what they mean.
    for there in [
        "# HELP distlock_service_requests_total Answers of the service.",
        "distlock_service_waiting 0",
        "# HELP distlock_attempts_total Looks at the engine.",
        "distlock_wait_seconds_bucket{engine=\"file\",le=\"0.01\"}",
    ] {
        assert!(many.contains(there), "no {there} in {many}");
    }
}

#[test]
fn f96_a_refusal_is_one_clear_line_with_its_holder() {
    let stage = Stage::new();
    let service = Service::start(&stage, &[]);
    let taken = service.post(
        "/v1/locks/nightly/acquire",
        r#"{"ttl":"60s","label":"billing","reason":"month end"}"#,
    );
    assert_eq!(taken.0, 200);
    for night in 1..=3 {
        let (status, told) = service.post("/v1/locks/nightly/acquire", "");
        assert_eq!((status, &told["kind"]), (409, &Value::from("busy")), "{told}");
        let holder = &told["holder"];
        assert_eq!(
            (&holder["label"], &holder["reason"]),
            (&"billing".into(), &"month end".into()),
            "{told}"
        );
        assert!(
            holder["since_ms"].is_u64() && holder["expires_in_ms"].is_u64(),
            "{told}"
        );
        let detail = told["detail"].as_str().unwrap();
        assert!(detail.contains("nightly") || told["key"] == "nightly", "{told}");
        // The log, as it is by default, has it once for each.
        let lines = until("the log", || {
            let lines = stage
                .read("serve.log")
                .lines()
                .filter(|l| l.contains("status=409"))
                .count();
            (lines >= night).then_some(lines)
        });
        assert_eq!(lines, night);
    }
    let log = stage.read("serve.log");
    let line = log.lines().find(|line| line.contains("status=409")).unwrap();
    assert!(line.contains("/v1/locks/nightly/acquire"), "{line}");
    assert!(
        service
            .get("/metrics")
            .contains("distlock_service_requests_total{status=\"4xx\"} 3")
    );
}

/// Whoever waits hears at once who holds, and again every ten seconds, which also keeps the connection alive through
/// proxies; the log of the service tells of it as often.
#[test]
fn f97_f35_a_long_wait_is_told_of_without_a_flood() {
    let stage = Stage::new();
    let service = Service::start(&stage, &[]);
    let taken = service.post("/v1/locks/long/acquire", r#"{"ttl":"60s","label":"first"}"#);
    let mut waiting = service.connect();
    let started = Instant::now();
    let accept = "accept: application/x-ndjson\r\n";
    waiting
        .send("POST", "/v1/locks/long/acquire", accept, r#"{"wait":"1h"}"#)
        .unwrap();
    let mut next = |what: &str| -> Value {
        loop {
            let line = waiting.line().unwrap();
            if line.starts_with(what) {
                return serde_json::from_str(&line).unwrap();
            }
        }
    };
    let told = next("{\"waiting\"");
    assert_eq!(told["waiting"]["holder"]["label"], "first", "{told}");
    assert!(started.elapsed() < Duration::from_secs(5));
    let told = next("{\"waiting\"");
    assert_eq!(told["waiting"]["holder"]["label"], "first", "{told}");
    assert!(
        started.elapsed() > Duration::from_secs(9),
        "{:?}",
        started.elapsed()
    );
    let notice = until("the log to tell of the wait", || {
        let log = stage.read("serve.log");
        log.lines()
            .find(|line| line.contains("still waiting for a lock"))
            .map(str::to_owned)
    });
    assert!(notice.contains("long") && notice.contains("first"), "{notice}");
    let handle = format!(r#"{{"handle":{}}}"#, taken.1["handle"]);
    assert_eq!(service.post("/v1/locks/long/release", &handle).0, 200);
    assert!(next("{\"lease\"")["lease"]["token"].is_u64());
    let log = stage.read("serve.log");
    assert!(
        log.lines().filter(|line| line.contains("still waiting")).count() <= 2,
        "{log}"
    );
}

/// Ten thousand connections that do nothing.
#[test]
fn ten_thousand_idle_connections_are_in_nobodys_way_and_leave_nothing() {
    const IDLE: usize = 10_000;
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    if limit.maximum.is_some_and(|most| most < IDLE as u64 + 500) {
        skip("10,000 idle connections: this system allows fewer descriptors");
        return;
    }
    limit.current = limit.maximum;
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    let stage = Stage::new();
    let service = Service::start(&stage, &["--quiet"]);
    let before = service.open_files();
    // Nothing is waited for meanwhile: on a slow machine the first ones would be ended before the last ones come.
    let idle: Vec<Connection> = (0..IDLE).map(|_| service.connect()).collect();
    until("nearly all to be taken", || {
        (service.open_files() >= before + IDLE * 9 / 10).then_some(())
    });
    let started = Instant::now();
    for i in 0..20 {
        let (status, lease) = service.post(&format!("/v1/locks/beside:{i}/acquire"), "");
        assert_eq!(status, 200, "{lease}");
    }
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    drop(idle);
    // But for a few that the library opened on its way.
    until("them to be gone", || {
        (service.open_files() <= before + 20).then_some(())
    });
}
