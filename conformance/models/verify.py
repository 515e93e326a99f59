"""Is a model still what was fetched? Every file is read and hashed again."""

from __future__ import annotations

import shlex

from conformance import checkpoint
from conformance.catalogue import Model
from conformance.models.fetch import wanted, wrong_sizes
from conformance.models.lock import sha256_of
from conformance.models.places import CACHED, FOLDER, INCOMPLETE, MISSING, Place, again


def faults(model: Model, place: Place) -> list[str]:
    """Everything that is wrong with a model's files, each with the file and what to do; nothing where all is well."""
    get = again(model, place.entry)
    if place.where in (MISSING, INCOMPLETE):
        return [place.problem]
    if place.entry is None:
        return [
            f"{model.name}: {place.folder}: nothing was recorded when it came here, so nothing can be compared; {get}"
        ]
    found = []
    for name, file in sorted(place.entry.files.items()):
        path = place.folder / name
        try:
            sha256 = sha256_of(path)
        except OSError as error:
            found.append(f"{path}: cannot be read ({error.strerror or error}); {get}")
            continue
        if sha256 != file.sha256:
            mend = f"delete {path.resolve()} and {get}" if place.where == CACHED else get
            found.append(f"{path}: altered since it was fetched: sha256 {sha256}, but was {file.sha256}; {mend}")
    present = (file.name for file in place.folder.iterdir() if file.is_file())
    added = [name for name in wanted(model, present) if name not in place.entry.files]
    keep = f"python -m conformance models fetch {model.name} --replace"
    keep += f" --from {shlex.quote(place.entry.folder)}" if place.entry.folder else ""
    mend = (
        get if place.where == FOLDER and not place.entry.folder else f"move it elsewhere, or, where it is meant, {keep}"
    )
    found += [f"{place.folder / name}: was not there when the model was fetched; {mend}" for name in added]
    try:
        checkpoint.check(place.folder)
    except checkpoint.CheckpointError as error:
        found += str(error).splitlines()
    wrong = wrong_sizes(model, place.folder)
    return [*found, wrong] if wrong else found
