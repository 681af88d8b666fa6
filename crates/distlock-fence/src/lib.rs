//! The checking side of fencing tokens.
