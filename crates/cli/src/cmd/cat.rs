//! `braid cat`: an array's content to stdout. Members are opened read-only and not a byte is
//! written to them.

mod around;
mod contents;
mod nodes;
pub(super) mod source;
mod stored;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use braid_array::assemble::{self, Candidate, Config, Halfway, Options};
use braid_array::format::Superblock;
use braid_array::refusal::{Invocation, Next};
use braid_array::{Refusal, SECTOR_BYTES};
use braid_host::control::{Client, ControlError};
use braid_host::member::MemberFile;
use braid_host::reader::{CopyError, Reader};

use self::source::Source;
use super::bare::{self, Bare};
use super::families;
use super::found::{self, Found, Members, Named, Use};
use super::given::Given;
use super::halfway;
use super::maps;
use super::stranger::refuse_strangers;
use crate::args::{CatArgs, ReshapeArgs};
use crate::failure::{Failure, system_error};
use crate::output;
use crate::output::shape::short_name;

pub(super) fn run(run_dir: &Path, args: &CatArgs) -> Result<(), Failure> {
    let given = Given { maps: &args.maps, overlay: None, reshape: Some(&args.reshape) };
    read_any(run_dir, args).map_err(|failure| failure.map_next(|next| given.put_into(next)))
}

/// Reads the array named by the arguments.
fn read_any(run_dir: &Path, args: &CatArgs) -> Result<(), Failure> {
    if let Some(geometry) = &args.bare.geometry {
        let Bare { name, config, members } =
            bare::open("cat", geometry, &args.names, &args.maps, Use::Read)?;
        let reader = Reader::new(config, members).map_err(|reason| no_reader(&reason));
        let reader = reader.map_err(|why| Failure::explained("cat", &name, why))?;
        return read(&name.clone(), vec![(name, reader)], args, !args.maps.all().is_empty());
    }
    let named = Named::parse("cat", &args.names)?;
    let members = match named.members {
        Members::Paths(paths) => found::inside(&paths),
        Members::Nodes(volumes) => return nodes::run(named.name.as_deref(), &volumes, args),
    };
    maps::check("cat", &args.maps, members.iter().map(PathBuf::as_path))?;
    let members = match (&named.name, members.is_empty()) {
        (Some(name), true) => match Client::connect(run_dir, name) {
            Ok(client) => return running(client, name, args),
            Err(ControlError::NotRunning) => found::by_name("cat", name, name)?,
            Err(error) => return Err(Failure::explained("cat", name, error)),
        },
        _ => members,
    };
    let (members, nested, object) = match named.name {
        Some(name) => {
            let chosen = families::by_name("cat", &name, &members, Use::Look)?;
            for (device, why) in chosen.left_out {
                output::warning(&format!("cat {name}: {device} is left out: {why}"));
            }
            (chosen.members, chosen.nested, name)
        }
        None => {
            let object = display(&members);
            (members, false, object)
        }
    };
    let found = found::open_all("cat", &members, Use::Read)?;
    let found = maps::apply("cat", &args.maps, found)?;
    refuse_strangers("cat", &found)?;
    let (found, remarks, is_cut) = found::to_use(found, true);
    remarks.iter().for_each(|remark| output::warning(&format!("cat {object}: {remark}")));
    let start = Start { object: &object, force: args.force, reshape: &args.reshape };
    let arrays = start.open(found, nested, contents::are_asked_for(args))?;
    read(&object, arrays, args, is_cut || !args.maps.all().is_empty())
}

/// Writes the requested range of the one array, or the contents of several arrays. `holes`: parts
/// of members are known to be unreadable.
fn read(
    object: &str,
    mut arrays: Vec<(String, Reader)>,
    args: &CatArgs,
    holes: bool,
) -> Result<(), Failure> {
    if contents::are_asked_for(args) {
        let source = |(name, reader)| (name, Source::Members(Box::new(reader)));
        return contents::run(arrays.into_iter().map(source).collect(), args);
    }
    match arrays.pop() {
        Some((_, reader)) => copy(object, reader, args, holes),
        None => Ok(()),
    }
}

/// Writes the requested range of an array.
fn copy(object: &str, mut reader: Reader, args: &CatArgs, holes: bool) -> Result<(), Failure> {
    let (offset, length) = range(object, reader.size_bytes(), args)?;
    let mut stdout = io::stdout().lock();
    if holes {
        let copied = around::copy(&mut reader, offset, length, &mut |part| stdout.write_all(part));
        let copied = copied.and_then(|lost| stdout.flush().map(|()| lost));
        let lost = copied.map_err(|error| stdout_failure(object, &error))?;
        around::tell(object, &reader, &lost);
        return if lost.is_empty() { Ok(()) } else { Err(Failure::Silent(Failure::REFUSED)) };
    }
    let copied = reader.read_with(offset, length, |bytes| stdout.write_all(bytes));
    let copied = copied.and_then(|()| stdout.flush().map_err(CopyError::Sink));
    copied.map_err(|error| match error {
        CopyError::Sink(error) => stdout_failure(object, &error),
        CopyError::Read(error) => {
            let next = "find more members of the array, or a copy of what lies there";
            Failure::refused("cat", object, error, next)
        }
    })
}

fn display(members: &[PathBuf]) -> String {
    members.first().map_or_else(String::new, |first| first.display().to_string())
}

fn stdout_failure(object: &str, error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Failure::Silent(0);
    }
    let reason = format!("stdout: {}", system_error(error));
    Failure::refused("cat", object, reason, "make room and try again")
}

/// Returns offset and length of the requested range in an array of this size.
fn range(object: &str, size_bytes: u64, args: &CatArgs) -> Result<(u64, u64), Failure> {
    let offset = args.offset.map_or(0, |size| size.0);
    let left = size_bytes.checked_sub(offset);
    let length = args.length.map_or(left, |size| Some(size.0));
    match (left, length) {
        (Some(left), Some(length)) if length <= left => Ok((offset, length)),
        _ => {
            let reason = format!("the range ends beyond the array, which has {size_bytes} bytes");
            Err(Failure::usage("cat", object, reason, "use a smaller --offset or --length"))
        }
    }
}

/// An array that is served: the content as it is now, writes in flight included or not.
fn running(mut client: Client, name: &str, args: &CatArgs) -> Result<(), Failure> {
    const PART_BYTES: u64 = 64 << 20;
    let failed = |error: ControlError| match error {
        ControlError::Broken(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            Failure::Silent(0)
        }
        error => Failure::explained("cat", name, error),
    };
    let status = client.status().map_err(failed)?;
    let size_bytes = status.array.array_sectors * SECTOR_BYTES;
    if contents::are_asked_for(args) {
        return contents::run(vec![(name.to_owned(), Source::Running(client, size_bytes))], args);
    }
    let (mut offset, mut left) = range(name, size_bytes, args)?;
    let mut stdout = io::stdout().lock();
    while left > 0 {
        let done = client.read(offset, left.min(PART_BYTES), &mut stdout).map_err(failed)?;
        if done == 0 {
            break;
        }
        (offset, left) = (offset + done, left - done);
    }
    stdout.flush().map_err(|error| stdout_failure(name, &error))
}

/// Options for making members readable.
struct Start<'a> {
    object: &'a str,
    force: bool,
    reshape: &'a ReshapeArgs,
}

/// Readable form of an array.
enum Readable {
    Config(Box<Config>),
    Halfway(Box<Halfway>),
}

/// An array that may be a member of another one: its superblock of the outer array, and its reader.
type Inner = (Candidate, Reader);

impl Start<'_> {
    /// Returns readers, with names, of the array on these devices. Devices of several arrays, or of
    /// one that is `nested` in another, must together form one outer array. Alternatively the
    /// contents of several arrays `is_asked_for`.
    fn open(
        &self,
        found: Vec<Found>,
        nested: bool,
        is_asked_for: bool,
    ) -> Result<Vec<(String, Reader)>, Failure> {
        let called = self.object.to_owned();
        let inner = found::groups(found);
        let opened = match <[Vec<Found>; 1]>::try_from(inner) {
            Ok([found]) if !nested => {
                let name = self.name(&found);
                self.one(found).map(|reader| vec![(name, reader)])
            }
            Ok(inner) => self.nested(inner.into()).map(|reader| vec![(called, reader)]),
            Err(inner) if is_asked_for => self.several(inner),
            Err(inner) => self.nested(inner).map(|reader| vec![(called, reader)]),
        };
        opened.map_err(|why| Failure::explained("cat", self.object, why))
    }

    /// Returns the name in the superblocks of these members.
    fn name(&self, found: &[Found]) -> String {
        let superblock = found.iter().find_map(|one| one.candidate.superblock.as_ref().ok());
        let name = superblock.map(|superblock| short_name(&superblock.name()).to_owned());
        name.filter(|name| !name.is_empty()).unwrap_or_else(|| self.object.to_owned())
    }

    /// Returns the name of an array as a member of another array.
    fn title(&self, found: &[Found], index: usize) -> String {
        let mut superblocks = found.iter().filter_map(|one| one.candidate.superblock.as_ref().ok());
        let title = superblocks.next().map(Superblock::title);
        title.unwrap_or_else(|| format!("{} (array {index})", self.object))
    }

    /// Several arrays, or the one that they are the members of.
    fn several(&self, inner: Vec<Vec<Found>>) -> Result<Vec<(String, Reader)>, Refusal> {
        let names: Vec<String> = inner.iter().map(|found| self.name(found)).collect();
        let (all, readers) = self.inner(inner, true)?;
        if readers.iter().all(|(candidate, _)| candidate.superblock.is_ok()) {
            let reader = self.stacked(&all, readers)?;
            return Ok(vec![(self.object.to_owned(), reader)]);
        }
        let readers = readers.into_iter().map(|(_, reader)| reader);
        Ok(names.into_iter().zip(readers).collect())
    }

    fn one(&self, found: Vec<Found>) -> Result<Reader, Refusal> {
        let (candidates, mut devices): (Vec<Candidate>, Vec<MemberFile>) =
            found.into_iter().map(|one| (one.candidate, one.device)).unzip();
        let config = match self.start(candidates)? {
            Readable::Config(config) => *config,
            Readable::Halfway(halfway) => {
                let (whole, arrays) =
                    halfway::open("cat", self.object, *halfway, devices, self.reshape)?;
                return Reader::of_pieces(whole, arrays).map_err(|reason| no_reader(&reason));
            }
        };
        let members =
            found::in_order(&config, &mut devices, |device| device.path.display().to_string());
        Reader::new(config, members).map_err(|reason| no_reader(&reason))
    }

    fn nested(&self, inner: Vec<Vec<Found>>) -> Result<Reader, Refusal> {
        let (all, readers) = self.inner(inner, false)?;
        self.stacked(&all, readers)
    }

    /// Opens arrays that are the members of another one, or `may` be. Returns all of their members,
    /// and the arrays.
    fn inner(
        &self,
        inner: Vec<Vec<Found>>,
        may: bool,
    ) -> Result<(Vec<Candidate>, Vec<Inner>), Refusal> {
        let all: Vec<Candidate> = inner.iter().flatten().map(|one| one.candidate.clone()).collect();
        let mut readers = Vec::with_capacity(inner.len());
        for found in inner {
            let name = self.title(&found, readers.len());
            let mut reader = self.one(found).map_err(|why| self.of_all(&all, why))?;
            let sectors = reader.size_bytes() / SECTOR_BYTES;
            let mut read = |sector: u64, len: u32| {
                let mut content = vec![0; len as usize];
                let read = reader.read_at(sector * SECTOR_BYTES, &mut content);
                read.map(|()| content).map_err(|error| error.to_string())
            };
            let candidate = Candidate::read(name, sectors, &mut read).with_log(&mut read);
            if candidate.superblock.is_err() && !may {
                // No nested array, then: the members of different arrays were mixed up.
                return Err(self.config(all).err().unwrap_or_else(mixed));
            }
            readers.push((candidate, reader));
        }
        Ok((all, readers))
    }

    /// The array that these are the members of.
    fn stacked(&self, all: &[Candidate], mut readers: Vec<Inner>) -> Result<Reader, Refusal> {
        let candidates = readers.iter().map(|(candidate, _)| candidate.clone()).collect();
        let config = self.config(candidates).map_err(|why| self.of_all(all, why))?;
        let members =
            found::in_order(&config, &mut readers, |(candidate, _)| candidate.device.clone());
        let inner = members.into_iter().map(|(_, reader)| reader).collect();
        Reader::stacked(config, inner).map_err(|reason| no_reader(&reason))
    }

    /// A command for an inner array would read that one.
    fn of_all(&self, all: &[Candidate], why: Refusal) -> Refusal {
        let devices = all.iter().map(|candidate| candidate.device.clone()).collect();
        let next = match why.next.invocation.as_deref() {
            Some(Invocation::Cat { force: true, .. }) if !self.force => {
                Next::by(why.next.advice, Invocation::Cat { force: true, devices })
            }
            _ => Invocation::Explain { devices }.into(),
        };
        Refusal { next, ..why }
    }

    /// Returns the configuration with which these candidates start for reading.
    fn config(&self, candidates: Vec<Candidate>) -> Result<Config, Refusal> {
        match self.start(candidates)? {
            Readable::Config(config) => Ok(*config),
            Readable::Halfway(halfway) => {
                Err(Refusal::new(halfway.description(), "read it by itself"))
            }
        }
    }

    fn start(&self, candidates: Vec<Candidate>) -> Result<Readable, Refusal> {
        let options = Options { read_only: true, force: self.force, ..Options::default() };
        let assembly = found::decide(candidates, options);
        let start = assembly.start;
        if !matches!(start, assemble::Start::Refused { .. }) {
            let out = assembly.verdicts.iter().filter(|(_, verdict)| !verdict.attached());
            for (device, verdict) in out {
                output::warning(&format!("cat {}: {device} is left out: {verdict}", self.object));
            }
        }
        match start {
            assemble::Start::Ready { config, .. } => Ok(Readable::Config(config)),
            assemble::Start::Halfway(halfway) => Ok(Readable::Halfway(halfway)),
            assemble::Start::Refused { reason, next, .. } => {
                Err(Refusal { reason, next: to_read(next) })
            }
        }
    }
}

/// Replaces advice to assemble read-only by `braid cat`. Advice that needs a writable array stays.
fn to_read(mut next: Next) -> Next {
    if let Some(Invocation::Assemble { options, devices, .. }) = next.invocation.as_deref()
        && options.read_only
    {
        let force = options.force;
        let devices = devices.clone();
        next.invocation = Some(Box::new(Invocation::Cat { force, devices }));
    }
    next
}

fn no_reader(reason: &str) -> Refusal {
    Refusal::new(reason, "compare the superblocks with braid examine")
}

fn mixed() -> Refusal {
    let reason = "these are members of different arrays";
    Refusal::new(reason, "name the members of one; see braid examine")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_is_told_to_read_or_to_assemble_to_be_written_to() {
        let step = |read_only| {
            let options = Options { read_only, force: true, ..Options::default() };
            let devices = vec!["a".to_owned()];
            Next::from(Invocation::Assemble { name: None, rename: false, options, devices })
        };
        let cat = Invocation::Cat { force: true, devices: vec!["a".to_owned()] };
        assert_eq!(to_read(step(true)), Next::from(cat));
        assert_eq!(to_read(step(false)), step(false));
    }
}
