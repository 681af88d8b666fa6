//! Types that do not fit.
use distlock::{Error, locked};

struct Opaque;

const WAIT: u64 = 3;

#[derive(Debug)]
struct MyError;

#[locked(key = "order:{idd}")]
async fn unknown_name(id: u64) -> Result<(), Error> {
    Ok(())
}

#[locked(key = "order:{what}")]
async fn not_display(what: Opaque) -> Result<(), Error> {
    Ok(())
}

#[locked(key = "a")]
async fn not_a_result() -> u32 {
    1
}

#[locked(key = "a")]
async fn error_that_cannot_say_it() -> Result<(), MyError> {
    Ok(())
}

#[locked(key = "a")]
fn error_that_cannot_say_it_blocking() -> Result<(), MyError> {
    Ok(())
}

#[locked(key = "a", on_busy = skip(7))]
async fn skip_of_another_type() -> Result<(), Error> {
    Ok(())
}

#[locked(key = "a", locks = 7)]
async fn not_a_client() -> Result<(), Error> {
    Ok(())
}

#[locked(key = "a", wait = WAIT)]
async fn wait_is_no_duration() -> Result<(), Error> {
    Ok(())
}

#[locked(key = "a")]
async fn a_mistake_in_the_body() -> Result<u32, Error> {
    let text: String = 5;
    Ok(text.len())
}

fn main() {}
