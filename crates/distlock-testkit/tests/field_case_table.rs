//! `docs/field-cases.md` tells the truth: every test that it names exists.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All Rust sources below a directory.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// The ids at the beginning of a test's name: `f10_f11_a_late_release` has 10 and 11.
fn ids(name: &str) -> Vec<u32> {
    name.split('_')
        .map_while(|part| part.strip_prefix('f').filter(|n| n.len() >= 2)?.parse().ok())
        .collect()
}

/// The test functions of a source file.
fn tests(source: &str) -> Vec<&str> {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let mut names = Vec::new();
    // Cells that run on two engines, by a macro.
    let cells = lines.iter().skip_while(|line| **line != "on_both! {").skip(1);
    names.extend(cells.take_while(|line| **line != "}"));
    for (n, line) in lines.iter().enumerate() {
        let Some((before, after)) = line.split_once("fn ") else {
            continue;
        };
        if !matches!(before, "" | "async " | "pub " | "pub async ") {
            continue;
        }
        let attributes = lines[..n]
            .iter()
            .rev()
            .take_while(|l| l.starts_with("#[") || l.starts_with("//"));
        if attributes
            .clone()
            .any(|l| l.starts_with("#[") && l.contains("test"))
        {
            names.push(
                after
                    .split(|c: char| !c.is_alphanumeric() && c != '_')
                    .next()
                    .unwrap_or(""),
            );
        }
    }
    names
}

/// What is wrong with the proof column of one row.
fn judge(id: u32, proof: &str, exists: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut wrong = Vec::new();
    let named: Vec<&str> = proof
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|part| part.contains("::"))
        .collect();
    for test in &named {
        let name = test.rsplit("::").next().unwrap_or("");
        if !ids(name).contains(&id) {
            wrong.push(format!("F{id:02}: the name of {test} does not begin with the id"));
        }
        if !exists(test) {
            wrong.push(format!("F{id:02}: there is no test {test}"));
        }
    }
    let reason = proof.contains("not applicable, because ");
    if named.is_empty() && !reason {
        wrong.push(format!("F{id:02}: no test, and no reason"));
    }
    if proof.contains("waits for") {
        wrong.push(format!("F{id:02}: waits for something"));
    }
    if reason && !named.is_empty() {
        wrong.push(format!("F{id:02}: not applicable, and yet there are tests"));
    }
    wrong
}

fn exists(test: &str) -> bool {
    let parts: Vec<&str> = test.split("::").collect();
    let [krate, middle @ .., name] = &parts[..] else {
        return false;
    };
    let mut found = Vec::new();
    sources(&root().join("crates").join(krate.replace('_', "-")), &mut found);
    found.iter().any(|path| {
        let file = path.with_extension("");
        let names: Vec<&str> = file.iter().filter_map(|part| part.to_str()).collect();
        middle
            .iter()
            .all(|module| *module == "tests" || names.contains(module))
            && tests(&fs::read_to_string(path).unwrap()).contains(name)
    })
}

#[test]
fn every_case_is_there_and_every_named_test_exists() {
    let table = fs::read_to_string(root().join("docs/field-cases.md")).unwrap();
    let rows: BTreeMap<u32, &str> = table
        .lines()
        .filter_map(|line| {
            let (id, _) = line.strip_prefix("| F")?.split_once(' ')?;
            let proof = line.trim_end().strip_suffix('|')?.rsplit('|').next()?;
            Some((id.parse().ok()?, proof))
        })
        .collect();
    assert_eq!(
        rows.keys().copied().collect::<Vec<_>>(),
        (1..=108).collect::<Vec<_>>()
    );
    let wrong: Vec<String> = rows
        .iter()
        .flat_map(|(id, proof)| judge(*id, proof, &exists))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let inapplicable = rows
        .values()
        .filter(|proof| proof.contains("not applicable"))
        .count();
    assert!(inapplicable <= 15, "{inapplicable} cases are said not to apply");

    // A reminder, not a failure: tests that the table does not know yet.
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    for file in files {
        for test in tests(&fs::read_to_string(&file).unwrap()) {
            for id in ids(test) {
                if rows.get(&id).is_some_and(|proof| !proof.contains(test)) {
                    println!("not in the table yet: F{id:02} {test} ({})", file.display());
                }
            }
        }
    }
}

/// The numbers of a row, such as `10, 12`.
fn numbers(cell: &str) -> Vec<u32> {
    cell.split(',').filter_map(|n| n.trim().parse().ok()).collect()
}

#[test]
fn every_reported_fault_of_redisson_has_a_test_that_exists_or_a_reason() {
    let table = fs::read_to_string(root().join("docs/engines/redisson-faults.md")).unwrap();
    let mut seen: Vec<u32> = Vec::new();
    let mut wrong = Vec::new();
    for line in table.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.split('|').collect();
        let ids = numbers(cells[1]);
        seen.extend(&ids);
        for test in cells[3]
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|name| name.contains('_'))
        {
            let found = match test.split_once("::") {
                Some((krate, _)) if krate.starts_with("distlock_") => exists(test),
                Some(_) if test.starts_with("Order") => true,
                Some(_) => exists(&format!("distlock_redis::redis::{test}")),
                None => {
                    test == "min_replicas" || distlock_testkit::conformance::cases().any(|c| c.name == test)
                }
            };
            if !found {
                wrong.push(format!("{ids:?}: there is no test {test}"));
            }
        }
        if !ids.is_empty() && cells[3].trim().len() < 20 {
            wrong.push(format!("{ids:?}: neither a test nor a reason"));
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, (1..=61).collect::<Vec<_>>());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_wrong_table_would_be_noticed() {
    let there = |test: &str| test == "distlock_file::processes::f07_f08_works";
    assert!(judge(7, " `distlock_file::processes::f07_f08_works` ", &there).is_empty());
    let half = " `distlock_file::processes::f07_f08_works`; waits for: etcd ";
    assert_eq!(judge(8, half, &there).len(), 1);
    assert_eq!(judge(9, " waits for: etcd ", &there).len(), 2);
    assert!(judge(9, " not applicable, because there is no pool ", &there).is_empty());
    assert_eq!(
        judge(9, " `distlock_file::processes::f07_f08_works` ", &there).len(),
        1
    );
    assert_eq!(
        judge(7, " `distlock_file::processes::f07_gone` ", &there).len(),
        1
    );
    assert_eq!(judge(7, " ", &there).len(), 1);
    assert!(exists(
        "distlock_testkit::field_case_table::a_wrong_table_would_be_noticed"
    ));
    assert!(!exists(
        "distlock_testkit::elsewhere::a_wrong_table_would_be_noticed"
    ));
    assert!(!exists("distlock_testkit::field_case_table::judge"), "not a test");
    let source = "on_both! {\n    f01_cell\n}\nasync fn f02_no_cell() {}";
    assert_eq!(tests(source), ["f01_cell"]);
}
