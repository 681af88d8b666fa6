//! The attribute #[locked].
