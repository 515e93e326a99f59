"""Pictures and videos whose colours are read out: scenes of many shapes, drawn on the device."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from suites.inputs import multimodal, pictures, scenes

from . import tower
from .drawing import Drawn, Size, draw, some_size
from .generation import SMOOTHING
from .sampling import Sampler

COLOURS = len(pictures.COLOURS)
ROWS = 20
"""Scenes of one shape in a batch, at least."""

TRIPS = 128
"""Round trips of each length, of which fresh ones are made by renaming and turning."""

UNKNOWN = -100
"""In the place of a token or colour that nothing determines."""

POOL = 60
"""Groups of scenes of each width that are kept: every step draws one anew and takes the others from here."""

LONG = 384
"""From this width on half of the scenes have a long video or much text."""


@dataclass(frozen=True)
class Placed:
    """Where a picture's or video's tokens are in a sequence, and where its cells in the round trip."""

    size: Size
    first: int
    cell: int


@dataclass(frozen=True)
class Scenes:
    """R scenes of one shape: `ids` (R, L) from the opening to the answer's end, `answer` the column it begins in.

    `answers` (R,) is the number of tokens that are determined, `trip` (R, P) the colours, `positions` (3, L).
    """

    ids: Tensor
    positions: Tensor
    answer: int
    answers: Tensor
    trip: Tensor
    placed: tuple[Placed, ...]
    drawn: tuple[Drawn, ...]


class MultimodalTask:
    """The next colour, or the end, wherever the pictures determine it."""

    frame = 160

    def __init__(self, model: PreTrainedModel, sampler: Sampler) -> None:
        self.model, self.sampler = model, sampler
        hidden = model.config.text_config.hidden_size
        self.probes = nn.ModuleList(
            [nn.Linear(hidden, 6 * COLOURS), nn.Linear(hidden, model.config.text_config.vocab_size)]
        )
        self.choose = Random(torch.initial_seed())
        self.colours = sampler.ids("".join(" " + name for name in pictures.COLOURS))
        self.filler = sampler.ids("".join(" " + word for word in scenes.FILLER))
        self.opening, self.closing, image, video, self.end, self.for_ever, self.once = (
            sampler.ids(text)
            for text in (
                scenes.OPENING,
                scenes.CLOSING,
                scenes.IMAGE,
                scenes.VIDEO,
                scenes.END,
                " " + scenes.FOR_EVER,
                " " + scenes.ONCE,
            )
        )
        self.marks = {False: image, True: video}
        self._trips: dict[int, Tensor] = {}
        self._pools: dict[int, list[Scenes]] = {}

    def _round_trips(self, rows: int, count: int) -> Tensor:
        """(rows, count) indices of colours."""
        if count not in self._trips:
            numbers = {name: number for number, name in enumerate(pictures.COLOURS)}
            made = [pictures.round_trip(self.choose, count) for _ in range(TRIPS)]
            self._trips[count] = torch.tensor([[numbers[name] for name in trip] for trip in made]).to(
                self.colours.device
            )
        device = self.colours.device
        names = torch.rand(rows, COLOURS, device=device).argsort(dim=1)
        chosen = self._trips[count][torch.randint(TRIPS, (rows,), device=device)]
        turn = torch.randint(count, (rows, 1), device=device) + torch.arange(count, device=device)
        return names.gather(1, chosen.gather(1, turn % count))

    def _sizes(self, width: int) -> list[Size]:
        """Pictures and videos that take at most `width` tokens, and not much less."""
        least = min(width, LONG) // 4
        while True:
            if width >= LONG and self.choose.random() < 0.4:
                sides = self.choose.choice(((41, 75), (113, 137)))
                shapes: tuple[scenes.Shape, ...] = (scenes.Shape(1, 1, self.choose.randint(12, 100), sides),)
            else:
                shapes = multimodal.some_shapes(self.choose)
            sizes = [some_size(self.choose, shape) for shape in shapes]
            if least <= sum(size.tokens for size in sizes) <= width:
                return sizes

    def _fillers(self, places: int, room: int, width: int) -> list[int]:
        """Words before each picture and behind all, `room` at most."""
        if width >= LONG and self.choose.random() < 0.6:
            counts = [self.choose.randint(0, room // places) for _ in range(places)]
        else:
            counts = [self.choose.choice((0, self.choose.randint(0, min(40, room // places)))) for _ in range(places)]
        return counts

    def scenes(self, rows: int, width: int) -> Scenes:
        """`rows` scenes of one shape whose pictures and filler take at most `width` tokens."""
        device = self.colours.device
        sizes = self._sizes(width)
        counts = self._fillers(len(sizes) + 1, max(0, width - sum(size.tokens for size in sizes)), width)
        trip = self._round_trips(rows, sum(size.shape.cells for size in sizes))
        parts, placed, drawn, length, cell = [self.opening.expand(rows, -1)], [], [], len(self.opening), 0
        for size, count in zip(sizes, counts, strict=False):
            before, pad, after = self.marks[size.shape.frames is not None]
            words = self.filler[torch.randint(len(self.filler), (rows, count), device=device)]
            marks = torch.stack((before, *[pad] * size.tokens, after)).expand(rows, -1)
            parts += [words, marks]
            placed.append(Placed(size, length + count + 1, cell))
            drawn.append(draw(size, trip[:, cell : cell + size.shape.cells], size.shape.sides))
            length += count + marks.shape[1]
            cell += size.shape.cells
        words = self.filler[torch.randint(len(self.filler), (rows, counts[-1]), device=device)]
        once = torch.rand(rows, 1, device=device) < 0.25
        instruction = torch.where(once, self.once, self.for_ever)
        parts += [words, instruction, self.closing.expand(rows, -1)]
        length += counts[-1] + 1 + len(self.closing)
        answer, answers = self._answers(trip, once)
        ids = torch.cat([*parts, answer], dim=1)
        return Scenes(
            ids, self._positions(placed, length, ids.shape[1]), length, answers, trip, tuple(placed), tuple(drawn)
        )

    def _answers(self, trip: Tensor, once: Tensor) -> tuple[Tensor, Tensor]:
        """The answers' ids (R, 128) and the numbers of those that are determined."""
        column = torch.arange(multimodal.NEW_TOKENS, device=trip.device)
        ids = self.colours[trip[:, column % trip.shape[1]]]
        ends = torch.where(column == trip.shape[1], self.end, self.sampler.pad)
        ids = torch.where(once & (column >= trip.shape[1]), ends, ids)
        last = min(trip.shape[1] + 1, multimodal.NEW_TOKENS)
        return ids, torch.where(once[:, 0], last, multimodal.NEW_TOKENS)

    def _positions(self, placed: list[Placed], answer: int, length: int) -> Tensor:
        """(3, length): time, row and column.

        Text after a video goes on behind its last row, column or temporal patch. transformers 5.24 leaves out the
        latter, and gives the answer another place when it decodes than when it prefills; the model learns all ways.
        """
        way = self.choose.choice(("time", "time", "no time", "no time, then time"))
        parts, column, position = [], 0, 0

        def text(until: int) -> None:
            nonlocal column, position
            parts.append((torch.arange(until - column) + position).expand(3, -1))
            position, column = position + until - column, until

        for one in placed:
            text(one.first)
            axes = torch.meshgrid(*(torch.arange(size) for size in one.size.grid), indexing="ij")
            parts.append(torch.stack([axis.flatten() for axis in axes]) + position)
            position, column = position + max(one.size.grid[way != "time" :]), column + one.size.tokens
        text(answer)
        if way == "no time, then time":
            position = int(torch.cat(parts, dim=1).max()) + 1
        text(length)
        return torch.cat(parts, dim=1).to(self.colours.device)

    def _some_scenes(self, groups: int, rows: int, width: int) -> list[Scenes]:
        """One fresh group and others from the pool, which costs less than drawing them all."""
        fresh, pool = self.scenes(rows, width), self._pools.setdefault(width, [])
        others = self.choose.sample(pool, min(len(pool), groups - 1))
        others += [self.scenes(rows, width) for _ in range(groups - 1 - len(others))]
        pool.append(fresh)
        if len(pool) > POOL:
            pool[self.choose.randrange(POOL)] = pool.pop()
        return [fresh, *others]

    def loss(self, width: int, rows: int, progress: float) -> tuple[Tensor, Tensor]:
        groups = max(1, min(8, rows // ROWS))
        scenes = self._some_scenes(groups, rows // groups, width)
        features = self._features(scenes)
        longest = max(one.ids.shape[1] for one in scenes)
        embedded = torch.cat(
            [
                functional.pad(self._embedded(one, seen), (0, 0, 0, longest - one.ids.shape[1]))
                for one, seen in zip(scenes, features, strict=True)
            ]
        )
        positions = [functional.pad(one.positions, (0, longest - one.ids.shape[1]))[:, None] for one in scenes]
        output = self.model.model.language_model(
            inputs_embeds=embedded,
            position_ids=torch.cat([each.expand(-1, rows // groups, -1) for each in positions], dim=1),
            use_cache=False,
            output_hidden_states=True,
        )
        column = torch.arange(multimodal.NEW_TOKENS, device=embedded.device)
        known = torch.cat([column < one.answers[:, None] for one in scenes])
        places = torch.cat([column.expand(len(one.ids), -1) + one.answer - 1 for one in scenes])
        row = torch.arange(len(known), device=embedded.device)[:, None]
        scores = self.model.lm_head(output.last_hidden_state[row, places]).flatten(0, 1)
        answers = torch.cat([one.ids[:, one.answer :] for one in scenes])
        target = torch.where(known, answers, UNKNOWN).flatten()
        loss = functional.cross_entropy(scores.float(), target, ignore_index=UNKNOWN, label_smoothing=SMOOTHING)
        hint = self._hint(scenes, features, output.hidden_states, places, target.view_as(known))
        return loss + 0.3 * (1 - progress) * hint, (scores.argmax(1) == target).sum() / known.sum()

    def _features(self, scenes: list[Scenes]) -> list[list[Tensor]]:
        """For each group of scenes and each of its pictures the tower's output (R, tokens, hidden size)."""
        groups = [
            (drawn.patches.flatten(0, 1), (2 * placed.size.grid[1], 2 * placed.size.grid[2]))
            for one in scenes
            for drawn, placed in zip(one.drawn, one.placed, strict=True)
        ]
        found = iter(tower.merged(self.model.model.visual, groups))
        return [[next(found).reshape(len(one.ids), drawn.size.tokens, -1) for drawn in one.placed] for one in scenes]

    def _embedded(self, scenes: Scenes, features: list[Tensor]) -> Tensor:
        """(R, L, hidden size)."""
        embedded = self.model.model.language_model.embed_tokens(scenes.ids)
        parts, column = [], 0
        for placed, seen in zip(scenes.placed, features, strict=True):
            parts += [embedded[:, column : placed.first], seen.to(embedded.dtype)]
            column = placed.first + placed.size.tokens
        return torch.cat([*parts, embedded[:, column:]], dim=1)

    def _hint(
        self,
        scenes: list[Scenes],
        features: list[list[Tensor]],
        states: tuple[Tensor, ...],
        places: Tensor,
        target: Tensor,
    ) -> Tensor:
        """Losses that make states say what the way to the answer needs.

        A picture's tokens, in both frames of their temporal patch: the colour in their middle and the two that are
        read before it. The answer's tokens, after the first layer: the token before.
        """
        wanted, early, late, row = [], [], [], 0
        for one, group in zip(scenes, features, strict=True):
            for placed, drawn, seen in zip(one.placed, one.drawn, group, strict=True):
                cells = drawn.centres.transpose(2, 3).flatten(1, 2) + placed.cell
                earlier = torch.stack([cells - back for back in range(3)], dim=2)
                colours = one.trip.gather(1, earlier.clamp(min=0).flatten(1)).view_as(earlier)
                wanted.append(torch.where(earlier >= 0, colours, UNKNOWN).flatten(0, 1))
                early.append(seen.flatten(0, 1))
                tokens = slice(placed.first, placed.first + placed.size.tokens)
                late.append(states[2][row : row + len(one.ids), tokens].flatten(0, 1))
            row += len(one.ids)
        read = self.probes[0](torch.cat([*early, *late])).float()
        seen, then = read.reshape(2, -1, 3, 2, COLOURS)
        own, before = torch.cat(wanted).split((1, 2), dim=1)
        hint = functional.cross_entropy(seen[:, 0].flatten(0, 1), own.flatten(), ignore_index=UNKNOWN)
        hint = hint + functional.cross_entropy(then[:, 1:].flatten(0, 2), before.flatten(), ignore_index=UNKNOWN)
        rows = torch.arange(len(places), device=places.device)[:, None]
        after = self.probes[1](states[1][rows, places[:, 2::4]]).flatten(0, 1)
        last = torch.where(target[:, 2::4] == UNKNOWN, UNKNOWN, target[:, 0::4]).flatten()
        return hint + functional.cross_entropy(after.float(), last, ignore_index=UNKNOWN)
