//! The client of functions that name none. One test, because there is one per process.

use distlock::memory::Memory;
use distlock::{Client, Error, ErrorKind, Locks, locked};

#[locked(key = "a", guard = held)]
async fn usual() -> Result<bool, Error> {
    Ok(held.is_held())
}

#[tokio::test]
async fn a_client_is_installed_once_and_missing_it_is_a_clear_error() {
    let missing = usual().await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::InvalidConfig);
    assert!(
        missing.to_string().contains("distlock::install(locks)"),
        "{missing}"
    );

    let client = || Locks::from(Client::builder().memory(&Memory::new()).unwrap());
    distlock::install(client()).unwrap();
    assert!(usual().await.unwrap());
    assert_eq!(
        distlock::install(client()).unwrap_err().kind(),
        ErrorKind::InvalidConfig
    );
}
