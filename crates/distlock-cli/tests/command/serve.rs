//! `distlock serve`: what it refuses, and that what is in `deploy/` fits it.

use std::path::Path;

use yaml_rust2::{Yaml, YamlLoader};

use crate::stage::Stage;

fn deploy(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../deploy")
        .join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn beyond_this_host_it_asks_for_tokens_and_tls() {
    let stage = Stage::new();
    for (args, missing) in [
        (
            &["--listen", "0.0.0.0:0"][..],
            "--tokens, --tls-cert and --tls-key",
        ),
        (
            &["--listen", "0.0.0.0:0", "--tokens", "t"],
            "--tls-cert and --tls-key",
        ),
        (
            &["--listen", "[::]:0", "--tls-cert", "c", "--tls-key", "k"],
            "--tokens",
        ),
    ] {
        let done = stage.run(&[&["serve"], args].concat());
        assert_eq!(done.code, Some(64), "{args:?}: {done:?}");
        assert!(
            done.err.contains(missing) && done.err.contains("--insecure"),
            "{}",
            done.err
        );
    }
    let done = stage.run(&["serve", "--listen", "nonsense"]);
    assert_eq!(done.code, Some(64), "{done:?}");
    let done = stage.run(&["serve", "--listen", "127.0.0.1:0", "--tokens", "/nonexistent"]);
    assert_eq!(done.code, Some(78), "{done:?}");
}

/// The command line of the unit, of the container, as words.
fn accepted(words: &[&str]) {
    let stage = Stage::new();
    let done = stage.run(&[words, &["--help"]].concat());
    assert_eq!(done.code, Some(0), "{words:?}: {done:?}");
}

#[test]
fn the_unit_and_the_container_start_what_there_is() {
    let unit = deploy("distlock.service");
    let mut section = "";
    let mut start = None;
    for line in unit
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        match line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            Some(name) => section = name,
            None => {
                let (name, value) = line
                    .split_once('=')
                    .unwrap_or_else(|| panic!("no setting: {line}"));
                assert!(["Unit", "Service", "Install"].contains(&section), "{section}");
                if name == "ExecStart" {
                    start = Some(value);
                }
            }
        }
    }
    let words: Vec<&str> = start.unwrap().split(' ').collect();
    assert_eq!(words[..2], ["/usr/bin/distlock", "serve"]);
    accepted(&words[1..]);

    let recipe = deploy("Containerfile");
    let list = |name: &str| -> Vec<String> {
        let line = recipe.lines().find_map(|l| l.strip_prefix(name)).unwrap();
        serde_json::from_str(line).unwrap()
    };
    let words = [list("ENTRYPOINT "), list("CMD ")].concat();
    accepted(&words.iter().skip(1).map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn the_manifests_fit_the_service() {
    let documents = YamlLoader::load_from_str(&deploy("kubernetes/distlock.yaml")).unwrap();
    let kinds: Vec<&str> = documents.iter().map(|d| d["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["Deployment", "Service", "PodDisruptionBudget"]);
    for document in &documents {
        assert!(document["apiVersion"].as_str().is_some());
        assert_eq!(document["metadata"]["name"].as_str(), Some("distlock"));
    }
    let labels = &documents[0]["spec"]["template"]["metadata"]["labels"];
    assert_eq!(&documents[0]["spec"]["selector"]["matchLabels"], labels);
    assert_eq!(&documents[1]["spec"]["selector"], labels);
    assert_eq!(&documents[2]["spec"]["selector"]["matchLabels"], labels);
    let pod = &documents[0]["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(container["ports"][0]["containerPort"].as_i64(), Some(7466));
    let names = |list: &Yaml| -> Vec<String> {
        let list = list.as_vec().unwrap().iter();
        list.map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&container["volumeMounts"]), names(&pod["volumes"]));
    for (probe, path) in [("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")] {
        assert_eq!(container[probe]["httpGet"]["path"].as_str(), Some(path));
    }
    // What the container is started with is where the manifest mounts it.
    let recipe = deploy("Containerfile");
    for mount in container["volumeMounts"].as_vec().unwrap() {
        let at = mount["mountPath"].as_str().unwrap();
        assert!(recipe.contains(&format!("\"{at}/")), "nothing is read from {at}");
    }
}
