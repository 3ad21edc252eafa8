"""Checkpoints and weights: tensors and plain numbers with a checksum, written whole or not at all.

`torch.load(path, weights_only=True)` reads them, so that opening one executes nothing.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nnexp.base import RecordError, write_atomically

LAST, PREVIOUS, MODEL = "last.ckpt", "previous.ckpt", "model.pt"


def digest(content: Any) -> str:
    """Checksum of nested dictionaries, lists, tensors and plain values."""
    result = hashlib.sha256()
    _feed(content, result)
    return result.hexdigest()


def _feed(node: Any, result: Any) -> None:
    if isinstance(node, dict):
        for key in node:
            result.update(f"key {key!r}".encode())
            _feed(node[key], result)
    elif isinstance(node, list | tuple):
        result.update(f"list {len(node)}".encode())
        for item in node:
            _feed(item, result)
    elif isinstance(node, torch.Tensor):
        result.update(f"tensor {node.dtype} {tuple(node.shape)}".encode())
        result.update(node.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    elif type(node) in (int, float, bool, str, type(None)):
        result.update(f"{type(node).__name__} {node!r}".encode())
    else:
        raise RecordError(f"a checkpoint holds tensors and plain numbers, not {type(node).__name__}: {node!r:.80}")


def to_python_numbers(node: Any) -> Any:
    """The same with numpy's numbers as Python's, which optimisers keep when they are given them."""
    if isinstance(node, dict):
        return {to_python_numbers(key): to_python_numbers(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [to_python_numbers(item) for item in node]
    return node.item() if isinstance(node, np.generic) else node


def save_tensors(path: Path, content: dict[str, Any]) -> None:
    """Write atomically; the same content gives the same bytes under every name."""
    write_atomically(path, encode(content))


def encode(content: dict[str, Any]) -> bytes:
    """The bytes of a file. Raises RecordError where something in it is no plain data."""
    buffer = io.BytesIO()
    torch.save({**content, "checksum": digest(content)}, buffer)
    return buffer.getvalue()


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read and verify, onto the CPU. Raises RecordError where the file is damaged or holds more than plain data."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        checksum = content.pop("checksum")
        is_whole = checksum == digest(content)
    except Exception as error:
        raise RecordError(f"{path} cannot be read: {str(error).splitlines()[0] if str(error) else error!r}") from None
    if not is_whole:
        raise RecordError(f"{path} is damaged: its checksum does not match its content.")
    return dict(content)


def save_checkpoint(folder: Path, content: dict[str, Any]) -> None:
    """Add a checkpoint and keep the one before; older ones go. At every moment one that is whole is there."""
    last, new = folder / LAST, folder / f"{LAST}.new"
    save_tensors(new, content)
    if last.exists():
        os.replace(last, folder / PREVIOUS)
    os.replace(new, last)


def checkpoints(folder: Path, fingerprint: str) -> Iterator[dict[str, Any]]:
    """The checkpoints of this job that are whole, newest first; one that is not is removed, never kept as previous."""
    for name in (f"{LAST}.new", LAST, PREVIOUS):
        try:
            content = load_checkpoint(folder / name)
        except RecordError:
            (folder / name).unlink(missing_ok=True)
            continue
        if content.get("fingerprint") == fingerprint and isinstance(content.get("metrics_bytes"), int):
            yield content
