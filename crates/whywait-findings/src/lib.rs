//! whywait-findings
