//! `braid assemble --part`: a partition or a volume that lies on one or several arrays, served to
//! readers as a disk of its own.

use std::path::{Path, PathBuf};

use braid_array::SECTOR_BYTES;
use braid_array::assemble::{ArrayPiece, Config, Options, Pieces, Start};
use braid_array::format::Superblock;
use braid_array::name::check_name;
use braid_array::refusal::Advised;
use braid_host::daemon::Daemon;
use braid_host::member::{MemberFile, OpenError};
use braid_host::reader::Reader;
use braid_host::serve::Assembled;
use braid_rescue::Image;
use braid_rescue::contents::{self, Piece as Bytes};

use super::Called;
use super::layers::{Layers, short_name};
use crate::args::{AssembleArgs, ReshapeArgs};
use crate::cmd::contents::place_of;
use crate::cmd::found::{self, Found, Members, Named, Use};
use crate::cmd::launch::{self, How, launch};
use crate::cmd::maps;
use crate::cmd::stranger::refuse_strangers;
use crate::failure::Failure;
use crate::output;

/// A part in more pieces is not served: each is an array of its own, with its members open.
const MOST_PIECES: usize = 64;
const TAKE_OUT: &str = "take it out by braid cat --part";

/// An open array with its name.
struct Array {
    name: String,
    config: Config,
    members: Vec<MemberFile>,
}

pub(super) fn start(
    run_dir: &Path,
    args: &AssembleArgs,
    part: &str,
    daemon: Option<Daemon>,
) -> Result<(), Failure> {
    let usage =
        |reason: &str, next: &'static str| Err(Failure::usage("assemble", part, reason, next));
    if !args.readonly {
        return usage("a part by itself can only be read", "add --readonly");
    }
    let others = args.scan || args.explain || args.rename || args.reshape.is_given();
    if others || args.overlay.dir().is_some() {
        return usage("--part takes a NAME and MEMBERs", "leave the other options out");
    }
    let named = Named::parse("assemble", &args.names)?;
    let name = named.name.unwrap_or_else(|| part.replace(['/', ':'], "-"));
    check_name(&name).map_err(|error| Failure::usage("assemble", &name, error, error.next()))?;
    let members = match named.members {
        Members::Paths(members) if !members.is_empty() => found::inside(&members),
        Members::Paths(_) => return usage("no members were named", "name those of all its arrays"),
        Members::Nodes(_) => return usage("its array lies over nodes", TAKE_OUT),
    };
    maps::check("assemble", &args.maps, members.iter().map(PathBuf::as_path))?;
    let exports = launch::exports("assemble", &args.export, args.insecure)?;
    launch("assemble", &name, args.foreground, daemon, |daemon| {
        let found = found::open_all("assemble", &members, Use::ServeReadOnly)?;
        let found = maps::apply("assemble", &args.maps, found)?;
        refuse_strangers("assemble", &found)?;
        let options = Options { force: args.force, run: args.run, read_only: true };
        let (found, remarks, _) = found::to_use(found, true);
        remarks.iter().for_each(|remark| output::warning(&format!("assemble {name}: {remark}")));
        let arrays = found::groups(found).into_iter().map(|found| open(&name, found, options));
        let array = served(&name, part, arrays.collect::<Result<_, _>>()?)?;
        let how = How { limits: args.limits(), ..exports.into() };
        launch::serve("assemble", run_dir, name.clone(), array, how, daemon)
    })
}

/// The array of these members.
fn open(object: &str, found: Vec<Found>, options: Options) -> Result<Array, Failure> {
    let layers = Layers::of(found, false, Called::default(), options);
    let name = layers.top.newest.as_deref().map(short_name).unwrap_or_default();
    if let Start::Refused { reason, next, .. } = &layers.top.start {
        let reason = format!("{name}: {reason}");
        return Err(Failure::refused("assemble", object, reason, next.clone()));
    }
    for left_out in layers.left_out(&name) {
        output::warning(&format!("assemble {object}: {left_out}"));
    }
    match layers.assembled(object, &ReshapeArgs::default())? {
        Assembled::Array { config, members } => Ok(Array { name, config, members }),
        _ => {
            let reason = format!("{name} stopped in the middle of a reshape");
            Err(Failure::refused("assemble", object, reason, "read it by itself: braid cat"))
        }
    }
}

/// The part as an array of pieces.
fn served(object: &str, part: &str, arrays: Vec<Array>) -> Result<Assembled, Failure> {
    let mut readers = Vec::new();
    for Array { name, config, members } in &arrays {
        let reader = Reader::new(config.clone(), twins(object, members)?);
        let next = "compare the superblocks with braid examine";
        let reader = reader.map_err(|reason| Failure::refused("assemble", object, reason, next))?;
        readers.push((name.clone(), reader));
    }
    let sizes: Vec<u64> = readers.iter().map(|(_, reader)| reader.size_bytes()).collect();
    let images = readers.iter_mut().map(|(name, reader)| (name.clone(), reader as &mut dyn Image));
    let found = contents::look(&mut images.collect::<Vec<_>>());
    let pieces = place_of("assemble", &found, part)?.pieces(MOST_PIECES).ok_or_else(|| {
        let reason = format!("it lies in more than {MOST_PIECES} pieces");
        Failure::refused("assemble", part, reason, TAKE_OUT)
    })?;
    let piece = |piece: &Bytes| {
        let array = arrays[piece.array].config.clone();
        let bytes = piece.range();
        let block = u64::from(array.block_bytes).max(SECTOR_BYTES);
        if !(bytes.start.is_multiple_of(block) && bytes.end.is_multiple_of(block)) {
            let reason = format!("a piece of it is no whole number of blocks of {block} bytes");
            return Err(Failure::refused("assemble", part, reason, TAKE_OUT));
        }
        let array_sectors = sizes[piece.array] / SECTOR_BYTES;
        let part = bytes.start / SECTOR_BYTES..bytes.end / SECTOR_BYTES;
        Ok(ArrayPiece { array, array_sectors, part })
    };
    let parts = pieces.iter().map(piece).collect::<Result<Vec<_>, _>>()?;
    let set_name = Superblock::name_field(object);
    let Pieces { whole, arrays: configs } =
        Pieces::of(&Superblock { set_name, ..Superblock::blank() }, parts);
    let mut opened = Vec::new();
    for (config, piece) in configs.into_iter().zip(&pieces) {
        opened.push((config, twins(object, &arrays[piece.array].members)?));
    }
    // What is locked stays open, once.
    for (index, array) in arrays.into_iter().enumerate() {
        if let Some(first) = pieces.iter().position(|piece| piece.array == index) {
            opened[first].1 = array.members;
        }
    }
    Ok(Assembled::Pieces { whole, arrays: opened })
}

fn twins(object: &str, members: &[MemberFile]) -> Result<Vec<MemberFile>, Failure> {
    let twins = members.iter().map(MemberFile::twin).collect::<Result<_, _>>();
    twins.map_err(|error: OpenError| {
        Failure::refused("assemble", object, error.to_string(), error.next.clone())
    })
}
