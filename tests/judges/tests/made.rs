//! Arrays that a real md kernel makes, as tables list them: once for each recipe, then used by all
//! tests and by later runs. They are kept in `made/NAME.tar.xz`, with the recipes;
//! `make fixtures` makes those anew where a recipe has changed.

use crate::support::{self, Run};
use braid_judges::{Content, packed};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The members in an archive.
const PACKED: &str = "packed";
const BLOCK_BYTES: usize = 4096;

/// An array that a guest makes in a directory of its own.
pub(crate) trait Made: Sync {
    /// What the guest runs before the call.
    const GUEST: &str;

    /// Where all of its files lie, and nothing else.
    fn directory(&self) -> &Path;

    /// The members, and their sizes in bytes.
    fn members(&self) -> Vec<(&Path, u64)>;

    /// Names of other files that hold some of its content, in whole sectors.
    fn copies(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// What it holds.
    fn content(&self) -> &Content;

    /// The guest's call that makes it.
    fn call(&self) -> String;

    /// All that its making depends on, wherever that is done.
    fn recipe(&self) -> String {
        let sizes: Vec<u64> = self.members().iter().map(|(_, bytes)| *bytes).collect();
        let call = self.call().replace(&self.directory().display().to_string(), "DIRECTORY");
        format!("{sizes:?}\n{call}\n{}", Self::GUEST)
    }

    /// Has a former run made it by this recipe?
    fn is_made(&self) -> bool {
        fs::read_to_string(self.directory().join("recipe")).ok() == Some(self.recipe())
    }

    /// Empty members, and nothing else.
    fn begin(&self) {
        let _ = fs::remove_dir_all(self.directory());
        fs::create_dir_all(self.directory()).expect("a directory");
        for (path, bytes) in self.members() {
            support::sparse_file(path, bytes);
        }
    }

    /// Notes that it is made.
    fn finish(&self) {
        fs::write(self.directory().join("recipe"), self.recipe()).expect("a writable directory");
    }

    /// What the guest noted as the size of the array.
    fn size_bytes(&self) -> u64 {
        support::read(&self.directory().join("size.txt")).trim().parse().expect("a size")
    }
}

/// Members of these names in a directory: `m0.img` ...
pub(crate) fn members_in(directory: &Path, count: usize) -> Vec<PathBuf> {
    (0..count).map(|number| directory.join(format!("m{number}.img"))).collect()
}

/// Content that is an array's own.
pub(crate) fn content_of(name: &str) -> Content {
    Content::of(name.bytes().fold(0, |sum, byte| (sum * 31 + u64::from(byte)) % 1_000_000))
}

/// The beginning of a guest's script.
pub(crate) fn guest<A: Made>() -> String {
    format!("PATTERN={}\n{}\n", env!("CARGO_BIN_EXE_pattern"), A::GUEST)
}

/// The archive of a table's arrays.
fn archive(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("made").join(format!("{name}.tar.xz"))
}

/// Unpacks those that are not there yet.
pub(crate) fn unpack_all<A: Made>(name: &str, arrays: &[A]) -> Result<(), String> {
    if arrays.iter().all(A::is_made) {
        return Ok(());
    }
    let from = support::directory(&format!("{name}-archive"));
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(&from).arg("-xJf").arg(archive(name));
    Run::of(&mut tar).expect_success("unpacking");
    for array in arrays.iter().filter(|array| !array.is_made()) {
        let packed = from.join(array.directory().file_name().expect("a name"));
        if fs::read_to_string(packed.join("recipe")).ok() != Some(array.recipe()) {
            let packed = packed.display();
            return Err(format!("{packed} has another recipe than its table; type: make fixtures"));
        }
        array.begin();
        unpack(array, &packed).map_err(|why| format!("{}: {why}", packed.display()))?;
        array.finish();
    }
    fs::remove_dir_all(from).map_err(|error| error.to_string())
}

fn unpack<A: Made>(array: &A, from: &Path) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let bytes = fs::read(from.join(PACKED)).map_err(text)?;
    let members = packed::unpack(&bytes, array.content())?;
    for ((path, _), bytes) in array.members().iter().zip(members) {
        let file = fs::OpenOptions::new().write(true).open(path).map_err(text)?;
        for (at, block) in (0..).step_by(BLOCK_BYTES).zip(bytes.chunks(BLOCK_BYTES)) {
            if block.iter().any(|byte| *byte != 0) {
                file.write_all_at(block, at).map_err(text)?;
            }
        }
    }
    for file in array.copies() {
        let bytes = fs::read(from.join(format!("{file}.{PACKED}"))).map_err(text)?;
        let copy = packed::unpack(&bytes, array.content())?.concat();
        fs::write(array.directory().join(file), copy).map_err(text)?;
    }
    for file in others(from) {
        fs::rename(from.join(&file), array.directory().join(&file)).map_err(text)?;
    }
    Ok(())
}

/// Files beside members and recipe, and what is packed.
fn others(directory: &Path) -> Vec<String> {
    let files = fs::read_dir(directory).expect("a directory");
    let names = files.map(|file| file.expect("an entry").file_name().into_string());
    let names = names.map(|name| name.expect("a name"));
    names
        .filter(|name| !name.ends_with(".img") && name != "recipe" && !name.ends_with(PACKED))
        .collect()
}

/// Packs arrays that are made into the archive of their table.
pub(crate) fn pack_all<A: Made>(name: &str, arrays: &[A]) {
    let to = support::directory(&format!("{name}-packing"));
    for array in arrays {
        let packed = to.join(array.directory().file_name().expect("a name"));
        fs::create_dir(&packed).expect("a directory");
        let members = array.members().into_iter().map(|(path, _)| fs::read(path));
        let members: Vec<Vec<u8>> = members.map(|bytes| bytes.expect("a member")).collect();
        pack(array, members, &packed.join(PACKED));
        for file in array.copies() {
            let copy = fs::read(array.directory().join(file)).expect("a copy");
            pack(array, vec![copy], &packed.join(format!("{file}.{PACKED}")));
        }
        fs::write(packed.join("recipe"), array.recipe()).expect("a writable directory");
        let copies = array.copies();
        for file in others(array.directory()).iter().filter(|file| !copies.contains(&&***file)) {
            fs::copy(array.directory().join(file), packed.join(file)).expect("a copy");
        }
    }
    let mut tar = Command::new("tar");
    tar.env("XZ_OPT", "-9e").args(["--owner=0", "--group=0", "--mtime=@0", "--sort=name"]);
    tar.args(["--sparse", "-cJf"]).arg(archive(name)).arg("-C").arg(&to).arg(".");
    Run::of(&mut tar).expect_success("packing");
    fs::remove_dir_all(to).expect("files of this test");
}

fn pack<A: Made>(array: &A, files: Vec<Vec<u8>>, to: &Path) {
    let bytes = packed::pack(&files, array.content());
    assert!(packed::unpack(&bytes, array.content()) == Ok(files), "not what was packed");
    fs::write(to, bytes).expect("a writable directory");
}

/// Makes those that are not made yet, in two guests side by side.
pub(crate) fn make_all<A: Made>(name: &str, arrays: &[A]) -> Result<(), String> {
    let old: Vec<&A> = arrays.iter().filter(|array| !array.is_made()).collect();
    let halves = [0, 1].map(|half| old.iter().copied().skip(half).step_by(2).collect::<Vec<_>>());
    std::thread::scope(|scope| {
        let [first, second] = &halves;
        let other = scope.spawn(|| make_in_one_boot(&format!("{name}-1"), second));
        make_in_one_boot(&format!("{name}-0"), first).and(other.join().expect("a guest"))
    })
}

/// Makes all of these in one guest.
pub(crate) fn make_in_one_boot<A: Made>(name: &str, arrays: &[&A]) -> Result<(), String> {
    if arrays.is_empty() {
        return Ok(());
    }
    let run = support::guest::run_patiently(name, |_| {
        let mut script = guest::<A>();
        for array in arrays {
            array.begin();
            let _ = writeln!(script, "{}", array.call());
        }
        script
    });
    if !run.status.success() {
        return Err(format!("making arrays: {run}"));
    }
    arrays.iter().for_each(|array| array.finish());
    Ok(())
}

/// What a `braid cat` gives: the content, and what it says beside that; or it is refused with this
/// line, or wrong.
pub(crate) fn content_by(
    cat: &mut Command,
    content: &Content,
    size_bytes: u64,
) -> Result<String, String> {
    cat.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = cat.spawn().expect("braid starts");
    let mut stdout = child.stdout.take().expect("a pipe");
    let checked = content.check(&mut stdout, 0, size_bytes);
    drop(stdout);
    let output = child.wait_with_output().expect("braid ends");
    let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
    match (output.status.code(), checked) {
        (Some(0), Ok(())) => Ok(said),
        (Some(1), Err(why)) if why.starts_with("0 of") => Err(format!("refused: {said}")),
        (status, checked) => Err(format!("status {status:?}, {checked:?}: {said}")),
    }
}
