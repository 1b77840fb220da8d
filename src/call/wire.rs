//! Provider messages as call sets.
