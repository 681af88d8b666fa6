//! `distlock sql`: on real servers of both kinds.

use distlock_testkit::servers::{MariaDb, Postgres, or_skip};

use crate::stage::Stage;

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(work)
}

/// What one migrates, everybody uses; a table that is not ours is left alone.
fn migrates(url: &str) {
    let stage = Stage::new();
    let on = |parameters: &str| format!("{url}?{parameters}");
    let own = on("create=false&table=made_by_hand");
    let out = stage.run(&["try", "--url", &own, "k", "--", "true"]);
    assert_ne!(out.code, Some(0), "there is no table yet");
    for said in ["was made", "is there already"] {
        let out = stage.run(&["sql", "migrate", &own]);
        assert_eq!(out.code, Some(0), "{}", out.err);
        assert!(
            out.out.contains("made_by_hand") && out.out.contains(said),
            "{}",
            out.out
        );
    }
    let out = stage.run(&["--json", "sql", "migrate", &own]);
    assert_eq!(out.out.trim(), r#"{"made":false,"table":"made_by_hand"}"#);
    let out = stage.run(&["try", "--url", &own, "k", "--", "true"]);
    assert_eq!(out.code, Some(0), "{}", out.err);

    // The user's own table, with the name that was asked for.
    let foreign = match url.starts_with("mysql") {
        true => on("table=information_schema.tables"),
        false => on("table=pg_catalog.pg_class"),
    };
    let out = stage.run(&["sql", "migrate", &foreign]);
    assert_eq!(out.code, Some(125), "{} {}", out.out, out.err);
    assert!(out.err.contains("not one of ours"), "{}", out.err);
}

#[test]
fn a_table_is_migrated_on_postgres() {
    let Some(server) = or_skip(block_on(Postgres::start())) else {
        return;
    };
    migrates(&server.url());
}

#[test]
fn a_table_is_migrated_on_mariadb() {
    let Some(server) = or_skip(block_on(MariaDb::start())) else {
        return;
    };
    migrates(&server.url());
}

#[test]
fn the_schema_is_printed_without_a_server() {
    let stage = Stage::new();
    for (url, word) in [
        (
            "postgres://nobody:s3cret@127.0.0.1:1/shop?table=ops.locks",
            "\"ops\".\"locks\"",
        ),
        (
            "mysql://nobody:s3cret@127.0.0.1:1/shop?table=ops.locks",
            "`ops`.`locks`",
        ),
    ] {
        for args in [&["sql", "schema", url][..], &["--url", url, "sql", "schema"]] {
            let out = stage.run(args);
            assert_eq!(out.code, Some(0), "{}", out.err);
            assert!(out.out.starts_with("CREATE TABLE IF NOT EXISTS"), "{}", out.out);
            assert!(
                out.out.contains(word) && !out.out.contains("s3cret"),
                "{}",
                out.out
            );
        }
    }
    for (url, says) in [
        ("redis://127.0.0.1/", "not a database"),
        ("postgres://h/d?table=a%20b", "ASCII letters"),
        ("postgres://h/d?colour=red", "colour"),
    ] {
        let out = stage.run(&["sql", "schema", url]);
        assert_eq!((out.code, out.out.as_str()), (Some(64), ""), "{url}");
        assert!(out.err.contains(says), "{}", out.err);
    }
}
