//! Arguments, environment, input, output, descriptors: as without the wrapper.

use std::io::Write;
use std::process::Stdio;

use crate::stage::{Done, Running, Stage};

#[test]
fn f80_arguments_arrive_byte_for_byte() {
    let stage = Stage::new();
    let args = [
        "", "a b", "-v", "--", "--help", "*", "$HOME", "'\"", "a\nb", "-", "ü",
    ];
    let mut command = stage.distlock(&["run", "k", "--", "printf", "%s|"]);
    command.args(args);
    let done = Done::of(command.output().unwrap());
    assert_eq!(done.out, args.map(|a| format!("{a}|")).concat(), "{done:?}");
}

#[test]
fn f80_options_of_the_command_are_not_ours() {
    let stage = Stage::new();
    std::fs::write(stage.path("file"), "a\tb\n").unwrap();
    assert_eq!(stage.run(&["run", "k", "--", "cat", "-A", "file"]).out, "a^Ib$\n");
    // Without the dashes it is a mistake, and nothing is run.
    assert_eq!(stage.run(&["run", "k", "cat", "-A", "file"]).code, Some(64));
    assert_eq!(stage.run(&["run", "k", "cat", "file"]).code, Some(64));
    // A key with a dash in front.
    assert_eq!(
        stage
            .run(&["run", "--key=-x", "--", "sh", "-c", "echo $DISTLOCK_KEY"])
            .out,
        "-x\n"
    );
}

#[test]
fn bytes_that_are_not_utf8_are_passed_on() {
    use std::os::unix::ffi::OsStrExt;
    let stage = Stage::new();
    let odd = std::ffi::OsStr::from_bytes(b"\xff\x01");
    let mut command = stage.distlock(&["run", "k", "--", "sh", "-c", "printf %s%s \"$1\" \"$ODD\"", "sh"]);
    let output = command.arg(odd).env("ODD", odd).output().unwrap();
    assert_eq!(output.stdout, b"\xff\x01\xff\x01");
}

#[test]
fn the_environment_tells_the_key_token_owner_and_engine() {
    let stage = Stage::new();
    let mut command = stage.distlock(&["run", "b", "a", "b", "--", "env"]);
    command
        .env("DISTLOCK_TOKEN", "outer")
        .env("KEPT", "as it was")
        .env("DISTLOCK_KEY", "outer");
    let done = Done::of(command.output().unwrap());
    let value = |name: &str| {
        let start = done
            .out
            .find(&format!("\n{name}="))
            .unwrap_or_else(|| panic!("{name} in {}", done.out));
        done.out[start + name.len() + 2..].to_owned()
    };
    assert!(value("DISTLOCK_KEY").starts_with("a\nb\n"));
    let tokens: Vec<u64> = value("DISTLOCK_TOKEN")
        .lines()
        .take(2)
        .map(|t| t.parse().unwrap())
        .collect();
    assert_eq!(tokens.len(), 2);
    assert!(value("KEPT").starts_with("as it was\n"));
    assert!(value("DISTLOCK_ENGINE").starts_with(&format!("{}\n", stage.url())));
    assert!(value("DISTLOCK_URL").starts_with(&format!("{}\n", stage.url())));
    assert!(value("DISTLOCK_CTL").len() > 32);
}

#[test]
fn readers_have_no_token_and_do_not_inherit_one() {
    let stage = Stage::new();
    let mut command = stage.distlock(&[
        "run",
        "--shared",
        "k",
        "--",
        "sh",
        "-c",
        "echo ${DISTLOCK_TOKEN-none}",
    ]);
    let done = Done::of(command.env("DISTLOCK_TOKEN", "7").output().unwrap());
    assert_eq!(done.out, "none\n", "{done:?}");
}

#[test]
fn f82_input_and_output_pass_through() {
    let stage = Stage::new();
    let mut command = stage.distlock(&["run", "k", "--", "cat"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let text = vec![b'x'; 300_000];
    let mut input = child.stdin.take().unwrap();
    let sent = text.clone();
    let writer = std::thread::spawn(move || input.write_all(&sent).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.stdout == text && output.status.success());
}

#[test]
fn f82_input_may_be_empty_closed_or_withheld() {
    let stage = Stage::new();
    let mut command = stage.distlock(&["run", "--no-stdin", "k", "--", "cat"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Its own input stays open and unread.
    let _input = child.stdin.take();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"");
    let closed = "exec <&-; exec \"$0\" run k -- sh -c 'readlink /proc/self/fd/0 || echo none'";
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", closed, env!("CARGO_BIN_EXE_distlock")])
        .env("DISTLOCK_URL", stage.url());
    let done = Done::of(command.output().unwrap());
    assert_eq!(done.code, Some(0), "{done:?}");
}

#[test]
fn a_reader_of_the_output_is_not_kept_waiting_by_us() {
    let stage = Stage::new();
    // The command closes its output and goes on: `head` in `distlock run … | head` must see the end.
    let mut command = stage.distlock(&["run", "k", "--", "sh", "-c", "exec >&-; echo $$ > pid; sleep 600"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let _running = Running::from(child);
    let mut all = String::new();
    std::io::Read::read_to_string(&mut out, &mut all).unwrap();
    assert_eq!(all, "");
}

#[test]
fn f79_no_descriptor_of_ours_reaches_the_command() {
    let stage = Stage::new();
    let list = "for f in /proc/$$/fd/*; do echo ${f##*/}; done";
    let without = std::process::Command::new("sh")
        .args(["-c", list])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let with = stage.run(&["run", "k", "--", "sh", "-c", list]);
    assert_eq!(with.out, String::from_utf8(without.stdout).unwrap());
    // With events on a descriptor, that one stays with us too.
    let script = format!("exec \"$0\" run --status-fd 7 k -- sh -c '{list}' 7>/dev/null");
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", &script, env!("CARGO_BIN_EXE_distlock")])
        .env("DISTLOCK_URL", stage.url());
    let done = Done::of(command.stdin(Stdio::null()).output().unwrap());
    assert_eq!(done.out, with.out, "{done:?}");
}

#[test]
fn the_command_has_a_clean_signal_mask_and_dispositions() {
    let stage = Stage::new();
    let look = ["-E", "^Sig(Blk|Ign):", "/proc/self/status"];
    let without = std::process::Command::new("grep").args(look).output().unwrap();
    let done = stage.run(&[&["run", "k", "--", "grep"], &look[..]].concat());
    assert_eq!(done.out, String::from_utf8(without.stdout).unwrap());
    assert!(done.out.contains("SigBlk:\t0000000000000000"));
    let mut command = std::process::Command::new("nohup");
    command.args([
        env!("CARGO_BIN_EXE_distlock"),
        "run",
        "k",
        "--",
        "grep",
        "SigIgn",
        "/proc/self/status",
    ]);
    let done = Done::of(
        command
            .env("DISTLOCK_URL", stage.url())
            .stdin(Stdio::null())
            .output()
            .unwrap(),
    );
    // Bit 0 is HUP: what nohup arranged is still so.
    assert!(done.out.trim_end().ends_with('1'), "{done:?}");
}
