//! whywait-report
