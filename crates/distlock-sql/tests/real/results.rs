//! Results that are recorded in the transaction that makes them true.

use distlock_sql::Dialect;
use distlock_sql::tx::{Results, TxError};
use mysql_async::prelude::Queryable;

use crate::conformance::server;
use crate::tx::{my_at, pg_at};

/// A callback that is delivered by several at once is done once, and all give the first one's answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_happens_in_a_transaction_once_happens_once_on_postgres() {
    let Some(server) = server(Dialect::Postgres) else {
        return;
    };
    let results = Results::new(Dialect::Postgres, "callbacks").unwrap();
    let mut client = pg_at(&server.address()).await;
    let tx = client.transaction().await.unwrap();
    let e = results.earlier_postgres(&tx, "e").await.unwrap_err();
    assert!(
        matches!(&e, TxError::NoTable(ddl) if ddl == results.schema()),
        "{e}"
    );
    tx.rollback().await.unwrap();
    server.sql(results.schema()).await;
    server.sql("CREATE TABLE credits (event text)").await;
    // One that does the work and does not commit.
    let tx = client.transaction().await.unwrap();
    assert_eq!(results.earlier_postgres(&tx, "event 0").await.unwrap(), None);
    results.record_postgres(&tx, "event 0", "never").await.unwrap();
    tx.rollback().await.unwrap();
    let deliveries = (0..6).map(|n| {
        let results = results.clone();
        tokio::spawn(async move {
            let mut client = pg_at(&server.address()).await;
            let mut answers = Vec::new();
            for event in (0..20).map(|event| format!("event {event}")) {
                let tx = client.transaction().await.unwrap();
                let answer = match results.earlier_postgres(&tx, &event).await.unwrap() {
                    Some(earlier) => earlier,
                    None => {
                        tx.execute("INSERT INTO credits VALUES ($1)", &[&event])
                            .await
                            .unwrap();
                        let answer = format!("credited by {n}");
                        results.record_postgres(&tx, &event, &answer).await.unwrap();
                        answer
                    }
                };
                tx.commit().await.unwrap();
                answers.push(answer);
            }
            answers
        })
    });
    same_answers(deliveries).await;
    assert_eq!(server.sql("SELECT event FROM credits").await.len(), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_happens_in_a_transaction_once_happens_once_on_mysql() {
    let Some(server) = server(Dialect::Mysql) else {
        return;
    };
    let results = Results::new(Dialect::Mysql, "callbacks").unwrap();
    server.sql(results.schema()).await;
    server.sql("CREATE TABLE credits (event varchar(40))").await;
    let options = mysql_async::TxOpts::default;
    let mut conn = my_at(&server.address()).await;
    let mut tx = conn.start_transaction(options()).await.unwrap();
    assert_eq!(results.earlier_mysql(&mut tx, "event 0").await.unwrap(), None);
    results.record_mysql(&mut tx, "event 0", "never").await.unwrap();
    tx.rollback().await.unwrap();
    let deliveries = (0..6).map(|n| {
        let results = results.clone();
        tokio::spawn(async move {
            let mut conn = my_at(&server.address()).await;
            let mut answers = Vec::new();
            for event in (0..20).map(|event| format!("event {event}")) {
                let mut tx = conn.start_transaction(options()).await.unwrap();
                let answer = match results.earlier_mysql(&mut tx, &event).await.unwrap() {
                    Some(earlier) => earlier,
                    None => {
                        tx.exec_drop("INSERT INTO credits VALUES (?)", (&event,))
                            .await
                            .unwrap();
                        let answer = format!("credited by {n}");
                        results.record_mysql(&mut tx, &event, &answer).await.unwrap();
                        answer
                    }
                };
                tx.commit().await.unwrap();
                answers.push(answer);
            }
            answers
        })
    });
    same_answers(deliveries).await;
    assert_eq!(server.sql("SELECT event FROM credits").await.len(), 20);
}

async fn same_answers(deliveries: impl Iterator<Item = tokio::task::JoinHandle<Vec<String>>>) {
    let mut all = futures_util::future::join_all(deliveries)
        .await
        .into_iter()
        .map(Result::unwrap);
    let first = all.next().unwrap();
    assert!(
        first.iter().all(|answer| answer.starts_with("credited by ")),
        "{first:?}"
    );
    assert!(all.all(|answers| answers == first));
}
