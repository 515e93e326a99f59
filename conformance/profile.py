"""A backend's profile: what it claims to do, read from profile.toml into frozen data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance import predicate
from conformance.names import UsageError, did_you_mean
from conformance.quirks import Quirk, parse_quirk

SCHEMA = Path(__file__).with_name("profile.schema.json")

BATCH_FORMS = ("padded", "unpadded", "chunked", "decode")


@dataclass(frozen=True)
class Claim:
    """What one attention backend does on one engine. `head_sizes` and `page_sizes` are None where any will do.

    What is not claimed (pages, softcap, window, deterministic, masked_rows, denormals) is not asked of its kernels.
    """

    engine: str
    attention: str
    precision: Mapping[str, str]
    kernels: Mapping[str, tuple[str, ...]]
    head_sizes: tuple[int, ...] | None = None
    page_sizes: tuple[int, ...] | None = None
    batch: tuple[str, ...] = BATCH_FORMS
    encoder: bool = True
    vision: bool = True
    text: bool = True  # False for one that runs vision towers alone
    vision_attention: str = ""  # the vision tower's, where a target names none and it is not to be this one
    scale: bool = True
    softcap: bool = False
    window: bool = False
    deterministic: bool = False
    masked_rows: str | None = None  # "zero", or None where nothing is claimed
    denormals: bool = False
    opt_in: bool = False
    when: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """ENGINE/ATTENTION, as in a target's id."""
        return f"{self.engine}/{self.attention}"

    @property
    def tower(self) -> str:
        """The attention backend of a vision tower on a target that names none."""
        return self.vision_attention or self.attention


@dataclass(frozen=True)
class Products:
    """What is claimed of float32 products outside of attention kernels, each "ieee" or "tf32".

    Torch has one switch for each, so they hold for the whole backend.
    """

    matmul: str = "ieee"
    convolution: str = "ieee"

    def reduced(self, dtype: str, *, convolves: bool) -> tuple[str, ...]:
        """The products that are claimed to be TF32 in a run in `dtype`, on a model that `convolves` or does not."""
        claims = [("matmul", self.matmul)] + [("convolution", self.convolution)] * convolves
        return tuple(name for name, claim in claims if claim == "tf32") if dtype == "float32" else ()


@dataclass(frozen=True)
class Variation:
    """Another way in which an engine computes the same: options and environment to add, claimed where `when` holds.

    `exact` claims that the answers which have to be alike for it are so in every bit, not only within rounding.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    exact: bool = False
    when: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EngineClaims:
    """One engine on this backend: how it is started, and its attention backends.

    `installed_by` are distributions, any of which installs it; `python` is the interpreter that has it, where that is
    not the suite's. `variants` are what the suite `invariance` holds against the engine as it is; `axes` are what a
    target may name beside attention backend and dtype, e.g. axes["graph"]["compiled"].
    """

    name: str
    attention: Mapping[str, Claim]
    installed_by: tuple[str, ...] = ()
    python: str = ""
    start: str = "fork"
    options: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    variants: Mapping[str, Variation] = field(default_factory=dict)
    axes: Mapping[str, Mapping[str, Variation]] = field(default_factory=dict)

    def variations(self) -> Iterator[tuple[str, Variation]]:
        """Variants and values of axes, each with its place in the engine's table."""
        for name, variant in self.variants.items():
            yield f"variants.{name}", variant
        for axis, values in self.axes.items():
            for value, variation in values.items():
                yield f"axes.{axis}.{value}", variation


@dataclass(frozen=True)
class Disclaimer:
    """Something that the backend does not do; None for an attention backend or dtype means any."""

    engine: str
    what: str
    reason: str
    attention: str | None = None
    dtype: str | None = None

    def covers(self, engine: str, attention: str, dtype: str | None = None) -> bool:
        """Whether this says that the target is not done."""
        return (
            engine == self.engine
            and self.attention in (None, attention)
            and (self.dtype is None or self.dtype == dtype)
        )


@dataclass(frozen=True)
class Driver:
    """Where the device's driver shows without torch; `doctor` alone looks at it.

    `nodes` are patterns of files, each of which must exist and may be opened; `masks` are environment variables that
    choose among devices; `builds` are attributes of torch.version, one of which a build for the device has; `torch`
    says where such a build or extension comes from; `missing` what to do without a driver; `shows` is a command that
    shows what the driver sees.
    """

    nodes: tuple[str, ...] = ()
    masks: tuple[str, ...] = ()
    builds: tuple[str, ...] = ()
    torch: str = ""
    missing: str = ""
    shows: str = ""


@dataclass(frozen=True)
class NamedRun:
    """A named selection with a time budget. `suites` may be ("*",), all of them."""

    name: str
    suites: tuple[str, ...]
    tier: str
    budget_minutes: float
    opt_in: bool = False  # whether attention backends are in it that run only where they are asked for


@dataclass(frozen=True)
class Profile:
    """All claims of one backend. `text` is the file as it was read, `path` where."""

    name: str
    description: str
    device: str
    default_engines: tuple[str, ...]
    dtypes: tuple[str, ...]
    supported_dtypes: tuple[str, ...]
    suite_dtypes: Mapping[str, tuple[str, ...]]
    engines: Mapping[str, EngineClaims]
    disclaimed: tuple[Disclaimer, ...]
    runs: Mapping[str, NamedRun]
    estimates: Mapping[str, Mapping[str, float]]  # tier -> suite -> seconds for one model on one target
    quirks: tuple[Quirk, ...]
    driver: Driver
    products: Products
    path: Path
    text: str

    def default_dtypes(self, role: str, suite: str) -> tuple[str, ...]:
        """The dtypes a suite runs in unless others are asked for: its role's, else the suite's, else the default."""
        return self.suite_dtypes.get(role, self.suite_dtypes.get(suite, self.dtypes))

    def claim(self, engine: str, attention: str) -> Claim | None:
        """The claim for an attention backend, or None."""
        claims = self.engines.get(engine)
        return claims.attention.get(attention) if claims else None


class ProfileError(UsageError):
    """A profile that is wrong; each fault is a line "FILE: where: what is wrong; what would be right"."""


def load_profile(path: Path) -> Profile:
    """Read and check a profile on its own, without what is installed.

    Raises UsageError where there is no such file, ProfileError with every fault of the file.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"there is no profile {path}; give the path of a profile.toml") from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a folder; give the path of the profile.toml in it") from None
    except OSError as error:
        raise UsageError(f"profile {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ProfileError(f"{path}: the file: byte {error.start} is no UTF-8; save it as UTF-8") from error
    return parse_profile(text, path)


def parse_profile(text: str, path: Path) -> Profile:
    """A profile from its text. Raises ProfileError with every fault."""
    import tomli

    from conformance.structure import structure_faults

    try:
        document = tomli.loads(text)
    except (ValueError, RecursionError) as error:  # tomli's own, too many digits, or nested too deeply
        raise ProfileError(f"{path}: the file: no TOML: {error}") from error
    faults = structure_faults(document, SCHEMA)
    if faults:
        # Quirks whose own structure is right are still checked, so that one pass shows everything.
        broken = {fault.partition(".")[0].partition(":")[0] for fault in faults}
        for index, entry in enumerate(document.get("quirks", [])):
            if f"quirks[{index}]" not in broken and "quirks" not in broken:
                parse_quirk(entry, f"quirks[{index}] ({entry['id']})", faults)
        raise ProfileError(*(f"{path}: {fault}" for fault in faults))
    profile = _build(document, path, text, faults)
    faults.extend(_contradictions(profile))
    if faults:
        raise ProfileError(*(f"{path}: {fault}" for fault in faults))
    return profile


def _build(document: Mapping[str, Any], path: Path, text: str, faults: list[str]) -> Profile:
    backend, dtypes = document["backend"], document["dtypes"]
    quirks = [
        parse_quirk(entry, f"quirks[{index}] ({entry['id']})", faults)
        for index, entry in enumerate(document.get("quirks", []))
    ]
    return Profile(
        name=backend["name"],
        description=backend["description"],
        device=backend["device"],
        default_engines=tuple(backend["default_engines"]),
        dtypes=tuple(dtypes["default"]),
        supported_dtypes=tuple(dtypes["supported"]),
        suite_dtypes={name: tuple(each) for name, each in dtypes.get("suites", {}).items()},
        engines={name: _engine(name, entry) for name, entry in document["engines"].items()},
        disclaimed=tuple(Disclaimer(**entry) for entry in document.get("disclaimed", [])),
        runs={
            name: NamedRun(
                name,
                tuple(entry["suites"]),
                entry["tier"],
                float(entry["budget_minutes"]),
                entry.get("opt_in", False),
            )
            for name, entry in document.get("runs", {}).items()
        },
        estimates=document.get("estimates", {}),
        quirks=tuple(quirk for quirk in quirks if quirk is not None),
        driver=_driver(document.get("driver", {})),
        products=Products(**{name: each["float32"] for name, each in document.get("precision", {}).items()}),
        path=path,
        text=text,
    )


def _engine(name: str, entry: Mapping[str, Any]) -> EngineClaims:
    made: dict[str, Any] = {
        "attention": {claim: _claim(name, claim, each) for claim, each in entry["attention"].items()},
        "variants": _variations(entry.get("variants", {})),
        "axes": {axis: _variations(values) for axis, values in entry.get("axes", {}).items()},
    }
    installers = entry.get("installed_by", [])
    made["installed_by"] = (installers,) if isinstance(installers, str) else tuple(installers)
    return EngineClaims(name, **{**entry, **made})


def _variations(entry: Mapping[str, Any]) -> dict[str, Variation]:
    return {name: Variation(**each) for name, each in entry.items()}


def _driver(entry: Mapping[str, Any]) -> Driver:
    given: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    return Driver(**given)


def _claim(engine: str, name: str, entry: Mapping[str, Any]) -> Claim:
    kernels = entry["kernels"]
    by_dtype = kernels if isinstance(kernels, dict) else dict.fromkeys(entry["precision"], kernels)
    return Claim(
        engine=engine,
        attention=name,
        precision=entry["precision"],
        kernels={dtype: tuple(patterns) for dtype, patterns in by_dtype.items()},
        head_sizes=tuple(entry["head_sizes"]) if "head_sizes" in entry else None,
        page_sizes=tuple(entry["page_sizes"]) if "page_sizes" in entry else None,
        batch=tuple(entry.get("batch", BATCH_FORMS)),
        encoder=entry.get("encoder", True),
        vision=entry.get("vision", True),
        text=entry.get("text", True),
        vision_attention=entry.get("vision_attention", ""),
        scale=entry.get("scale", True),
        softcap=entry.get("softcap", False),
        window=entry.get("window", False),
        deterministic=entry.get("deterministic", False),
        masked_rows=entry.get("masked_rows"),
        denormals=entry.get("denormals", False),
        opt_in=entry.get("opt_in", False),
        when=entry.get("when", {}),
    )


def _contradictions(profile: Profile) -> list[str]:
    """What the file says about itself that cannot be."""
    faults = []
    for engine in profile.default_engines:
        if engine not in profile.engines:
            faults.append(f"backend.default_engines: {engine!r} has no [engines.{engine}]; add one or leave it out")
    for place, dtypes in {"dtypes.default": profile.dtypes}.items() | {
        (f"dtypes.suites.{name}", dtypes) for name, dtypes in profile.suite_dtypes.items()
    }:
        for dtype in dtypes:
            if dtype not in profile.supported_dtypes:
                faults.append(f"{place}: {dtype!r} is not in dtypes.supported; add it there or leave it out here")
    for claims in profile.engines.values():
        for claim in claims.attention.values():
            faults.extend(_claim_faults(profile, claims, claim))
        for place, variation in claims.variations():
            faults.extend(f"engines.{claims.name}.{place}.when.{fault}" for fault in predicate.faults(variation.when))
    ids = [quirk.id for quirk in profile.quirks]
    for repeated in sorted({each for each in ids if ids.count(each) > 1}):
        faults.append(f"quirks: {ids.count(repeated)} quirks have the id {repeated!r}; give each its own")
    return sorted(faults)


def _claim_faults(profile: Profile, claims: EngineClaims, claim: Claim) -> list[str]:
    place = f"engines.{claim.engine}.attention.{claim.attention}"
    faults = [f"{place}.when.{fault}" for fault in predicate.faults(claim.when)]
    for dtype in claim.precision:
        if dtype not in profile.supported_dtypes:
            faults.append(f"{place}.precision: {dtype!r} is not in dtypes.supported; add it there or leave it out here")
        if dtype not in claim.kernels:
            faults.append(f"{place}.kernels: nothing for {dtype!r}, whose precision is claimed; name its operators")
        if any(each.covers(claim.engine, claim.attention, dtype) for each in profile.disclaimed):
            faults.append(f"{place}.precision: {dtype!r} is claimed here and disclaimed under [[disclaimed]]; drop one")
    faults += _tower_faults(place, claims, claim)
    for dtype in claim.kernels:
        if dtype not in claim.precision:
            faults.append(f"{place}.kernels: {dtype!r} has no precision; {did_you_mean(dtype, claim.precision)}")
    page_size = claims.options.get("page_size")
    if claim.page_sizes is not None and page_size is not None and page_size not in claim.page_sizes:
        faults.append(
            f"{place}.page_sizes: the engine's options set page_size = {page_size}; that should be in the list"
        )
    return faults


def _tower_faults(place: str, claims: EngineClaims, claim: Claim) -> list[str]:
    """What is wrong with the part of a claim, or of the claim that it leads to, in vision towers."""
    if not claim.text and not claim.vision:
        return [f"{place}: text = false and vision = false: it runs nothing; drop the claim or one of the two"]
    if not claim.vision_attention:
        return []
    tower = claims.attention.get(claim.vision_attention)
    if tower is None or not tower.vision:
        towers = [each.attention for each in claims.attention.values() if each.vision]
        said = f"{claim.vision_attention!r} is no attention backend of {claim.engine} with vision = true"
        return [f"{place}.vision_attention: {said}; {did_you_mean(claim.vision_attention, towers)}"]
    return [
        f"{place}.vision_attention: {tower.attention} claims no {dtype}; claim it there or leave it out here"
        for dtype in claim.precision
        if dtype not in tower.precision
    ]
