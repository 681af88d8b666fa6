//! Functions that cannot carry the attribute.
use std::future::Future;

use distlock::{Error, locked};

#[locked(key = "a")]
async fn returns_nothing() {}

#[locked(key = "a")]
fn returns_unit() -> () {}

#[locked(key = "a")]
const fn constant() -> Result<(), Error> {
    Ok(())
}

#[locked(key = "a")]
struct NotAFunction;

trait Closer {
    #[locked(key = "a")]
    async fn without_a_body(&self) -> Result<(), Error>;
}

#[locked(key = "a")]
fn returns_a_future_from_elsewhere() -> impl Future<Output = Result<(), Error>> {
    elsewhere()
}

async fn elsewhere() -> Result<(), Error> {
    Ok(())
}

fn main() {}
