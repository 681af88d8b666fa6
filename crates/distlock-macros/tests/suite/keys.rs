//! What the key is made of.

use super::*;

struct Shop {
    pair: Pair,
    name: String,
}

impl Shop {
    fn region(&self) -> &str {
        "eu"
    }

    #[locked(key = "{{x}}:{self.name}:{self.region()}:{ids[0]}:100%", locks = self.pair.locks)]
    async fn close(&self, ids: &[u64]) -> Result<(), Error> {
        assert!(
            self.pair
                .is_taken(key!["{x}", self.name, "eu", ids[0], "100%"])
                .await
        );
        Ok(())
    }
}

#[tokio::test]
async fn a_key_is_made_of_arguments_fields_and_calls_as_by_key() {
    let shop = Shop {
        pair: Pair::new(),
        name: "a:b".to_owned(),
    };
    shop.close(&[42]).await.unwrap();
    assert!(
        !shop.pair.is_taken("{x}:a%3Ab:eu:42:100%25").await,
        "released at the end"
    );
}

#[locked(key = "order:{id}", locks = pair.locks)]
async fn changes_its_argument(pair: &Pair, mut id: u64) -> Result<u64, Error> {
    id += 1;
    assert!(pair.is_taken("order:1").await && !pair.is_taken("order:2").await);
    Ok(id)
}

#[tokio::test]
async fn the_key_is_made_once_at_entry() {
    assert_eq!(changes_its_argument(&Pair::new(), 1).await.unwrap(), 2);
}

#[locked(keys = ["account:{from}", "account:{to}"], locks = pair.locks, wait = "try", guard = held)]
async fn transfer(pair: &Pair, from: u64, to: u64, deeper: bool) -> Result<Vec<Option<FencingToken>>, Error> {
    assert!(pair.is_taken(key!["account", from]).await && pair.is_taken(key!["account", to]).await);
    if deeper {
        let inner = Box::pin(transfer(pair, to, from, false)).await?;
        assert_eq!(inner, tokens(&held), "a nested call re-enters");
        let more = Box::pin(transfer(pair, from, 99, false)).await?;
        assert!(
            tokens(&held).contains(&more[0]),
            "it re-enters one and takes the other"
        );
        assert!(!pair.is_taken("account:99").await);
    }
    Ok(tokens(&held))
}

fn tokens(held: &Held) -> Vec<Option<FencingToken>> {
    held.tokens().into_iter().map(|(_, token)| token).collect()
}

#[tokio::test]
async fn several_keys_are_taken_all_or_nothing_and_nest() {
    let pair = Pair::new();
    assert_eq!(transfer(&pair, 7, 3, true).await.unwrap().len(), 2);
    assert_eq!(
        transfer(&pair, 5, 5, false).await.unwrap().len(),
        1,
        "the same key twice is one lock"
    );
    let three = pair.other.mutex("account:3").acquire().await.unwrap();
    assert_eq!(
        transfer(&pair, 7, 3, false).await.unwrap_err().kind(),
        ErrorKind::Busy
    );
    assert!(!pair.is_taken("account:7").await);
    three.release().await.unwrap();
}

#[locked(key = "{name}", locks = pair.locks)]
async fn any_key(pair: &Pair, name: &str, ran: &AtomicBool) -> Result<(), Error> {
    ran.store(true, Ordering::SeqCst);
    Ok(())
}

#[tokio::test]
async fn a_key_that_turns_out_to_be_bad_is_an_error_and_the_body_does_not_run() {
    let (pair, ran) = (Pair::new(), AtomicBool::new(false));
    for bad in ["", "a\nb", &"x".repeat(513)] {
        assert_eq!(
            any_key(&pair, bad, &ran).await.unwrap_err().kind(),
            ErrorKind::InvalidKey
        );
    }
    assert!(!ran.load(Ordering::SeqCst));
}
