//! The two stacks, as small `tower` layers.
//!
//! Each layer is always ready, and awaits its inner service's readiness inside its own future, on the clone that it then
//! calls.

pub mod judge;
pub mod stamp;
