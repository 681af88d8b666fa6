//! `distlock sql migrate`, `distlock sql schema`: the table of locks in a database.

use distlock::sql::{Migration, config, migrate};
use serde_json::json;

use crate::args::{Common, SqlArgs, SqlCommand};
use crate::cmd::print_line;
use crate::exit::Exit;
use crate::runtime;
use crate::settings::Session;

/// Makes the table, or prints its definition.
pub(crate) fn sql(common: &Common, args: &SqlArgs) -> Exit {
    let (SqlCommand::Migrate(target) | SqlCommand::Schema(target)) = &args.what;
    let mut common = common.clone();
    common.url = target.url.clone().or(common.url);
    let Session { engine, say, .. } = match Session::open(&common, None) {
        Ok(session) => session,
        Err(exit) => return exit,
    };
    let Some(url) = engine.url() else {
        let hint = "for instance: distlock sql schema postgres://app@db1/shop";
        return say.error(Exit::USAGE, "which database? no URL was given", Some(hint));
    };
    let config = match config(url) {
        Ok(config) => config,
        Err(e) => return say.failure(&e, Exit::USAGE),
    };
    let table = config.table.clone();
    if matches!(args.what, SqlCommand::Schema(_)) {
        return match config.schema() {
            Ok(ddl) if say.is_json() => print(&json!({ "table": table, "schema": ddl }).to_string()),
            Ok(ddl) => print(&ddl),
            Err(e) => say.failure(&distlock::Error::from_driver(e), Exit::USAGE),
        };
    }
    let migrated = match runtime::current_thread() {
        Ok(runtime) => runtime.block_on(migrate(config)),
        Err(e) => return say.error(Exit::ENGINE, format_args!("cannot start: {e}"), None),
    };
    match migrated {
        Ok(done) if say.is_json() => {
            print(&json!({ "table": table, "made": done == Migration::Made }).to_string())
        }
        Ok(Migration::Made) => print(&format!("the table {table} was made")),
        Ok(Migration::Unchanged) => print(&format!("the table {table} is there already")),
        Err(e) => say.failure(&e, Exit::ENGINE),
    }
}

fn print(line: &str) -> Exit {
    print_line(line);
    Exit::OK
}
