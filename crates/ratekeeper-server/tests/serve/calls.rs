//! What each call does.
