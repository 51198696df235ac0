//! An array that is to become smaller: nothing that lies on it may be cut off.

use std::path::Path;

use braid_array::SECTOR_BYTES;
use braid_array::refusal::{Next, Refusal};
use braid_host::control::wire::ControlStatus;
use braid_host::serve::ExportSpec;
use braid_host::size;
use braid_rescue::reach::{self, Reach, Thing};

use super::OPERATION;
use crate::args::GrowArgs;
use crate::cmd::cat::source::Source;
use crate::cmd::running;
use crate::failure::Failure;
use crate::output::human;

/// Checks that a change may leave so many sectors of the array.
pub(super) fn check(
    run_dir: &Path,
    args: &GrowArgs,
    before: &ControlStatus,
    sectors: u64,
) -> Result<(), Failure> {
    let name = &args.name;
    let refused = |why: Refusal| Failure::explained(OPERATION, name, why);
    let ControlStatus { array: before, exports, .. } = before;
    if sectors >= before.array_sectors {
        return match args.array_size {
            None => Ok(()),
            Some(_) => {
                let reason = "the array does not become smaller by that";
                Err(Failure::usage(OPERATION, name, reason, "leave --array-size out"))
            }
        };
    }
    let end_bytes = sectors * SECTOR_BYTES;
    if let Some(stays) = args.array_size.filter(|stays| stays.0 > end_bytes) {
        let reason = format!("{} are left, less than {}", bytes(end_bytes), bytes(stays.0));
        return Err(refused(Refusal::new(reason, "name more members, or a larger size")));
    }
    exports_stay(name, exports, end_bytes).map_err(refused)?;
    let client = running::connect(OPERATION, run_dir, name)?;
    let mut array = Source::Running(client, before.array_sectors * SECTOR_BYTES);
    let reaches = reach::look(&mut array);
    judge(&reaches, end_bytes, args.array_size.is_some()).map_err(refused)
}

/// Checks that exports with an end of their own do not lie beyond that of the array.
fn exports_stay(name: &str, exports: &[String], end_bytes: u64) -> Result<(), Refusal> {
    let parts = exports.iter().filter_map(|export| export.parse::<ExportSpec>().ok());
    let cut = parts.map(|export| (export.part.least_bytes(), export));
    let Some((least, export)) = cut.into_iter().find(|(least, _)| *least > end_bytes) else {
        return Ok(());
    };
    let (least, end) = (bytes(least), bytes(end_bytes));
    let reason = format!("{export} reaches to {least}, and the array would end at {end}");
    Err(Refusal::new(reason, format!("braid export {name} remove {export}")))
}

/// Judges what was found on an array that is to end at this byte. `may_go`: who asks for that says
/// that the rest may be lost.
fn judge(reaches: &[Reach], end_bytes: u64, may_go: bool) -> Result<(), Refusal> {
    let cut = reaches.iter().filter(|reach| reach.end_bytes > Some(end_bytes));
    // A table moves after its partitions, and these after what is on them.
    let order = |reach: &&Reach| (reach.thing == Thing::BackupTable, reach.end_bytes);
    if let Some(Reach { thing, end_bytes: Some(end) }) = cut.min_by_key(order) {
        let end = bytes(*end);
        let reason = format!("{thing} ends at {end}, and the array would at {}", bytes(end_bytes));
        return Err(Refusal::new(reason, thing.way_to_shrink(end_bytes)));
    }
    if may_go {
        return Ok(());
    }
    let option = format!("--array-size {}", size::typed(end_bytes));
    let next = |advice: &str| Next::from(format!("{advice}: {option}"));
    if let Some(Reach { thing, .. }) = reaches.iter().find(|reach| reach.end_bytes.is_none()) {
        let reason = format!("it is {thing}, and nothing tells where that ends");
        let advice = "make it smaller first, then say that what lies further may be lost";
        return Err(Refusal::new(reason, next(advice)));
    }
    if reaches.is_empty() {
        let reason = format!("nothing tells what lies behind {}", bytes(end_bytes));
        return Err(Refusal::new(reason, next("if all of that may be lost, say so")));
    }
    Ok(())
}

fn bytes(bytes: u64) -> String {
    format!("{} ({bytes} bytes)", human::size_binary(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_rescue::kind::Kind;

    const END: u64 = 20 << 20;

    fn said(reaches: &[(Thing, Option<u64>)], may_go: bool) -> String {
        let reach = |(thing, end_bytes): &(Thing, Option<u64>)| Reach {
            thing: thing.clone(),
            end_bytes: *end_bytes,
        };
        let reaches: Vec<Reach> = reaches.iter().map(reach).collect();
        judge(&reaches, END, may_go).map_or_else(|why| why.to_string(), |()| "yes".to_owned())
    }

    #[test]
    fn nothing_is_cut_off_and_nothing_unknown_lost_unasked() {
        let ext4 = |end| (Thing::Known(Kind::Ext4), Some(end));
        let luks = (Thing::Known(Kind::Luks2), None);
        assert_eq!(said(&[ext4(END)], false), "yes");
        for may_go in [false, true] {
            let said = said(&[luks.clone(), ext4(END + 1)], may_go);
            assert!(
                said.starts_with("an ext4 file system ends at 20.00 MiB (20971521 b"),
                "{said}"
            );
            assert!(said.ends_with("resize2fs DEVICE 20480K"), "{said}");
        }
        assert_eq!(
            said(&[], false),
            "nothing tells what lies behind 20.00 MiB (20971520 bytes); if all of that may be \
             lost, say so: --array-size 20M"
        );
        assert_eq!(said(&[], true), "yes");
        let locked = said(&[ext4(END), luks.clone()], false);
        assert!(locked.starts_with("it is encrypted by LUKS2, and nothing"), "{locked}");
        assert_eq!(said(&[ext4(END), luks], true), "yes");
    }

    #[test]
    fn partitions_come_before_their_table() {
        let table = (Thing::BackupTable, Some(2 * END));
        let part = |end| (Thing::Partition(2), Some(end));
        assert!(said(&[part(END + 512), table.clone()], true).starts_with("partition 2 ends at "));
        let last = said(&[part(END - 512), table], true);
        assert!(last.ends_with("sfdisk --relocate gpt-bak-mini DEVICE"), "{last}");
    }
}
