//! The integration tests, one binary: each links the whole crate, so there is one.

mod cli; // the command, run as a program: output, exit codes, bad input
mod config; // configuration files: what they may say, and how faults are told
mod conformance; // what the four systems we build on pin down, one module a policy profile
mod contract; // the report's JSON, read back by types declared anew
mod examples; // the example files: they run, and say what the docs say they say
mod executor; // running: order, settling, fatal, abort, cancel, drop, deadlines
mod faults; // public faults of other runtimes, each with the right outcome
mod layers; // each layer alone, over services that assert what a layer owes them
mod malformed; // nothing that comes in makes anything panic
mod plan; // decisions, stages, edges, placeholders, guesses
mod promises; // G1 to G7 as properties over random sets
mod sqlite; // views over real files: sharing, safety, cancellation, values
mod support; // tools, clocks and recorders the others share
mod verdict; // what may be claimed, and what never
