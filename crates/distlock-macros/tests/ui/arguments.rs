//! Arguments that are wrong or missing.
use distlock::{Error, locked};

#[locked]
async fn no_arguments() -> Result<(), Error> {
    Ok(())
}

#[locked(ttl = "30s")]
async fn no_key() -> Result<(), Error> {
    Ok(())
}

#[locked(key = "a", keys = ["b"])]
async fn key_and_keys() -> Result<(), Error> {
    Ok(())
}

#[locked(key = "a", waiting = "3s")]
async fn unknown_argument() -> Result<(), Error> {
    Ok(())
}

#[locked(key = "a", wait = "3 parsecs")]
async fn not_a_duration() -> Result<(), Error> {
    Ok(())
}

#[locked(key = "a", wait = 3)]
async fn no_unit() -> Result<(), Error> {
    Ok(())
}

#[locked(key = "a", wait = "0s")]
async fn wait_of_zero() -> Result<(), Error> {
    Ok(())
}

#[locked(key = "a", ttl = "0s")]
async fn ttl_of_zero() -> Result<(), Error> {
    Ok(())
}

#[locked(key = "a", max_hold = "400 days")]
async fn too_long() -> Result<(), Error> {
    Ok(())
}

#[locked(key = "a", kind = rwlock)]
async fn unknown_kind() -> Result<(), Error> {
    Ok(())
}

#[locked(key = "a", kind = permits(0))]
async fn no_permits() -> Result<(), Error> {
    Ok(())
}

#[locked(key = "a", order = lifo)]
async fn unknown_order() -> Result<(), Error> {
    Ok(())
}

#[locked(key = "a", on_busy = skip)]
async fn skip_without_a_value() -> Result<(), Error> {
    Ok(())
}

#[locked(key = "a", on_busy = ignore)]
async fn unknown_on_busy() -> Result<(), Error> {
    Ok(())
}

#[locked(key = "a", guard = "held")]
async fn guard_is_not_a_name() -> Result<(), Error> {
    Ok(())
}

fn main() {}
