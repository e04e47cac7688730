"""Argument parsers made from the facts: exactly the flags, choices and types of a release."""

import argparse

_TYPES = {"int": int, "float": float}
# Enumerations that the scripts declare as types of their own.
_ENUMERATIONS = {"CheckpointType": ["jax", "keras", "torch", "hf"]}


def parser_for(prog, flags):
    # Abbreviations are accepted by the real tools; nobody may rely on them.
    parser = argparse.ArgumentParser(prog=prog, allow_abbrev=False)
    for name, row in flags.items():
        names = [name, *row.get("aliases", [])]
        if row["type"] == "store_true":
            parser.add_argument(*names, action="store_true")
            continue
        options = {"default": row.get("default"), "type": _TYPES.get(row["type"], str)}
        choices = row.get("choices") or _ENUMERATIONS.get(row["type"])
        if choices is not None:
            options["choices"] = [choice for choice in choices if choice is not None]
        if row.get("nargs"):
            options["nargs"] = row["nargs"]
        if row.get("required"):
            options["required"] = True
        if row.get("suppressed_when_absent"):
            options["default"] = argparse.SUPPRESS
        if isinstance(options["default"], str) and options["type"] is not str:
            # An expression of the script's own source, e.g. an enumeration's member.
            options["default"] = None
        parser.add_argument(*names, **options)
    return parser
