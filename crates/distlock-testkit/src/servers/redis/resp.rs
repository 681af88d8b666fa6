//! A few lines of RESP: enough to ask a Redis server questions from a test without a client library.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A reply of a Redis server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resp {
    /// Nothing.
    Nil,
    /// A number.
    Int(i64),
    /// A simple or bulk string, shown lossily if it is not UTF-8.
    Text(String),
    /// An error reply.
    Error(String),
    /// Several replies.
    Array(Vec<Resp>),
}

impl Resp {
    /// The text of a string reply.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The number of an integer reply.
    pub fn int(&self) -> Option<i64> {
        match self {
            Self::Int(n) => Some(*n),
            _ => None,
        }
    }

    /// The parts of an array reply; none for any other.
    pub fn items(&self) -> &[Resp] {
        match self {
            Self::Array(items) => items,
            _ => &[],
        }
    }
}

/// One connection, one request at a time.
#[derive(Debug)]
pub struct RespClient(BufStream<TcpStream>);

impl RespClient {
    /// Connects within a second.
    ///
    /// # Errors
    /// When nobody accepts.
    pub async fn connect(address: &str) -> io::Result<Self> {
        let stream = timeout(Duration::from_secs(1), TcpStream::connect(address)).await??;
        stream.set_nodelay(true)?;
        Ok(Self(BufStream::new(stream)))
    }

    /// Sends one command and waits up to two seconds for its reply.
    ///
    /// # Errors
    /// When the connection fails or the reply does not come. An error *reply* is `Ok(Resp::Error)`.
    pub async fn command(&mut self, words: &[&str]) -> io::Result<Resp> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        timeout(Duration::from_secs(2), async {
            self.0.write_all(request.as_bytes()).await?;
            self.0.flush().await?;
            self.reply().await
        })
        .await?
    }

    async fn reply(&mut self) -> io::Result<Resp> {
        let mut line = String::new();
        if self.0.read_line(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).ok_or(io::ErrorKind::InvalidData)?;
        let number = || {
            rest.parse::<i64>()
                .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
        };
        match kind {
            "+" => Ok(Resp::Text(rest.to_owned())),
            "-" => Ok(Resp::Error(rest.to_owned())),
            ":" => Ok(Resp::Int(number()?)),
            "$" => {
                let Ok(length) = usize::try_from(number()?) else {
                    return Ok(Resp::Nil);
                };
                let mut body = vec![0; length + 2];
                self.0.read_exact(&mut body).await?;
                body.truncate(length);
                Ok(Resp::Text(String::from_utf8_lossy(&body).into_owned()))
            }
            "*" => {
                let mut items = Vec::new();
                for _ in 0..number()?.max(0) {
                    items.push(Box::pin(self.reply()).await?);
                }
                Ok(Resp::Array(items))
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}
