//! What the other tests share.

pub(crate) mod resolved; // calls as a registry would resolve them, for tests of the plan
