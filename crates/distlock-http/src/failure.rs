//! What went wrong on the way to the gateway, or there.

use distlock_core::FencingToken;
use distlock_core::driver::{DriverError, DriverErrorKind, Reached, Refusal};

use crate::wire::Problem;

/// What a problem means to the core.
pub(crate) fn of_problem(status: u16, problem: Problem) -> DriverError {
    let Problem {
        kind,
        detail,
        have,
        want,
        ..
    } = problem;
    let refusal = match kind.as_str() {
        "kind_mismatch" => Refusal::KindMismatch {
            have: have.unwrap_or_default(),
            want: want.unwrap_or_default(),
        },
        "token_mismatch" => Refusal::TokenMismatch {
            have: have.and_then(|have| have.parse().ok()).map(FencingToken::new),
        },
        "invalid_key" => Refusal::InvalidKey(detail),
        "unsupported" => Refusal::Unsupported(detail),
        "outcome_unknown" => return DriverError::unavailable(Reached::Maybe, detail),
        "unavailable" | "no_quorum" | "closed" | "limited" => {
            return DriverError::unavailable(Reached::No, detail);
        }
        _ if status >= 500 => return DriverError::unavailable(Reached::Maybe, detail),
        _ => Refusal::InvalidConfig(format!("the gateway refused ({status} {kind}): {detail}")),
    };
    DriverError::refused(refusal)
}

/// What an answer without a problem's body means: something between us and the gateway.
pub(crate) fn of_status(status: u16) -> DriverError {
    let why = format!("the gateway, or a proxy before it, answered {status}");
    match status {
        400..=499 => DriverError::refused(Refusal::InvalidConfig(why)),
        _ => DriverError::unavailable(Reached::Maybe, why),
    }
}

/// Whether a gateway was not reached at all, so that another one may be asked.
pub(crate) fn is_unreached(e: &DriverError) -> bool {
    e.reached == Reached::No && matches!(e.kind, DriverErrorKind::Unavailable)
}
