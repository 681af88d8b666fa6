//! The tower layer.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use distlock_fence::{FenceLayer, FencingToken, MemoryGate, header};
use http::{Method, Request, Response, StatusCode};
use tokio::sync::Notify;
use tower::{Layer, ServiceExt, service_fn};

fn put(path: &str, tokens: &[&str]) -> Request<String> {
    let mut request = Request::builder().method(Method::PUT).uri(path);
    for token in tokens {
        request = request.header(header::NAME, *token);
    }
    request.body(String::new()).expect("a fixed request")
}

/// Sends one request through a layer of `gate` to a handler that counts.
async fn status(layer: &FenceLayer, request: Request<String>, ran: &Arc<AtomicU32>) -> Response<String> {
    let ran = ran.clone();
    let handler = service_fn(move |_: Request<String>| {
        let ran = ran.clone();
        async move {
            ran.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Infallible>(Response::new("done".to_owned()))
        }
    });
    layer
        .layer(handler)
        .oneshot(request)
        .await
        .expect("an infallible service")
}

#[tokio::test]
async fn requests_are_judged_by_their_token() {
    let layer = FenceLayer::new(MemoryGate::new());
    let ran = Arc::new(AtomicU32::new(0));
    for (request, expected) in [
        (put("/row/7", &["34"]), StatusCode::OK),
        (put("/row/7", &["34"]), StatusCode::OK),
        (put("/row/7", &["33"]), StatusCode::PRECONDITION_FAILED),
        (put("/row/8", &["33"]), StatusCode::OK),
        (put("/row/7", &[]), StatusCode::PRECONDITION_REQUIRED),
        (put("/row/7", &["+35"]), StatusCode::BAD_REQUEST),
        (put("/row/7", &["35", "36"]), StatusCode::BAD_REQUEST),
        (put("/row/7", &["18446744073709551616"]), StatusCode::BAD_REQUEST),
        (
            Request::get("/row/7").body(String::new()).unwrap(),
            StatusCode::OK,
        ),
    ] {
        let shown = format!("{request:?}");
        assert_eq!(status(&layer, request, &ran).await.status(), expected, "{shown}");
    }
    assert_eq!(
        ran.load(Ordering::SeqCst),
        4,
        "refused requests must not reach the handler"
    );

    let refused = status(&layer, put("/row/7", &["33"]), &ran).await;
    assert_eq!(refused.headers()[header::NEWEST], "34");
    assert!(
        refused.body().contains("33") && refused.body().contains("34"),
        "{}",
        refused.body()
    );

    let optional = layer.clone().optional();
    assert_eq!(
        status(&optional, put("/row/7", &[]), &ran).await.status(),
        StatusCode::OK
    );
}

#[tokio::test]
async fn the_resource_can_be_named() {
    let layer = FenceLayer::new(MemoryGate::new()).resource(|_| "all".to_owned());
    let ran = Arc::new(AtomicU32::new(0));
    assert_eq!(
        status(&layer, put("/a", &["2"]), &ran).await.status(),
        StatusCode::OK
    );
    assert_eq!(
        status(&layer, put("/b", &["1"]), &ran).await.status(),
        StatusCode::PRECONDITION_FAILED
    );
}

#[tokio::test]
async fn a_newer_holder_waits_until_the_handler_of_an_older_one_is_done() {
    let gate = MemoryGate::new();
    let (started, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let slow = {
        let (started, finish) = (started.clone(), finish.clone());
        service_fn(move |_: Request<String>| {
            let (started, finish) = (started.clone(), finish.clone());
            async move {
                started.notify_one();
                finish.notified().await;
                Ok::<_, Infallible>(Response::new(String::new()))
            }
        })
    };
    let layer = FenceLayer::new(gate.clone());
    let first = tokio::spawn(layer.layer(slow).oneshot(put("/r", &["1"])));
    started.notified().await;
    let second = gate.enter("/r", FencingToken::new(2));
    let mut second = std::pin::pin!(second);
    assert!(futures_util::poll!(&mut second).is_pending());
    finish.notify_one();
    assert_eq!(first.await.unwrap().unwrap().status(), StatusCode::OK);
    drop(second.await.unwrap());
}
