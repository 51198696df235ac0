//! The file of an array that grows.

use super::*;

/// Grows the array to twice its size. The engine looks at the size when it has something to do.
fn grow(mounted: &Mounted) {
    mounted.sectors.fetch_add(mounted.sectors.load(Ordering::Relaxed), Ordering::Relaxed);
    drop(write(&mounted.served.as_ref().unwrap().submissions, 0, vec![0; 4096]));
}

/// Waits until this reads so.
fn until_is(size: usize, read: impl Fn() -> u64) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while read() != size as u64 {
        assert!(Instant::now() < deadline, "it has {} bytes, not {size}", read());
        std::thread::yield_now();
    }
}

#[test]
fn the_file_has_the_new_size_and_all_of_it_can_be_used() {
    for threads in [false, true] {
        let Some(mut mounted) = mounted_on(2 * MIB, false, threads) else { return };
        let file = mounted.open(OFlags::empty()).unwrap();
        let size = || file.metadata().unwrap().len();
        let end = 2 * MIB as u64;
        let beyond = |at| file.write_at(&[1; 4096], at).unwrap_err().raw_os_error();
        assert_eq!(size(), end);
        assert_eq!(beyond(end), Some(Errno::NOSPC.raw_os_error()));
        grow(&mounted);
        until_is(4 * MIB, size);
        let data = noise(1, 8192);
        for at in [end - 4096, 2 * end - 8192] {
            file.write_all_at(&data, at).unwrap();
            let mut found = vec![0; 8192];
            file.read_exact_at(&mut found, at).unwrap();
            assert!(found == data, "at {at}");
        }
        assert_eq!(beyond(2 * end), Some(Errno::NOSPC.raw_os_error()));
        assert_eq!(std::fs::read(mounted.path()).unwrap().len(), 4 * MIB);
        drop(file);
        unmount(mounted.mount.take().unwrap());
    }
}

#[test]
fn a_loop_device_follows_when_it_is_told_to() {
    let Some(mut mounted) = mounted(2 * MIB, false) else { return };
    let made = Command::new("losetup").args(["-f", "--show"]).arg(mounted.path()).output();
    let Some(made) = made.ok().filter(|made| made.status.success()) else {
        return skipped("losetup");
    };
    let device = PathBuf::from(String::from_utf8(made.stdout).unwrap().trim_end());
    let sectors = Path::new("/sys/class/block").join(device.file_name().unwrap()).join("size");
    let size = || std::fs::read_to_string(&sectors).unwrap().trim_end().parse::<u64>().unwrap();
    let before = size() * SECTOR_BYTES;
    grow(&mounted);
    // A look at the file is what makes the kernel ask.
    until_is(4 * MIB, || std::fs::metadata(mounted.path()).unwrap().len());
    let told = Command::new("losetup").arg("-c").arg(&device).status().unwrap();
    let after = size() * SECTOR_BYTES;
    let gone = Command::new("losetup").arg("-d").arg(&device).status().unwrap();
    assert!(told.success() && gone.success());
    assert_eq!((before, after), (2 * MIB as u64, 4 * MIB as u64));
    unmount(mounted.mount.take().unwrap());
}
