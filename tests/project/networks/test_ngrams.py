"""The log-odds of n-grams: counted as written down by hand, and never with a text's own label."""

import math

import torch

from project.networks.ngrams import NGramLogOdds

A, B, C = 2, 3, 4
TEXTS = [[A, A, B], [B, A], [A, B, C], [B, C], [C]]
LABELS = torch.tensor([0, 0, 1, 1, 1])


def _count(texts: list[list[int]], labels: torch.Tensor) -> NGramLogOdds:
    torch.manual_seed(0)
    part = NGramLogOdds(longest=2, buckets=5000, num_classes=2, embed_dim=4)
    part.count([({"ids": _pad(texts)}, labels)])
    return part


def _pad(texts: list[list[int]]) -> torch.Tensor:
    return torch.tensor([text + [0] * (5 - len(text)) for text in texts])


def _odds(first: int, second: int) -> list[float]:
    """Of both classes, by how many of their two and three texts have an n-gram."""
    odds = math.log((first + 1) / (2 + 2) / ((second + 1) / (3 + 2)))
    return [odds, -odds]


def test_log_odds_are_those_of_the_texts_that_have_an_ngram():
    part = _count(TEXTS, LABELS).eval()
    hashes = part.hash(_pad([[A, B, A, C]]))
    none = [0.0, 0.0]
    expected = torch.tensor(
        [
            [_odds(2, 1), _odds(1, 1)],  # A, twice in the first text; A B
            [_odds(2, 2), _odds(1, 0)],  # B; B A
            [_odds(2, 1), none],  # A; A C, which no text has
            [_odds(0, 3), none],  # C; nothing follows
            [none, none],  # padding
        ]
    )
    torch.testing.assert_close(part.log_odds[hashes[0]].float(), expected, rtol=1e-3, atol=1e-3)


def test_training_never_tells_a_text_its_own_label():
    torch.manual_seed(1)
    texts = torch.randint(2, 30, (60, 5)).tolist()
    labels = torch.arange(60) % 2
    ids = _pad(texts)
    before = _count(texts, labels).train()(ids)
    folds = NGramLogOdds.choose_fold(ids)
    assert len(folds.unique()) == 10
    for number in (0, 7, 31):
        other = labels.clone()
        other[number] = 1 - other[number]
        part = _count(texts, other)
        is_same = (part.train()(ids) == before).flatten(1).all(dim=1)
        assert is_same[folds == folds[number]].all()
        assert not is_same[folds != folds[number]].all()
        # Evaluation knows all labels
        assert not torch.equal(part.log_odds, _count(texts, labels).log_odds)


def test_the_fold_of_a_text_does_not_depend_on_its_padding():
    short = _pad(TEXTS)
    folds = NGramLogOdds.choose_fold(short)
    assert torch.equal(folds, NGramLogOdds.choose_fold(torch.nn.functional.pad(short, (0, 9))))
