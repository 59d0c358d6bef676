//! whywait-stacks
