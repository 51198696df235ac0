//! Writes and checks the content of test arrays, on the host and in the md guest.

use braid_judges::Content;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek, SeekFrom};
use std::process::ExitCode;

const USAGE: &str = "\
usage: pattern write FILE CONTENT [OFFSET LENGTH]   FILE may be - for stdout, with OFFSET and LENGTH
       pattern check FILE CONTENT [LENGTH]          exits 1 and names the first wrong byte
       pattern relayout FILE LAYOUT                 changes the layout in an md 1.2 superblock
CONTENT: SEED[,SEED:OFFSET:LENGTH]...   of a file whose size is that of the array";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("pattern: {}: {reason}", arguments.join(" "));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> Result<(), String> {
    match *arguments {
        ["write", path, content] => write(path, &content.parse()?, 0, size_bytes(path)?),
        ["write", path, content, offset, length] => {
            write(path, &content.parse()?, number(offset)?, number(length)?)
        }
        ["check", path, content] => check(path, content, size_bytes(path)?),
        ["check", path, content, length] => check(path, content, number(length)?),
        ["relayout", path, layout] => relayout(path, number(layout)?),
        _ => Err(USAGE.into()),
    }
}

fn check(path: &str, content: &str, length: u64) -> Result<(), String> {
    let file = File::open(path).map_err(text)?;
    content.parse::<Content>()?.check(&mut file.take(length), 0, length)
}

fn write(path: &str, content: &Content, offset: u64, length: u64) -> Result<(), String> {
    if path == "-" {
        return content.write(&mut std::io::stdout().lock(), offset, length).map_err(text);
    }
    let mut file = OpenOptions::new().write(true).open(path).map_err(text)?;
    file.seek(SeekFrom::Start(offset)).map_err(text)?;
    content.write(&mut file, offset, length).map_err(text)?;
    file.sync_all().map_err(text)
}

/// mdadm cannot make a RAID-10 with near and far copies, but md runs one: its layout (offset 0x4c,
/// after level) and checksum (0xd8) are set in the superblock 4 KiB from the start.
fn relayout(path: &str, layout: u64) -> Result<(), String> {
    use std::os::unix::fs::FileExt;
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(text)?;
    let mut block = vec![0; 4096];
    file.read_exact_at(&mut block, 4096).map_err(text)?;
    let word = |block: &[u8], at: usize| {
        u64::from(u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes")))
    };
    if word(&block, 0) != 0xa92b_4efc {
        return Err("no md superblock".into());
    }
    block[0x4c..0x50].copy_from_slice(&(layout as u32).to_le_bytes());
    block[0xd8..0xdc].fill(0);
    // The sum of all 32-bit words, and of the last role where their number is odd.
    let length = 256 + 2 * word(&block, 0xdc) as usize;
    block[length..].fill(0);
    let sum: u64 = (0..length.next_multiple_of(4)).step_by(4).map(|at| word(&block, at)).sum();
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    block[0xd8..0xdc].copy_from_slice(&(sum as u32).to_le_bytes());
    file.write_all_at(&block, 4096).map_err(text)?;
    file.sync_all().map_err(text)
}

fn size_bytes(path: &str) -> Result<u64, String> {
    File::open(path).and_then(|mut file| file.seek(SeekFrom::End(0))).map_err(text)
}

fn number(word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("no number: {word}"))
}

fn text(error: std::io::Error) -> String {
    error.to_string()
}
