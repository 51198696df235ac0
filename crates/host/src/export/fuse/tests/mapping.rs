//! The file, mapped into memory.

use super::*;
/// A mapping of the file that programs share, until this goes.
struct Mapping(std::ptr::NonNull<u8>, usize);

impl Mapping {
    fn new(file: &File, len: usize) -> rustix::io::Result<Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let at = unsafe { mmap(std::ptr::null_mut(), len, access, flags, file, 0) }?;
        Ok(Self(std::ptr::NonNull::new(at.cast()).unwrap(), len))
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is this long and this one's alone; no test writes the file meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr(), self.1) }
    }

    fn sync(&self) -> rustix::io::Result<()> {
        // SAFETY: the mapping stays as it is.
        unsafe { rustix::mm::msync(self.0.as_ptr().cast(), self.1, rustix::mm::MsyncFlags::SYNC) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing of it is used after this.
        unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), self.1) }.unwrap();
    }
}

/// Where the file is that [`maps_a_file`] maps.
const MAPPED: &str = "BRAID_TEST_MAPPED";

/// Maps the file in a process of its own, as programs do: the end of a mapping waits for dirty
/// pages to be written back, and until then no thread of that process gets memory, which would stop
/// a serving thread as well.
#[test]
fn the_file_can_be_mapped() {
    let Some(mut mounted) = mounted(MIB, false) else { return };
    let mut program = std::process::Command::new(std::env::current_exe().unwrap());
    let test = "export::fuse::tests::mapping::maps_a_file";
    program.args(["--exact", test, "--ignored", "--nocapture"]);
    program.env(MAPPED, mounted.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = program.spawn().unwrap();
    let said = io::BufReader::new(program.stdout.take().unwrap());
    let mut has_run = false;
    for line in io::BufRead::lines(said) {
        let line = line.unwrap();
        if line.ends_with("synced") {
            has_run = true;
            assert_eq!(mounted.asked().flushes, 1, "msync is a barrier");
            drop(program.stdin.take());
        } else if line.starts_with("SKIPPED") {
            has_run = true;
            println!("{line}");
        }
    }
    assert!(program.wait().unwrap().success());
    assert!(has_run, "the other process has run no test of this name");
    unmount(mounted.mount.take().unwrap());
}

#[test]
#[ignore = "a part of another test, in a process of its own"]
fn maps_a_file() {
    let path = PathBuf::from(std::env::var_os(MAPPED).expect("what to map"));
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut mapping = match Mapping::new(&file, MIB) {
        Ok(mapping) => mapping,
        Err(error) if kernel_before(6, 6) => return skipped(&format!("shared mappings ({error})")),
        Err(error) => panic!("{error}"),
    };
    let mut expected = std::fs::read(&path).unwrap();
    assert!(mapping.bytes() == expected);
    mapping.bytes()[4000..5000].fill(7);
    expected[4000..5000].fill(7);
    mapping.sync().unwrap();
    println!("\nsynced");
    // Until the other process has seen that.
    assert_eq!(io::stdin().read(&mut [0]).unwrap(), 0);
    assert!(std::fs::read(&path).unwrap() == expected, "after msync");
    mapping.bytes()[9000..9001].fill(8);
    expected[9000] = 8;
    assert!(std::fs::read(&path).unwrap() == expected, "reads see what was stored");
    file.write_all_at(&[9; 4096], 65536).unwrap();
    expected[65536..69632].fill(9);
    assert!(mapping.bytes() == expected, "the mapping sees what was written");
    mapping.bytes()[MIB - 1] = 10;
    expected[MIB - 1] = 10;
    drop(mapping);
    drop(file);
    assert!(std::fs::read(&path).unwrap() == expected, "after the end of the mapping");
}
