//! What the transactions of each driver are put through. A driver is told by small macros: `begin!(connection)`,
//! `lock!(transaction, name, wait)`, `run!(transaction, text)`, `number!(transaction, text)`.

/// Two workers, a thousand additions each, together with a live mutex of the same name: the sum is exact.
macro_rules! sums {
    ($server:ident, $table:literal, $at:ident, $begin:ident, $lock:ident, $run:ident, $number:ident) => {{
        let table = $table;
        let made = format!("CREATE TABLE {table} (id int PRIMARY KEY, n bigint NOT NULL)");
        $server.sql(&made).await;
        $server.sql(&format!("INSERT INTO {table} VALUES (1, 0)")).await;
        let mutex = crate::server::locks($server.config()).await.mutex(table);
        let mutex = mutex.acquire().await.unwrap();
        let workers = [0, 1].map(|_| {
            tokio::spawn(async move {
                let mut conn = $at(&$server.address()).await;
                for _ in 0..1000 {
                    let mut tx = $begin!(conn);
                    $lock!(tx, table, TxWait::Forever).unwrap();
                    let n: i64 = $number!(tx, concat!("SELECT n FROM ", $table));
                    let update = format!("UPDATE {table} SET n = {}", n + 1);
                    $run!(tx, update.as_str());
                    tx.commit().await.unwrap();
                }
            })
        });
        for worker in workers {
            worker.await.unwrap();
        }
        assert_eq!($server.sql(&format!("SELECT n FROM {table}")).await, ["2000"]);
        mutex.release().await.unwrap();
    }};
}

/// Held until the commit, the rollback, or the end of a program that crashes in between. Busy leaves a transaction
/// usable. `$freed`: whether a lock is known to go when its transaction is rolled back to a savepoint before it; at the
/// latest it goes with the transaction.
macro_rules! lasts_as_long_as_its_transaction {
    ($server:ident, $name:literal, $freed:literal, $at:ident, $begin:ident, $lock:ident, $run:ident) => {{
        let second = std::time::Duration::from_secs(1);
        let mut a = $at(&$server.address()).await;
        let mut b = $at(&$server.address()).await;
        for commit in [true, false] {
            let mut held = $begin!(a);
            $lock!(held, $name, TxWait::Forever).unwrap();
            let mut other = $begin!(b);
            for wait in [TxWait::Try, TxWait::For(second / 20)] {
                let busy = $lock!(other, $name, wait);
                assert!(matches!(busy, Err(TxError::Busy)), "{busy:?}");
            }
            $run!(other, "SELECT 1");
            match commit {
                true => held.commit().await.unwrap(),
                false => held.rollback().await.unwrap(),
            }
            $lock!(other, $name, TxWait::For(5 * second)).unwrap();
            other.commit().await.unwrap();
        }

        let mut held = $begin!(a);
        $run!(held, "SAVEPOINT s");
        $lock!(held, $name, TxWait::Forever).unwrap();
        $run!(held, "ROLLBACK TO SAVEPOINT s");
        let mut other = $begin!(b);
        let taken = $lock!(other, $name, TxWait::Try);
        assert!(taken.is_ok() || !$freed, "{taken:?}");
        held.commit().await.unwrap();
        $lock!(other, $name, TxWait::For(5 * second)).unwrap();
        other.commit().await.unwrap();

        let way = distlock_testkit::proxy::Proxy::start($server.address())
            .await
            .unwrap();
        let mut crashed = $at(&way.address()).await;
        let mut held = $begin!(crashed);
        $lock!(held, $name, TxWait::Forever).unwrap();
        let mut other = $begin!(b);
        let busy = $lock!(other, $name, TxWait::Try);
        assert!(matches!(busy, Err(TxError::Busy)), "{busy:?}");
        way.cut();
        $lock!(other, $name, TxWait::For(10 * second)).unwrap();
        other.commit().await.unwrap();
        drop(held);
    }};
}

pub(crate) use {lasts_as_long_as_its_transaction, sums};
