//! A person at a terminal: a shell with job control in tmux, keys typed, the screen read.

use std::process::Command;

use crate::stage::{Stage, TERM, until};

/// A terminal with a shell in it.
struct Terminal<'a> {
    stage: &'a Stage,
}

impl<'a> Terminal<'a> {
    /// `None`, loudly, where there is no tmux (and nobody requires it).
    fn open(stage: &'a Stage) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            distlock_testkit::servers::skip("the terminal tests need tmux");
            return None;
        }
        let terminal = Self { stage };
        let path = format!("PATH={}", std::env::var("PATH").unwrap());
        let url = format!("DISTLOCK_URL={}", stage.url());
        let bin = format!("D={}", env!("CARGO_BIN_EXE_distlock"));
        terminal.tmux(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            "90",
            "-y",
            "24",
            "-s",
            "t",
            "env",
            "-i",
            &path,
            &url,
            &bin,
            "TERM=screen",
            "PS1=> ",
            "DISTLOCK_CONFIG=/dev/null",
            "bash",
            "--norc",
            "--noprofile",
            "-i",
        ]);
        terminal.sees(">");
        Some(terminal)
    }

    fn tmux(&self, args: &[&str]) -> String {
        let mut command = Command::new("tmux");
        let output = command
            .arg("-S")
            .arg(self.stage.path("tmux"))
            .args(args)
            .current_dir(self.stage.path(""));
        let output = output.env_remove("TMUX").output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn line(&self, text: &str) {
        self.tmux(&["send-keys", "-t", "t", "-l", text]);
        self.key("Enter");
    }

    fn key(&self, key: &str) {
        self.tmux(&["send-keys", "-t", "t", key]);
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-t", "t"])
    }

    /// Waits until the screen shows this.
    fn sees(&self, text: &str) -> String {
        until(&format!("{text:?} on the screen"), || {
            Some(self.screen()).filter(|screen| screen.contains(text))
        })
    }

    /// Types a line until its effect is a line of the screen. (What is typed while a shell changes the terminal's
    /// modes may stay unread.)
    fn types_until(&self, text: &str, effect: &str) {
        let mut asked = 0;
        until(effect, || {
            if asked % 200 == 0 {
                self.line(text);
            }
            asked += 1;
            self.screen()
                .lines()
                .any(|l| l.trim_end() == effect)
                .then_some(())
        });
    }

    /// Waits until a line of the screen is exactly this.
    fn sees_line(&self, text: &str) {
        until(&format!("the line {text:?}"), || {
            self.screen().lines().any(|l| l.trim_end() == text).then_some(())
        });
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the screen:\n{}", self.screen());
        }
        self.tmux(&["kill-server"]);
    }
}

#[test]
fn ctrl_c_goes_to_the_command_once() {
    let stage = Stage::new();
    let Some(terminal) = Terminal::open(&stage) else {
        return;
    };
    terminal.line("$D run k -- sh -c 'trap \"echo got it; n=x\" INT; echo up; while [ -z $n ]; do sleep 0.05; done; sleep 0.2; exit 4'; echo code=$?");
    terminal.sees_line("up");
    terminal.key("C-c");
    terminal.sees_line("code=4");
    assert_eq!(
        terminal.screen().matches("got it").count(),
        2,
        "once typed, once said"
    );
}

#[test]
fn f77_ctrl_c_ends_a_wait() {
    let stage = Stage::new();
    let _holder = stage.hold("k");
    let Some(terminal) = Terminal::open(&stage) else {
        return;
    };
    terminal.line("$D run k -- touch ran; echo code=$?");
    terminal.sees("held by");
    terminal.key("C-c");
    terminal.sees_line("code=130");
    assert!(!stage.path("ran").exists());
}

#[test]
fn f82_ctrl_z_stops_the_job_and_fg_brings_it_back_with_the_terminal() {
    let stage = Stage::new();
    let Some(terminal) = Terminal::open(&stage) else {
        return;
    };
    terminal.line("$D run k -- sed -u s/^/got-/; echo code=$?");
    terminal.types_until("one", "got-one");
    terminal.key("C-z");
    terminal.sees("Stopped");
    terminal.line("echo shell=$((1+1))");
    terminal.sees_line("shell=2");
    terminal.line("fg");
    terminal.types_until("two", "got-two");
    terminal.key("C-d");
    until("the lock", || stage.is_free("k").then_some(()));
    terminal.line("echo shell=$((1+2))");
    terminal.sees_line("shell=3");
}

#[test]
fn bg_goes_on_without_the_terminal_and_fg_gives_it_back() {
    let stage = Stage::new();
    let Some(terminal) = Terminal::open(&stage) else {
        return;
    };
    terminal.line("$D run k -- sh -c 'echo up; while [ ! -e go ]; do sleep 0.05; done; read x; echo got $x'");
    terminal.sees_line("up");
    terminal.key("C-z");
    terminal.sees("Stopped");
    terminal.line("bg");
    std::fs::write(stage.path("go"), "").unwrap();
    // It wants to read, which stops a background job.
    until("the stop", || {
        (terminal.screen().matches("Stopped").count() > 1)
            .then_some(())
            .or_else(|| {
                terminal.line("");
                None
            })
    });
    terminal.line("fg");
    terminal.types_until("words", "got words");
}

#[test]
fn the_window_size_reaches_the_command() {
    let stage = Stage::new();
    let Some(terminal) = Terminal::open(&stage) else {
        return;
    };
    terminal.line("$D run k -- sh -c 'trap \"stty size\" WINCH; echo up; while :; do sleep 0.05; done'");
    terminal.sees_line("up");
    terminal.tmux(&["resize-window", "-t", "t", "-x", "101", "-y", "31"]);
    terminal.sees_line("31 101");
    terminal.key("C-c");
}

#[test]
fn f82_a_full_screen_program_works_and_gives_the_screen_back() {
    let stage = Stage::new();
    let Some(terminal) = Terminal::open(&stage) else {
        return;
    };
    std::fs::write(
        stage.path("text"),
        (1..=200).map(|n| format!("line {n}\n")).collect::<String>(),
    )
    .unwrap();
    terminal.line("$D run k -- less text; echo code=$?");
    terminal.sees_line("line 1");
    terminal.key("G");
    terminal.sees_line("line 200");
    terminal.key("q");
    terminal.sees_line("code=0");
    assert!(!terminal.screen().contains("line 200"));
}

#[test]
fn f82_a_pipeline_shares_the_terminal() {
    let stage = Stage::new();
    let Some(terminal) = Terminal::open(&stage) else {
        return;
    };
    // `less` reads keys from the terminal, which it could not in the background.
    terminal.line("$D run k -- seq 200 | less");
    terminal.sees_line("1");
    terminal.key("G");
    terminal.sees_line("200");
    terminal.key("q");
    terminal.line("seq 200 | $D run k -- less; echo code=$?");
    terminal.sees_line("1");
    terminal.key("G");
    terminal.sees_line("200");
    terminal.key("q");
    terminal.sees_line("code=0");
    // Ctrl-C ends the whole pipeline.
    terminal.line("$D run k -- sh -c 'echo up >&2; sleep 600' | cat; echo over");
    terminal.sees_line("up");
    terminal.key("C-c");
    until("the lock", || stage.is_free("k").then_some(()));
}

#[test]
fn the_spinner_names_the_holder_and_is_cleared() {
    let stage = Stage::new();
    let mut command = stage.distlock(&["hold", "--no-stdin", "--label", "the-deployer", "k"]);
    command.stdout(std::process::Stdio::piped());
    let mut holder = crate::stage::Running::start(command);
    holder.first_line();
    let Some(terminal) = Terminal::open(&stage) else {
        return;
    };
    terminal.line("$D run k -- echo do\"\"ne");
    terminal.sees("held by the-deployer");
    holder.signal(TERM);
    terminal.sees_line("done");
    let screen = terminal.screen();
    assert!(!screen.contains("the-deployer"), "{screen}");
}

#[test]
fn a_script_under_ctrl_z_stops_as_a_whole() {
    let stage = Stage::new();
    let Some(terminal) = Terminal::open(&stage) else {
        return;
    };
    std::fs::write(
        stage.path("script"),
        "$D run k -- sed -u s/^/got-/\necho after=$?\n",
    )
    .unwrap();
    terminal.line("export D; sh script");
    terminal.types_until("one", "got-one");
    terminal.key("C-z");
    terminal.sees("Stopped");
    terminal.line("fg");
    terminal.types_until("two", "got-two");
    terminal.key("C-d");
    terminal.sees_line("after=0");
}
