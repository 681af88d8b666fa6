//! Help, the manual page, completions.

use crate::stage::Stage;

fn text(args: &[&str]) -> String {
    let stage = Stage::new();
    let mut command = stage.distlock(args);
    let output = command
        .env("COLUMNS", "100")
        .env_remove("DISTLOCK_URL")
        .env_remove("DISTLOCK_CONFIG")
        .output()
        .unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn help_is_as_agreed() {
    insta::assert_snapshot!("help", text(&["--help"]));
    insta::assert_snapshot!("help_run", text(&["run", "--help"]));
    for sub in [
        "hold", "acquire", "renew", "release", "ls", "inspect", "break", "bench",
    ] {
        insta::assert_snapshot!(format!("help_{sub}"), text(&[sub, "--help"]));
    }
}

#[test]
fn the_manual_page_is_as_agreed() {
    insta::assert_snapshot!("man", text(&["man"]));
}

#[test]
fn what_a_user_of_flock_looks_for_is_in_the_help() {
    let help = text(&["--help"]);
    for word in [
        "flock -n", "flock -w", "-E", "flock -s", "-c", "lslocks", "75", "79", "124",
    ] {
        assert!(help.contains(word), "{word}");
    }
}

#[test]
fn completions_are_made_for_each_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(text(&["completions", shell]).contains("distlock"));
    }
}
