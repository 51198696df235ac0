//! Suggestions for misspelled words.

/// How much alike two words must be, from 0 to 1: as much as clap asks of its own suggestions.
const ALIKE: f64 = 0.7;

/// The known word that is most like the one typed, if one is like it and no other as much.
pub(crate) fn similar<'a>(
    typed: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let with_likeness = known.into_iter().map(|word| (strsim::jaro(typed, word), word));
    let alike: Vec<_> = with_likeness.filter(|(likeness, _)| *likeness > ALIKE).collect();
    let (most, word) = *alike.iter().max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    let as_much = alike.iter().filter(|(likeness, _)| *likeness == most).count();
    (as_much == 1).then_some(word)
}

/// The known word that a mistyped one is nearest to: one letter away, or two of a long word.
pub(crate) fn nearest<'a>(
    typed: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let away = |word: &'a str| (strsim::damerau_levenshtein(typed, word), word);
    let near = |(away, word): &(usize, &str)| match word.len() {
        0..=2 => false,
        3..=4 => *away <= 1,
        _ => *away <= 2,
    };
    let mut near: Vec<_> = known.into_iter().map(away).filter(near).collect();
    near.sort_unstable();
    match near[..] {
        [(least, _), (other, _), ..] if least == other => None,
        _ => near.first().map(|(_, word)| *word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_near_by_a_letter_or_two() {
        let known = ["cat", "check", "create", "detail", "node", "nodes", "status", "stop", "top"];
        for (typed, expected) in [
            ("staus", Some("status")),
            ("detial", Some("detail")),
            ("chekc", Some("check")),
            // As near as others are, it is not them.
            ("crate", Some("create")),
            ("sotp", Some("stop")),
            ("drop", None),
            ("start", None),
            ("clear", None),
            ("nodez", None),
        ] {
            assert_eq!(nearest(typed, known), expected, "{typed}");
        }
    }

    #[test]
    fn the_most_similar_word_is_suggested() {
        let known = ["left-symmetric", "left-asymmetric", "right-symmetric"];
        assert_eq!(similar("left-symetric", known), Some("left-symmetric"));
        assert_eq!(similar("left-assymetric", known), Some("left-asymmetric"));
        assert_eq!(similar("raidz", ["raid5", "raid6"]), None, "it could be either");
        assert_eq!(similar("riad5", ["raid5", "raid6"]), Some("raid5"));
        assert_eq!(similar("n2", known), None);
        assert_eq!(similar("", known), None);
    }
}
