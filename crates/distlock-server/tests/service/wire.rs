//! HTTP by hand, so that a test can say what no library would.

use std::collections::HashMap;
use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) text: String,
}

impl Reply {
    /// Reads an answer as it came, after which the connection was closed.
    pub(crate) fn parse(raw: &[u8]) -> Option<Self> {
        let raw = String::from_utf8_lossy(raw);
        let (head, text) = raw.split_once("\r\n\r\n")?;
        let mut lines = head.lines();
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let headers: HashMap<String, String> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let text = match headers.get("transfer-encoding") {
            Some(_) => dechunked(text),
            None => text.to_owned(),
        };
        Some(Self {
            status,
            headers,
            text,
        })
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The body of a success.
    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        self.json()
    }

    /// The body of a failure, which must be a problem of this kind.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, kind: &str) -> Value {
        let body = self.json();
        assert_eq!(
            (self.status, body["kind"].as_str()),
            (status, Some(kind)),
            "{self:?}"
        );
        assert_eq!(
            self.headers.get("content-type").map(String::as_str),
            Some("application/problem+json")
        );
        assert_eq!(body["status"], status);
        body
    }
}

fn dechunked(mut text: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = text.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap_or(0);
        if size == 0 || rest.len() < size {
            break;
        }
        whole.push_str(&rest[..size]);
        text = rest[size..].trim_start_matches("\r\n");
    }
    whole
}

/// The text of a request that closes its connection.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut text = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    [text.as_bytes(), body].concat()
}

/// A request and its answer.
pub(crate) async fn ask(
    at: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Reply {
    let raw = send(at, &request(method, path, headers, body)).await;
    Reply::parse(&raw).unwrap_or_else(|| panic!("no answer: {:?}", String::from_utf8_lossy(&raw)))
}

/// Sends bytes and reads until the other side closes.
pub(crate) async fn send(at: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(at).await.unwrap();
    // A server that has heard enough closes early.
    let _ = stream.write_all(bytes).await;
    let mut raw = Vec::new();
    let _ = stream.read_to_end(&mut raw).await;
    raw
}
