//! One lock that means the same thing on every engine.
