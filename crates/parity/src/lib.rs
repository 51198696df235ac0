//! Bytes in, bytes out: xor, P+Q and recovery of lost strips.
