//! Options for members that are not as they should be, shared by commands that read or start
//! arrays.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};

use super::size::{Size, parse_size};
use crate::failure::Failure;
use crate::invocation::shell_word;

/// An array that has no superblocks.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct GeometryArgs {
    /// Read an array without superblocks: level=LEVEL[,layout=LAYOUT][,chunk=SIZE][,offset=SIZE];
    /// its MEMBERs in the order of their roles, `missing` for what is not there. The data begin at
    /// the offset on each [default: 0], or at offsets of their own, in the order of the members:
    /// offset=1M:2M:1M
    #[arg(long, value_name = "GEOMETRY")]
    pub(crate) geometry: Option<GeometryArg>,
}

/// Geometry of an array, as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GeometryArg {
    pub(crate) level: String,
    pub(crate) layout: Option<String>,
    pub(crate) chunk: Option<Size>,
    pub(crate) offsets: Vec<Size>,
}

impl std::fmt::Display for GeometryArg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "level={}", self.level)?;
        self.layout.iter().try_for_each(|layout| write!(f, ",layout={layout}"))?;
        self.chunk.iter().try_for_each(|chunk| write!(f, ",chunk={chunk}"))?;
        let offsets: Vec<String> = self.offsets.iter().map(Size::to_string).collect();
        if offsets.is_empty() { Ok(()) } else { write!(f, ",offset={}", offsets.join(":")) }
    }
}

impl std::str::FromStr for GeometryArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut geometry =
            Self { level: String::new(), layout: None, chunk: None, offsets: Vec::new() };
        let size = |text: &str| parse_size(text).map_err(|why| format!("'{text}': {why}"));
        for field in text.split(',') {
            match field.split_once('=') {
                Some(("level", level)) => level.clone_into(&mut geometry.level),
                Some(("layout", layout)) => geometry.layout = Some(layout.to_owned()),
                Some(("chunk", chunk)) => geometry.chunk = Some(size(chunk)?),
                Some(("offset", offsets)) => {
                    geometry.offsets = offsets.split(':').map(size).collect::<Result<_, _>>()?;
                }
                _ => return Err(format!("'{field}' is none of level=, layout=, chunk=, offset=")),
            }
        }
        if geometry.level.is_empty() {
            return Err("the level is missing: level=5,layout=left-symmetric,chunk=64K".into());
        }
        Ok(geometry)
    }
}

/// Ranges of images that were not rescued.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct MapArgs {
    /// The map file that ddrescue kept while it made the image MEMBER: what was not rescued counts
    /// as unreadable, and comes from redundancy; may be repeated
    #[arg(long, value_name = "MEMBER=FILE", value_parser = map_of)]
    mapfile: Vec<MapOf>,
}

/// An image and its map.
#[derive(Clone, Debug)]
pub(crate) struct MapOf {
    pub(crate) image: PathBuf,
    pub(crate) map: PathBuf,
}

fn map_of(text: &str) -> Result<MapOf, String> {
    let split = text.rsplit_once('=').filter(|(image, map)| !image.is_empty() && !map.is_empty());
    let (image, map) = split.ok_or("write the image, '=' and its map file")?;
    let map = std::path::absolute(map).map_err(|error| error.to_string())?;
    Ok(MapOf { image: image.into(), map })
}

impl MapArgs {
    pub(crate) fn all(&self) -> &[MapOf] {
        &self.mapfile
    }

    /// As another process is to be told.
    pub(crate) fn words(&self) -> impl Iterator<Item = String> + '_ {
        self.mapfile.iter().flat_map(|map| ["--mapfile".to_owned(), map.word()])
    }
}

impl MapOf {
    /// As it can be typed anywhere.
    pub(crate) fn word(&self) -> String {
        let Self { image, map } = self;
        let image = std::path::absolute(image).unwrap_or_else(|_| image.clone());
        format!("{}={}", image.display(), map.display())
    }
}

/// Facts about a reshape that superblocks do not tell.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ReshapeArgs {
    /// The backup file that mdadm was given for a reshape in the middle of which the array
    /// stopped, or braid grow by --spill: what it holds is read from there, and what Braid began
    /// goes on with it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, value_parser = absolute)]
    backup_file: Option<PathBuf>,
    /// Where the reshape stopped, as a sector of the array: where neither superblocks nor data tell
    #[arg(long, value_name = "SECTOR")]
    reshape_position: Option<u64>,
}

impl ReshapeArgs {
    /// With a backup file, if there is one, and nothing else.
    pub(crate) const fn of_file(backup_file: Option<PathBuf>) -> Self {
        Self { backup_file, reshape_position: None }
    }

    pub(crate) fn file(&self) -> Option<&Path> {
        self.backup_file.as_deref()
    }

    pub(crate) const fn is_given(&self) -> bool {
        self.backup_file.is_some() || self.reshape_position.is_some()
    }

    pub(crate) const fn position(&self) -> Option<u64> {
        self.reshape_position
    }

    /// As the command that is to follow has it.
    pub(crate) fn words(&self) -> String {
        let file = self.backup_file.as_ref().map(|file| shell_word(&file.display().to_string()));
        let file = file.map(|file| format!(" --backup-file {file}")).unwrap_or_default();
        let position = self.reshape_position.map(|at| format!(" --reshape-position {at}"));
        file + &position.unwrap_or_default()
    }
}

/// Where a command that writes is to write instead.
#[derive(Debug, Default, Args)]
pub(crate) struct OverlayArgs {
    /// Leave all members as they are: what is written to one goes to a sparse file in DIR, which
    /// is found again by the same option, and is dropped by deleting it
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, value_parser = absolute)]
    overlay: Option<PathBuf>,
}

impl OverlayArgs {
    /// The directory, by its absolute name: the process that serves works in another one.
    pub(crate) fn dir(&self) -> Option<&Path> {
        self.overlay.as_deref()
    }
}

impl OverlayArgs {
    /// As the command that is to follow has it.
    pub(crate) fn words(&self) -> String {
        let word = |dir: &PathBuf| format!(" --overlay {}", shell_word(&dir.display().to_string()));
        self.overlay.as_ref().map(word).unwrap_or_default()
    }

    /// For members that are no files or devices.
    pub(crate) fn refuse(&self, operation: &str, object: &str) -> Result<(), Failure> {
        if self.overlay.is_none() {
            return Ok(());
        }
        let reason = "--overlay is for files and block devices";
        Err(Failure::usage(operation, object, reason, "leave it out"))
    }
}

/// A path that holds in every directory.
pub(super) fn absolute(text: &str) -> std::io::Result<PathBuf> {
    std::path::absolute(text)
}
