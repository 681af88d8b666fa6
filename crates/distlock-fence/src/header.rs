//! The HTTP header that carries a token, independent of any HTTP library.

use distlock_core::FencingToken;

/// The header's name.
pub const NAME: &str = "Fencing-Token";

/// The header of a refusal that names the largest token seen.
pub const NEWEST: &str = "Fencing-Token-Newest";

/// Reads a header's value: decimal digits and nothing else, within 64 bits.
///
/// ```
/// use distlock_fence::{FencingToken, header};
/// assert_eq!(header::parse(b"42"), Some(FencingToken::new(42)));
/// assert_eq!(header::parse(b"+42"), None);
/// assert_eq!(header::parse(b"18446744073709551616"), None);
/// ```
pub fn parse(value: &[u8]) -> Option<FencingToken> {
    // `u64::from_str` would accept a leading `+`.
    if !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}
