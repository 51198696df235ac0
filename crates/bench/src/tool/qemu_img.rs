//! `qemu-img bench`: requests through qemu's block layer, which is what lies under the disk of a
//! virtual machine.

use super::{Note, Tool};
use crate::failure::Failure;

/// The file of a run that holds what `qemu-img bench` said.
pub(crate) const OUTPUT: &str = "qemu-img.txt";

/// Resolution of what it prints.
const TICK_S: f64 = 0.001;
/// Most tries until it took long enough.
const TRIES: usize = 4;
/// Bytes that the first try moves.
const FIRST_BYTES: u64 = 16 << 20;
const FIRST_REQUESTS: u64 = 4096;
/// Most requests: it takes a number of 31 bits.
const MOST_REQUESTS: u64 = 1 << 30;

/// Image that is opened, past the host's page cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// A file, a device or a URI.
    pub(crate) name: String,
    /// Word for `-f`: `raw`, `qcow2`.
    pub(crate) format: &'static str,
    pub(crate) bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) bytes: u64,
    pub(crate) depth: u32,
    pub(crate) write: bool,
    /// Each is somewhere else; otherwise one follows the other.
    pub(crate) scattered: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bench {
    pub(crate) requests: f64,
    pub(crate) bytes: f64,
    /// Time until the last one was answered.
    pub(crate) seconds: f64,
}

impl Bench {
    pub(crate) fn bytes_s(&self) -> f64 {
        self.requests * self.bytes / self.seconds
    }
}

/// Makes an image; what it is to hold is not written yet.
pub(crate) fn create(qemu_img: &Tool, image: &Image) -> Result<(), Failure> {
    let bytes = image.bytes.to_string();
    qemu_img.output(&["create", "-q", "-f", image.format, &image.name, &bytes]).map(drop)
}

/// Writes all of an image once, so that nothing is made room for in what is measured later.
pub(crate) fn fill(qemu_img: &Tool, image: &Image) -> Result<(), Failure> {
    let load = Load { bytes: 1 << 20, depth: 8, write: true, scattered: false };
    qemu_img.output(&words(image, load, image.bytes / load.bytes)).map(drop)
}

/// Sends requests for `seconds`, or half of that, and notes the output as [`OUTPUT`]. `qemu-img
/// bench` takes a number of requests instead of a time. The number is found by trying powers of
/// two, so that it is mostly the same in the next round.
pub(crate) fn run(
    qemu_img: &Tool,
    image: &Image,
    load: Load,
    seconds: f64,
    note: &mut Note,
) -> Result<(), Failure> {
    let mut count = (FIRST_BYTES / load.bytes).clamp(1, FIRST_REQUESTS);
    for attempt in 1..=TRIES {
        note.commands.clear();
        let (bench, said) = send(qemu_img, image, load, count, note)?;
        if bench.seconds >= seconds * 0.45 || attempt == TRIES {
            note.file(OUTPUT, said);
            break;
        }
        let wanted = count as f64 * seconds / bench.seconds;
        count = 1 << (wanted as u64).clamp(1, MOST_REQUESTS).ilog2();
    }
    Ok(())
}

/// Sends so many requests; also what was said of it.
pub(crate) fn send(
    qemu_img: &Tool,
    image: &Image,
    load: Load,
    count: u64,
    note: &mut Note,
) -> Result<(Bench, Vec<u8>), Failure> {
    let said = qemu_img.run(words(image, load, count), note)?.stdout;
    let text = String::from_utf8_lossy(&said);
    let bench = parse(&text).ok_or_else(|| {
        let reason = format!("it says nothing of the time it took, but '{}'", text.trim());
        Failure::refused("qemu-img", reason, "install another version of it")
    })?;
    Ok((bench, said))
}

fn words(image: &Image, load: Load, count: u64) -> Vec<String> {
    let mut words: Vec<String> = ["bench", "-f", image.format, "-t", "none"].map(Into::into).into();
    // qemu's own client of NBD knows nothing of the kernel's asynchronous requests.
    if !image.name.contains("://") {
        words.push("-n".into());
    }
    if load.write {
        words.extend(["-w".into(), "--pattern=90".into()]);
    }
    let numbers = [("-c", count), ("-d", load.depth.into()), ("-s", load.bytes)];
    words.extend(numbers.iter().flat_map(|(word, number)| [(*word).into(), number.to_string()]));
    if load.scattered {
        words.extend(["-S".into(), stride_bytes(image.bytes, load.bytes).to_string()]);
    }
    words.push(image.name.clone());
    words
}

/// A step that comes to every place of an image once before it comes to one again. `qemu-img` takes
/// the offset modulo all but the last request's length.
fn stride_bytes(image_bytes: u64, request_bytes: u64) -> u64 {
    let places = (image_bytes / request_bytes).saturating_sub(1);
    let golden = places * 618 / 1000;
    let stride = (golden.max(1)..).find(|&step| gcd(step, places) == 1);
    stride.unwrap_or(1) * request_bytes
}

const fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Reads what `qemu-img bench` printed; `None` for anything else.
pub(crate) fn parse(text: &str) -> Option<Bench> {
    let sending = text.lines().find_map(|line| line.strip_prefix("Sending "))?;
    let (requests, rest) = sending.split_once(' ')?;
    let bytes = rest.split_once(", ")?.1.split_once(" bytes each")?.0;
    let took = text.lines().find_map(|line| line.strip_prefix("Run completed in "))?;
    let seconds: f64 = took.split_once(" seconds")?.0.parse().ok()?;
    Some(Bench {
        requests: requests.parse().ok()?,
        bytes: bytes.parse().ok()?,
        seconds: seconds.max(TICK_S / 2.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of qemu-img 7.2.22.
    const PRINTED: &str = "Sending 256 write requests, 1048576 bytes each, 4 in parallel \
        (starting at offset 0, step size 1048576)\nRun completed in 0.345 seconds.\n";

    #[test]
    fn what_it_says_of_its_requests_is_a_rate() {
        let bench = parse(PRINTED).expect("all of it is there");
        assert_eq!(bench, Bench { requests: 256.0, bytes: 1_048_576.0, seconds: 0.345 });
        assert!((bench.bytes_s() - 778_073_785.5).abs() < 1.0);
    }

    #[test]
    fn what_was_cut_off_is_no_rate_and_no_time_is_less_than_a_tick() {
        for text in ["", "Sending ", &PRINTED[..90], &PRINTED[..120]] {
            assert_eq!(parse(text), None, "{text}");
        }
        let no_time = parse(&PRINTED.replace("0.345", "0.000")).expect("a time");
        assert_eq!(no_time.seconds, 0.0005);
    }

    #[test]
    fn scattered_requests_come_everywhere_before_they_come_back() {
        for (image, request) in [(64 << 20, 512 << 10), (64 << 20, 4096), (2 << 20, 1 << 20)] {
            let stride = stride_bytes(image, request);
            let places = image / request - 1;
            assert_eq!(stride % request, 0);
            let mut seen = vec![false; usize::try_from(places).expect("few")];
            for i in 0..places {
                let place = i * (stride / request) % places;
                seen[usize::try_from(place).expect("few")] = true;
            }
            assert!(seen.iter().all(|seen| *seen), "{image} {request}: {stride}");
        }
        assert_eq!(stride_bytes(4096, 4096), 4096, "an image of one request");
    }

    #[test]
    fn images_are_made_and_measured() {
        let Ok(qemu_img) = Tool::find("qemu-img", "qemu-utils") else {
            assert!(std::env::var_os("CI").is_none(), "no qemu-img: install qemu-utils");
            eprintln!("SKIPPED images_are_made_and_measured: no qemu-img");
            return;
        };
        let directory = tempfile::tempdir().expect("a directory");
        let name = directory.path().join("i").display().to_string();
        let image = Image { name, format: "qcow2", bytes: 4 << 20 };
        create(&qemu_img, &image).expect("made");
        fill(&qemu_img, &image).expect("filled");
        let mut note = Note::default();
        let load = Load { bytes: 4096, depth: 4, write: false, scattered: true };
        run(&qemu_img, &image, load, 0.05, &mut note).expect("measured");
        let [(name, text)] = note.files.as_slice() else { panic!("one file: {note:?}") };
        let bench = parse(&String::from_utf8_lossy(text)).expect("a rate");
        assert_eq!((name.as_str(), bench.bytes), (OUTPUT, 4096.0));
        assert!(note.commands.len() == 1 && note.commands[0].contains(" -S "), "{note:?}");
    }
}
