//! What the other tests share.

pub(crate) mod lab; // scripted tools on virtual time, and a log of what their bodies did
pub(crate) mod resolved; // calls as a registry would resolve them, for tests of the plan
