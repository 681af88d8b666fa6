//! One stream's answers are held back while those of all others on the same connection flow.

use std::error::Error;
use std::time::Instant;

use distlock_etcd::Config;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use prost::bytes::Bytes;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::codegen::http::Response;

use crate::cluster::{SECS, client, config, ctl, etcd, keys, until};

type Done = Result<(), Box<dyn Error + Send + Sync>>;
type Held = watch::Receiver<&'static str>;

const NOTHING: &str = "nothing";
const KEEPALIVES: &str = "/LeaseKeepAlive";
const WATCHES: &str = "/Watch";

/// A proxy that knows gRPC's methods.
struct GrpcProxy {
    address: String,
    held: watch::Sender<&'static str>,
    accepts: JoinHandle<()>,
}

impl GrpcProxy {
    async fn start(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let held = watch::Sender::new(NOTHING);
        let sight = held.subscribe();
        let accepts = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connection(client, server.clone(), sight.clone()));
            }
        });
        Self {
            address,
            held,
            accepts,
        }
    }

    /// Holds back the answers of the methods whose path ends like this.
    fn hold(&self, method: &'static str) {
        self.held.send_replace(method);
    }
}

impl Drop for GrpcProxy {
    fn drop(&mut self) {
        self.accepts.abort();
    }
}

async fn connection(client: TcpStream, server: String, held: Held) -> Done {
    let mut incoming = h2::server::handshake(client).await?;
    let (send, upstream) = h2::client::handshake(TcpStream::connect(server).await?).await?;
    tokio::spawn(upstream);
    while let Some(request) = incoming.accept().await {
        let (request, respond) = request?;
        let path = request.uri().path().to_owned();
        let mut body = None;
        let head = request.map(|stream| body = Some(stream));
        let (send, held) = (send.clone(), held.clone());
        tokio::spawn(async move {
            let (answer, out) = send.ready().await?.send_request(head, false)?;
            if let Some(body) = body {
                tokio::spawn(requests(body, out));
            }
            let mut body = None;
            let head = answer.await?.map(|stream| body = Some(stream));
            match body {
                Some(body) => answers(path, head, body, respond, held).await,
                None => Ok(()),
            }
        });
    }
    Ok(())
}

async fn requests(mut body: RecvStream, mut out: SendStream<Bytes>) -> Done {
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        out.send_data(data, false)?;
    }
    Ok(out.send_data(Bytes::new(), true)?)
}

async fn answers(
    path: String,
    head: Response<()>,
    mut body: RecvStream,
    mut respond: SendResponse<Bytes>,
    mut held: Held,
) -> Done {
    let mut free = async || held.wait_for(|method| !path.ends_with(method)).await.is_ok();
    free().await;
    let mut out = respond.send_response(head, body.is_end_stream())?;
    if body.is_end_stream() {
        return Ok(());
    }
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        free().await;
        out.send_data(data, false)?;
    }
    free().await;
    match body.trailers().await? {
        Some(trailers) => out.send_trailers(trailers)?,
        None => out.send_data(Bytes::new(), true)?,
    }
    Ok(())
}

/// The servers hear every keepalive, and the holder hears no answer: it stops by its own clock, and gives the lease up.
#[tokio::test]
async fn held_keepalives_end_the_hold_before_the_next_grant() {
    let etcd = etcd!(1);
    let proxy = GrpcProxy::start(etcd.addresses()[0].clone()).await;
    let (a, b) = (
        client(Config::new([proxy.address.clone()]), "ns").await,
        client(config(&etcd), "ns").await,
    );
    let held = a.mutex("k").ttl(SECS(2)).acquire().await.unwrap();
    let start = Instant::now();
    until("it was renewed", async || start.elapsed() > SECS(3)).await;
    assert!(held.is_held());
    proxy.hold(KEEPALIVES);
    let lost = held.lost();
    let told = tokio::spawn(async move {
        lost.await;
        Instant::now()
    });
    let next = b.mutex("k").wait(SECS(20)).acquire().await.unwrap();
    let granted = Instant::now();
    let told = told.await.unwrap();
    assert!(told < granted, "told {:?} after the next grant", told - granted);
    assert!(next.token() > held.token());
    proxy.hold(NOTHING);
    next.verify().await.unwrap();
    let again = a.mutex("another").wait(SECS(20)).acquire().await.unwrap();
    again.release().await.unwrap();
}

/// The lease lives, and nothing is heard of the keys: a waiter looks again by itself, and so does a holder.
#[tokio::test]
async fn held_watches_cost_time_only() {
    let etcd = etcd!(1);
    let at = etcd.addresses()[0].clone();
    let proxy = GrpcProxy::start(at.clone()).await;
    let (a, b) = (
        client(Config::new([proxy.address.clone()]), "ns").await,
        client(config(&etcd), "ns").await,
    );
    let held = b.mutex("k").acquire().await.unwrap();
    let theirs = a.mutex("held").ttl(SECS(2)).acquire().await.unwrap();
    let waiting = tokio::spawn(a.mutex("k").ttl(SECS(2)).acquire());
    until("it waits", async || keys(&at, "ns:k/").await.len() == 2).await;
    proxy.hold(WATCHES);
    held.release().await.unwrap();
    let start = Instant::now();
    let granted = tokio::time::timeout(SECS(10), waiting)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    // Half of its TTL.
    assert!(start.elapsed() < SECS(2), "granted after {:?}", start.elapsed());
    granted.verify().await.unwrap();
    assert!(theirs.is_held());
    ctl(&at, &["del", "--prefix", "ns:held/"]).await;
    // By the next renewal, which reads the keys of a few holds; a third of its TTL.
    tokio::time::timeout(SECS(1), theirs.lost())
        .await
        .expect("told within a second");
    proxy.hold(NOTHING);
    granted.verify().await.unwrap();
}
