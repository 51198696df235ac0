//! The shape of an array as `create` and `layout` take it: level, layout, members, chunk.

use braid_array::SECTOR_BYTES;
use braid_array::geometry::{Geometry, GeometryError, MAX_MEMBERS, Shape};
use braid_array::level::{Layout, LayoutError, Level};
use braid_array::refusal::{Advised, Next};
use braid_cluster::family::XOR2D_NAME;
use braid_cluster::{Family, Xor2d};

use crate::args::{ShapeArgs, Size, similar};
use crate::failure::Failure;

/// mdadm's chunk.
const DEFAULT_CHUNK: Size = Size(512 << 10);

/// A level with a layout, a number of members and a chunk that go together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrayShape {
    pub(crate) level: Level,
    pub(crate) layout: Layout,
    pub(crate) raid_disks: u32,
    /// 0 for linear and raid1, which have none.
    pub(crate) chunk_sectors: u32,
}

/// The typed options of a shape.
#[derive(Clone, Copy, Debug)]
pub struct Typed<'a> {
    /// The command.
    pub operation: &'static str,
    /// Object of the command.
    pub object: &'a str,
    /// As in `--level`.
    pub level: &'a str,
    /// As in `--layout`.
    pub layout: Option<&'a str>,
    /// As in `--raid-devices`.
    pub raid_devices: u32,
    /// As in `--chunk`.
    pub chunk: Option<Size>,
}

impl ShapeArgs {
    /// Returns the typed options, for a command, its object and a number of members.
    pub(crate) fn typed<'a>(
        &'a self,
        operation: &'static str,
        object: &'a str,
        raid_devices: u32,
    ) -> Typed<'a> {
        Typed {
            operation,
            object,
            level: &self.level,
            layout: self.layout.as_deref(),
            raid_devices,
            chunk: self.chunk,
        }
    }
}

impl ArrayShape {
    /// Checks everything that can be checked without members.
    pub(crate) fn parse(typed: &Typed<'_>) -> Result<Self, Failure> {
        let level = typed.level()?;
        let layout = match typed.layout {
            None => Layout::default_for(level),
            Some(name) => parse_layout(typed, level, name)?,
        };
        let chunk_sectors = chunk_sectors(typed, level)?;
        let shape = Self { level, layout, raid_disks: typed.raid_devices, chunk_sectors };
        shape.check(typed)?;
        Ok(shape)
    }

    /// Returns the geometry on members with data areas of these sizes.
    pub(crate) fn geometry(&self, data_sectors: &[u64]) -> Result<Geometry, GeometryError> {
        Geometry::new(&Shape {
            level: self.level,
            layout: self.layout,
            raid_disks: self.raid_disks,
            chunk_sectors: self.chunk_sectors,
            size_sectors: data_sectors.iter().copied().min().unwrap_or(0),
            member_data_sectors: data_sectors,
        })
    }

    fn check(&self, typed: &Typed<'_>) -> Result<(), Failure> {
        // Q can tell 255 data strips apart.
        let most = if self.level == Level::Raid6 { 257 } else { MAX_MEMBERS };
        if self.raid_disks > most {
            let reason = format!("{} cannot have {} members", self.level, self.raid_disks);
            return Err(typed.usage(&reason, format!("use at most {most}")));
        }
        // Large enough that only what was typed can be wrong.
        let sizes = vec![1 << 33; self.raid_disks as usize];
        self.geometry(&sizes).map(drop).map_err(|error| match (&error, typed.layout) {
            (GeometryError::Raid10(reason), Some(name)) => {
                typed.usage(&format!("layout {name}: {reason}"), reason.next())
            }
            _ => typed.wrong(&error),
        })
    }
}

impl Typed<'_> {
    /// Wrong usage.
    pub fn usage(&self, reason: &str, next: impl Into<Next>) -> Failure {
        Failure::usage(self.operation, self.object, reason, next)
    }

    fn level(&self) -> Result<Level, Failure> {
        let names = Level::ALL.map(Level::name);
        self.level.parse().map_err(|error| self.unknown(&error, self.level, names))
    }

    /// A name that a library does not know, and the one of `known` that was probably meant.
    fn unknown<'a>(
        &self,
        error: &dyn Advised,
        name: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Failure {
        let Some(meant) = similar(name, known) else { return self.wrong(error) };
        let next = format!("did you mean {meant}? {}", error.next().advice);
        self.usage(&error.to_string(), next)
    }

    /// Wrong usage, in the words of a library.
    pub fn wrong(&self, error: &dyn Advised) -> Failure {
        self.usage(&error.to_string(), error.next())
    }
}

/// Returns the code of an array over nodes.
///
/// # Errors
/// Returns a usage error for options that do not go together.
pub fn family(typed: &Typed<'_>) -> Result<Family, Failure> {
    if typed.layout != Some(XOR2D_NAME) {
        let ArrayShape { level, layout, .. } = ArrayShape::parse(typed)?;
        return Ok(Family::Md { level, layout });
    }
    let level = typed.level()?;
    if level != Level::Raid6 {
        let reason = format!("{level} has no layout {XOR2D_NAME}");
        return Err(typed.usage(&reason, "use --level 6 or another layout"));
    }
    Xor2d::new(typed.raid_devices).map_err(|error| typed.wrong(&error))?;
    // Whatever else was typed is checked as for any other raid6.
    ArrayShape::parse(&Typed { layout: None, ..*typed })?;
    Ok(Family::Xor2d)
}

fn parse_layout(typed: &Typed<'_>, level: Level, name: &str) -> Result<Layout, Failure> {
    if name == XOR2D_NAME {
        let reason = "layout xor2d is for members on nodes";
        return Err(typed.usage(reason, "name members node://HOST:PORT, or use another layout"));
    }
    Layout::parse(level, name).map_err(|error| {
        let choices = match &error {
            LayoutError::Name { choices, .. } => choices,
            _ => "",
        };
        let known = choices.split([',', ' ']).filter(|word| !matches!(*word, "" | "or"));
        typed.unknown(&error, name, known)
    })
}

fn chunk_sectors(typed: &Typed<'_>, level: Level) -> Result<u32, Failure> {
    if matches!(level, Level::Linear | Level::Raid1) {
        return match typed.chunk {
            None => Ok(0),
            Some(_) => Err(typed.usage(&format!("{level} has no chunks"), "leave --chunk out")),
        };
    }
    let bytes = typed.chunk.unwrap_or(DEFAULT_CHUNK).0;
    match i32::try_from(bytes / SECTOR_BYTES) {
        Ok(sectors @ 1..) if bytes.is_multiple_of(SECTOR_BYTES) => Ok(sectors.unsigned_abs()),
        _ => {
            let reason = format!("a chunk of {bytes} bytes is out of range");
            Err(typed.usage(&reason, "use a multiple of 4K; 64K and 512K are usual"))
        }
    }
}
