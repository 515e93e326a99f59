"""Pictures and videos whose colours are to be read out, in the chat format of Qwen2-VL.

The colours are read row by row, picture after picture and frame after frame, and from the beginning again for ever
(` repeat`), or once (` copy`), after which the text ends.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from random import Random
from typing import Any

from .draws import chained, draws
from .pictures import SIDES, Cells
from .scenes import FOR_EVER, ONCE, Scene, Shape, draw_pair, draw_scene, joined

NEW_TOKENS = 128
"""Tokens of each known continuation; each colour is one."""

MOST_CELLS = 24
"""Colours of a prompt; one video goes beyond. Of more, the checkpoint now and then misreads one."""


@dataclass(frozen=True, eq=False, repr=False)
class Ended:
    """Prompts whose answer is `texts[i]` and then the end token; `texts[i]` does not include it."""

    prompts: tuple[str, ...]
    images: tuple[tuple[Any, ...], ...]
    videos: tuple[tuple[Any, ...], ...]
    texts: tuple[str, ...]

    def __repr__(self) -> str:
        return _described(self)

    @property
    def pictures(self) -> dict[str, Any]:
        """The runner's arguments that go with the prompts."""
        return {"images": self.images, "videos": self.videos}


@dataclass(frozen=True, eq=False, repr=False)
class MultimodalInputs:
    """`continuations[i]` is the decoded text of the 128 tokens after prompt i.

    `images[i]` are uint8 [height, width, 3] and `videos[i]` uint8 [frames, height, width, 3], each in the order of its
    placeholders in prompt i. `image_order` and `frame_order` are pairs of prompts that differ only in the order of
    their images, or of their frames: equal answers to both would come from an engine that ignores it. The repr has a
    digest of every pixel.
    """

    prompts: tuple[str, ...]
    images: tuple[tuple[Any, ...], ...]
    videos: tuple[tuple[Any, ...], ...]
    continuations: tuple[str, ...]
    ended: Ended
    image_order: tuple[tuple[int, int], ...]
    frame_order: tuple[tuple[int, int], ...]

    def __repr__(self) -> str:
        return _described(self)

    @property
    def new_tokens(self) -> int:
        """Tokens of each free text."""
        return NEW_TOKENS

    @property
    def pictures(self) -> dict[str, Any]:
        """The runner's arguments that go with the prompts."""
        return {"images": self.images, "videos": self.videos}


def _described(inputs: Any) -> str:
    values = ((field.name, getattr(inputs, field.name)) for field in fields(inputs))
    return f"{type(inputs).__name__}({', '.join(f'{name}={_digested(value)!r}' for name, value in values)})"


def _digested(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_digested(one) for one in value)
    if hasattr(value, "tobytes"):
        return f"{value.dtype} {list(value.shape)} {hashlib.sha256(value.tobytes()).hexdigest()}"
    return value


def _continuation(cells: Cells) -> str:
    return joined([cells[at % len(cells)] for at in range(NEW_TOKENS)])


def _ended(scenes: Sequence[Scene]) -> Ended:
    return Ended(
        tuple(scene.prompt(ONCE) for scene in scenes),
        tuple(scene.images() for scene in scenes),
        tuple(scene.videos() for scene in scenes),
        tuple(joined(scene.cells) for scene in scenes),
    )


def _inputs(
    scenes: Sequence[Scene],
    ended: Sequence[Scene],
    image_order: Sequence[tuple[int, int]] = (),
    frame_order: Sequence[tuple[int, int]] = (),
) -> MultimodalInputs:
    return MultimodalInputs(
        tuple(scene.prompt(FOR_EVER) for scene in scenes),
        tuple(scene.images() for scene in scenes),
        tuple(scene.videos() for scene in scenes),
        tuple(_continuation(scene.cells) for scene in scenes),
        _ended(ended),
        tuple(image_order),
        tuple(frame_order),
    )


def _video(frames: int, rows: int = 1, columns: int = 1, sides: tuple[int, int] = (41, 75)) -> Shape:
    return Shape(rows, columns, frames, sides)


SINGLE: tuple[tuple[tuple[Shape, ...], tuple[int, ...]], ...] = (
    ((Shape(2, 2),), (0, 0)),
    ((Shape(2, 3),), (3, 0)),
    ((Shape(3, 2),), (0, 5)),
    ((Shape(3, 3),), (8, 2)),
    ((Shape(2, 4),), (1, 1)),
    ((Shape(4, 3),), (20, 0)),
    ((Shape(4, 4),), (0, 33)),
    ((Shape(4, 4, sides=(46, 64)),), (2, 2)),
    ((Shape(2, 2, sides=(90, 130)),), (0, 1)),
    ((Shape(1, 2),), (4, 4)),
    ((Shape(3, 3),), (540, 515)),
)
"""Single images; the last between two stretches of text that take the prompt over 1,100 tokens."""

SEVERAL: tuple[tuple[tuple[Shape, ...], tuple[int, ...]], ...] = (
    ((Shape(2, 2), Shape(3, 3)), (0, 0, 0)),
    ((Shape(4, 2), Shape(2, 4)), (0, 7, 3)),
    ((Shape(4, 4), Shape(1, 2)), (2, 0, 0)),
    ((Shape(3, 4), Shape(4, 3)), (0, 1, 12)),
    ((Shape(2, 2), Shape(2, 3), Shape(3, 2)), (0, 0, 0, 0)),
    ((Shape(3, 3), Shape(1, 3), Shape(4, 2)), (1, 2, 3, 4)),
)
"""Two and three images."""

VIDEOS: tuple[tuple[tuple[Shape, ...], tuple[int, ...]], ...] = (
    ((_video(2),), (0, 0)),
    ((_video(3),), (3, 2)),
    ((_video(5, 1, 2),), (0, 6)),
    ((_video(7, sides=(113, 137)),), (10, 0)),
    ((_video(3, 2, 2, (30, 44)),), (1, 1)),
    ((_video(24),), (0, 4)),
    ((_video(91, sides=(129, 137)),), (0, 0)),
    ((_video(4), _video(3, 2, 1)), (0, 2, 0)),
    ((Shape(2, 2), _video(3)), (0, 0, 0)),
    ((_video(4, 1, 2), Shape(3, 2)), (2, 5, 2)),
)
"""Videos with even and odd numbers of frames, one over 1,100 tokens, and videos together and beside images.

Two have more temporal patches than rows and columns of merged patches, 24 and 91 frames: only there it shows whether
the positions of the text behind a video count its time, as Qwen2-VL's own code has it.
"""


Order = tuple[int, ...]

REORDERED_IMAGES: tuple[tuple[tuple[Shape, ...], tuple[int, ...], Order], ...] = (
    ((Shape(2, 2), Shape(2, 2)), (0, 0, 0), (1, 0)),
    ((Shape(3, 2), Shape(2, 4)), (4, 2, 0), (1, 0)),
    ((Shape(2, 2), Shape(3, 3), Shape(2, 3)), (0, 1, 0, 2), (2, 0, 1)),
)
REORDERED_FRAMES: tuple[tuple[tuple[Shape, ...], tuple[int, ...], Order], ...] = (
    ((_video(4),), (0, 0), (1, 0, 3, 2)),
    ((_video(7, 1, 2, (63, 75)),), (0, 3), (6, 5, 4, 3, 2, 1, 0)),
)
"""Each comes twice, as it is and in this order. The first video has its frames swapped within each temporal patch."""

ENDED: tuple[tuple[tuple[Shape, ...], tuple[int, ...]], ...] = (
    ((Shape(2, 2),), (0, 0)),
    ((Shape(4, 4),), (3, 1)),
    ((Shape(3, 4),), (0, 9)),
    ((Shape(2, 3), Shape(3, 2)), (0, 0, 0)),
    ((Shape(2, 2), Shape(3, 3), Shape(1, 2)), (2, 2, 2, 2)),
    ((_video(6, sides=(75, 97)),), (0, 0)),
    ((_video(5, 2, 2, (40, 56)),), (0, 2)),
    ((Shape(2, 2), _video(3, 1, 2)), (1, 0, 0)),
)


@cache
def inputs(seed: int = 0) -> MultimodalInputs:
    """37 prompts of 25 to 1,180 tokens, five pairs in other order among them, and 8 that end."""
    rng = Random(f"multimodal {seed}")
    scenes = [draw_scene(rng, shapes, words) for shapes, words in (*SINGLE, *SEVERAL, *VIDEOS)]
    pairs: dict[bool, list[tuple[int, int]]] = {False: [], True: []}
    for shapes, words, order in (*REORDERED_IMAGES, *REORDERED_FRAMES):
        pairs[len(shapes) == 1].append((len(scenes), len(scenes) + 1))
        scenes += draw_pair(rng, shapes, words, order)
    ended = [draw_scene(rng, shapes, words) for shapes, words in ENDED]
    return _inputs(scenes, ended, image_order=pairs[False], frame_order=pairs[True])


def fresh(seed: int, factor: int) -> MultimodalInputs:
    """`factor` draws like `inputs`, with the prompts that end of the first: no ratio is made of those."""
    drawn = draws(inputs, seed, factor)
    starts = [number * len(drawn[0].prompts) for number in range(factor)]

    def moved(pairs: Sequence[Sequence[tuple[int, int]]]) -> tuple[tuple[int, int], ...]:
        return tuple((start + i, start + j) for start, each in zip(starts, pairs, strict=True) for i, j in each)

    return MultimodalInputs(
        chained([each.prompts for each in drawn]),
        chained([each.images for each in drawn]),
        chained([each.videos for each in drawn]),
        chained([each.continuations for each in drawn]),
        drawn[0].ended,
        moved([each.image_order for each in drawn]),
        moved([each.frame_order for each in drawn]),
    )


def some_shapes(rng: Random) -> tuple[Shape, ...]:
    """One to three images, one or two videos of up to 12 frames, or an image and a video."""

    def image(largest: int) -> Shape:
        sides = rng.choice((SIDES, SIDES, SIDES, (40, 70), (70, 130)))
        return Shape(rng.randint(1, largest), rng.randint(2, largest), None, sides)

    def video(longest: int) -> Shape:
        rows, columns = rng.choice(((1, 1), (1, 1), (1, 2), (2, 1), (2, 2)))
        sides = rng.choice((SIDES, (41, 75), (41, 75), (56, 90), (75, 137)))
        return _video(rng.randint(2, longest), rows, columns, sides)

    kind = rng.randrange(8)
    if kind < 2:
        return (image(4),)
    if kind == 2:
        return (image(4), image(4))
    if kind == 3:
        return (image(3), image(3), image(3))
    if kind < 7:
        return (video(12),)
    return rng.choice(((video(6), image(3)), (image(3), video(6)), (video(5), video(5))))


def held_out(seed: int, count: int) -> MultimodalInputs:
    """`count` prompts with up to 24 words of filler in each place, and a quarter as many that end.

    Images and videos of a prompt have at most as many cells together as those of `inputs` have, but for its longest.
    """
    rng = Random(f"multimodal, held out {seed}")

    def some_scene() -> Scene:
        shapes = some_shapes(rng)
        while sum(shape.cells for shape in shapes) > MOST_CELLS:
            shapes = some_shapes(rng)
        return draw_scene(rng, shapes, [rng.choice((0, 0, rng.randint(1, 24))) for _ in range(len(shapes) + 1)])

    return _inputs([some_scene() for _ in range(count)], [some_scene() for _ in range(count // 4)])
