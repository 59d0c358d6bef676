//! whywait-capture
