//! The attribute `#[locked]` and the macro `assert_locked!` of distlock. Use them through the crate `distlock`.
//!
//! The expansion is small on purpose: it names the key, sets the lock up with the ordinary builder, and hands the
//! function's body to ordinary functions of the facade, which are tested as such.

mod args;
mod asserted;
mod duration;
mod expand;
mod future;
mod template;

use proc_macro::TokenStream;

/// Runs a function under a lock. The body never runs without it.
///
/// ```
/// use distlock::{Error, locked};
///
/// #[locked(key = "order:close:{user_id}", wait = "200ms")]
/// async fn close_order(user_id: u64) -> Result<(), Error> {
///     // One call at a time per user, over all processes.
///     Ok(())
/// }
/// ```
///
/// | argument | meaning | default |
/// |---|---|---|
/// | `key = "order:{id}"` | the lock's name; `{…}` holds an argument, a field or a call | required |
/// | `keys = ["a:{x}", "b:{y}"]` | several locks, all or nothing, instead of `key` | |
/// | `wait = "200ms"` | how long to wait; also `"try"` and `"forever"` | `"3s"` |
/// | `ttl = "30s"` | the lease, renewed while the body runs | the client's |
/// | `max_hold = "5m"` | the longest time to hold | none |
/// | `min_hold = "10s"` | the shortest time to hold | none |
/// | `expect = "10s"` | how long the body should take, for warnings | the TTL |
/// | `kind = mutex` | or `read`, `write`, `permits(3)` | `mutex` |
/// | `order = fifo` | first come, first served | `any` |
/// | `fenced` | refuses an engine that gives no fencing token | not |
/// | `reason = "…"` | for people who look at the lock | none |
/// | `locks = self.locks` | the client | the one given to `distlock::install` |
/// | `on_busy = error` | or `skip(expr)`, `call(path)`: what happens when the lock is not obtained | `error` |
/// | `guard = held` | binds the hold (`distlock::Held`) in the body | |
///
/// The function returns a `Result<T, E>` with `E: From<distlock::Error>`. It may be async or not, a method, generic,
/// inside `#[async_trait]`, and carry `#[instrument]`. Nested calls with the same key re-enter.
///
/// The guide's page about the attribute has examples of each.
#[proc_macro_attribute]
pub fn locked(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::locked(args.into(), item.into()).into()
}

/// Panics unless the calling scope holds the lock of this key, and holds it still.
///
/// For functions that must only be called under a lock that somebody else takes. The key is written as in
/// `#[locked]`.
///
/// ```
/// use distlock::assert_locked;
///
/// async fn write_row(id: u64) {
///     assert_locked!("order:close:{id}");
///     // …
/// }
/// ```
///
/// # Panics
/// When no enclosing `run` or `#[locked]` of this task holds the key, or the hold was lost.
#[proc_macro]
pub fn assert_locked(input: TokenStream) -> TokenStream {
    asserted::assert_locked(input.into()).into()
}

/// The code of the guide's pages about the attribute and about fencing, compiled.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/attribute.md")]
    struct Attribute;
    #[doc = include_str!("../../../docs/fencing.md")]
    struct Fencing;
    #[doc = include_str!("../../../docs/cookbook/flash-sale.md")]
    struct FlashSale;
    #[doc = include_str!("../../../docs/cookbook/order-closer.md")]
    struct OrderCloser;
    #[doc = include_str!("../../../docs/cookbook/nightly-report.md")]
    struct NightlyReport;
    #[doc = include_str!("../../../docs/cookbook/fenced-writer.md")]
    struct FencedWriter;
}
