//! Standard input and output, of which the command alone shall decide when they are closed.

use std::fs::OpenOptions;

use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

/// Lets go of input and output once the command has them; with `errors`, of standard error too.
pub(crate) fn let_go(errors: bool) {
    let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") else {
        return;
    };
    let _ = dup2_stdin(&null);
    let _ = dup2_stdout(&null);
    if errors {
        let _ = dup2_stderr(&null);
    }
}
