//! The Redis engine of distlock, on the wire with Redisson and the plain SET NX format.
