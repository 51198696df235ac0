//! Arrays whose members are arrays, among other things: told apart, and what to do next.

mod support;

use std::path::PathBuf;

use support::Lab;

/// What `assemble --explain` says is next for the array `top`.
fn next(lab: &Lab, members: &[PathBuf]) -> String {
    let text = lab.ok_text("assemble --explain", members);
    let top = text.lines().skip_while(|line| !line.contains(":top ("));
    let next = top.filter_map(|line| line.strip_prefix("next: ")).next();
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

    // Called by its name it is found among them, and so is an array that it is made of.
    let by_name = all.replace("assemble ", "assemble top ");
    let text = lab.ok_text("assemble --explain top", &with(&others));
    assert!(text.ends_with(&format!("next: {by_name}\n")), "{text}");
    let text = lab.ok_text("assemble --explain right", &with(&others));
    let right = command("right ", &members[2..]);
    assert!(text.ends_with(&format!("next: {right}\n")), "{text}");
    lab.ok("assemble top", &with(&others));
    assert_eq!(lab.run("detail top --test", &[]).status.code(), Some(0));
    assert_eq!(next(&lab, &with(&others)), "braid status top");
    let content = lab.ok("cat top", &[]);
    lab.ok("stop top", &[]);
    assert!(lab.ok("cat top", &with(&others)) == content);
}

#[test]
fn an_array_of_arrays_is_found_by_its_name_in_one_of_them() {
    let lab = Lab::new();
    let members = lab.nested("1 --assume-clean");
    let half = &members[..2];
    let text = lab.ok_text("assemble --explain top", half);
    let run = command("--run top ", half);
    assert!(text.ends_with(&format!("start without them: {run}\n")), "{text}");
    lab.ok("assemble --run top", half);
    assert_eq!(lab.run("detail top --test", &[]).status.code(), Some(1));
    lab.ok("stop top", &[]);
    lab.ok("assemble left", half);
    assert_eq!(lab.run("detail left --test", &[]).status.code(), Some(0));
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
