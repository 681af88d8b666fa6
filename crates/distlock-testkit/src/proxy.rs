//! A TCP proxy that breaks connections on purpose.
//!
//! It stands between a client and a server, one [`Fault`] per direction, switched at run time. A fault applies at
//! once, also to bytes that are on their way and to connections that are open. Everything runs on the runtime that
//! started it.
//!
//! ```no_run
//! # async fn example() -> std::io::Result<()> {
//! use distlock_testkit::proxy::{Fault, Proxy};
//! let proxy = Proxy::start("127.0.0.1:6379").await?;
//! println!("connect to {}", proxy.address());
//! proxy.replies(Fault::Hold); // requests arrive, replies do not come back
//! proxy.heal(); // … now they do
//! proxy.cut(); // every open connection is reset
//! # Ok(()) }
//! ```

mod pump;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::pump::{Side, pump};

/// What happens to the bytes of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fault {
    /// They pass.
    #[default]
    Pass,
    /// They stay in the proxy and pass when the fault ends. Connections stay open.
    Hold,
    /// They vanish. After the fault the connection goes on without them, so it is of no more use to either side;
    /// [`Proxy::heal`] therefore resets connections that have lost bytes.
    Blackhole,
    /// Each piece arrives this much later, in order.
    Delay {
        /// How much later.
        by: Duration,
        /// Up to this much more, at random.
        jitter: Duration,
    },
    /// They arrive in pieces of at most this many bytes.
    Chunk(usize),
    /// This many more bytes pass (counted over all connections), then the connection that carries the last of them
    /// is reset. The fault is used up then, and is [`Pass`](Fault::Pass) again.
    CutAfter(u64),
}

/// How new connections are met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Open,
    /// Reset at once.
    Refuse,
}

#[derive(Debug)]
struct Shared {
    door: watch::Sender<Door>,
    requests: Side,
    replies: Side,
    /// Raised by one to reset all connections.
    cuts: watch::Sender<u64>,
    server: watch::Sender<String>,
}

/// A proxy before one server. Stops, and resets its connections, when dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepts: JoinHandle<()>,
}

impl Proxy {
    /// Listens on a free port and passes everything to `server`.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start(server: impl Into<String>) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            door: watch::Sender::new(Door::Open),
            requests: Side::new(),
            replies: Side::new(),
            cuts: watch::Sender::new(0),
            server: watch::Sender::new(server.into()),
        });
        let accepts = tokio::spawn(accept(listener, shared.clone()));
        Ok(Self {
            address,
            shared,
            accepts,
        })
    }

    /// Where clients connect.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// The port of [`address`](Self::address).
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Sends new connections to another server.
    pub fn to(&self, server: impl Into<String>) {
        self.shared.server.send_replace(server.into());
    }

    /// Puts a fault on the way from the clients to the server.
    pub fn requests(&self, fault: Fault) {
        self.shared.requests.set(fault);
    }

    /// Puts a fault on the way from the server to the clients.
    pub fn replies(&self, fault: Fault) {
        self.shared.replies.set(fault);
    }

    /// Puts a fault on both ways.
    pub fn both(&self, fault: Fault) {
        self.requests(fault);
        self.replies(fault);
    }

    /// Resets new connections at once (and leaves open ones alone).
    pub fn refuse(&self) {
        self.shared.door.send_replace(Door::Refuse);
    }

    /// Resets all open connections (RST to both ends). Held bytes are lost.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|n| *n += 1);
    }

    /// Ends all faults: new connections are served, held bytes pass, and connections that lost bytes are reset.
    pub fn heal(&self) {
        self.shared.door.send_replace(Door::Open);
        self.both(Fault::Pass);
    }

    /// How many bytes of requests and of replies have passed so far.
    pub fn passed(&self) -> (u64, u64) {
        (self.shared.requests.passed(), self.shared.replies.passed())
    }

    /// How many bytes of requests and of replies are held back or on their delayed way right now.
    pub fn held(&self) -> (u64, u64) {
        (self.shared.requests.held(), self.shared.replies.held())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepts.abort();
        self.cut();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((client, _)) = listener.accept().await else {
            continue;
        };
        if *shared.door.borrow() == Door::Refuse {
            reset(&client);
            continue;
        }
        tokio::spawn(serve(client, shared.clone()));
    }
}

async fn serve(mut client: TcpStream, shared: Arc<Shared>) {
    let mut cuts = shared.cuts.subscribe();
    let address = shared.server.borrow().clone();
    let server = tokio::select! {
        server = TcpStream::connect(address) => server,
        _ = cuts.changed() => return reset(&client),
    };
    let Ok(mut server) = server else {
        return reset(&client);
    };
    // The proxy must add as little time of its own as it can.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let whole = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        tokio::select! {
            whole = async { tokio::try_join!(
                pump(&shared.requests, from_client, to_server),
                pump(&shared.replies, from_server, to_client),
            ) } => whole.is_ok(),
            _ = cuts.changed() => false,
        }
    };
    if !whole {
        reset(&client);
        reset(&server);
    }
}

/// Makes the close of this connection an RST.
fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}
