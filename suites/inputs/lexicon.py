"""The words of every suite's inputs.

In the tokenizers of the embedded checkpoints each word of `WORDS` and `MARKS` with its leading space (`" river"`) is
one token, and so are the openings with and without it. All other text falls back to one token per UTF-8 byte, except
for the few beginnings of words that a merge happens to cover; `FREE_TEXT` therefore carries its token counts.
"""

from __future__ import annotations

from dataclasses import dataclass


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


CATEGORIES: dict[str, tuple[str, ...]] = {
    "animal": _words(
        "bear bird cat cow crab deer dog duck eagle fish fox frog goat hare horse lamb lion mole mouse pig seal sheep "
        "snake wolf"
    ),
    "colour": _words(
        "amber azure beige black blue bronze brown coral cream gold green grey indigo ivory lilac lime olive orange "
        "pink purple red silver white yellow"
    ),
    "food": _words(
        "apple bacon bean bread butter cake carrot cheese corn egg flour garlic grape ham honey jam lemon melon onion "
        "pasta pear rice salt soup"
    ),
    "tool": _words(
        "anvil axe blade bolt brush chisel clamp crane drill file fork hammer hoe knife ladder lever nail needle "
        "pliers pump rake saw screw shovel"
    ),
    "place": _words(
        "bank beach bridge canal castle cave church city coast desert farm field forest garden harbour hill hotel "
        "island lake market palace park port river"
    ),
    "cloth": _words(
        "apron belt boot button cap cloak coat collar cotton dress glove gown hat hood jacket linen pocket ribbon robe "
        "scarf shirt shoe silk sock"
    ),
}
"""Six categories of 24 words; the names are the labels of the classification checkpoint."""

NEUTRAL: tuple[str, ...] = _words(
    "about after again air all also always among any around ask away back begin both bring build call carry change "
    "clear close common cost count cover dark day deep door draw drive dry each early end even ever fact fall far fast "
    "few fill five follow form four free full game give glad good great group grow half hand hard heat help here high "
    "hold home hour idea join keep kind large late laugh learn leave light line list long look loud low make many mean "
    "middle move music name near new next night north old open order other over own part pass place plan play quick "
    "quiet rain read ready rest"
)
"""Words of no category."""

FOREIGN: tuple[str, ...] = _words(
    "café crème fête über grün straße niño año øre żuk дом река мир лес 水 山 月 花 東京 한국 λόγος שלום سلام 🌟"
)
"""Words of no category outside ASCII, each one token as well; the emoji has four bytes."""

WORDS: tuple[str, ...] = tuple(word for words in CATEGORIES.values() for word in words) + NEUTRAL + FOREIGN
"""All words that filler and answers are made of; none is a mark or an opening."""

KEY = "key"
ROLES: tuple[str, str, str] = ("first", "second", "third")
COPY = "copy"
MARKS: tuple[str, ...] = (KEY, *ROLES, COPY)
"""Words with a meaning for the tasks: a mark says that the next word counts."""

TEXT, FIND, NOTE, REPEAT, ANSWER = OPENINGS = ("text", "find", "note", "repeat", "answer")
"""First words of texts, one token also without a leading space: a text neither begins with one nor needs one."""


@dataclass(frozen=True)
class FreeText:
    """A sentence outside the lexicon and the number of tokens it takes when a space comes before it.

    The Qwen2 tokenizer, which composes combining characters, may take a few less.
    """

    text: str
    tokens: int


FREE_TEXT: tuple[FreeText, ...] = (
    FreeText("昨天下午我们在湖边散步。", 36),
    FreeText("Вчера мы долго гуляли у старого моста.", 56),  # noqa: RUF001
    FreeText("ذهبنا أمس إلى السوق القديم.", 45),
    FreeText("Zwölf Boxkämpfer jagen Viktor quer über den Sylter Deich.", 48),
    FreeText("今日はとても良い天気ですね。", 43),
    FreeText("어제 우리는 바닷가에 갔습니다.", 44),
    FreeText("Le cœur déçu mais l'âme naïve, Noël à Malmö.", 43),
    FreeText("Cafe\u0301, nin\u0303o, A\u030angstro\u0308m: combining marks!", 38),
    FreeText("👩🏽‍🚀 🎉🎊 (╯°□°)╯ 🇯🇵🇺🇦", 52),
    FreeText("कल हम नदी के किनारे घूमने गए।", 76),
    FreeText("Total: 1,024.50 € at 09:30 [see §3]", 38),
)
"""Filler in many scripts, with combining characters, joined emoji and punctuation."""
