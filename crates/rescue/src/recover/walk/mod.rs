//! A file system read by a hypothesis, whose directories lie where their inodes say, and whose
//! files end there, if it is right. So also one without checksums tells order and chunk, where most
//! blocks are of files.

mod array;
mod ext4;
mod xfs;

use std::collections::BTreeSet;

use array::Array;

use super::hypothesis::Hypothesis;
use super::marks::{Form, Structure};
use super::sums::Members;
use super::walked::Walked;

/// The weight against a hypothesis under which there is no root directory.
const NO_ROOT: usize = 4;

/// The number of the root directory, where it can be walked from there.
fn root(form: &Form) -> Option<u64> {
    match form {
        Form::Ext4(_) => Some(ext4::ROOT),
        // Blocks with checksums tell more, and leave nothing to walk for.
        Form::Xfs(xfs) if !xfs.has_sums => xfs.root,
        _ => None,
    }
}

/// Walks through the structure of a hypothesis, if that can be walked through.
pub(super) fn walk(one: &Hypothesis, members: &mut Members<'_, '_>, known: &[Structure]) -> Walked {
    let mut found = Walked::default();
    let form = known[one.structure].0;
    let Some(root) = root(&form) else { return found };
    let Some(mut array) = Array::of(one, members) else { return found };
    if !is_right(&mut array, &form, root) {
        return Walked { wrong: NO_ROOT, ..found };
    }
    found.right.insert(root);
    match form {
        Form::Ext4(ext4) => ext4::look(&mut array, &ext4, &mut found),
        Form::Xfs(xfs) => xfs::look(&mut array, &xfs, &mut found),
        Form::Disk | Form::Btrfs(_) | Form::Ntfs(_) => {}
    }
    found
}

/// The number of these inodes that prove to be where they have to be, by this hypothesis.
pub(super) fn proven(
    one: &Hypothesis,
    inodes: &BTreeSet<u64>,
    members: &mut Members<'_, '_>,
    known: &[Structure],
) -> usize {
    let form = known[one.structure].0;
    let Some(root) = root(&form) else { return 0 };
    let Some(mut array) = Array::of(one, members) else { return 0 };
    if !one.walked.right.contains(&root) {
        return 0;
    }
    inodes.iter().filter(|number| is_right(&mut array, &form, **number)).count()
}

/// Returns whether this inode proves to be where it has to be.
fn is_right(array: &mut Array<'_, '_, '_>, form: &Form, number: u64) -> bool {
    let proves = match form {
        Form::Ext4(ext4) => ext4::proves(array, ext4, number),
        Form::Xfs(xfs) => xfs::proves(array, xfs, number),
        Form::Disk | Form::Btrfs(_) | Form::Ntfs(_) => None,
    };
    proves == Some(true)
}
