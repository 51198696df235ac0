#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (braid_fuzz::target("superblock-1").run)(data));
