use super::*;
use crate::cmd::monitor::health::testing::arrays;

fn names(top: &Top) -> Vec<&str> {
    top.arrays.iter().map(|array| array.name.as_str()).collect()
}

fn press(top: &mut Top, key: KeyCode) -> bool {
    top.press(KeyEvent::from(key))
}

#[test]
fn arrays_in_trouble_come_first_and_the_chosen_one_stays() {
    let mut top = Top::new(Path::new("/nowhere"));
    let answers =
        |arrays: &[ControlStatus]| Answers { arrays: arrays.to_vec(), ..Answers::default() };
    top.take(answers(&arrays()[..2]), Utc::now());
    assert_eq!((names(&top), top.chosen_index()), (vec!["checked", "calm"], 0));
    top.take(answers(&arrays()), Utc::now());
    assert_eq!(names(&top), ["lost", "stuck", "lame", "checked", "calm"]);
    assert_eq!(top.chosen_index(), 0, "without a key the worst is shown");
    assert!(press(&mut top, KeyCode::Down) && press(&mut top, KeyCode::Down));
    top.take(answers(&arrays()[2..4]), Utc::now());
    assert_eq!((names(&top), top.chosen_index()), (vec!["lost", "lame"], 1));
    assert!(press(&mut top, KeyCode::Down));
    assert_eq!(top.chosen_index(), 1, "there is no other one below");
    top.take(answers(&arrays()[3..]), Utc::now());
    assert_eq!(top.chosen_index(), 0, "the chosen one is gone");
    assert!(!press(&mut top, KeyCode::Char('q')));
}

#[test]
fn members_are_scrolled_and_another_array_begins_at_its_first() {
    let mut top = Top::new(Path::new("/nowhere"));
    top.take(Answers { arrays: arrays().to_vec(), ..Answers::default() }, Utc::now());
    press(&mut top, KeyCode::PageDown);
    press(&mut top, KeyCode::PageDown);
    press(&mut top, KeyCode::PageUp);
    assert_eq!(top.first_member, PAGE);
    press(&mut top, KeyCode::Down);
    assert_eq!((top.chosen_index(), top.first_member), (1, 0));
}
