//! The guide: its pages are all in the book, its links lead somewhere, and its shell blocks run as they stand.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::stage::{Done, Stage};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .canonicalize()
        .unwrap()
}

/// All pages, relative to `docs`.
fn pages(dir: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|e| e == "md") {
            found.insert(path.strip_prefix(docs()).unwrap().display().to_string());
        }
    }
}

/// The targets of the links of a page, outside of its code.
fn links(text: &str) -> Vec<String> {
    let prose: String = text.split("```").step_by(2).collect();
    let prose: String = prose.split('`').step_by(2).collect::<Vec<_>>().join("`");
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.to_owned()).collect()
}

#[test]
fn every_page_is_in_the_book_and_every_link_leads_somewhere() {
    let mut all = BTreeSet::new();
    pages(&docs(), &mut all);
    let summary = std::fs::read_to_string(docs().join("SUMMARY.md")).unwrap();
    let listed: BTreeSet<String> = links(&summary).into_iter().filter(|l| !l.is_empty()).collect();
    // Decisions are for those who change distlock.
    let book = all
        .iter()
        .filter(|p| *p != "SUMMARY.md" && !p.starts_with("decisions/"))
        .cloned();
    let missing: Vec<String> = book.filter(|page| !listed.contains(page)).collect();
    assert!(missing.is_empty(), "SUMMARY.md lacks {missing:?}");
    let mut broken = Vec::new();
    for page in all.iter().filter(|page| *page != "field-cases.md") {
        let path = docs().join(page);
        for link in links(&std::fs::read_to_string(&path).unwrap()) {
            let target = link.split('#').next().unwrap();
            let outside = target.is_empty() || target.contains("://");
            // A page of the book must not lead out of it, but where it is read as a file.
            let found = path
                .parent()
                .unwrap()
                .join(target)
                .canonicalize()
                .is_ok_and(|found| {
                    let inside = found
                        .strip_prefix(docs())
                        .is_ok_and(|found| !found.starts_with("decisions"));
                    inside || page.starts_with("decisions/")
                });
            if !outside && !found {
                broken.push(format!("{page}: {link}"));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn a_broken_link_would_be_noticed() {
    assert_eq!(
        links("[a](b.md) `x](y)` [c](d#e)\n```\n[f](g)\n```\n[h](i)"),
        ["b.md", "d#e", "i"]
    );
}

/// The blocks of a page that are marked as shell.
fn shell_blocks(text: &str) -> Vec<String> {
    let blocks = text.split("```").skip(1).step_by(2);
    blocks
        .filter_map(|block| block.strip_prefix("sh\n").map(str::to_owned))
        .collect()
}

/// What a block needs and a test has not: other servers' addresses, and a port that may be taken.
fn here(block: &str, port: u16) -> String {
    let mut block = block.to_owned();
    for elsewhere in [
        " --url http://gateway:7466",
        " --url 'https://:TOKEN@gw1,gw2/?namespace=shop'",
        " --url redlock://h1,h2,h3,h4,h5",
        " --url redis://127.0.0.1/",
        " --url redis+cluster://h1,h2,h3",
        " redis+cluster://h1,h2,h3",
    ] {
        block = block.replace(elsewhere, "");
    }
    let serve = format!("distlock serve --listen 127.0.0.1:{port}");
    block
        .replace("init redlock://h1,h2,h3,h4,h5", "init --help")
        .replace("distlock serve", &serve)
        .replace("localhost:7466", &format!("127.0.0.1:{port}"))
}

/// Programs of the reader's, and of other servers: they do nothing. `curl` waits until somebody listens.
const PROGRAMS: [(&str, &str); 9] = [
    ("report.sh", "exit 0"),
    ("deploy.sh", "exit 0"),
    ("scheduler", "exit 0"),
    ("report", "exit 0"),
    ("cargo", "exit 0"),
    ("kubectl", "exit 0"),
    ("etcdctl", "exit 0"),
    ("redis-cli", "exit 0"),
    (
        "curl",
        "PATH=${PATH#*:} exec curl -sS --retry 30 --retry-delay 1 --retry-connrefused \"$@\"",
    ),
];

/// Runs a block in a directory of its own; what it leaves in the background ends with it.
fn run(block: &str) -> Done {
    let stage = Stage::new();
    for (name, does) in PROGRAMS {
        std::fs::write(stage.path(name), format!("#!/bin/sh\n{does}\n")).unwrap();
        std::fs::set_permissions(stage.path(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let ends = "trap 'kill ${!:-} 2>/dev/null || :' EXIT\n";
    let distlock = stage.distlock(&[]);
    let dir = Path::new(distlock.get_program()).parent().unwrap().to_owned();
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-eu", "-c", &(ends.to_owned() + &here(block, port))])
        .current_dir(stage.path("."));
    for (name, value) in distlock.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let path = std::env::var("PATH").unwrap();
    let programs = stage.path(".");
    shell
        .env("PATH", format!("{}:{}:{path}", programs.display(), dir.display()))
        .stdin(Stdio::null());
    Done::of(shell.output().unwrap())
}

#[test]
fn the_shell_blocks_of_the_guide_run_as_they_stand() {
    let mut all = BTreeSet::new();
    pages(&docs(), &mut all);
    all.insert("../README.md".to_owned());
    let curl = std::process::Command::new("curl").arg("-V").output();
    let no_curl = !curl.is_ok_and(|out| out.status.success());
    let mut ran = 0;
    for page in &all {
        for block in shell_blocks(&std::fs::read_to_string(docs().join(page)).unwrap()) {
            // Scripts of this repository build it; continuous integration runs them.
            if block.starts_with("scripts/") {
                continue;
            }
            if no_curl && block.contains("curl ") {
                distlock_testkit::servers::skip("curl is not installed");
                continue;
            }
            let done = run(&block);
            assert_eq!(done.code, Some(0), "{page}:\n{block}\n{done:?}");
            ran += 1;
        }
    }
    assert!(ran >= 18, "only {ran} blocks");
}
