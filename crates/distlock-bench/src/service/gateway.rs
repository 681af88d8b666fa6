//! A gateway, and a client that costs as little as a client can.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::good;

/// `distlock serve`, as it was built beside this program; killed when dropped.
pub(super) struct Gateway {
    child: Child,
    port: u16,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Gateway {
    pub(super) fn start(engine: &str, rate: &str) -> Self {
        let port = good(std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr())).port();
        let program: PathBuf = good(std::env::current_exe()).with_file_name("distlock");
        let listen = format!("127.0.0.1:{port}");
        let child = Command::new(program)
            .args(["serve", "--quiet", "--listen", &listen, "--url", engine])
            .args(["--max-rate", rate])
            .stdout(Stdio::null())
            .spawn();
        let child = good(child);
        let end = Instant::now() + Duration::from_secs(20);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < end, "the gateway does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { child, port }
    }

    /// Resident memory, and the CPU time that it has used.
    pub(super) fn usage(&self) -> (u64, Duration) {
        let read = |file: &str| {
            good(std::fs::read_to_string(format!(
                "/proc/{}/{file}",
                self.child.id()
            )))
        };
        let statm = read("statm");
        let pages = statm.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok());
        let stat = read("stat");
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        // User and system time, the 14th and 15th field of the file.
        let ticks: u64 = fields[11..13].iter().filter_map(|n| n.parse::<u64>().ok()).sum();
        let per_second = rustix::param::clock_ticks_per_second();
        (
            pages.unwrap_or(0) * rustix::param::page_size() as u64,
            Duration::from_secs_f64(ticks as f64 / per_second as f64),
        )
    }
}

/// One keep-alive connection.
pub(super) struct Http {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Http {
    pub(super) async fn connect(gateway: &Gateway) -> Self {
        let stream = good(TcpStream::connect(("127.0.0.1", gateway.port)).await);
        good(stream.set_nodelay(true));
        Self {
            stream,
            read: Vec::new(),
        }
    }

    pub(super) async fn send(&mut self, key: &str, verb: &str, body: &str) {
        let text = format!(
            "POST /v1/locks/{key}/{verb} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        good(self.stream.write_all(text.as_bytes()).await);
    }

    /// The status and the body of the next answer.
    pub(super) async fn answer(&mut self) -> (u16, String) {
        loop {
            if let Some(end) = self.read.windows(4).position(|w| w == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&self.read[..end]).into_owned();
                let length = head
                    .lines()
                    .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
                let whole = end + 4 + length.unwrap_or(0);
                if self.read.len() >= whole {
                    let body = String::from_utf8_lossy(&self.read[end + 4..whole]).into_owned();
                    self.read.drain(..whole);
                    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok());
                    return (status.unwrap_or(0), body);
                }
            }
            let n = good(self.stream.read_buf(&mut self.read).await);
            assert!(n > 0, "the gateway closed the connection");
        }
    }

    pub(super) async fn post(&mut self, key: &str, verb: &str, body: &str) -> (u16, String) {
        self.send(key, verb, body).await;
        self.answer().await
    }

    pub(super) async fn acquire(&mut self, key: &str) -> String {
        let (status, body) = self.post(key, "acquire", r#"{"ttl":"60s"}"#).await;
        assert_eq!(status, 200, "{body}");
        handle(&body)
    }

    /// Acquires and releases.
    pub(super) async fn cycle(&mut self, key: &str) {
        let body = format!(r#"{{"handle":"{}"}}"#, self.acquire(key).await);
        let (status, body) = self.post(key, "release", &body).await;
        assert_eq!(status, 200, "{body}");
    }
}

/// The handle in an answer.
pub(super) fn handle(body: &str) -> String {
    let rest = body.split(r#""handle":""#).nth(1).unwrap_or_default();
    rest.split('"').next().unwrap_or_default().to_owned()
}
