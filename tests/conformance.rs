//! What the systems we build on pin down; each test names the id of the behaviour that it holds.

mod atlas;
mod go;
mod harness;
mod loopctl;
mod refused_by_design;
mod standard;
