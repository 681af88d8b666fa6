//! The tables: what was measured, what it must be, and whether it is.

use std::fmt;

use comfy_table::{Table, presets};

/// One table.
pub(crate) struct Report {
    title: &'static str,
    rows: Vec<Row>,
}

struct Row {
    what: String,
    floor: String,
    ours: String,
    must: String,
    good: Option<bool>,
}

impl Report {
    pub(crate) fn new(title: &'static str) -> Self {
        Self {
            title,
            rows: Vec::new(),
        }
    }

    /// A row with a bound; it is red when `good` is false.
    pub(crate) fn row(
        &mut self,
        what: impl Into<String>,
        floor: impl fmt::Display,
        ours: impl fmt::Display,
        must: impl Into<String>,
        good: bool,
    ) {
        self.rows.push(Row {
            what: what.into(),
            floor: floor.to_string(),
            ours: ours.to_string(),
            must: must.into(),
            good: Some(good),
        });
    }

    /// A row that is only reported.
    pub(crate) fn note(&mut self, what: impl Into<String>, ours: impl fmt::Display) {
        self.beside(what, "", ours);
    }

    /// A row that is only reported, beside the figure of somebody else.
    pub(crate) fn beside(
        &mut self,
        what: impl Into<String>,
        theirs: impl fmt::Display,
        ours: impl fmt::Display,
    ) {
        self.rows.push(Row {
            what: what.into(),
            floor: theirs.to_string(),
            ours: ours.to_string(),
            must: "reported".into(),
            good: None,
        });
    }

    pub(crate) fn red(&self) -> usize {
        self.rows.iter().filter(|r| r.good == Some(false)).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        table.set_header([self.title, "floor", "distlock", "must", ""]);
        for r in &self.rows {
            let mark = match r.good {
                Some(true) => "ok",
                Some(false) => "RED",
                None => "",
            };
            table.add_row([&r.what, &r.floor, &r.ours, &r.must, mark]);
        }
        writeln!(f, "{table}")
    }
}

/// What a measurement cannot go on without.
pub(crate) fn good<T, E: fmt::Display>(result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(e) => panic!("{e}"),
    }
}
