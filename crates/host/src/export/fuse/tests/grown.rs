//! The file of an array that grows.

use std::sync::atomic::AtomicBool;

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

/// A loop device on the file of a mount.
struct Loop(PathBuf);

impl Loop {
    fn new(mounted: &Mounted) -> Option<Self> {
        let mut losetup = Command::new("losetup");
        losetup.args(["-f", "--show", "--direct-io=on"]).arg(mounted.path());
        let made = losetup.output().ok().filter(|made| made.status.success())?;
        Some(Self(PathBuf::from(String::from_utf8(made.stdout).unwrap().trim_end())))
    }

    fn size(&self) -> u64 {
        let name = self.0.file_name().unwrap();
        let sectors = Path::new("/sys/class/block").join(name).join("size");
        let text = std::fs::read_to_string(sectors).unwrap();
        text.trim_end().parse::<u64>().unwrap() * SECTOR_BYTES
    }

    fn look_again(&self) {
        let told = Command::new("losetup").arg("-c").arg(&self.0).status().unwrap();
        assert!(told.success(), "losetup -c");
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

#[test]
fn a_loop_device_follows_when_it_is_told_to() {
    let Some(mut mounted) = mounted(2 * MIB, false) else { return };
    let Some(device) = Loop::new(&mounted) else { return skipped("losetup") };
    let before = device.size();
    grow(&mounted);
    // A look at the file is what makes the kernel ask.
    until_is(4 * MIB, || std::fs::metadata(mounted.path()).unwrap().len());
    device.look_again();
    let after = device.size();
    drop(device);
    assert_eq!((before, after), (2 * MIB as u64, 4 * MIB as u64));
    unmount(mounted.mount.take().unwrap());
}

/// As direct I/O wants it.
#[repr(align(4096))]
struct Page([u8; 4096]);

/// The kernel takes no size from attributes that were on their way while a write was answered.
#[test]
fn a_loop_device_reads_what_is_new_while_others_write() {
    for _ in 0..4 {
        let Some(mut mounted) = mounted(2 * MIB, false) else { return };
        let Some(device) = Loop::new(&mounted) else { return skipped("losetup") };
        let ends = AtomicBool::new(false);
        let found = std::thread::scope(|scope| {
            for at in 0..4 {
                let writer = mounted.open(OFlags::DIRECT).unwrap();
                let ends = &ends;
                scope.spawn(move || {
                    while !ends.load(Ordering::Relaxed) {
                        writer.write_all_at(&Page([1; 4096]).0, at * 4096).unwrap();
                    }
                });
            }
            grow(&mounted);
            until_is(4 * MIB, || {
                device.look_again();
                device.size()
            });
            let mut direct = OpenOptions::new();
            direct.read(true).custom_flags(OFlags::DIRECT.bits().cast_signed());
            let file = direct.open(&device.0).unwrap();
            let mut page = Page([1; 4096]);
            let read = file.read_at(&mut page.0, 4 * MIB as u64 - 4096);
            ends.store(true, Ordering::Relaxed);
            (read.map_err(|error| error.to_string()), page.0)
        });
        drop(device);
        unmount(mounted.mount.take().unwrap());
        assert_eq!(found, (Ok(4096), [0; 4096]), "the last page");
    }
}
