//! The statements, one `.sql` file each per dialect, and what goes in and comes out.

use std::borrow::Cow;

use crate::config::{Dialect, Layout};

/// What a statement does; each is a file in `sql/<dialect>/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Takes a key exclusively if it is free.
    Acquire,
    /// Gives an exclusive hold back.
    Release,
    /// Reads rows.
    Look,
    /// Reads a row and says that somebody waits (PostgreSQL).
    Mark,
    /// Replaces a row that is still as it was read.
    Write,
    /// Makes a row where there is none.
    Insert,
    /// Renews exclusive holds.
    Renew,
    /// Reads who holds.
    Held,
    /// Reads a range of rows.
    List,
    /// Finds the end of a page of names.
    Page,
    /// Removes idle rows of a page.
    Purge,
}

impl Verb {
    /// How many there are.
    pub(crate) const COUNT: usize = Self::Purge as usize + 1;

    /// Whether sending it twice does the same as sending it once. (A release and a compare-and-set would deny the
    /// second time what they did the first time.)
    pub(crate) fn repeats(self) -> bool {
        !matches!(self, Self::Release | Self::Write | Self::Insert)
    }

    fn source(self, dialect: Dialect, layout: Layout) -> &'static str {
        macro_rules! sql {
            ($name:literal) => {
                match dialect {
                    Dialect::Postgres => include_str!(concat!("sql/postgres/", $name, ".sql")),
                    Dialect::Mysql => include_str!(concat!("sql/mysql/", $name, ".sql")),
                }
            };
        }
        if layout == Layout::ShedLock {
            return match self {
                Self::Acquire => sql!("shedlock/acquire"),
                Self::Release => sql!("shedlock/release"),
                Self::Look => sql!("shedlock/look"),
                Self::Write => sql!("shedlock/write"),
                Self::Insert => sql!("shedlock/insert"),
                Self::Renew => sql!("shedlock/renew"),
                Self::Held => sql!("shedlock/held"),
                Self::List => sql!("shedlock/list"),
                // Nobody is notified, and Java relies on it that a row that was once there stays.
                Self::Mark | Self::Page | Self::Purge => "",
            };
        }
        match self {
            Self::Acquire => sql!("acquire"),
            Self::Release => sql!("release"),
            Self::Look => sql!("look"),
            // MySQL cannot notify, so nothing is marked there.
            Self::Mark if dialect == Dialect::Mysql => "",
            Self::Mark => include_str!("sql/postgres/mark.sql"),
            Self::Write => sql!("write"),
            Self::Insert => sql!("insert"),
            Self::Renew => sql!("renew"),
            Self::Held => sql!("held"),
            Self::List => sql!("list"),
            Self::Page => sql!("page"),
            Self::Purge => sql!("purge"),
        }
    }

    pub(crate) const ALL: [Verb; Self::COUNT] = [
        Self::Acquire,
        Self::Release,
        Self::Look,
        Self::Mark,
        Self::Write,
        Self::Insert,
        Self::Renew,
        Self::Held,
        Self::List,
        Self::Page,
        Self::Purge,
    ];
}

/// The text of every statement for one table.
#[derive(Debug)]
pub(crate) struct Statements([String; Verb::COUNT]);

impl Statements {
    pub(crate) fn new(dialect: Dialect, layout: Layout, table: &str) -> Self {
        Self(Verb::ALL.map(|verb| fill(verb.source(dialect, layout), dialect, table)))
    }

    pub(crate) fn text(&self, verb: Verb) -> &str {
        &self.0[verb as usize]
    }
}

/// The server's clock in microseconds since 1970, in UTC whatever the session's time zone.
fn now(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Postgres => "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
        Dialect::Mysql => "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
    }
}

/// A file's statement without its header, with the table and the clock filled in.
pub(crate) fn fill(source: &str, dialect: Dialect, table: &str) -> String {
    let lines: Vec<&str> = source
        .lines()
        .filter(|line| !line.trim_start().starts_with("--"))
        .collect();
    let text = lines.join("\n").replace("{now}", now(dialect));
    text.replace("{table}", table)
}

/// One argument of a statement.
#[derive(Debug, Clone)]
pub(crate) enum Arg<'a> {
    /// Text.
    Text(Cow<'a, str>),
    /// A number.
    Int(i64),
    /// A list of texts.
    Texts(Vec<String>),
    /// A list of numbers (PostgreSQL).
    Ints(Vec<i64>),
}

impl<'a> From<&'a str> for Arg<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Arg<'_> {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl From<i64> for Arg<'_> {
    fn from(n: i64) -> Self {
        Self::Int(n)
    }
}

/// One value of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cell {
    /// Nothing.
    Null,
    /// Text.
    Text(String),
    /// A number.
    Int(i64),
}

impl Cell {
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            _ => "",
        }
    }

    pub(crate) fn int(&self) -> i64 {
        match self {
            Self::Int(n) => *n,
            Self::Text(text) => text.parse().unwrap_or(0),
            Self::Null => 0,
        }
    }
}

/// What a statement answered.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// The rows.
    pub(crate) rows: Vec<Vec<Cell>>,
    /// How many rows were changed (MySQL) or returned (PostgreSQL).
    pub(crate) changed: u64,
    /// The number that the statement set (MySQL's last insert id), or the first row's first value (PostgreSQL).
    pub(crate) number: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statement_is_complete() {
        for (dialect, layout) in [
            (Dialect::Postgres, Layout::Row),
            (Dialect::Mysql, Layout::Row),
            (Dialect::Postgres, Layout::ShedLock),
            (Dialect::Mysql, Layout::ShedLock),
        ] {
            let statements = Statements::new(dialect, layout, "locks");
            for (i, verb) in Verb::ALL.into_iter().enumerate() {
                assert_eq!(verb as usize, i);
                let text = statements.text(verb);
                assert!(
                    !text.contains('{') && !text.contains("--"),
                    "{dialect:?} {verb:?}: {text}"
                );
                let absent = match layout {
                    Layout::ShedLock => matches!(verb, Verb::Mark | Verb::Page | Verb::Purge),
                    _ => dialect == Dialect::Mysql && verb == Verb::Mark,
                };
                assert_eq!(text.is_empty(), absent, "{dialect:?} {layout:?} {verb:?}");
            }
        }
    }
}
