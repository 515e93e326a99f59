"""Builds the tokenizers: byte-level BPE whose merges spell out whole words, so that one word is one token.

The merges of a word chain its characters from the left. All chains of words with a leading space begin with that space,
which occurs once in a piece of text, so they cannot disturb one another; chains of words without it come after them,
long ones first, and `build` checks that each word became one token.
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from suites import templates
from suites.inputs import lexicon, scenes

END_OF_TEXT, START, END = DECODER_SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
VISION_SPECIALS = ("<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>")
ENCODER_SPECIALS = ("<s>", "<pad>", "</s>")

RERANK_TEMPLATE = templates.RERANK["qwen3-reranker"]("{instruction}", "{query}", "{document}")
QWEN2_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Qwen2's tokenizer splits text."""

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


VISION_CHAT_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
    "{{ '<|im_start|>system\n" + scenes.SYSTEM + "<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' or 'image' in part or 'image_url' in part %}{{ '" + scenes.IMAGE + "' }}"
    "{% elif part['type'] == 'video' or 'video' in part %}{{ '" + scenes.VIDEO + "' }}"
    "{% elif 'text' in part %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}{{ '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""As Qwen2-VL's own, without its numbering of pictures."""


def specials(name: str) -> tuple[str, ...]:
    """The special tokens of the checkpoint `name`."""
    if name.endswith("xlmr"):
        return ENCODER_SPECIALS
    return (*DECODER_SPECIALS, *VISION_SPECIALS) if name.endswith("qwen2vl") else DECODER_SPECIALS


def _pieces(template: str) -> tuple[list[str], list[str]]:
    """The byte-level spellings that are one token, words of the template among them.

    Those with a leading space, then those without.
    """
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)

    def spell(text: str) -> list[str]:
        return [piece for piece, _ in split.pre_tokenize_str(text)]

    spaced = [piece for word in (*lexicon.WORDS, *lexicon.MARKS, *lexicon.OPENINGS) for piece in spell(" " + word)]
    bare = [*lexicon.OPENINGS, "yes", "no"]
    for special in DECODER_SPECIALS:
        template = template.replace(special, "\n")
    for piece in spell(template):
        if len(piece) > 1 and piece.strip("Ġ").isascii() and piece.strip("Ġ").isalpha():
            (spaced if piece.startswith("Ġ") else bare).append(piece)
    bare = [word for word in bare if word not in ("instruction", "query", "document")]
    return spaced, sorted(set(bare), key=lambda word: (-len(word), word))


def _merges(words: Iterable[str]) -> list[tuple[str, str]]:
    chains = ((word[:end], word[end]) for word in words for end in range(1, len(word)))
    return list(dict.fromkeys(chains))


def build(name: str) -> Tokenizer:
    """The tokenizer of the checkpoint `name`."""
    encoder, as_qwen2 = name.endswith("xlmr"), name.endswith(("qwen2", "qwen2vl"))
    spaced, bare = _pieces(RERANK_TEMPLATE + (scenes.OPENING if name.endswith("qwen2vl") else ""))
    merges = _merges([*spaced, *bare])
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet()) + list(dict.fromkeys(a + b for a, b in merges))
    symbols = [*specials(name), *symbols] if encoder else [*symbols, *specials(name)]
    vocabulary = {symbol: number for number, symbol in enumerate(symbols)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if as_qwen2:
        _split_as_qwen2(tokenizer)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(one, special=True, normalized=False) for one in specials(name)])
    if encoder:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>",
            pair="<s> $A </s> </s> $B </s>",
            special_tokens=[("<s>", vocabulary["<s>"]), ("</s>", vocabulary["</s>"])],
        )
    elif name == "embedding-qwen3":
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"$A {END_OF_TEXT}",
            pair=f"$A $B {END_OF_TEXT}",
            special_tokens=[(END_OF_TEXT, vocabulary[END_OF_TEXT])],
        )
    else:
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    _check_words(tokenizer)
    if not as_qwen2:
        _check_free_text(tokenizer)
    return tokenizer


def token_id(tokenizer: Tokenizer, token: str) -> int:
    """The id of `token`; KeyError if the vocabulary lacks it."""
    return tokenizer.get_vocab()[token]


def _split_as_qwen2(tokenizer: Tokenizer) -> None:
    """Splits text as transformers 5 does for every model of type qwen2, whatever its tokenizer.json says.

    Words come out the same. Unlike the other tokenizers this one composes combining characters, so that decoding gives
    back the composed form.
    """
    tokenizer.normalizer = normalizers.NFC()
    by_pieces = pre_tokenizers.Split(Regex(QWEN2_PIECES), behavior="isolated", invert=False)
    by_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([by_pieces, by_bytes])


def _check_words(tokenizer: Tokenizer) -> None:
    words = [" " + word for word in (*lexicon.WORDS, *lexicon.MARKS, *lexicon.OPENINGS)]
    for word in [*words, *lexicon.OPENINGS, "yes", "no"]:
        ids = tokenizer.encode(word, add_special_tokens=False).ids
        assert len(ids) == 1, f"{word!r} should be one token, but is {len(ids)}"


def _check_free_text(tokenizer: Tokenizer) -> None:
    for free in lexicon.FREE_TEXT:
        ids = tokenizer.encode(" " + free.text, add_special_tokens=False).ids
        assert len(ids) == free.tokens, f"{free.text!r} takes {len(ids)} tokens, but the lexicon says {free.tokens}"
        assert tokenizer.decode(ids) == " " + free.text
