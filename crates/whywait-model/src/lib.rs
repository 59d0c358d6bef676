//! whywait-model
