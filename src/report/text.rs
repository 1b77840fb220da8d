//! A report as text a person likes to read.
