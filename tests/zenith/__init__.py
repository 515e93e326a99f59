"""Zenith: a vendor that brings its own backend, engine, suite and model, and no torch. `zenith_site` installs it."""
