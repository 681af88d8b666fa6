//! Keys that could collide or are malformed.
use distlock::{Error, locked};

#[locked(key = "order{id}")]
async fn touches_a_letter(id: u64) -> Result<(), Error> {
    Ok(())
}

#[locked(key = "order:{shop}{id}")]
async fn touches_another_placeholder(shop: u64, id: u64) -> Result<(), Error> {
    Ok(())
}

#[locked(key = "order:{}")]
async fn empty_placeholder(id: u64) -> Result<(), Error> {
    Ok(())
}

#[locked(key = "order:{id:?}")]
async fn format_specifier(id: u64) -> Result<(), Error> {
    Ok(())
}

#[locked(key = "order:{id")]
async fn no_end(id: u64) -> Result<(), Error> {
    Ok(())
}

#[locked(key = "order:{fetch().await}")]
async fn more_than_a_value() -> Result<(), Error> {
    Ok(())
}

#[locked(key = "")]
async fn empty_key() -> Result<(), Error> {
    Ok(())
}

#[locked(key = 42)]
async fn not_a_string() -> Result<(), Error> {
    Ok(())
}

#[locked(keys = ["a", "b{x}"])]
async fn one_of_several(x: u64) -> Result<(), Error> {
    Ok(())
}

#[locked(keys = [])]
async fn none_of_several() -> Result<(), Error> {
    Ok(())
}

fn main() {}
