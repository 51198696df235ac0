//! Arrays whose members are arrays, among other things: told apart, and what to do next.

mod support;

use std::path::PathBuf;

use support::Lab;

/// What `assemble --explain` says is next.
fn next(lab: &Lab, members: &[PathBuf]) -> String {
    let text = lab.ok_text("assemble --explain", members);
    let next = text.lines().last().and_then(|line| line.strip_prefix("next: "));
    next.unwrap_or_else(|| panic!("no next step: {text}")).to_owned()
}

fn command(flag: &str, members: &[PathBuf]) -> String {
    let words: Vec<String> = members.iter().map(|path| path.display().to_string()).collect();
    format!("braid assemble {flag}{}", words.join(" "))
}

#[test]
fn what_does_not_belong_to_an_array_of_arrays_is_left_out() {
    let lab = Lab::new();
    let members = lab.nested("1 --assume-clean");
    let others = lab.members("o", 3, 16);
    lab.ok("create other --level 5 --raid-devices 3 --assume-clean", &others);
    let blank = lab.members("blank", 1, 16);
    let with = |more: &[PathBuf]| [&members[..], more].concat();
    let all = command("", &members);

    assert_eq!(next(&lab, &members), all);
    for images in [with(&blank), [&blank[..], &members].concat()] {
        assert_eq!(next(&lab, &images), all, "a blank image");
        let line = lab.refused(1, "assemble", &images, &images);
        assert!(line.ends_with(&format!("blank0: no md superblock; {all}\n")), "{line}");
    }
    assert_eq!(next(&lab, &with(&others)), all, "an array that is no member");
    let line = lab.refused(1, "assemble", &with(&others), &members);
    assert!(line.contains("other") && line.ends_with(&format!("; {all}\n")), "{line}");
    assert_eq!(next(&lab, &with(&others[..1])), all, "a part of another array");
    assert_eq!(next(&lab, &[&others[..1], &members].concat()), all);
}

#[test]
fn an_array_of_arrays_with_less_than_it_had_is_started_by_its_devices() {
    let lab = Lab::new();
    let members = lab.nested("1 --assume-clean");
    let without = "find the missing members, or start without them: ";
    let one_of_each = [members[0].clone(), members[2].clone()];
    for some in [&members[..3], &one_of_each] {
        assert_eq!(next(&lab, some), format!("{without}{}", command("--run ", some)));
        let line = lab.refused(1, "assemble", some, some);
        assert!(line.contains("right") && line.contains("cannot be started"), "{line}");
    }
    lab.ok("assemble --run", &one_of_each);
    assert_eq!(lab.run("detail top --test", &[]).status.code(), Some(1));
}
